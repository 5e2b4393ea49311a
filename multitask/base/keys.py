"""The key of a run, which is in its folder's name: which settings and inputs it covers.

The key covers the settings that differ from their defaults, so that a new option with a default changes no hash. A
changed default or a changed computation must raise the stage's version; `tests/multitask/stages/test_defaults.py` holds
a snapshot of all defaults and fails where a version was forgotten.
"""

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from minbert.files import refuse_large, sha256_of_file
from multitask.base.choices_with_parameters import Choice

FORMAT_VERSION = 7
"""Version of the folders' layout. Raise it when runs of older code can no longer be read."""

NOT_IN_KEY = {"key": False}
"""Metadata of a setting of which only the effect is in the key, as an input."""

LARGEST_FILE = 2**33
"""Bytes of the largest file that a stage reads."""


@dataclass(frozen=True)
class RunKey:
    """Everything that decides the bits of a run."""

    stage: str  # the stage's name
    version: int  # the stage's version
    config: Any  # the stage's configuration, a dataclass whose fields all have defaults
    inputs: Mapping[str, Any]  # the parents' keys, hashes of everything else that the stage reads, device and precision

    def digest(self) -> str:
        """The hash, 16 hex digits."""
        identity = [FORMAT_VERSION, self.stage, self.version, changed_settings(self.config), self.inputs]
        return sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def hash_of_file(path: Path) -> str:
    """SHA-256 of a file, 64 hex digits; read again only when its size or times have changed.

    Raises InputError for a file larger than `LARGEST_FILE`: reading it would take minutes, and no stage could hold it.
    """
    refuse_large(path, LARGEST_FILE)
    stat = path.stat()
    return _hash_of_file(path.absolute(), (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))


@cache
def _hash_of_file(path: Path, _state: tuple[int, ...]) -> str:
    return sha256_of_file(path)


def changed_settings(config: Any, defaults: Any = None) -> dict[str, Any]:
    """The settings of a dataclass that differ from the defaults (by default the class's), nested ones as dicts."""
    defaults = type(config)() if defaults is None else defaults
    found: dict[str, Any] = {}
    for field in fields(config):
        if not field.metadata.get("key", True):
            continue
        value, default = getattr(config, field.name), getattr(defaults, field.name)
        if isinstance(value, Choice):
            value, default = value.in_key(), default.in_key()
        elif is_dataclass(value):
            value, default = changed_settings(value, default), {}
        if value != default:
            found[field.name] = value
    return found


CPUINFO = Path("/proc/cpuinfo")


def machine_name(device: str) -> str:
    """The GPU's name if the device is `cuda`, otherwise the processor's."""
    if device == "cuda":
        import torch  # what reads runs must not wait for it

        return torch.cuda.get_device_name()
    return processor()


def processor() -> str:
    """The processor's model name as Linux knows it, otherwise what Python knows of it."""
    lines = CPUINFO.read_text(encoding="utf-8").splitlines() if CPUINFO.is_file() else []
    names = (line.partition(": ")[2] for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
