"""The name of the machine that computes."""

import platform
from pathlib import Path

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
