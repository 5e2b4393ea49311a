"""Settings of oneDNN can take instructions away that the processor has."""

import os
import platform
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from multitask.base.device import start


def look(path: Path) -> None:
    """What a process without the instructions finds; oneDNN reads its setting when it is first used."""
    os.environ["ONEDNN_MAX_CPU_ISA"] = "SSE41"
    path.write_text(start("cpu", "auto").precision)


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the setting is for x86")
def test_auto_is_fp32_where_instructions_are_hidden(processes: ForkServerContext, tmp_path: Path):
    process = processes.Process(target=look, args=(tmp_path / "found",))
    process.start()
    process.join()
    assert (tmp_path / "found").read_text() == "fp32"
