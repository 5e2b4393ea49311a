"""The head of a table: its picture has all marks where the numbers are, and its sentences say what the tests show."""

import re
from dataclasses import replace
from math import nan
from typing import Any

import pytest
from matplotlib.figure import Figure

from studies.report import figures
from studies.report import forest_plot as module
from studies.report.forest_plot import forest_plot
from studies.report.meaning import first_stage, meaning, significant_sizes
from studies.report.sweeps import sweeps
from studies.results import RANDOM_WEIGHTS, Cell, Column, Description, RowScores, TableScores
from tests.studies.report.rendered_figures import figures_of


def cell(mean: float, p: float | None = None, published: float | None = None, seeds: int = 2) -> Cell:
    """A row's scores around a mean, tested against a reference of 0.5 if p is given."""
    values = (mean - 0.01, mean + 0.01)[:seeds] if seeds > 1 else (mean,)
    difference = None if p is None else mean - 0.5
    return Cell(tuple(range(seeds)), values, mean - 0.1, mean + 0.1, difference, p, published)


def table(*cells: Cell | None, reference: str | None = "r0", **about: Any) -> TableScores:
    """A table of one column with these rows: r0, r1, ..."""
    rows = tuple(RowScores(f"r{number}", f"Row {number}", {}, "w", (of,)) for number, of in enumerate(cells))
    column = Column("overall", "mean", "Overall", True, **about)
    return TableScores("sample", "d", None, Description("t", "t", "Title", "", reference, (column,)), rows)


def test_rows_from_random_weights_are_named() -> None:
    usual = table(cell(0.5), cell(0.6), None)
    first, second, without_score = usual.rows
    scratch = replace(second, start=RANDOM_WEIGHTS)
    assert first_stage(usual) == "The first stage starts from w."
    some = replace(usual, rows=(first, scratch))
    assert first_stage(some) == "The first stage starts from w. Rows that start from random weights: Row 1."
    described = replace(usual.description, start="w")
    for rows in ((scratch,), (scratch, without_score)):
        whole = replace(usual, rows=rows, description=described)
        assert (first_stage(whole), whole.start) == ("The first stage starts from random weights.", "w")


REFERENCE = cell(0.5)
SURE, UNSURE = 0.01, 0.4


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ((cell(0.6, SURE),), "With 2 seeds, “Row 1” is significantly above “Row 0” in Overall."),
        ((cell(0.4, SURE),), "With 2 seeds, “Row 1” is significantly below “Row 0” in Overall."),
        (
            (cell(0.6, SURE), cell(0.7, SURE), cell(0.4, SURE), cell(0.52, UNSURE)),
            "With 2 seeds, “Row 1” and “Row 2” are significantly above and “Row 3” is significantly below “Row 0” in "
            "Overall; one other row does not differ significantly, which does not show equality.",
        ),
        (
            (cell(0.6, UNSURE), cell(0.4, UNSURE)),
            "With 2 seeds, none of the 2 tested rows differs significantly from “Row 0” in Overall, which does not "
            "show equality.",
        ),
        (
            (cell(0.6, 0.05),),
            "With 2 seeds, the only tested row does not differ significantly from “Row 0” in Overall, which does not "
            "show equality.",
        ),
        (tuple(cell(0.6, SURE) for _ in range(5)), "With 2 seeds, 5 rows are significantly above “Row 0” in Overall."),
        ((cell(0.6), None), "With 2 seeds, no row could be tested against “Row 0”."),
        (
            (cell(0.6, SURE, seeds=1),),
            "With 1 to 2 seeds, “Row 1” is significantly above “Row 0” in Overall.",
        ),
    ],
)
def test_the_first_sentence_says_which_rows_differ_from_the_reference(cells: tuple[Cell, ...], said: str) -> None:
    assert meaning(table(REFERENCE, *cells)) == f"{said} No published scores of these rows are recorded here."


def test_from_what_size_differences_are_significant_is_told_of_every_pictured_column_with_tests() -> None:
    two = table(REFERENCE, cell(0.6, SURE), significant_from=(0.0524, 0.0526))
    (column,) = two.description.columns
    columns = (column, replace(column, heading="Other", significant_from=None), replace(column, pictured=False))
    rows = tuple(replace(row, cells=row.cells * 3) for row in two.rows)
    wide = replace(two, description=replace(two.description, columns=columns), rows=rows)
    assert significant_sizes(wide) == significant_sizes(two)
    assert significant_sizes(two) == (
        "By row, differences to the reference row are significant from: Overall 0.052 to 0.053. "
        "About every second experiment would show a true difference of this size."
    )
    same = table(REFERENCE, cell(0.6, SURE), significant_from=(0.0522, 0.0524))
    assert significant_sizes(same) == significant_sizes(two).replace(" to 0.053", "")
    assert significant_sizes(table(REFERENCE, cell(0.6))) == ""


