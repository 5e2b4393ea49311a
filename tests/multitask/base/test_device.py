"""Devices that are not there are refused in one line; states of random generators are restored."""

import pytest
import torch

from minbert.errors import InputError
from multitask.base import distributed
from multitask.base.device import generator_states, restore_generators, start


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="this machine has MPS")
@pytest.mark.parametrize(
    ("built", "reason"), [(False, "this torch is built without it"), (True, "torch sees no such GPU here")]
)
def test_mps_is_refused_where_there_is_none(monkeypatch, built, reason):
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: built)
    with pytest.raises(InputError) as error:
        start("mps", "auto")
    expected = f"--device mps: {reason}; it needs a Mac with an Apple GPU; use --device cpu or auto"
    assert str(error.value) == expected


def test_mps_computes_in_fp32_unless_told_otherwise(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert start("mps", "auto").describe() == {"device": "mps", "precision": "fp32"}
    assert start("mps", "bf16").precision == "bf16"


def test_several_processes_cannot_share_one_mps_device(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="a Mac has one GPU; start one process without torchrun"):
        distributed.start(torch.device("mps"))


def test_restored_generators_draw_the_same_numbers():
    states = generator_states(torch.device("cpu"))
    drawn = torch.rand(3)
    restore_generators(states)
    assert torch.equal(torch.rand(3), drawn)
