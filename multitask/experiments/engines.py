"""Engines: where the stages of a grid are computed, one job each. A failure is an outcome, not an exception.

`Engine` computes here, `Processes` in several processes of this machine, and `Ray` on all GPUs or cores of a cluster
whose machines share the folder of runs.
"""

import errno
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Self

import torch

from minbert.errors import InputError, install_with
from minbert.files import FULL
from multitask.base import logger
from multitask.base.device import resolve_runtime
from multitask.base.errors import Interrupted, TrainingError, stop_signals
from multitask.base.options import Device, RunOptions
from multitask.base.runs import Run, Weights
from multitask.experiments.table_definitions import Node
from multitask.stages.registry import stage_named
from multitask.stages.run_stage import run_stage

POLL = 0.5  # seconds until Ray's engine notices a signal
RETRIES = 5  # of a job whose worker or machine Ray has lost; it goes on from its last saved state


@dataclass(frozen=True)
class Job:
    """A stage whose parents are computed."""

    node: Node
    models: tuple[Weights, ...]  # the models that it starts from, in the order of the node's parents
    options: RunOptions
    log: Path  # file to which log lines and the output of libraries are added


@dataclass(frozen=True)
class Failed:
    """Why a stage could not be computed, in one line; the log has the rest."""

    error: str
    log: Path
    disk: OSError | None = None  # the full or read-only disk that stops the whole grid, if that was it


def run_job(job: Job) -> Run | Failed:
    """Compute a job here. Raises Interrupted when a signal asked to stop."""
    with _logged_to(job.log):
        try:
            return run_stage(stage_named(job.node.stage), job.models, job.node.data, job.node.config, job.options)
        except Interrupted:
            raise
        except OSError as error:
            disk = error.errno in (*FULL, errno.EROFS, errno.EIO)
            message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            logger.error("failed: %s", message, exc_info=not disk)
            return Failed(message, job.log, error if error.errno in (*FULL, errno.EROFS) else None)
        except Exception as error:  # one row must not take the others with it, whatever it died of
            expected = isinstance(error, InputError | TrainingError)
            message = str(error) if expected else f"{type(error).__name__}: {error}"
            logger.error("failed: %s", message, exc_info=not expected)
            return Failed(message, job.log)


