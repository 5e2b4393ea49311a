"""Pages of studies are written from files of results, and nothing else on them changes."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from minbert.errors import InputError
from scripts.doc_blocks import blocks
from scripts.publish_results import LINKS, publish_claims, publish_tables
from scripts.refresh_study_pages import BEGIN, PAGES, PLACE, refresh
from studies.report import study_page
from studies.report.curves_as_data import save_curves
from studies.report.figures import standalone
from studies.report.further_columns import ABOUT_RANK
from studies.results import RANDOM_WEIGHTS, Cell, Column, Description, Results, RowScores, Spent, TableScores

PAGE = """# A paper

Before.

<!-- results: numbers t -->
Old numbers.
<!-- end of results -->

Between.

<!-- results: later t u -->
These stay.
<!-- end of results -->
"""


def row(
    key: str, mean: float, published: float | None = None, start: str = "weights", **point: float | str
) -> RowScores:
    return RowScores(
        key,
        f"Row | {key}",
        point,
        start,
        (Cell((0, 1), (mean - 0.1, mean + 0.1), mean - 0.2, mean + 0.2, None, None, published),),
    )


def results(*rows: RowScores) -> Results:
    column = Column("similarity", "pearson", "Similarity", True)
    about = Description("t", "t", "T", "A note.", None, (column,), Spent(6, 90.0, ("One*",)))
    return Results((TableScores("small", "d", "p", about, rows),))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "paper.md").write_text(PAGE, encoding="utf-8")
    (tmp_path / "other.md").write_text("# No place\n", encoding="utf-8")
    return tmp_path


def test_a_place_is_filled_and_the_rest_of_the_page_stays(folder: Path) -> None:
    assert refresh(folder) == []
    results(row("a", 0.5, 0.7), row("b", 0.6)).save(folder / "results" / "numbers.parquet")
    assert refresh(folder) == [folder / "paper.md"]
    text = (folder / "paper.md").read_text(encoding="utf-8")
    assert "Old numbers." not in text
    for kept in (
        "# A paper\n\nBefore.\n\n<!-- results: numbers t -->\n",
        "\n\nBetween.\n\n",
        PAGE[PAGE.index("<!-- results: later") :],
    ):
        assert kept in text
    assert (
        "| Row \\| a | 0.500 ± 0.141 [0.300, 0.700] | 0.700 |\n| Row \\| b | 0.600 ± 0.141 [0.400, 0.800] | – |\n"
        in text
    )
    heading, figure, meaning, table, command = (
        text.index(part) for part in ("### T", "](figures/numbers-t.svg)", "**What", "| Row |", "```bash")
    )
    assert heading < figure < meaning < table < command
    assert (folder / "figures" / "numbers-t.svg").read_text(encoding="utf-8").startswith("<svg xmlns")
    assert "The 6 stages took 1 min 30 s one after the other, on One\\*. [Every" in text
    assert "experiments run small --start weights --data FOLDER --tables t --seeds 2\n" in text
    assert refresh(folder) == []  # nothing is new


def test_rows_from_random_weights_are_told_apart(folder: Path) -> None:
    page, results_file = folder / "paper.md", folder / "results" / "numbers.parquet"
    scratch = row("b", 0.6, start=RANDOM_WEIGHTS)
    results(row("a", 0.5), scratch, row("c", 0.7)).save(results_file)
    refresh(folder)
    text = page.read_text(encoding="utf-8")
    assert "The first stage starts from weights. Rows that start from random weights: Row \\| b. " in text
    results(scratch).save(results_file)
    refresh(folder)
    text = page.read_text(encoding="utf-8")
    assert "The first stage starts from random weights. " in text


def test_a_table_of_own_tasks_has_a_command_that_names_their_file(folder: Path) -> None:
    (table,) = results(row("a", 0.5)).tables
    Results((replace(table, preset="tasks", data="/home/ada/my tasks.toml", study=None),)).save(
        folder / "results/numbers.parquet"
    )
    refresh(folder)
    command = "multitask experiments run --tasks-file 'my tasks.toml' --start weights --seeds 2\n"
    assert command in (folder / "paper.md").read_text(encoding="utf-8")


def test_a_parameter_with_three_values_has_a_curve(folder: Path) -> None:
    kinds = [row(f"{share}-{kind}", share, share=share, kind=kind) for kind in ("x", "y") for share in (0.1, 0.2, 0.4)]
    results(row("whole", 0.5), *kinds, row("z", 0.9, share=0.1, kind="z")).save(folder / "results" / "numbers.parquet")
    refresh(folder)
    text = (folder / "paper.md").read_text(encoding="utf-8")
    (described,) = re.findall(r"!\[([^\]]*)\]\(figures/numbers-t-share\.svg\)", text)
    assert described.endswith("kind x: 0.1 0.100, 0.2 0.200, 0.4 0.400; kind y: 0.1 0.100, 0.2 0.200, 0.4 0.400")
    assert len(list((folder / "figures").iterdir())) == 2


def test_a_missing_table_and_a_place_without_end_are_one_clear_line(folder: Path) -> None:
    results(row("a", 0.5)).save(folder / "results" / "later.parquet")
    with pytest.raises(InputError, match=r"later.parquet: no table u; there are t$"):
        refresh(folder)
    (folder / "paper.md").write_text(PAGE.rsplit("<!-- end", 1)[0], encoding="utf-8")
    with pytest.raises(InputError, match=r"paper.md: a place for results has no end"):
        refresh(folder)
    assert not (folder / "figures").exists()


def test_places_of_the_pages_are_whole() -> None:
    texts = [page.read_text(encoding="utf-8") for page in PAGES.glob("*.md")]
    assert sum(len(BEGIN.findall(text)) for text in texts) == sum(len(PLACE.findall(text)) for text in texts) > 3


def test_commands_that_are_written_are_marked_for_the_check_of_the_documentation(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results(row("a", 0.5)).save(folder / "results" / "numbers.parquet")
    refresh(folder)
    monkeypatch.setattr("scripts.doc_blocks.relpath", lambda page, root: str(page))
    assert [block.kind for block in blocks(folder / "paper.md")] == ["not run"]


def write_data(report: Path, results: Results, curves: Mapping[str, float] | None = None) -> None:
    """A report's results, and a value of a training for each table of `curves`."""
    results.save(report / "results.parquet")
    lines = {"table": pyarrow.array((curves or {}).keys(), pyarrow.string()), "value": list((curves or {}).values())}
    save_curves(pyarrow.table(lines), report / "curves.parquet")


