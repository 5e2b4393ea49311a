"""Pages of studies are written from files of results, and nothing else on them changes."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow
import pytest
from markupsafe import Markup
from pyarrow import parquet

from minbert.errors import InputError
from scripts.publish_results import publish_claims, publish_tables
from scripts.refresh_study_pages import refresh
from studies.report.figures import Picture, standalone
from studies.report.scores_as_data import save_curves
from studies.results import RANDOM_WEIGHTS, Column, Description, Results, TableScores, frame_of

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


COLUMN = Column("similarity", "pearson", "Similarity", True)
MRR = Column("Retrieval", "mrr", "MRR", False)


def row(
    key: str, mean: float, published: float | None = None, start: str = "weights", **point: float | str
) -> list[dict[str, object]]:
    """The lines of a row with two seeds."""
    whose = {"preset": "small", "start": start, "data": "d", "study": "p", "table": "t", "row": key}
    whose |= {"label": f"Row | {key}", "point": json.dumps(point), "task": "similarity", "metric": "pearson"}
    of = {"low": mean - 0.2, "high": mean + 0.2, "published": published}
    return [{**whose, "seed": seed, "value": mean + by, **of} for seed, by in enumerate((-0.1, 0.1))]


def results(*rows: list[dict[str, object]], column: Column = COLUMN, key: str = "t", **changes: str) -> Results:
    """A file of one table."""
    about = Description(key, key, "T", "A note.", None, (column, MRR))
    lines = frame_of([line for of in rows for line in of]).assign(table=key, **changes)
    return Results((TableScores(about, lines),))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "paper.md").write_text(PAGE, encoding="utf-8")
    (tmp_path / "other.md").write_text("# No place\n", encoding="utf-8")
    return tmp_path


GOLDEN = """# A paper

Before.

<!-- results: numbers t -->

### T

A note.

![T](figures/numbers-t.svg)

![T, by share](figures/numbers-t-share.svg)

| Row | Start | Similarity | Published | MRR |
| --- | ---: | ---: | ---: | ---: |
| Row \\| a | weights | 0.500 ± 0.141 [0.300, 0.700] | 0.700 | 0.300 ± 0.141 |
| Row \\| b | random weights | **0.600 ± 0.141** [0.400, 0.800] | – | – |
| Row \\| c | weights | 0.400 ± 0.141 [0.200, 0.600] | – | – |
| *Pairs in published order* |  | 2 of 3 [significant: 1, contrary: 1] |  |  |
| *Significant from* |  | 0.030 to 0.040 |  |  |
| *Variance over seeds* |  | by row |  |  |

Means ± standard deviations over seeds, with 95% intervals. **Bold**: the best mean. Start weights: weights. \
[Every score as data](results/numbers.parquet).

<!-- end of results -->

Between.
"""


def test_a_place_is_filled_and_the_rest_of_the_page_stays(folder: Path) -> None:
    assert refresh(folder) == []
    measure = [{**line, "task": MRR.task, "metric": MRR.metric} for line in row("a", 0.3, share=0.1)]
    rows = row("a", 0.5, 0.7, share=0.1), row("b", 0.6, start=RANDOM_WEIGHTS, share=0.2), row("c", 0.4, share=0.4)
    column = Column("similarity", "pearson", "Similarity", True, 3, 2, 1, 1, False, (0.03, 0.04))
    measures = [{**line, "low": None, "high": None} for line in measure]
    written = results(*rows, measures, column=column)
    written.save(folder / "results" / "numbers.parquet")
    assert refresh(folder) == [folder / "paper.md"]
    text = (folder / "paper.md").read_text(encoding="utf-8")
    assert text == GOLDEN + PAGE[PAGE.index("\n<!-- results: later") :]
    figures = sorted((folder / "figures").iterdir())
    assert [path.name for path in figures] == ["numbers-t-share.svg", "numbers-t.svg"]
    assert all(path.read_text(encoding="utf-8").startswith("<svg xmlns") for path in figures)
    assert refresh(folder) == []  # nothing is new


def test_a_missing_table_and_a_place_without_end_are_one_clear_line(folder: Path) -> None:
    results(row("a", 0.5)).save(folder / "results" / "later.parquet")
    with pytest.raises(InputError, match=r"later.parquet: no table u; there are t$"):
        refresh(folder)
    (folder / "paper.md").write_text(PAGE.rsplit("<!-- end", 1)[0], encoding="utf-8")
    with pytest.raises(InputError, match=r"paper.md: a place for results has no end"):
        refresh(folder)
    assert not (folder / "figures").exists()


def write_data(report: Path, written: Results, curves: Mapping[str, float] | None = None) -> None:
    """A report's results, and a value of a training for each table of `curves`."""
    written.save(report / "results.parquet")
    lines = {"table": pyarrow.array((curves or {}).keys(), pyarrow.string()), "value": list((curves or {}).values())}
    save_curves(pyarrow.table(lines), report / "curves.parquet")


