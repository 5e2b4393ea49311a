"""Frames of results: what is read is what was written; and the progress of a grid."""

import json
import logging
import math
import time
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pytest
from pyarrow import parquet

from minbert.errors import InputError
from multitask.experiments.grid import GridProgress
from multitask.experiments.results_file import LINE, METADATA, Column, Description, Results, TableScores, frame_of
from multitask.experiments.table_definitions import Node
from multitask.stages.settings_without_training import EvaluateConfig

COLUMNS = (
    Column("overall", "mean", "Overall", True, 3, 2, 1, 0),
    Column("sentiment", "accuracy", "Sentiment accuracy", True),
    Column("overall", "alignment", "Alignment", False),
)
TWO = {"low": 0.4, "high": 0.8, "difference": 0.1, "p": 0.03, "published": 0.55, "seen": True}


def table() -> TableScores:
    """A row with two seeds, a row that only the paper has, and an undefined measure of a third."""
    whose = {"preset": "small", "start": "weights", "data": "data", "study": "a_paper", "table": "1", "point": "{}"}
    a = {**whose, "row": "a", "label": "Row A", "point": json.dumps({"share": 0.1, "kinds": ["x", "y"]})}
    b = {**whose, "row": "b", "label": "Row B", "start": "random weights"}
    overall, sentiment, alignment = ({"task": column.task, "metric": column.metric} for column in COLUMNS)
    lines = [
        {**a, **overall, "seed": 0, "value": 0.5, **TWO},
        {**a, **overall, "seed": 1, "value": 0.7, **TWO},
        {**a, **sentiment},
        {**a, **alignment},
        {**b, **overall, "published": 0.9},
        {**b, **sentiment},
        {**b, **alignment, "seed": 0},
    ]
    return TableScores(Description("1", "table-1", "T", "N", "a", COLUMNS, "weights"), frame_of(lines))


@pytest.fixture
def path(tmp_path) -> Path:
    """The file of the table."""
    Results((table(),)).save(tmp_path / "results.parquet")
    return tmp_path / "results.parquet"


def test_what_is_read_is_what_was_written(path):
    found = Results.load(path)
    pandas.testing.assert_frame_equal(found.to_pandas(), Results((table(),)).to_pandas())
    assert list(found.to_pandas().columns) == list(LINE)
    assert [one.description for one in found.tables] == [table().description]
    assert str(found.to_pandas().seed.dtype) == "Int64"  # a missing seed does not turn the others into fractions


def test_a_cell_has_its_mean_deviation_and_test(path):
    (found,) = Results.load(path).tables
    cell = found.cells.loc[("a", 0)]
    assert (cell["mean"], cell.deviation, cell.seeds) == (pytest.approx(0.6), pytest.approx(math.sqrt(0.02)), 2)
    assert (cell["values"], cell.significant, cell.seen) == ((0.5, 0.7), True, True)
    assert {name: cell[name] for name in TWO} == TWO
    published, undefined, empty = (found.cells.loc[at] for at in (("b", 0), ("b", 2), ("a", 1)))
    assert (published.published, published.seeds, undefined.seeds, empty.seeds) == (0.9, 0, 1, 0)
    assert all(math.isnan(of["mean"]) and not of.significant for of in (published, undefined, empty))
    assert dict(found.rows.point["a"]) == {"share": 0.1, "kinds": ("x", "y")}
    assert list(found.rows.start) == ["weights", "random weights"]


def test_a_table_that_is_not_there_is_one_clear_line(path):
    with pytest.raises(InputError, match=r"^no table 2; there are 1$"):
        Results.load(path).table("2")


def rewritten(path: Path, **changes: Any) -> None:
    """The file with another description or version."""
    found = parquet.read_table(path)
    about = {**json.loads(found.schema.metadata[METADATA]), **changes}
    parquet.write_table(found.replace_schema_metadata({METADATA: json.dumps(about)}), path)


def with_column(path: Path, name: str, value: str | None) -> None:
    """The file with one text in a column; without the column if there is none."""
    found = parquet.read_table(path)
    place, column = found.schema.get_field_index(name), pyarrow.array([value] * len(found), pyarrow.string())
    parquet.write_table(found.drop_columns([name]) if value is None else found.set_column(place, name, column), path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:-20]),
        lambda path: parquet.write_table(pyarrow.table({"a": [1]}), path),
        lambda path: with_column(path, "seed", None),
        lambda path: with_column(path, "seed", "0"),
        lambda path: rewritten(path, version=3),
        lambda path: rewritten(path, version="one"),
    ],
)
def test_other_files_are_one_clear_line(damage, path):
    damage(path)
    with pytest.raises(InputError) as raised:
        Results.load(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


# The progress of a grid: what is left follows from the stages that ended here.


def test_what_is_left_is_what_stages_of_the_same_kind_took(recipes, monkeypatch, caplog):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    trained = [recipes.finetune(recipes.start), recipes.fuse(recipes.start)]
    scored = [Node("evaluate", EvaluateConfig(), (model,), Path()) for model in trained]
    names = {trained[0]: "finetune", trained[1]: "fuse", scored[0]: "first", scored[1]: "second"}
    caplog.set_level(logging.INFO)
    with GridProgress(names, names.__getitem__, live=False) as progress:
        assert progress.seconds_left() is None
        progress.began_stage(trained[0])
        progress.began_stage(trained[1])
        clock[0] += 30
        progress.ended_stage(trained[0])
        progress.began_stage(scored[0])
        assert progress.seconds_left() == (0 + 30 + 30) / 2  # as long as finetune; fuse is late, and two run at once
        clock[0] += 10
        progress.ended_stage(scored[0], "bad luck")
        assert progress.seconds_left() == (0 + 10) / 2
        progress.left_out(scored[1])
        assert progress.seconds_left() == 0
    assert caplog.messages[0] == "[1/4] finetune: 30 s (00:30 so far, 00:30 left)"
    assert caplog.messages[1].startswith("[2/4] first: failed: bad luck (00:40 so far")