@contextmanager
def _logged_to(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = _Log(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        with suppress(OSError):
            handler.close()


class _Log(logging.FileHandler):
    """A job's log. If the disk fails, lines are lost; the job's outcome is reported all the same."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


class Engine:
    """Computes one job at a time, here."""

    slots = 1
    """How many jobs at once."""

    def __init__(self) -> None:
        self.job: Job | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop what still runs, its state saved."""

    def submit(self, job: Job) -> None:
        """Begin a job, or keep it for `wait`; not more than `slots` at a time."""
        self.job = job

    def wait(self) -> tuple[Job, Run | Failed]:
        """The next submitted job that is over. Raises Interrupted when a signal asked to stop."""
        assert self.job is not None, "a job was submitted"
        return self.job, run_job(self.job)


def local_engine(workers: int | None, device: Device, threads: int = 1) -> Engine:
    """Processes on this machine: one for each GPU, or as many as asked for, spread evenly over the GPUs.

    Without a GPU they share the cores: up to eight processes, since two of one thread each do more than one of two.
    """
    count = torch.cuda.device_count() if device != "cpu" else 0
    workers = workers or count or min(max(torch.get_num_threads() // threads, 1), 8)
    if workers == 1:
        return Engine()
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    gpus = visible if len(visible) == count else [str(i) for i in range(count)]
    return Processes([gpus[i % count] if count else None for i in range(workers)])


@dataclass
class Worker:
    """A process that computes jobs, one at a time."""

    gpu: str | None
    pipe: Connection
    process: SpawnProcess
    job: Job | None = None


class Processes(Engine):
    """Jobs in processes of their own, which begin with the first job and are used again. One that dies fails its job.

    `gpus` has for each process what CUDA_VISIBLE_DEVICES becomes; unchanged where None.
    """

    def __init__(self, gpus: Sequence[str | None]) -> None:
        self.slots = len(gpus)
        self.free = list(gpus)
        self.workers: list[Worker] = []
        self.context = get_context("spawn")  # torch's threads do not survive a fork

    def __enter__(self) -> Self:
        self.previous = signal.signal(signal.SIGTERM, interrupt)
        return self

    def __exit__(self, *exception: object) -> None:
        for worker in self.workers:
            worker.pipe.close()  # ends those that wait for a job, also after a training whose state could not be saved
            if worker.job is not None:
                worker.process.terminate()  # a training saves its state
        for worker in self.workers:
            worker.process.join()
        signal.signal(signal.SIGTERM, self.previous)

    def submit(self, job: Job) -> None:
        worker = next((worker for worker in self.workers if worker.job is None), None) or self._start()
        worker.job = job
        with suppress(ConnectionError):  # a process that died while it waited: `wait` says so
            worker.pipe.send(job)

    def wait(self) -> tuple[Job, Run | Failed]:
        busy = {worker.pipe: worker for worker in self.workers if worker.job is not None}
        worker = busy[next(pipe for pipe in connection.wait(list(busy)) if isinstance(pipe, Connection))]
        job, worker.job = worker.job, None
        assert job is not None, "a busy worker has a job"
        try:
            return job, worker.pipe.recv()
        except (EOFError, ConnectionError):
            worker.process.join()
            self.workers.remove(worker)
            self.free.append(worker.gpu)
            return job, Failed(f"its process died ({_cause(worker.process.exitcode)})", job.log)

    def _start(self) -> Worker:
        gpu = self.free.pop()
        pipe, child = self.context.Pipe()
        process = self.context.Process(target=_serve, args=(child, gpu), daemon=True)
        process.start()
        child.close()  # so that the end of the process is the end of the pipe
        self.workers.append(Worker(gpu, pipe, process))
        return self.workers[-1]


def interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    """A signal's handler while other processes compute: the exception stops them."""
    raise Interrupted(number)


def _cause(exitcode: int | None) -> str:
    if exitcode is None or exitcode >= 0:
        return f"exit code {exitcode}"
    return signal.Signals(-exitcode).name + ("; out of memory?" if exitcode == -signal.SIGKILL else "")


def _serve(pipe: Connection, gpu: str | None) -> None:
    """A worker's life: until its parent ends, or a signal stops the training of a job."""
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # before CUDA is first used
    logging.getLogger().setLevel(logging.INFO)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        while True:
            job: Job = pipe.recv()
            job.log.parent.mkdir(parents=True, exist_ok=True)
            with job.log.open("a", encoding="utf-8") as log:
                os.dup2(log.fileno(), sys.stderr.fileno())  # what libraries print, a progress bar included
            pipe.send(run_job(job))
    except (EOFError, ConnectionError, Interrupted, KeyboardInterrupt):
        return


def _end_with_parent() -> None:
    """A killed parent cannot stop its workers: they notice, and stop as if it had."""
    parent = parent_process()
    assert parent is not None, "workers have a parent"
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


class Ray(Engine):
    """Jobs on the cluster that `ray start` began (or that RAY_ADDRESS names), else on one that it starts here.

    Start weights in folders, data and runs must have the same paths on all machines. Device and precision are resolved
    here, so that they are the same everywhere: this machine must have the same kind of device as the others.
    """

    slots = 100_000  # the cluster keeps what it has no room for

    def __init__(self, options: RunOptions) -> None:
        try:
            import ray
        except ImportError:
            raise InputError(f"--engine ray: Ray is not installed; {install_with('ray')}") from None
        self.ray: Any = ray
        self.runtime = resolve_runtime(options.device, options.precision)
        self.jobs: dict[Any, Job] = {}

    def __enter__(self) -> Self:
        self.signals = ExitStack()
        self.signals.callback(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))  # Ray sets its own
        joined = {"log_to_driver": False, "configure_logging": False}
        try:
            self.ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), **joined)
        except ConnectionError:
            self.ray.init(address="local", **joined)
        # Ray's functions end in a SystemError if a signal's handler raises within them.
        self.received = self.signals.enter_context(stop_signals())
        self.run = self.ray.remote(run_job)
        return self

    def __exit__(self, *exception: object) -> None:
        for reference in self.jobs:
            self.ray.cancel(reference)  # a training saves its state
        if self.jobs:
            self.ray.wait(list(self.jobs), num_returns=len(self.jobs), timeout=60)
        self.ray.shutdown()
        self.signals.close()

    def submit(self, job: Job) -> None:
        gpus = stage_named(job.node.stage).gpu_share if self.runtime.device.type == "cuda" else 0
        run = self.run.options(
            num_cpus=job.options.threads or 1,
            num_gpus=gpus,
            max_retries=RETRIES,
            retry_exceptions=[Interrupted],
            name=job.log.stem,
        )
        self.jobs[run.remote(self._anywhere(job))] = job

    def wait(self) -> tuple[Job, Run | Failed]:
        ready: list[Any] = []
        while not ready:
            ready, _ = self.ray.wait(list(self.jobs), num_returns=1, timeout=POLL)
            if self.received:
                raise Interrupted(self.received[0])
        [reference] = ready
        job = self.jobs.pop(reference)
        try:
            outcome: Run | Failed = self.ray.get(reference)
            # The paths of the job on the cluster are absolute.
            return job, replace(outcome, log=job.log) if isinstance(outcome, Failed) else outcome
        except self.ray.exceptions.RayError as error:
            return job, Failed(f"lost by the cluster: {str(error).splitlines()[0]}", job.log)

    def _anywhere(self, job: Job) -> Job:
        """The job with paths and settings that mean the same on every machine."""
        options = replace(
            job.options,
            runs=job.options.runs.resolve(),
            device="cuda" if self.runtime.device.type == "cuda" else "cpu",
            precision=self.runtime.precision,
        )
        models = tuple(map(_absolute, job.models))
        node = replace(job.node, data=job.node.data.resolve())
        return replace(job, node=node, models=models, options=options, log=job.log.resolve())


def _absolute(weights: Weights) -> Weights:
    return replace(weights, name=str(Path(weights.name).resolve())) if Path(weights.name).is_dir() else weights