def test_with_a_single_seed_both_sentences_say_so() -> None:
    rows = (cell(0.5, published=0.3, seeds=1), cell(0.6, SURE, 0.4, seeds=1), cell(0.7, SURE, 0.2, seeds=1))
    first, second = meaning(table(*rows, orderings=3, agree=1, significant=1, contrary=0)).split(". ")
    assert first == (
        "With a single seed, which does not show what another seed would give, “Row 1” and “Row 2” are significantly "
        "above “Row 0” in Overall"
    )
    assert second == (
        "With a single seed, of 3 compared pairs of rows with different published scores in Overall, 1 has the "
        "published order here (1 significantly) and 2 have not (none significantly)."
    )


def test_a_table_without_a_reference_row_is_not_tested() -> None:
    said = meaning(table(cell(0.6), cell(0.7), Cell((0, 1), (nan, 0.9), nan, nan), reference=None))
    assert said.startswith(
        "With 2 seeds, no row is tested, because this table has no reference row; “Row 1” has the highest mean, 0.700 "
        "[0.600, 0.800] in Overall."
    )
    assert "highest" not in meaning(table(cell(0.6), None, reference=None))


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"orderings": 0}, "No two rows with different published scores can be compared in Overall."),
        (
            {"orderings": 6, "agree": 4, "significant": 2, "contrary": 1},
            "Of 6 compared pairs of rows with different published scores in Overall, 4 have the published order here "
            "(2 significantly) and 2 have not (1 significantly).",
        ),
        (
            {"orderings": 1, "agree": 1, "significant": 1},
            "The only two compared rows with different published scores in Overall have the published order, and the "
            "difference is significant.",
        ),
        (
            {"orderings": 1, "agree": 0},
            "The only two compared rows with different published scores in Overall have not the published order, "
            "and the difference is not significant.",
        ),
    ],
)
def test_the_second_sentence_compares_with_the_published_order(counts: dict[str, int], said: str) -> None:
    rows = (cell(0.5, published=0.3), cell(0.6, SURE, published=0.4))
    assert meaning(table(*rows, **counts)).split(". ")[1] == said.removesuffix(".") + "."


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are rendered in a test."""
    return figures_of(module, monkeypatch)


@pytest.mark.parametrize("rows", [2, 25])
def test_marks_stand_where_the_numbers_are(rows: int, drawn: list[Figure]) -> None:
    published = {0: 0.3, 1: 0.9}
    cells = [cell(0.4 + 0.01 * number, published=published.get(number)) for number in range(rows)]
    picture = forest_plot(table(*cells, Cell(published=0.2), None))
    (figure,) = drawn
    (axes,) = figure.axes
    marks = [(line.get_marker(), line.get_xdata(), line.get_ydata()) for line in axes.lines if len(line.get_xdata())]
    means = {float(y[0]): x[0] for marker, x, y in marks if marker == "o"}
    assert means == {number: pytest.approx(0.4 + 0.01 * number) for number in range(rows)}
    seeds = [tuple(x) for marker, x, _ in marks if marker == "."]
    assert seeds == [of.values for of in cells]
    intervals = [tuple(x) for marker, x, y in marks if marker == "None" and y[0] == y[1] and len(set(x)) == 2]
    assert intervals == [(of.low, of.high) for of in cells]
    diamonds = {float(y[0]): x[0] for marker, x, y in marks if marker == "D"}
    assert diamonds == {0: 0.3, 1: 0.9, rows: 0.2}
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels == ["Row 0 (reference)", *(f"Row {number}" for number in range(1, rows + 2))]
    assert axes.get_xlabel() == "Overall"
    assert axes.yaxis_inverted()
    height = figure.get_figheight() * axes.get_position().height / (rows + 2)
    assert 0.25 < height < 0.35  # inches of a row, however many there are
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {
        "mean and 95% interval",
        "each seed",
        "published",
    }
    assert "Row 0 0.400 [0.300, 0.500], published 0.300" in picture.svg
    assert f"Row {rows} not run, published 0.200" in picture.description


def test_each_pictured_column_has_a_panel_and_long_labels_have_room(drawn: list[Figure]) -> None:
    columns = tuple(Column(f"c{number}", "accuracy", f"C{number}", number != 5) for number in range(7))
    description = Description("t", "t", "Title", "", None, columns)
    long = " ".join(["word"] * 20)
    row = RowScores("r", long, {}, "w", tuple(cell(0.1 * number) for number in range(7)))
    whole = TableScores("sample", "d", None, description, (row, replace(row, key="s", label="Short")))
    forest_plot(whole)
    (figure,) = drawn
    assert [axes.get_xlabel() for axes in figure.axes] == ["C0", "C1", "C2", "C3", "C4", "C6"]
    figure.canvas.draw()
    width = figure.bbox.width
    for axes in (figure.axes[0], figure.axes[4]):
        boxes = [text.get_window_extent() for text in axes.get_yticklabels()]
        assert len(boxes) == 2
        assert all(0 <= box.x0 < box.x1 < width for box in boxes)
        assert boxes[0].y0 > boxes[1].y1  # a label of several lines does not touch the next


def test_a_picture_of_single_seeds_has_no_mark_for_seeds(drawn: list[Figure]) -> None:
    picture = forest_plot(table(cell(0.5, seeds=1)))
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["mean and 95% interval"]
    assert re.search(r'<svg role="img" aria-label="Title\. Overall, means', picture.svg)


@pytest.mark.parametrize(
    ("label", "places"),
    [
        ("{share:.0%} {kind}", ["10%", "20%", "40%"]),
        ("{share:.0%}: of {kind}", ["10%", "20%", "40%"]),
        ("{share:.0%}-{kind}", ["0.1", "0.2", "0.4"]),  # another word for each kind
        ("{kind}", ["0.1", "0.2", "0.4"]),
    ],
)
def test_places_of_a_sweep_are_called_as_in_the_labels(
    label: str, places: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    points: list[dict[str, str | float]] = [
        {"kind": kind, "share": share} for kind in ("x", "y") for share in (0.4, 0.1, 0.2)
    ]
    rows = tuple(RowScores(str(point), label.format(**point), point, "w", (cell(0.5),)) for point in points)
    drawn = figures_of(figures, monkeypatch)
    assert list(sweeps(replace(table(), rows=rows))) == ["share"]
    [figure] = drawn
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == places
    assert figure.get_supxlabel() == "share removed (bands: 95% intervals)"


LOSSES = {"plain": "Plain, modified", "other": "Other"}


def swept(label: str) -> TableScores:
    """A table of two losses at three batch sizes, with these labels of rows."""
    points = [(loss, size) for loss in LOSSES for size in (1024, 16, 64)]
    rows = tuple(
        RowScores(f"{loss}{size}", label.format(LOSSES[loss], size), {"loss": loss, "batch_size": size}, "w", (of,))
        for (loss, size), of in zip(points, [cell(0.1 * place) for place in range(6)], strict=True)
    )
    return replace(table(), rows=rows)


@pytest.mark.parametrize(
    ("label", "lines"),
    [
        ("{}, {}", ["Plain, modified", "Other"]),
        ("{1}: {0}", ["Plain, modified", "Other"]),
        ("{} in batches of {}", ["Plain, modified in batches of", "Other in batches of"]),
        ("{}", ["loss plain", "loss other"]),  # nothing that varies
        ("Loss at {1}", ["loss plain", "loss other"]),  # the same for both
        ("{1}", ["loss plain", "loss other"]),  # nothing that is shared
        ("{0} {1} {1}", ["loss plain", "loss other"]),
    ],
)
def test_a_sweep_has_a_line_for_each_loss_by_what_its_labels_share(
    label: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = figures_of(figures, monkeypatch)
    (found,) = sweeps(swept(label)).items()
    assert found[0] == "batch_size"
    (figure,) = drawn
    assert figure.get_supxlabel() == "batch size (bands: 95% intervals)"
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["16", "64", "1024"]
    assert {line.get_label(): list(line.get_ydata()) for line in axes.lines} == {
        name: pytest.approx(values) for name, values in zip(lines, ([0.1, 0.2, 0.0], [0.4, 0.5, 0.3]), strict=True)
    }
    figure.canvas.draw()
    assert figure.legends[0].get_window_extent().x1 < figure.bbox.width
    assert f"{lines[1]}: 16 0.400, 64 0.500, 1024 0.300" in found[1].description
