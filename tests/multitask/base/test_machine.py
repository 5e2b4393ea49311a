"""The name of the machine that runs and benchmarks note."""

import platform
from pathlib import Path

import pytest
import torch

from multitask.base import keys as machine
from multitask.base.keys import machine_name, processor


def test_a_processor_is_named_as_linux_names_it_or_as_python_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(platform, "processor", lambda: "what Python knows")
    assert processor() == machine_name("mps") == "what Python knows"
    (tmp_path / "cpuinfo").write_text("vendor_id\t: A\n", encoding="utf-8")
    assert processor() == "what Python knows"
    named = "vendor_id\t: A\nmodel name\t: One @ 2 GHz: fast\nmodel name\t: Other\n"
    (tmp_path / "cpuinfo").write_text(named, encoding="utf-8")
    assert processor() == "One @ 2 GHz: fast"


def test_a_gpu_that_computes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A GPU")
    assert machine_name("cuda") == "A GPU"
