"""What a stopped grid has computed is packed."""

import signal
import sys

import pytest

from multitask.base.errors import Interrupted
from scripts import gpu_grid
from scripts.published_runs import unpack
from tests.studies.synthetic import write_store


@pytest.mark.parametrize("stopped", [False, True])
def test_finished_rows_are_packed_whether_or_not_the_grid_was_stopped(stopped, tmp_path, monkeypatch):
    runs, file = write_store(tmp_path / "runs", ["3"], seeds=1), tmp_path / "packed" / "3.parquet"
    arguments = ["sample", "3", str(file), "--data", str(tmp_path), "--runs", str(runs), "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["gpu_grid", *arguments])

    class Record:
        failures = ()

    def run(*_):
        if stopped:
            raise Interrupted(signal.SIGTERM)
        return Record

    monkeypatch.setattr(gpu_grid, "run_preset", run)
    if stopped:
        with pytest.raises(Interrupted):
            gpu_grid.main()
    else:
        assert gpu_grid.main() == 0
    unpack(file, tmp_path / "unpacked")
    folders = {path.name for path in runs.glob("*/")}
    assert {path.name for path in (tmp_path / "unpacked").glob("*/")} == folders
