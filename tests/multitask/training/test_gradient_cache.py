"""Gradient caching computes the gradient of the whole batch, with equal dropout and final generator states."""

import pytest
import torch
from torch import Tensor, nn

from multitask.objectives import build_objective
from multitask.training.contrastive_source import backward_in_chunks

CPU = torch.device("cpu")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.4), nn.Tanh(), nn.Linear(8, 5)).double()


@pytest.mark.parametrize("sizes", [[12], [4, 4, 4], [5, 5, 2], [1] * 12], ids=str)
@pytest.mark.parametrize("objective", ["infonce", "met", "gradient", "vicreg"])
def test_equals_one_graph_over_the_same_chunks(sizes: list[int], objective: str) -> None:
    rows = torch.randn(12, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    chunks = rows.split(sizes)

    def encode(module: nn.Module, chunk: Tensor) -> Tensor:
        return torch.stack([module(chunk), module(chunk)])  # two views that differ by dropout

    def loss(views: Tensor) -> tuple[Tensor, str]:
        return build_objective(objective)(*views), "beside"

    whole = network()
    torch.manual_seed(7)
    expected, _ = loss(torch.cat([encode(whole, chunk) for chunk in chunks], dim=1))
    expected.backward()
    generator_after = torch.get_rng_state()

    cached = network()
    torch.manual_seed(7)
    value, extra = backward_in_chunks(chunks, lambda chunk: encode(cached, chunk), loss, CPU)
    assert extra == "beside"
    assert not value.requires_grad
    torch.testing.assert_close(value, expected.detach())
    for ours, theirs in zip(cached.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-11)
    assert any(p.grad.abs().max() > 1e-3 for p in whole.parameters())
    assert torch.equal(torch.get_rng_state(), generator_after)
