"""The name of the machine that runs and benchmarks note."""

import platform
from pathlib import Path

import pytest
import torch

from multitask.runs import machine
from multitask.runs.machine import machine_name, processor


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("vendor_id\t: A\nmodel name\t: One @ 2 GHz: fast\nmodel name\t: Other\n", "One @ 2 GHz: fast"),
        ("vendor_id\t: A\n", "what Python knows"),
        (None, "what Python knows"),
    ],
)
def test_a_processor_is_named_as_linux_names_it_or_as_python_does(
    told: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if told is not None:
        (tmp_path / "cpuinfo").write_text(told, encoding="utf-8")
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(platform, "processor", lambda: "what Python knows")
    assert processor() == expected
    assert machine_name("cpu") == machine_name("mps") == expected


def test_a_gpu_that_computes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A GPU")
    assert machine_name("cuda") == "A GPU"
