"""File locks between processes and threads. A killed process releases its locks."""

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from minbert.errors import InputError

logger = logging.getLogger("multitask")

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of file systems that cannot lock."""


@contextmanager
def exclusive(path: Path, waiting: str | None = None) -> Iterator[None]:
    """Hold the lock file alone within the block; wait while others hold it, and then log `waiting`.

    Where the file system has no locks, a warning says so. Raises InputError if the lock file is a link, and OSError if
    it may neither be written nor be read.
    """
    with _opened(path) as file:
        if not _lock(path, file, fcntl.LOCK_EX | fcntl.LOCK_NB):
            if waiting:
                logger.warning(waiting)
            _lock(path, file, fcntl.LOCK_EX)
        yield


@contextmanager
def shared(path: Path) -> Iterator[None]:
    """Share the lock file with other sharers within the block; wait while somebody holds it alone."""
    with _opened(path) as file:
        _lock(path, file, fcntl.LOCK_SH)
        yield


@contextmanager
def held_now(path: Path) -> Iterator[bool]:
    """Hold the lock file alone within the block unless others hold it; yields whether it is held.

    Raises OSError where the file system has no locks: nobody knows who else is at work there.
    """
    with _opened(path) as file:
        yield _lock(path, file, fcntl.LOCK_EX | fcntl.LOCK_NB, needed=True)


def refuse_link(path: Path) -> None:
    """Raise InputError if the path is a link: what is written or deleted there would be somebody else's."""
    if path.is_symlink():
        raise InputError(f"{path}: a link; expected a file or folder of the run's own, so remove the link")


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    path.parent.mkdir(parents=True, exist_ok=True)
    refuse_link(path)
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)  # another user's, or a disk that is only read
    try:
        yield file
    finally:
        os.close(file)


def _lock(path: Path, file: int, how: int, needed: bool = False) -> bool:
    """Lock an open file; returns whether it is locked, or cannot be."""
    try:
        fcntl.flock(file, how)
    except BlockingIOError:
        return False
    except OSError as error:
        if needed or error.errno not in NO_LOCKS:
            raise OSError(error.errno, error.strerror, str(path)) from None
        logger.warning("%s: the file system has no locks; do not start the same command twice at once", path)
    return True
