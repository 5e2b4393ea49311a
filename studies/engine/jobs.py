"""Jobs: one stage of one recipe, computed wherever an engine puts it. A failure is an outcome, not an exception."""

import errno
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from minbert.errors import InputError
from minbert.files import FULL
from multitask.runs.artefact import Artefact, Weights
from multitask.runtime.errors import Interrupted, TrainingError
from multitask.runtime.options import RunOptions
from multitask.stages.registry import stage_named
from multitask.stages.run_stage import run_stage
from studies.engine.recipes import Node

logger = logging.getLogger("multitask")


@dataclass(frozen=True)
class Job:
    """A stage whose parents are computed.

    Args:
        node: the stage.
        models: the models that it starts from, in the order of the node's parents.
        options: where to compute and to write.
        log: file that everything said meanwhile is added to.
    """

    node: Node
    models: tuple[Weights, ...]
    options: RunOptions
    log: Path


@dataclass(frozen=True)
class Done:
    """A computed stage, and the wall time that it took."""

    artefact: Artefact
    seconds: float


@dataclass(frozen=True)
class Failed:
    """Why a stage could not be computed, in one line; the log has the rest.

    Args:
        error: the line.
        log: of the job.
        disk: the full or read-only disk that stops the whole grid, if that was it.
    """

    error: str
    log: Path
    disk: OSError | None = None


class Engine(Protocol):
    """Where jobs are computed."""

    slots: int
    """How many at once."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None:
        """Stop what still runs, its state saved."""

    def submit(self, job: Job) -> None:
        """Begin a job, or keep it for `wait`; not more than `slots` at a time."""

    def wait(self) -> tuple[Job, Done | Failed]:
        """The next submitted job that is over. Raises Interrupted when a signal asked to stop."""


def run_job(job: Job) -> Done | Failed:
    """Compute a job here. Raises Interrupted when a signal asked to stop."""
    started = time.monotonic()
    with _logged_to(job.log):
        try:
            artefact = run_stage(stage_named(job.node.stage), job.models, job.node.data, job.node.config, job.options)
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
    return Done(artefact, time.monotonic() - started)


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
    """A log on a disk that fails says nothing of it: the job's outcome is told anyway."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)
