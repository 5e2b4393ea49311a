"""Settings of oneDNN can take instructions away that the processor has."""

import os
import platform
import subprocess
import sys

import pytest

from tests.conftest import ROOT


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the setting is for x86")
def test_auto_is_fp32_and_int8_is_refused_where_instructions_are_hidden():
    code = (
        "from minbert.int8 import products_are_exact\n"
        "from multitask.runtime.device import start\n"
        "print(start('cpu', 'auto').precision, products_are_exact())"
    )
    hidden = os.environ | {"ONEDNN_MAX_CPU_ISA": "SSE41"}
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=hidden, capture_output=True, text=True, check=True
    )
    assert ended.stdout == "fp32 False\n"
