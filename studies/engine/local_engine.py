"""Engines on this machine: jobs one after the other in this process, or several at once in processes of their own."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import NoReturn, Self

import torch

from minbert.errors import InputError
from multitask.runtime.errors import Interrupted
from multitask.runtime.options import Device
from studies.engine.jobs import Done, Engine, Failed, Job, run_job


def local_engine(workers: int | None, device: Device, threads: int = 1) -> Engine:
    """Processes on this machine: one for each GPU, or as many as asked for, spread evenly over the GPUs.

    Without a GPU they share the cores: up to eight processes, since two of one thread each do more than one of two.

    Args:
        workers: number of processes.
        device: where jobs compute.
        threads: of each job.

    Raises:
        InputError: less than one worker.
    """
    if workers is not None and workers < 1:
        raise InputError(f"--workers {workers}: expected at least 1")
    count = torch.cuda.device_count() if device != "cpu" else 0
    workers = workers or count or min(max(torch.get_num_threads() // threads, 1), 8)
    if workers == 1:
        return InProcess()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    gpus = visible if len(visible) == count else [str(i) for i in range(count)]
    return Processes([gpus[i % count] if count else None for i in range(workers)])


class InProcess:
    """One job at a time, here."""

    slots = 1

    def __init__(self) -> None:
        self.job: Job | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def submit(self, job: Job) -> None:
        self.job = job

    def wait(self) -> tuple[Job, Done | Failed]:
        assert self.job is not None, "a job was submitted"
        return self.job, run_job(self.job)


@dataclass
class Worker:
    """A process that computes jobs, one at a time."""

    gpu: str | None
    pipe: Connection
    process: SpawnProcess
    job: Job | None = None


class Processes:
    """Jobs in processes of their own, which begin with the first job and are used again. One that dies fails its job.

    Args:
        gpus: for each process what CUDA_VISIBLE_DEVICES becomes; unchanged where None.
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
        worker.pipe.send(job)

    def wait(self) -> tuple[Job, Done | Failed]:
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
