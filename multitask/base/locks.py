"""File locks between processes and threads. A killed process releases its locks."""

import errno
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from minbert.errors import InputError
from multitask.base import logger

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP)
"""Errors of file systems that cannot lock."""


@contextmanager
def exclusive(path: Path, waiting: str) -> Iterator[None]:
    """Hold the lock file alone within the block; log `waiting`, and wait, while others hold it.

    Where the file system has no locks, a warning says so. Raises InputError if the lock file is a link, and OSError if
    it may not be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    refuse_link(path)
    with ExitStack() as held:
        try:
            try:
                held.enter_context(FileLock(path).acquire(blocking=False))
            except Timeout:
                logger.warning(waiting)
                held.enter_context(FileLock(path).acquire())
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            logger.warning("%s: the file system has no locks; do not start the same command twice at once", path)
        yield


def refuse_link(path: Path) -> None:
    """Raise InputError if the path is a link: what is written or deleted there would be somebody else's."""
    if path.is_symlink():
        raise InputError(f"{path}: a link; expected a file or folder of the run's own, so remove the link")
