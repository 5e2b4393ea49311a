"""Locks between processes and threads; a kill frees them."""

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger("multitask")


@contextmanager
def exclusive(path: Path, waiting: str | None = None) -> Iterator[None]:
    """Hold the lock file alone; waits for whoever holds it.

    Args:
        path: the lock file; it stays behind, empty.
        waiting: logged when there is somebody to wait for.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting:
                logger.warning(waiting)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def shared(path: Path) -> Iterator[None]:
    """Hold the lock file beside others who share it; waits for one who holds it alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock file at this moment."""
    if not path.is_file():
        return True
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
