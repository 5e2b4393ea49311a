"""Learning rates against their formulas; which parameters decay; the average of the weights against its closed form."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from minbert.config import BertConfig
from minbert.model import BertModel
from multitask.training.loop import LoopConfig
from multitask.training.optimizer import Optimizer, build_adamw, learning_rate_factor
from multitask.training.settings import OptimizerConfig
from tests.multitask.training.toy import EPOCHS, OPTIMIZER, Problem, backward, parameters, run

SHAPE = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=12, num_attention_heads=2, intermediate_size=8)
AVERAGED = LoopConfig(EPOCHS, replace(OPTIMIZER, ema_decay=0.8))


def test_warmup_longer_than_the_run():
    assert learning_rate_factor(0, 1, OptimizerConfig(warmup=1.0, schedule="linear")) == 1
    assert [learning_rate_factor(step, 2, OptimizerConfig(warmup=1.0)) for step in range(2)] == [0.5, 1]


@pytest.mark.parametrize("head_rate", [None, 1e-2])
def test_each_layer_has_a_share_of_the_rate_of_the_layer_above_it(head_rate):
    module = nn.ModuleDict({"encoder": BertModel(SHAPE), "heads": nn.Linear(8, 2)})
    module["encoder"].pooler.requires_grad_(False)
    adamw = build_adamw(module, OptimizerConfig(1e-3, head_rate, layer_decay=0.85))
    rates = {id(parameter): group["lr"] for group in adamw.param_groups for parameter in group["params"]}
    trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    assert rates.keys() == set(map(id, trained.values()))
    for name, parameter in trained.items():
        expected = (head_rate or 1e-3) if name.startswith("heads.") else 1e-3
        if name.startswith("encoder.layers."):
            expected *= 0.85 ** (11 - int(name.split(".")[2]))
        elif name.startswith("encoder.embeddings."):
            expected *= 0.85**12
        torch.testing.assert_close(rates[id(parameter)], expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kind", ["equal", "random"])
def test_the_norm_of_millions_of_gradients_is_that_of_float64(kind, device):
    shapes = [(30522, 384), (1536, 384), (384,)]  # all-minilm-l6-v2's table of words, a layer, a bias
    module = nn.ParameterList([nn.Parameter(torch.empty(shape, device=device)) for shape in shapes])
    draws = torch.Generator().manual_seed(0)
    for parameter in module:
        made = torch.full(parameter.shape, 1e-3) if kind == "equal" else torch.randn(parameter.shape, generator=draws)
        parameter.grad = made.to(device)
    exact = np.sqrt(sum(np.square(parameter.grad.cpu().numpy(), dtype=np.float64).sum() for parameter in module))
    norm = Optimizer(module, OptimizerConfig(clip=exact / 2), 1).clip()
    # A row's sum of 384 squares rounds at most 384 times in fp32, each time by a share of 2^-24; the root halves it.
    tolerance = 384 * 2**-24 / 2
    assert norm.item() == pytest.approx(exact, rel=tolerance)
    clipped = np.sqrt(sum(np.square(parameter.grad.cpu().numpy(), dtype=np.float64).sum() for parameter in module))
    assert clipped == pytest.approx(exact / 2, rel=tolerance + 2**-24)  # the gradients are rounded once more


def test_steps_that_change_a_weight_little_are_not_lost():
    """In fp32, weights that rise by the last digit in each step would hardly move their average."""
    decay, steps = 0.999, 5000
    weights = 1 + np.float32(2**-23) * np.arange(1, steps + 1, dtype=np.float32)
    parameter = nn.Parameter(torch.ones(1))
    still = OptimizerConfig(learning_rate=0, ema_decay=decay)
    optimizer = Optimizer(nn.ParameterList([parameter]), still, steps)
    for number, weight in enumerate(weights):
        parameter.data.fill_(float(weight))
        optimizer.step(number)  # there is no gradient, so the weight stays as it is
    shares = decay ** np.arange(steps - 1.0, -1, -1)
    with optimizer.averaged():  # rounds once, to fp32; steps in float64 round 2^29 times less
        np.testing.assert_allclose(parameter.detach(), shares @ weights / shares.sum(), rtol=1.001 * 2**-24)


def test_averages_are_evaluated_and_kept_and_training_goes_on_without_them(tmp_path):
    seen: list[list[Tensor]] = []

    def step(problem: Problem, update):
        seen.append(parameters(problem))
        return backward(problem, update)

    problem = run(tmp_path / "averaged", Problem([{}] * EPOCHS), AVERAGED, step)
    plain = run(tmp_path / "plain")
    assert all(map(torch.equal, parameters(problem), parameters(plain)))
    steps = [*seen[1:], parameters(problem)]  # the weights after each step
    shares = 0.8 ** np.arange(len(steps) - 1, -1, -1)
    kept = load_file(tmp_path / "averaged" / "checkpoints" / "step-0000016" / "module.safetensors")
    for place, (name, _) in enumerate(problem.module.named_parameters()):
        expected = sum(share * weights[place] for share, weights in zip(shares, steps, strict=True)) / shares.sum()
        torch.testing.assert_close(kept[name], expected, rtol=1e-12, atol=1e-12)
