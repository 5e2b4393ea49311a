"""Records: a damaged one is refused in one line that says what to run again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from minbert.errors import InputError
from minbert.files import read_json
from multitask.base.runs import FORMAT_VERSION
from multitask.experiments.record import PresetRecord, duration
from tests.studies.synthetic import TABLES, add_run, write_store


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


def test_the_best_model_that_can_be_loaded_is_not_an_ensemble_that_only_has_predictions(tmp_path: Path) -> None:
    table = TABLES["1"]
    fair, good, best = (
        add_run(tmp_path, table, row, 0, lambda *_, quality=quality: quality)
        for row, quality in zip(table.rows, (0.5, 0.7, 0.9), strict=False)
    )
    for trained in (fair, good):
        (tmp_path / str(trained.model) / "best.json").write_text('{"overall": "step-0000008"}')
    ensemble = (tmp_path / str(best.evaluation)).rename(tmp_path / "ensemble-best").name
    record = PresetRecord(
        "sample", "some-weights", "data", (), (table,), (fair, good, replace(best, chain=(ensemble,)))
    )
    assert record.best_model(tmp_path, table.columns) == good.model
    alone = replace(record, runs=record.runs[2:])
    assert alone.best_model(tmp_path, table.columns) == ensemble


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "?"), (0.04, "0.0 s"), (59.94, "59.9 s"), (61, "1 min 01 s"), (7260, "2 h 01 min")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text
