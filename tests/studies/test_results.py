"""results.parquet: what is read is what was written, every number has its labels, and other files are refused."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minbert.errors import InputError
from studies import Results
from studies.results import METADATA, Cell, Column, Description, RowScores, TableScores

COLUMNS = (
    Column("overall", "mean", "Overall", True, 3, 2, 1, 0),
    Column("sentiment", "accuracy", "Sentiment accuracy", True),
    Column("overall", "alignment", "Alignment", False),
)
KEYS = st.text("abc=,.1", min_size=1, max_size=5)
NUMBERS = st.floats(-1, 1) | st.none()
POINTS = st.dictionaries(
    KEYS, st.integers(-(2**40), 2**40) | st.floats(0, 1) | st.booleans() | KEYS | st.tuples(KEYS) | st.none()
)


@st.composite
def cells(draw: st.DrawFn) -> Cell:
    seeds = tuple(range(draw(st.integers(0, 3))))
    values = tuple(draw(st.floats(0, 1)) for _ in seeds)
    if not seeds:
        return Cell(published=draw(st.floats(0, 1)))
    return Cell(seeds, values, *(draw(NUMBERS) for _ in range(5)))


@st.composite
def tables(draw: st.DrawFn, key: str) -> TableScores:
    rows = tuple(
        RowScores(
            row, draw(st.text()), draw(POINTS), draw(st.text()), tuple(draw(cells() | st.none()) for _ in COLUMNS)
        )
        for row in draw(st.lists(KEYS, min_size=1, max_size=3, unique=True))
    )
    reference = draw(st.sampled_from([None, *(row.key for row in rows)]))
    description = Description(key, f"table-{key}", draw(st.text()), draw(st.text()), reference, COLUMNS)
    return TableScores("sample", "data", draw(st.none() | st.just("a_paper")), description, rows)


@settings(max_examples=12)  # each writes a file
@given(st.data())
def test_what_is_read_is_what_was_written(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    written = Results((data.draw(tables("1")), data.draw(tables("2"))))
    path = tmp_path_factory.getbasetemp() / "results.parquet"
    written.save(path)
    assert Results.load(path) == written


def example(**changes: Any) -> Results:
    """A row with two seeds, and a row that only the paper has."""
    ours = Cell((0, 1), (0.5, 0.7), 0.4, 0.8, 0.1, 0.03, 0.55)
    rows = (
        RowScores("a", "Row A", {"share": 0.1, "kinds": ("x", "y")}, "weights", (ours, None, None)),
        RowScores("b", "Row B", {}, "random weights", (Cell(published=0.9), None, Cell((0,), (math.nan,)))),
    )
    table = TableScores("small", "data", "a_paper", Description("1", "table-1", "T", "N", "a", COLUMNS), rows)
    return Results((replace(table, **changes),))


def test_every_number_has_its_labels() -> None:
    pytest.importorskip("pandas")
    frame = example().to_pandas()
    assert len(frame) == 4 + 3
    first, second, published, undefined = (frame.iloc[place] for place in (0, 1, 4, 6))
    empty = frame.iloc[[2, 3, 5]]
    assert list(empty["task"]) == ["sentiment", "overall", "sentiment"]
    assert empty[["seed", "value", "low", "difference", "published"]].isna().all(axis=None)
    labels = {"preset": "small", "start": "weights", "data": "data", "study": "a_paper", "table": "1", "row": "a"}
    labels |= {"label": "Row A", "task": "overall", "metric": "mean"}
    for name, value in labels.items():
        assert first[name] == value
    assert json.loads(first["point"]) == {"share": 0.1, "kinds": ["x", "y"]}
    assert [(line["seed"], line["value"]) for line in (first, second)] == [(0, 0.5), (1, 0.7)]
    for line in (first, second):
        means = [line[name] for name in ("low", "high", "difference", "p", "published")]
        assert means == [0.4, 0.8, 0.1, 0.03, 0.55]
    assert (published["published"], published["start"]) == (0.9, "random weights")
    assert published[["seed", "value", "low", "difference"]].isna().all()
    assert (undefined["metric"], undefined["seed"]) == ("alignment", 0)
    assert math.isnan(undefined["value"])
    assert str(frame["seed"].dtype) == "Int64"


def test_a_cell_has_its_mean_deviation_and_test() -> None:
    (table,) = example().tables
    cell = table.rows[0].cells[0]
    assert cell is not None
    assert (cell.mean, cell.significant) == (pytest.approx(0.6), True)
    assert cell.deviation == pytest.approx(math.sqrt(0.02))
    assert math.isnan(Cell(published=0.5).mean)
    assert not Cell((0,), (0.5,), p=0.05).significant
    assert table.seeds == [1, 2]
    assert table.reference == table.rows[0]
    assert table.start == "weights"
    assert replace(table, description=replace(table.description, start="preset's")).start == "preset's"


def test_a_table_that_is_not_there_is_one_clear_line() -> None:
    assert example().table("1").description.name == "table-1"
    with pytest.raises(InputError, match=r"^no table 2; there are 1$"):
        example().table("2")


def rewritten(path: Path, **changes: Any) -> None:
    """The file with another description or version."""
    table = pyarrow.parquet.read_table(path)
    about = {**json.loads(table.schema.metadata[METADATA]), **changes}
    pyarrow.parquet.write_table(table.replace_schema_metadata({METADATA: json.dumps(about)}), path)


def without_columns(path: Path) -> None:
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(table.drop_columns(["seed"]), path)


def of_other_types(path: Path) -> None:
    table = pyarrow.parquet.read_table(path)
    column = pyarrow.array([str(seed) for seed in table["seed"]])
    pyarrow.parquet.write_table(table.set_column(table.schema.get_field_index("seed"), "seed", column), path)


def with_a_stray_line(path: Path) -> None:
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(
        table.set_column(table.schema.get_field_index("task"), "task", pyarrow.array(["other"] * len(table))), path
    )


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda path: path.unlink(), "no such file; `multitask report` writes"),
        (lambda path: path.write_bytes(path.read_bytes()[:-20]), "not a Parquet file"),
        (lambda path: path.write_text("{}"), "not a Parquet file"),
        (lambda path: pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), path), "another Parquet file"),
        (without_columns, "another Parquet file"),
        (of_other_types, "another Parquet file"),
        (lambda path: rewritten(path, version=99), "written by another version"),
        (lambda path: rewritten(path, version="one"), "version is"),
        (lambda path: rewritten(path, tables=[]), "lines of other tables"),
        (with_a_stray_line, "table 1 has no column other mean"),
    ],
)
def test_other_files_are_one_clear_line(damage: Any, told: str, tmp_path: Path) -> None:
    path = tmp_path / "results.parquet"
    example().save(path)
    damage(path)
    with pytest.raises(InputError, match=told) as raised:
        Results.load(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        example().to_pandas()
