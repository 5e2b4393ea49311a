"""Several processes compute what one computes, and one that dies takes only its own job with it."""

import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
import torch

from minbert.errors import InputError
from multitask.runtime.options import RunOptions
from studies.engine import local_engine as engine_of_processes
from studies.engine.experiments import experiment
from studies.engine.jobs import Done, Failed, Job
from studies.engine.local_engine import InProcess, Processes, local_engine
from studies.engine.presets import Preset
from studies.engine.ray_engine import Ray
from studies.engine.recipes import Recipes
from studies.engine.record import Record
from studies.engine.run import run_preset
from studies.engine.table import Row


@pytest.fixture
def preset(recipes: Recipes) -> Preset:
    lines = [
        (Row("none", "None"), recipes.finetune(recipes.start)),
        (Row("nli", "NLI"), recipes.finetune(recipes.nli(epochs=1))),
    ]
    return Preset("sample", recipes, (experiment("1", "", "", lines),))


def files(runs: Path) -> dict[str, bytes]:
    paths = [path for path in runs.glob("*-*-*/**/*") if path.suffix in (".safetensors", ".npz", ".json")]
    return {str(path.relative_to(runs)): path.read_bytes() for path in paths if path.name != "inputs.json"}


def test_two_processes_give_the_same_bits_as_one(preset: Preset, tmp_path: Path) -> None:
    one = run_preset(preset, 1, RunOptions("cpu", "fp32", tmp_path / "one"), InProcess())
    gpus = [None] * 2
    two = run_preset(preset, 1, RunOptions("cpu", "fp32", tmp_path / "two"), Processes(gpus))
    assert one.artefacts() == two.artefacts()
    assert not two.failures
    assert files(tmp_path / "one") == files(tmp_path / "two")
    logs = [path.read_text() for path in (tmp_path / "two" / "logs").iterdir()]
    assert any("epoch 1" in text for text in logs)


def test_two_grids_at_once_share_the_work(preset: Preset, processes: ForkServerContext, tmp_path: Path) -> None:
    options = RunOptions("cpu", "fp32", tmp_path / "both")
    grids = [processes.Process(target=run_preset, args=(preset, 1, options, InProcess())) for _ in range(2)]
    for grid in grids:
        grid.start()
    alone = run_preset(preset, 1, RunOptions("cpu", "fp32", tmp_path / "alone"), InProcess())
    for grid in grids:
        grid.join()
    assert [grid.exitcode for grid in grids] == [0, 0]
    assert Record.read(tmp_path / "both", "sample").artefacts() == alone.artefacts()
    assert files(tmp_path / "both") == files(tmp_path / "alone")


def test_a_process_that_dies_fails_its_job_and_is_replaced(preset: Preset, tmp_path: Path) -> None:
    options = RunOptions("cpu", "fp32", tmp_path / "runs")
    job = Job(
        preset.experiments[0].models["none"], (preset.recipes.start,), options, tmp_path / "runs" / "logs" / "job.log"
    )
    with Processes([None]) as engine:
        engine.submit(job)
        killed = engine.workers[0].process.pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        first, outcome = engine.wait()
        assert first == job
        assert isinstance(outcome, Failed)
        assert "SIGKILL" in outcome.error
        engine.submit(job)
        assert engine.workers[0].process.pid != killed
        _, outcome = engine.wait()
    assert isinstance(outcome, Done)
    assert outcome.artefact.done
    assert all(not worker.process.is_alive() for worker in engine.workers)


def wait_and_fail(job: Job) -> Failed:
    """In place of `run_job`: a training whose state cannot be saved when a signal stops it."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    job.log.write_text("begun")
    assert stopped.wait(60)
    return Failed("no space left", job.log)


def serve_and_fail(pipe: Connection, gpu: str | None) -> None:
    """A process that waits for another job all the same ends with another exit code after a while."""
    watchdog = threading.Timer(60, lambda: os._exit(3))
    watchdog.daemon = True
    watchdog.start()
    engine_of_processes.run_job = wait_and_fail
    engine_of_processes._serve(pipe, gpu)


def test_a_stop_ends_a_process_whose_training_fails_to_stop(
    preset: Preset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As on a full disk: the process outlives its training, and must not wait for another job."""
    log = tmp_path / "logs" / "job.log"
    job = Job(
        preset.experiments[0].models["none"], (preset.recipes.start,), RunOptions("cpu", "fp32", tmp_path / "runs"), log
    )
    monkeypatch.setattr(engine_of_processes, "_serve", serve_and_fail)
    with Processes([None]) as engine:
        engine.submit(job)
        while not log.is_file() or log.read_text() != "begun":
            time.sleep(0.02)
    assert engine.workers[0].process.exitcode == 0


def test_ray_that_is_not_installed_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install -e \"\.\[ray\]\""):
        Ray(RunOptions("cpu", "fp32"))


def test_processes_share_gpus_and_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    def places(workers: int | None, gpus: int, cores: int, threads: int = 1) -> list[str | None]:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(torch, "get_num_threads", lambda: cores)
        engine = local_engine(workers, "auto", threads)
        return engine.free if isinstance(engine, Processes) else []

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert places(None, gpus=0, cores=1) == places(None, gpus=1, cores=8) == places(1, gpus=4, cores=8) == []
    assert places(None, gpus=0, cores=2) == [None] * 2
    assert places(None, gpus=0, cores=16) == [None] * 8
    assert places(None, gpus=0, cores=16, threads=4) == [None] * 4
    assert places(None, gpus=0, cores=2, threads=4) == []
    assert places(None, gpus=2, cores=8) == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert places(4, gpus=2, cores=8) == ["5", "7", "5", "7"]
