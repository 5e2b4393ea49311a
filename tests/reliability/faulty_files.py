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
OF_OS = {"remove": "unlink", "replace": "rename"} | {name: name for name in ("open", "mkdir", "rename", *REMOVES)}
"""The operation that each function of `os` is."""


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

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Every operation within the block goes through this layer."""
        with contextlib.ExitStack() as stack:
            for module in (io, builtins):
                stack.enter_context(patch.object(module, "open", self._open))
            for name, operation in OF_OS.items():
                stack.enter_context(patch.object(os, name, self._checked(operation, getattr(os, name))))
            stack.enter_context(patch.object(os, "fsync", self._fsync))
            stack.enter_context(patch.object(shutil, "_USE_CP_SENDFILE", False))
            stack.enter_context(patch.object(safetensors.torch, "save_file", self._save_file))
            yield

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

    def _check(self, operation: str, path: Any) -> None:
        if self._fails(operation, path):
            raise OSError(self.fault.error, os.strerror(self.fault.error), str(path))

    def _checked(self, operation: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(path: Any, *rest: Any, **named: Any) -> Any:
            reads = operation == "open" and not rest[0] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            # Within a folder that is removed names are relative to it; its own removal is counted.
            if named.get("dir_fd") is None and not reads:
                self._check(operation, path)
            return real(path, *rest, **named)

        return wrapped

    def _fsync(self, handle: int) -> None:
        """Really synchronising would take most of the time, and only matters in a power cut."""
        self._check("fsync", Path(f"/proc/self/fd/{handle}").readlink())

    def _open(self, path: Any, mode: str = "r", buffering: int = -1, *rest: Any, **named: Any) -> Any:
        if not set(mode) & set("wax+") or not self._within(path):
            return _REAL_OPEN(path, mode, buffering, *rest, **named)
        self._check("open", path)
        layer = self

        class Raw(io.FileIO):
            def write(self, data: Any) -> int:
                if layer._fails("write", path):
                    if layer.fault.half and len(layer.failed) == 1:
                        super().write(bytes(data)[: len(bytes(data)) // 2])
                    raise OSError(layer.fault.error, os.strerror(layer.fault.error))
                return super().write(data)

        # Numpy writes past a BufferedWriter, but not past this.
        buffered = io.BufferedRandom(Raw(path, mode.strip("bt+") + "+"))
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *rest, **named)

    def _save_file(self, tensors: Any, path: Any, metadata: Any = None) -> None:
        try:
            with self._open(path, "wb") as file:
                file.write(safetensors.torch.save(tensors, metadata))
        except OSError as error:
            text = f"Error while serializing: I/O error: {error.strerror} (os error {error.errno})"
            raise safetensors.SafetensorError(text) from None


_REAL_OPEN = io.open
