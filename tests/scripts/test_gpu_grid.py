"""What a grid has computed is packed, however it ends, and unpacked as it was."""

import errno
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from minbert.errors import InputError
from minbert.files import read_arrays, write_json
from multitask.base.errors import Interrupted
from multitask.base.runs import Run
from multitask.experiments.table_definitions import RecordedRun
from scripts import gpu_grid
from scripts.published_runs import answers_of, pack, unpack
from tests.studies.synthetic import write_store


@pytest.mark.parametrize("end", ["whole", "stopped", "full disk", "a row failed"])
def test_finished_rows_are_packed_however_the_grid_ends(end, tmp_path, monkeypatch, capsys):
    runs, file = write_store(tmp_path / "runs", ["3"], seeds=1), tmp_path / "packed" / "3.parquet"
    arguments = ["sample", "3", str(file), "--data", str(tmp_path), "--runs", str(runs), "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["gpu_grid", *arguments])
    errors = {"stopped": Interrupted(signal.SIGTERM), "full disk": OSError(errno.ENOSPC, "No space left")}
    failed = ("NLI", RecordedRun("3", "nli", 1, error="it exploded"))

    def run(*_):
        if end in errors:
            raise errors[end]
        return SimpleNamespace(failures=[failed] * (end == "a row failed"))

    monkeypatch.setattr(gpu_grid, "run_preset", run)
    if end in errors:
        with pytest.raises(type(errors[end])):
            gpu_grid.main()
    else:
        assert gpu_grid.main() == (end == "a row failed")
        said = "error: NLI, seed 1: it exploded\n" if end == "a row failed" else ""
        assert capsys.readouterr().err == said
    unpack(file, tmp_path / "unpacked")
    folders = {path.name for path in runs.glob("*/")}
    assert {path.name for path in (tmp_path / "unpacked").glob("*/")} == folders


def test_suites_are_read_from_the_given_folder(tmp_path, monkeypatch):
    def run(preset, *_):
        [table] = preset.experiments
        scored = [table.evaluation(model) for model in table.models.values()]
        assert {(node.stage, node.data) for node in scored} == {("suites", Path("elsewhere"))}
        return SimpleNamespace(failures=[])

    arguments = ["--data", "d", "--suites-data", "elsewhere", "--runs", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["gpu_grid", "small", "objectives-suites", "f", *arguments])
    monkeypatch.setattr(gpu_grid, "run_preset", run)
    assert gpu_grid.main() == 0


def test_a_grid_that_is_stopped_before_its_first_record_says_so(tmp_path, monkeypatch):
    def run(*_):
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(sys, "argv", ["gpu_grid", "sample", "3", "f", "--data", "d", "--runs", str(tmp_path)])
    monkeypatch.setattr(gpu_grid, "run_preset", run)
    with pytest.raises(Interrupted):
        gpu_grid.main()


@pytest.fixture
def packed(tmp_path) -> Path:
    """The file of a run whose examples have three labels each."""
    run = tmp_path / "runs" / "ensemble-run-0123456789abcdef"
    for name in ("config", "inputs", "best"):
        write_json(run / f"{name}.json", {})
    labels = np.arange(12).reshape(4, 3)
    np.savez(run / "predictions.npz", tags_labels=labels, tags_predictions=labels / 12)
    Run(run).finish()
    pack(tmp_path / "runs", tmp_path / "packed.parquet")
    return tmp_path / "packed.parquet"


def test_answers_of_several_labels_a_row_are_unpacked_as_they_were(packed, tmp_path):
    unpack(packed, tmp_path / "new")
    expected, found = (read_arrays(next((tmp_path / runs).glob("*/predictions.npz"))) for runs in ("runs", "new"))
    np.testing.assert_equal(found, expected)
    assert {name: array.dtype for name, array in found.items()} == {
        name: array.dtype for name, array in expected.items()
    }


def test_a_complete_run_keeps_its_model(packed, tmp_path):
    run = next((tmp_path / "runs").glob("*/"))
    (run / "checkpoints" / "model").mkdir(parents=True)
    (run / "checkpoints" / "model" / "model.safetensors").write_bytes(b"weights")
    write_json(run / "best.json", {"overall": "model"})
    Run(run).finish()
    unpack(packed, tmp_path / "runs")
    assert [*Run(run).kept_models()] == ["overall"]


def test_a_record_of_other_tables_is_not_replaced(packed, tmp_path):
    for text in ('{"own": 1}', '{"own": 2}'):
        (tmp_path / "runs" / "experiments-small.json").write_text(text)
        pack(tmp_path / "runs", tmp_path / "packed.parquet")
        if text == '{"own": 1}':
            unpack(packed, tmp_path / "new")
            unpack(packed, tmp_path / "new")  # again
    with pytest.raises(InputError, match=r"experiments-small\.json: a record of other tables, which would be lost"):
        unpack(packed, tmp_path / "new")
    assert (tmp_path / "new" / "experiments-small.json").read_text() == '{"own": 1}'


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("no table")])
def test_a_file_whose_answers_are_lost_is_refused_and_nothing_is_written(packed, tmp_path, damage):
    damage(answers_of(packed))
    with pytest.raises(InputError, match=r"packed-answers\.parquet: no"):
        unpack(packed, tmp_path / "new")
    assert not (tmp_path / "new").exists()
