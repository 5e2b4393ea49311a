"""What the engine on Ray does with signals and failures, tried with a stand-in for Ray."""

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from multitask.runtime.errors import Interrupted
from multitask.runtime.options import RunOptions
from studies.engine.jobs import Failed
from studies.engine.ray_engine import Ray


def unexpected(*_: object) -> None:
    raise AssertionError("a handler of Ray's")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_within_a_function_of_ray_interrupts_the_engine_afterwards(tmp_path: Path, monkeypatch, number):
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


def test_a_job_that_failed_on_a_cluster_has_the_log_of_the_job(tmp_path: Path, monkeypatch):
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
