"""The name of the machine that a benchmark ran on."""

import platform
from pathlib import Path

import torch


def machine() -> str:
    """The GPU if there is one, otherwise the processor."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else processor()


def processor() -> str:
    """The processor's model name as Linux knows it, otherwise what Python knows of it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    names = (line.partition(": ")[2] for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