def test_a_report_gives_the_tables_that_pages_name_and_its_page_of_claims(folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    (first,) = results(row("a", 0.5), row("b", 0.6)).tables
    other = replace(first, description=replace(first.description, table="other", name="other"))
    write_data(report, Results((other, replace(first, data="/home/ada/d"))))
    publish_tables(report, "numbers", folder)
    assert Results.load(folder / "results" / "numbers.parquet").tables == (first,)
    with pytest.raises(InputError, match="no table u; there are other, t"):
        publish_tables(report, "later", folder)
    with pytest.raises(InputError, match=r"no page in .* has a line <!-- results: nothing TABLE ... -->"):
        publish_tables(report, "nothing", folder)
    (report / "study").mkdir()
    (report / "study" / "curves-1.svg").write_text("<svg/>")
    links = "[study.html](study.html) has the same as a\npage. [report.md](report.md) is the whole report.\n"
    (report / "study.md").write_text(
        f"# The study, small preset\n\nOn `/home/ada/my_data`. {links}\n![Curves](study/curves-1.svg)\n"
    )
    (folder / "figures" / "study").mkdir(parents=True)
    (folder / "figures" / "study" / "of-an-earlier-report.svg").write_text("<svg/>")
    publish_claims(report, folder)
    page = (folder / "claims.md").read_text()
    assert page.startswith("# Claims and verdicts, small preset\n\nOn `my_data`. ")
    assert "(../reference/verdicts.md)" in page
    assert not re.search(r"\((study\.html|report\.md)\)", page)
    assert "![Curves](figures/study/curves-1.svg)" in page
    assert [figure.name for figure in (folder / "figures" / "study").iterdir()] == ["curves-1.svg"]
    assert (folder / "figures" / "study" / "curves-1.svg").read_text() == "<svg/>"


def test_tables_that_a_report_lacks_stay_as_they_are_published(folder: Path, tmp_path: Path) -> None:
    (first,) = results(row("a", 0.5)).tables
    other = replace(first, description=replace(first.description, table="u", name="u"))
    (folder / "paper.md").write_text(PAGE.replace("numbers t", "numbers t u"), encoding="utf-8")
    Results((first, other)).save(folder / "results" / "numbers.parquet")
    curves = folder / "figures" / "numbers-t-curves.svg"
    curves.parent.mkdir()
    curves.write_text("<svg/>")
    again = replace(other, data="other data")
    write_data(tmp_path / "report", Results((again,)))
    publish_tables(tmp_path / "report", "numbers", folder)
    assert Results.load(folder / "results" / "numbers.parquet").tables == (first, again)
    assert curves.is_file()


def test_curves_of_trainings_are_published_as_data_beside_the_results(folder: Path, tmp_path: Path) -> None:
    (folder / "paper.md").write_text(PAGE.replace("numbers t", "numbers t u"), encoding="utf-8")
    (first,) = results(row("a", 0.5)).tables
    other = replace(first, description=replace(first.description, table="u", name="u"))
    published = folder / "results" / "curves" / "numbers.parquet"
    for values in ({"t": 1.0, "u": 2.0, "elsewhere": 9.0}, {"u": 3.0}):
        write_data(tmp_path / "report", Results((first, other)), values)
        publish_tables(tmp_path / "report", "numbers", folder)
    assert sorted(map(tuple, map(dict.values, parquet.read_table(published).to_pylist()))) == [("t", 1.0), ("u", 3.0)]


def test_study_md_has_what_the_page_of_claims_replaces() -> None:
    template = Path(study_page.__file__).with_name("study.md.jinja").read_text(encoding="utf-8")
    assert len(LINKS.findall(template)) == 1
    assert template.count("# The study, ") == 1


def test_columns_whose_rows_vary_differently_are_named(folder: Path) -> None:
    (table,) = results(row("a", 0.5)).tables
    columns = (replace(table.description.columns[0], alike=False),)
    unlike = replace(table, description=replace(table.description, columns=columns))
    Results((unlike,)).save(folder / "results" / "numbers.parquet")
    refresh(folder)
    text = (folder / "paper.md").read_text(encoding="utf-8")
    assert "Rows vary differently over seeds in Similarity: each row has its own variance there. The 6" in text


def test_the_sizes_of_significant_differences_stand_under_a_table(folder: Path) -> None:
    (table,) = results(row("a", 0.5)).tables
    columns = (replace(table.description.columns[0], significant_from=(0.03, 0.04)),)
    Results((replace(table, description=replace(table.description, columns=columns)),)).save(
        folder / "results" / "numbers.parquet"
    )
    refresh(folder)
    text = (folder / "paper.md").read_text(encoding="utf-8")
    assert "significant from: Similarity 0.030 to 0.040. About every" in text


def test_curves_of_a_report_stand_first_on_the_page(folder: Path, tmp_path: Path) -> None:
    write_data(tmp_path / "report", results(row("a", 0.5)))
    (tmp_path / "report" / "figures").mkdir()
    curves = '<svg role="img" aria-label="A &lt; B"><title>A &lt; B [1]</title></svg>'
    (tmp_path / "report" / "figures" / "t-curves.svg").write_text(curves)
    publish_tables(tmp_path / "report", "numbers", folder)
    assert (folder / "figures" / "numbers-t-curves.svg").read_text() == curves
    assert not (folder / "figures" / "numbers-t.svg").exists()
    refresh(folder)
    text = (folder / "paper.md").read_text(encoding="utf-8")
    pictures = re.findall(r"!\[(.*)\]\((.*)\)", text)
    assert pictures[0] == (r"A \< B \[1\]", "figures/numbers-t-curves.svg")
    assert pictures[1][1] == "figures/numbers-t.svg"
    (tmp_path / "report" / "figures" / "t-curves.svg").unlink()
    publish_tables(tmp_path / "report", "numbers", folder)
    refresh(folder)
    assert "curves" not in (folder / "paper.md").read_text(encoding="utf-8")


def test_figures_of_a_tables_section_of_the_study_stand_last_on_its_page_alone(folder: Path, tmp_path: Path) -> None:
    table = results(row("a", 0.5))
    write_data(report := tmp_path / "report", table)
    (report / "study").mkdir()
    for number in (1, 2):
        (report / "study" / f"t-{number}.svg").write_text(
            standalone(f"<svg><title>Panel {number}</title></svg>", "A < B")
        )
    (report / "study" / "two-1.svg").write_text("<svg/>")
    sections = ["## One table\n\n![Of t](study/t-1.svg)\n", "## Both tables\n\n![Of both](study/two-1.svg)\n"]
    (report / "study.md").write_text("\n".join(["# The study, small preset\n", *sections]))
    publish_tables(report, "numbers", folder)
    publish_claims(report, folder)
    refresh(folder)
    text = (folder / "paper.md").read_text(encoding="utf-8")
    assert text.count("-study-1.svg)\n\nA \\< B\n\n![Panel 2]") == 1
    pictures = re.findall(r"!\[(.*)\]\((.*)\)", text)
    assert pictures[1:] == [("Panel 1", "figures/numbers-t-study-1.svg"), ("Panel 2", "figures/numbers-t-study-2.svg")]
    assert (folder / "claims.md").read_text() == "# Claims and verdicts, small preset\n\n" + sections[1].replace(
        "study/", "figures/study/"
    )
    assert [figure.name for figure in (folder / "figures" / "study").iterdir()] == ["two-1.svg"]
    with_effects = sections[0] + "\n| Effect |\n|---|\n"
    (report / "study.md").write_text(with_effects)
    publish_claims(report, folder)
    assert (folder / "claims.md").read_text() == with_effects.replace("study/", "figures/study/")
    (report / "study" / "t-2.svg").unlink()
    publish_tables(report, "numbers", folder)
    assert not (folder / "figures" / "numbers-t-study-2.svg").exists()


def test_measures_without_tests_are_columns_of_the_numbers_alone(folder: Path) -> None:
    (table,) = results(row("a", 0.5)).tables
    measures = Column("embeddings", "alignment", "Alignment", False), Column("Retrieval", "mrr", "MRR", False)
    rows = tuple(replace(of, cells=(*of.cells, Cell((0, 1), (0.2, 0.4)), None)) for of in table.rows)
    about = replace(table.description, columns=(*table.description.columns, *measures))
    Results((replace(table, description=about, rows=rows),)).save(folder / "results" / "numbers.parquet")
    refresh(folder)
    text = (folder / "paper.md").read_text(encoding="utf-8")
    assert "| Row | Similarity | Alignment | MRR |\n" in text
    assert ABOUT_RANK in text
    assert "| Row \\| a | 0.500 ± 0.141 [0.300, 0.700] | 0.300 ± 0.141 | – |\n" in text
    assert "Alignment" not in (folder / "figures" / "numbers-t.svg").read_text(encoding="utf-8")
