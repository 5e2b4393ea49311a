"""Records: a damaged one is refused in one line that says what to run again."""

import json
from pathlib import Path
from typing import Any

import pytest

from minbert.errors import InputError
from minbert.files import read_json
from multitask.runs.artefact import FORMAT_VERSION
from studies.engine.record import Record, duration
from tests.studies.synthetic import write_store


def test_a_damaged_record_is_one_clear_error(tmp_path: Path) -> None:
    store = write_store(tmp_path, ["1"], seeds=1)
    good = read_json(Record.path(store, "sample"))
    damaged: dict[str, Any] = {
        "written by another version": {**good, "format_version": FORMAT_VERSION - 1},
        "start is missing; run": {"preset": "paper"},
        "is no name of a run": {**good, "runs": [{**good["runs"][0], "chain": ["../elsewhere"]}]},
        "runs.0.seed is": {**good, "runs": [{**good["runs"][0], "seed": "3"}]},
        "runs of rows that no table has": {**good, "tables": good["tables"][1:]},
        "two rows have the same key": {**good, "tables": [{**t, "rows": 2 * t["rows"]} for t in good["tables"]]},
    }
    path = Record.path(store, "paper")
    for problem, record in damaged.items():
        path.write_text(json.dumps(record))
        assert_refused_in_one_line(store, problem)
    path.write_text("{")
    assert_refused_in_one_line(store, "Invalid JSON")


def assert_refused_in_one_line(store: Path, told: str) -> None:
    with pytest.raises(InputError, match=told) as raised:
        Record.read(store, "paper")
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith("run `multitask experiments run paper` again")


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "?"), (0.04, "0.0 s"), (59.94, "59.9 s"), (61, "1 min 01 s"), (7260, "2 h 01 min")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text
