"""Devices and processors: what is there, its name, and the states of its random generators."""

import os
import platform
from pathlib import Path

import pytest
import torch

from minbert.errors import InputError
from multitask.base import distributed
from multitask.base import keys as machine
from multitask.base.device import Runtime, generator_states, prepare_training, resolve_runtime, restore_generators
from multitask.base.keys import machine_name, processor


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="this machine has MPS")
@pytest.mark.parametrize(
    ("built", "reason"), [(False, "this torch is built without it"), (True, "torch sees no such GPU here")]
)
def test_mps_is_refused_where_there_is_none(monkeypatch, built, reason):
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: built)
    with pytest.raises(InputError) as error:
        resolve_runtime("mps", "auto")
    expected = f"--device mps: {reason}; it needs a Mac with an Apple GPU; use --device cpu or auto"
    assert str(error.value) == expected


@pytest.mark.parametrize("options", [("gpu", "auto"), ("cpu", "fp16")])
def test_other_devices_and_precisions_are_refused(options):
    with pytest.raises(InputError, match=r"^(device is 'gpu'|precision is 'fp16'); expected one of: auto, "):
        resolve_runtime(*options)


def test_mps_computes_in_fp32_unless_told_otherwise(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert resolve_runtime("mps", "auto").describe() == {"device": "mps", "precision": "fp32"}
    assert resolve_runtime("mps", "bf16").precision == "bf16"


@pytest.mark.parametrize("fast", [False, True])
def test_only_a_fast_training_on_cuda_may_give_other_bits(monkeypatch, fast):
    before = torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision()
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        prepare_training(Runtime(torch.device("cuda"), "fp32", fast=fast))
        found = torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision()
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.set_float32_matmul_precision(before[1])
    assert found == ((False, "high") if fast else (True, "highest"))
    assert Runtime(torch.device("cpu"), "fp32", fast=fast).describe() == {"device": "cpu", "precision": "fp32"}


def test_several_processes_cannot_share_one_mps_device(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="a Mac has one GPU; start one process without torchrun"):
        distributed.join_ranks(torch.device("mps"))


def test_restored_generators_draw_the_same_numbers():
    states = generator_states(torch.device("cpu"))
    drawn = torch.rand(3)
    restore_generators(states)
    assert torch.equal(torch.rand(3), drawn)


# The name of the machine that runs and benchmarks note.


def test_a_processor_is_named_as_linux_names_it_or_as_python_does(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(platform, "processor", lambda: "what Python knows")
    assert processor() == machine_name("mps") == "what Python knows"
    (tmp_path / "cpuinfo").write_text("vendor_id\t: A\n", encoding="utf-8")
    assert processor() == "what Python knows"
    named = "vendor_id\t: A\nmodel name\t: One @ 2 GHz: fast\nmodel name\t: Other\n"
    (tmp_path / "cpuinfo").write_text(named, encoding="utf-8")
    assert processor() == "One @ 2 GHz: fast"


def test_a_gpu_that_computes_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A GPU")
    assert machine_name("cuda") == "A GPU"


# Settings of oneDNN can take instructions away that the processor has.


def look(path: Path) -> None:
    """What a process without the instructions finds; oneDNN reads its setting when it is first used."""
    os.environ["ONEDNN_MAX_CPU_ISA"] = "SSE41"
    path.write_text(resolve_runtime("cpu", "auto").precision)


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the setting is for x86")
def test_auto_is_fp32_where_instructions_are_hidden(processes, tmp_path):
    process = processes.Process(target=look, args=(tmp_path / "found",))
    process.start()
    process.join()
    assert (tmp_path / "found").read_text() == "fp32"
