"""A file layer whose nth operation fails, by patching the functions of `os` and `io` within one folder.

Libraries that write with code of their own are covered as far as this project uses them: safetensors' files go through
the layer, with safetensors' own error; pyarrow's (parquet) do not.
"""

import builtins
import contextlib
import errno
import io
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import safetensors.torch

MAKES = ("open", "mkdir", "rename", "write", "fsync")
"""Operations that may need space."""
REMOVES = ("unlink", "rmdir", "chmod")


@dataclass(frozen=True)
class Fault:
    """What goes wrong.

    Args:
        error: the number of the error.
        hits: the operations that can fail.
        lasting: whether everything that `hits` names fails from then on.
        half: a write first writes half of its bytes.
    """

    error: int
    hits: tuple[str, ...]
    lasting: bool
    half: bool = False


FAULTS = {
    "full disk": Fault(errno.ENOSPC, MAKES, lasting=True),
    "full disk, after half of a write": Fault(errno.ENOSPC, ("write",), lasting=True, half=True),
    "read-only disk": Fault(errno.EROFS, MAKES + REMOVES, lasting=True),
    "one input/output error": Fault(errno.EIO, MAKES + REMOVES, lasting=False),
}


class FaultyFiles:
    """Counts the operations on files within a folder, and lets the nth of those that the fault hits fail.

    Args:
        folder: absolute.
        fault: what goes wrong.
        at: which operation fails, from 0; None: none.
    """

    def __init__(self, folder: Path, fault: Fault, at: int | None) -> None:
        self.folder = str(folder)
        self.fault = fault
        self.at = at
        self.count = 0
        self.failed: list[str] = []

    def step(self, operation: str, path: Any) -> None:
        """Count an operation; raise its error if it is to fail."""
        if self._fails(operation, path):
            raise OSError(self.fault.error, os.strerror(self.fault.error), None if operation == "write" else str(path))

    def _fails(self, operation: str, path: Any) -> bool:
        if operation not in self.fault.hits or not self._within(path):
            return False
        here, self.count = self.count, self.count + 1
        fails = self.at is not None and (here == self.at or (here > self.at and self.fault.lasting))
        if fails:
            self.failed.append(f"{operation} {path}")
        return fails

    def _within(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.path.abspath(path).startswith(self.folder)  # noqa: PTH100

    def write(self, file: io.FileIO, path: str, data: Any) -> int:
        """Write to the file, or half and then fail, or fail."""
        if self._fails("write", path):
            if self.fault.half and len(self.failed) == 1:
                io.FileIO.write(file, bytes(data)[: len(bytes(data)) // 2])
            raise OSError(self.fault.error, os.strerror(self.fault.error))
        return io.FileIO.write(file, data) or 0

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Every operation within the block goes through this layer."""
        with contextlib.ExitStack() as stack:
            for module in (io, builtins):
                stack.enter_context(patch.object(module, "open", self._open))
            for name in ("mkdir", "unlink", "remove", "rmdir", "chmod"):
                stack.enter_context(patch.object(os, name, self._one_path(name, getattr(os, name))))
            for name in ("rename", "replace"):
                stack.enter_context(patch.object(os, name, self._one_path("rename", getattr(os, name))))
            stack.enter_context(patch.object(os, "open", self._os_open(os.open)))
            stack.enter_context(patch.object(os, "fsync", self._fsync))
            stack.enter_context(patch.object(shutil, "_USE_CP_SENDFILE", False))
            stack.enter_context(patch.object(safetensors.torch, "save_file", self._save_file))
            yield

    def _one_path(self, operation: str, real: Callable[..., Any]) -> Callable[..., Any]:
        operation = {"remove": "unlink"}.get(operation, operation)

        def wrapped(path: Any, *rest: Any, **named: Any) -> Any:
            # Within a folder that is removed names are relative to it; its own removal is counted.
            if named.get("dir_fd") is None:
                self.step(operation, path)
            elif self.fault.error == errno.EROFS and self.failed:
                raise OSError(self.fault.error, os.strerror(self.fault.error), str(path))
            return real(path, *rest, **named)

        return wrapped

    def _os_open(self, real: Callable[..., int]) -> Callable[..., int]:
        def wrapped(path: Any, flags: int, *rest: Any, **named: Any) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and named.get("dir_fd") is None:
                self.step("open", path)
            return real(path, flags, *rest, **named)

        return wrapped

    def _fsync(self, handle: int) -> None:
        """Really synchronising would take most of the time, and only matters in a power cut."""
        self.step("fsync", Path(f"/proc/self/fd/{handle}").readlink())

    def _open(self, path: Any, mode: str = "r", buffering: int = -1, *rest: Any, **named: Any) -> Any:
        if not set(mode) & set("wax+") or not self._within(path):
            return _REAL_OPEN(path, mode, buffering, *rest, **named)
        self.step("open", path)
        layer, name = self, str(path)

        class Raw(io.FileIO):
            def write(self, data: Any) -> int:
                return layer.write(self, name, data)

        raw = Raw(path, mode.replace("b", "").replace("t", ""))
        buffered = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw)  # type: ignore[type-var]
        return _Binary(buffered) if "b" in mode else io.TextIOWrapper(buffered, *rest, **named)

    def _save_file(self, tensors: Any, path: Any, metadata: Any = None) -> None:
        content = safetensors.torch.save(tensors, metadata)
        try:
            with self._open(path, "wb") as file:
                file.write(content)
        except OSError as error:
            text = f"Error while serializing: I/O error: {error.strerror} (os error {error.errno})"
            raise safetensors.SafetensorError(text) from None


_REAL_OPEN = io.open


class _Binary:
    """A binary file that numpy does not recognise as one: numpy writes past the file object otherwise."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> "_Binary":
        return self

    def __exit__(self, *exception: object) -> None:
        self.file.close()

    def __iter__(self) -> Any:
        return iter(self.file)
