"""Several processes compute what one computes, and one that dies takes only its own job with it."""

import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from minbert.errors import InputError
from multitask.base.errors import Interrupted
from multitask.base.options import RunOptions
from multitask.base.runs import Run
from multitask.experiments import engines
from multitask.experiments.engines import Engine, Failed, Job, Processes, Ray, local_engine
from multitask.experiments.grid import run_preset
from multitask.experiments.table_definitions import PresetRecord
from tests.multitask.experiments.conftest import files, options, two_rows


@pytest.fixture
def job(recipes, tmp_path) -> Job:
    """A fine-tuning from the start weights."""
    where = options(tmp_path / "runs")
    return Job(recipes.finetune(recipes.start), (recipes.start,), where, tmp_path / "runs" / "logs" / "job.log")


@pytest.fixture
def quick(processes, monkeypatch) -> None:
    """Processes that need not import torch again."""
    monkeypatch.setattr(engines, "get_context", lambda _: processes)


@pytest.mark.slow
def test_two_processes_give_the_same_bits_as_one(recipes, computed, tmp_path):
    two = run_preset(two_rows(recipes), 1, options(tmp_path), Processes([None] * 2))
    assert not two.failures
    assert files(tmp_path) == files(computed)
    assert any("epoch 1" in path.read_text() for path in (tmp_path / "logs").iterdir())


@pytest.mark.slow
def test_two_grids_at_once_share_the_work(recipes, computed, processes, tmp_path):
    given = (two_rows(recipes), 1, options(tmp_path), Engine())
    grids = [processes.Process(target=run_preset, args=given) for _ in range(2)]
    for grid in grids:
        grid.start()
    for grid in grids:
        grid.join()
    assert [grid.exitcode for grid in grids] == [0, 0]
    assert PresetRecord.read(tmp_path, "sample").artefacts() == PresetRecord.read(computed, "sample").artefacts()
    assert files(tmp_path) == files(computed)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_process_that_dies_fails_its_job_and_is_replaced(job):
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
        assert isinstance(outcome, Run)
        assert outcome.done
        [idle] = engine.workers
        idle.process.kill()
        idle.process.join()
        engine.submit(job)
        _, outcome = engine.wait()
        assert isinstance(outcome, Failed)
        assert "SIGKILL" in outcome.error
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
    engines.run_job = wait_and_fail
    engines._serve(pipe, gpu)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_stop_ends_a_process_whose_training_fails_to_stop(job, monkeypatch):
    """As on a full disk: the process outlives its training, and must not wait for another job."""
    monkeypatch.setattr(engines, "_serve", serve_and_fail)
    with Processes([None]) as engine:
        engine.submit(job)
        while not job.log.is_file() or job.log.read_text() != "begun":
            time.sleep(0.02)
    assert engine.workers[0].process.exitcode == 0


def test_ray_that_is_not_installed_is_one_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"Ray is not installed; install with: .* ray|\[ray\]"):
        Ray(RunOptions("cpu", "fp32"))


def test_processes_share_gpus_and_cores(monkeypatch):
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
    assert places(3, gpus=1, cores=8) == ["0", "0", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert places(4, gpus=2, cores=8) == ["5", "7", "5", "7"]


# Ray, of which a stand-in does for signals and failures.


def unexpected(*_: object) -> None:
    raise AssertionError("a handler of Ray's")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_within_a_function_of_ray_interrupts_the_engine_afterwards(tmp_path, monkeypatch, number):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    told: list[object] = []

    def wait(jobs: list[str], num_returns: int, timeout: float) -> tuple[list[str], list[str]]:
        if told:
            return jobs, []
        os.kill(os.getpid(), number)
        told.append("waited to the end")  # a handler that raises would leave this function, which Ray's cannot bear
        return [], jobs

    ray = SimpleNamespace(
        init=lambda **_: signal.signal(signal.SIGTERM, unexpected),
        remote=lambda _: None,
        wait=wait,
        cancel=lambda job: told.append(f"cancelled {job}"),
        shutdown=lambda: told.append("shut down"),
    )
    monkeypatch.setitem(sys.modules, "ray", ray)

    def begin_and_wait() -> None:
        with Ray(RunOptions("cpu", "fp32", tmp_path)) as engine:
            engine.jobs = {"a": None, "b": None}
            engine.wait()

    with pytest.raises(Interrupted) as caught:
        begin_and_wait()
    assert caught.value.signal_number == number
    assert told == ["waited to the end", "cancelled a", "cancelled b", "shut down"]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_a_job_that_failed_on_a_cluster_has_the_log_of_the_job(tmp_path, monkeypatch):
    log = Path("runs/logs/a.log")
    ray = SimpleNamespace(
        init=lambda **_: None,
        remote=lambda _: None,
        wait=lambda jobs, **_: (jobs, []),
        get=lambda _: Failed("why", log.absolute()),
        shutdown=lambda: None,
        exceptions=SimpleNamespace(RayError=RuntimeError),
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    job = SimpleNamespace(log=log)
    with Ray(RunOptions("cpu", "fp32", tmp_path)) as engine:
        engine.jobs = {"a": job}
        assert engine.wait() == (job, Failed("why", log))