def test_a_report_gives_the_tables_that_pages_name_and_its_page_of_claims(folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    both = (results(row("a", 0.5), key="other"), results(row("a", 0.5), row("b", 0.6), data="/home/ada/d"))
    write_data(report, Results(tuple(of.tables[0] for of in both)))
    publish_tables(report, "numbers", folder)
    (published,) = Results.load(folder / "results" / "numbers.parquet").tables
    assert (published.description.table, set(published.lines.data), len(published.lines)) == ("t", {"d"}, 4)
    with pytest.raises(InputError, match="no table u; there are other, t"):
        publish_tables(report, "later", folder)
    with pytest.raises(InputError, match=r"no page in .* has a line <!-- results: nothing TABLE ... -->"):
        publish_tables(report, "nothing", folder)
    (report / "study").mkdir()
    (report / "study" / "curves-1.svg").write_text("<svg/>")
    links = "[The report](report.md) has all tables.\n"
    (report / "study.md").write_text(
        f"# The study, small preset\n\nOn `/home/ada/my_data`. {links}\n![Curves](study/curves-1.svg)\n"
    )
    (folder / "figures" / "study").mkdir(parents=True)
    (folder / "figures" / "study" / "of-an-earlier-report.svg").write_text("<svg/>")
    publish_claims(report, folder)
    page = (folder / "claims.md").read_text()
    assert page.startswith("# Claims and verdicts, small preset\n\nOn `my_data`. ")
    assert "(../reference/verdicts.md)" in page
    assert "](report.md)" not in page
    assert "![Curves](figures/study/curves-1.svg)" in page
    assert [figure.name for figure in (folder / "figures" / "study").iterdir()] == ["curves-1.svg"]
    assert (folder / "figures" / "study" / "curves-1.svg").read_text() == "<svg/>"


def test_tables_that_a_report_lacks_stay_as_they_are_published(folder: Path, tmp_path: Path) -> None:
    (folder / "paper.md").write_text(PAGE.replace("numbers t", "numbers t u"), encoding="utf-8")
    published = folder / "results" / "curves" / "numbers.parquet"
    for of, curves in (
        ({"t": "first", "u": "first"}, {"t": 1.0, "u": 2.0, "elsewhere": 9.0}),
        ({"u": "second"}, {"u": 3.0}),
    ):
        made = [results(row("a", 0.5), key=key, data=data).tables[0] for key, data in of.items()]
        write_data(tmp_path / "report", Results(tuple(made)), curves)
        publish_tables(tmp_path / "report", "numbers", folder)
    found = Results.load(folder / "results" / "numbers.parquet").tables
    assert {one.description.table: set(one.lines.data) for one in found} == {"t": {"first"}, "u": {"second"}}
    assert sorted(map(tuple, map(dict.values, parquet.read_table(published).to_pylist()))) == [("t", 1.0), ("u", 3.0)]


def test_figures_that_a_report_drew_from_runs_stand_around_those_of_the_table(folder: Path, tmp_path: Path) -> None:
    """Curves come first. Figures of the table's section of the study come last, and are not on the page of claims."""
    write_data(report := tmp_path / "report", results(row("a", 0.5)))
    (report / "figures").mkdir()
    (report / "study").mkdir()
    curves = '<svg role="img" aria-label="A &lt; B"><title>A &lt; B [1]</title></svg>'
    (report / "figures" / "t-curves.svg").write_text(curves)
    for number in (1, 2):
        panel = Picture(Markup("<svg><title>Panel {}</title></svg>").format(number), "", "A < B")
        (report / "study" / f"t-{number}.svg").write_text(standalone(panel))
    (report / "study" / "two-1.svg").write_text("<svg/>")
    sections = ["## One table\n\n![Of t](study/t-1.svg)\n", "## Both tables\n\n![Of both](study/two-1.svg)\n"]
    (report / "study.md").write_text("\n".join(["# The study, small preset\n", *sections]))
    publish_tables(report, "numbers", folder)
    publish_claims(report, folder)
    refresh(folder)
    text = (folder / "paper.md").read_text(encoding="utf-8")
    assert text.count("-study-1.svg)\n\nA \\< B\n\n![Panel 2]") == 1
    assert re.findall(r"!\[(.*)\]\((.*)\)", text) == [
        (r"A \< B \[1\]", "figures/numbers-t-curves.svg"),
        ("T", "figures/numbers-t.svg"),
        ("Panel 1", "figures/numbers-t-study-1.svg"),
        ("Panel 2", "figures/numbers-t-study-2.svg"),
    ]
    assert (folder / "claims.md").read_text() == "# Claims and verdicts, small preset\n\n" + sections[1].replace(
        "study/", "figures/study/"
    )
    with_effects = sections[0] + "\n| Effect |\n|---|\n"
    (report / "study.md").write_text(with_effects)
    publish_claims(report, folder)
    assert (folder / "claims.md").read_text() == with_effects.replace("study/", "figures/study/")
    (report / "study" / "t-2.svg").unlink()
    (report / "figures" / "t-curves.svg").unlink()
    publish_tables(report, "numbers", folder)
    refresh(folder)
    text = (folder / "paper.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\(figures/(.*).svg\)", text) == ["numbers-t", "numbers-t-study-1"]
