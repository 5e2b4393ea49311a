"""Records: a damaged one is refused in one line that says what to run again."""

import json
from pathlib import Path

import pytest

from minbert.errors import InputError
from minbert.files import read_json
from multitask.base.runs import FORMAT_VERSION
from multitask.experiments.frames import GridFrames, RunResult
from multitask.experiments.record import PresetRecord, duration
from multitask.experiments.table_results import PresetResults
from tests.studies.synthetic import TABLES, write_store


def test_a_damaged_record_is_one_clear_error(tmp_path: Path) -> None:
    store = write_store(tmp_path, ["1"], seeds=1)
    good = read_json(PresetRecord.path(store, "sample"))
    for damaged in (
        {**good, "format_version": FORMAT_VERSION - 1},
        {"preset": "paper"},
        {**good, "runs": [{**good["runs"][0], "chain": ["../elsewhere"]}]},
        {**good, "runs": [{**good["runs"][0], "seed": "3"}]},
        {**good, "tables": good["tables"][1:]},
        {**good, "tables": [{**table, "rows": 2 * table["rows"]} for table in good["tables"]]},
        [],
    ):
        PresetRecord.path(store, "paper").write_text(json.dumps(damaged))
        with pytest.raises(InputError, match=r"experiments-paper\.json.*; run `multitask experiments run paper`"):
            PresetRecord.read(store, "paper")


def test_the_best_model_that_can_be_loaded_is_not_an_ensemble_that_only_has_predictions() -> None:
    table = TABLES["1"]
    scored = {"measures": dict.fromkeys(table.columns, "accuracy")}
    runs = tuple(
        RunResult(
            *("1", row.key, 0, name, name),
            **scored,
            keeps_model=kept,
            numbers={**{task: {"accuracy": score} for task in table.columns}, "overall": {"mean": score}},
        )
        for row, name, kept, score in zip(
            table.rows, ("fair", "good", "ensemble"), (True, True, False), (0.5, 0.7, 0.9), strict=False
        )
    )
    record = PresetRecord("sample", "some-weights", "data", (), (table,), ())
    for known, expected in ((runs, "good"), (runs[2:], "ensemble")):
        found = PresetResults.of(GridFrames(record, known)).best_run(table.columns)
        assert found is not None
        assert found.model == expected
    assert PresetResults.of(GridFrames(record, runs)).best_run(["sentiment"]) is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "?"), (0.04, "0.0 s"), (59.94, "59.9 s"), (61, "1 min 01 s"), (7260, "2 h 01 min")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text
