"""Scores of units against finite differences and true removals."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from minbert.model import BertModel
from minbert.remove_heads_and_neurons import Units, masked, without_units
from minbert.tokenizer import load_tokenizer
from multitask.base.device import start
from multitask.data.examples import LabelledData
from multitask.stages.prune import SOURCE, AlignUniformSource, magnitude, sensitivity
from multitask.tasks.declarations import load_tasks
from multitask.tasks.read_examples import load_rows
from multitask.training.source import Batch, losses_of

RUNTIME = start("cpu", "fp32")


@pytest.fixture(scope="module")
def encoder(tiny_encoder: Path) -> BertModel:
    return BertModel.from_pretrained(str(tiny_encoder))


@pytest.fixture(scope="module")
def pairs(small_data: Path, tiny_encoder: Path) -> LabelledData:
    examples = load_rows(load_tasks(small_data)["similarity"], "train")
    return LabelledData.tokenised(examples, load_tokenizer(str(tiny_encoder)), None, joint=False)


def loss(encoder: BertModel, source: AlignUniformSource, rows: Sequence[int]) -> torch.Tensor:
    update = (Batch(SOURCE, np.array(rows)),)
    return losses_of(encoder, "mean", {SOURCE: source}, update, RUNTIME).terms[SOURCE]


# The loss.


def plain_loss(encoder: BertModel, data: LabelledData, rows: Sequence[int], weight: float) -> float:
    """By loops over sentences, one at a time through the padded path."""
    directions = {}
    for column, texts in zip(data.columns, data.examples.sentences, strict=True):
        for row in rows:
            with torch.no_grad():
                states = encoder(torch.tensor(column[row]).long()[None]).last_hidden_state[0]
            mean = states.mean(0).double().numpy()
            directions[texts[row]] = mean / np.linalg.norm(mean)
    first, second = data.examples.sentences
    aligned = [row for row in rows if data.examples.labels[row] >= 4]
    alignment = np.mean([np.sum((directions[first[r]] - directions[second[r]]) ** 2) for r in aligned] or [0.0])
    points = list(directions.values())
    kernel = [np.exp(-2 * np.sum((a - b) ** 2)) for i, a in enumerate(points) for b in points[:i]]
    return (1 - weight) * alignment + weight * np.log(np.mean(kernel))


@pytest.mark.parametrize("weight", [0.0, 0.25, 1.0])
def test_the_loss_is_alignment_of_positives_and_uniformity_of_different_sentences(weight, encoder, pairs):
    positive = np.flatnonzero(pairs.examples.labels >= 4)
    negative = np.flatnonzero(pairs.examples.labels < 4)
    assert len(positive)
    source = AlignUniformSource(pairs, weight)
    for rows in (range(20), [*positive[:3], *positive[:2]], negative[:8]):  # rows that come twice; nothing to align
        assert loss(encoder, source, rows).item() == pytest.approx(plain_loss(encoder, pairs, rows, weight), abs=1e-5)


# Scores.


def gradient(encoder, pairs, rows, signed: bool = True, weight: float = 0.5) -> Units:
    factors = Units.full(encoder.config, 1.0)
    return sensitivity(encoder, "mean", AlignUniformSource(pairs, weight), rows, factors, signed, RUNTIME)


def units_of(encoder: BertModel) -> list[tuple[int, int]]:
    """Tensor and place of every head and neuron."""
    return [(i, j) for i, tensor in enumerate(Units.full(encoder.config, 1.0).tensors) for j in range(len(tensor))]


def with_factor(encoder: BertModel, place: tuple[int, int], factor: float) -> Units:
    factors = Units.full(encoder.config, 1.0)
    factors.tensors[place[0]][place[1]] = factor
    return factors


def test_the_signed_score_is_what_a_small_step_of_the_mask_changes(encoder, pairs):
    rows, step = np.arange(24), 0.05
    scores = gradient(encoder, pairs, [rows]).tensors
    source = AlignUniformSource(pairs, 0.5)
    largest = max(values.abs().max().item() for values in scores)
    places = units_of(encoder)
    for place in [*places[:8], *places[8::9]]:  # all heads, some neurons
        with torch.no_grad():
            losses = []
            for factor in (1 - step, 1 + step):
                with masked(encoder, with_factor(encoder, place, factor)):
                    losses.append(loss(encoder, source, rows).item())
        assert scores[place[0]][place[1]].item() == pytest.approx(
            (losses[0] - losses[1]) / (2 * step), abs=0.01 * largest
        )


def test_scores_are_means_over_batches(encoder, pairs):
    batches = [np.arange(16), np.arange(16, 32), np.arange(32, 40)]
    apart = [gradient(encoder, pairs, [rows]).tensors for rows in batches]
    for signed, function in ((True, lambda x: x), (False, torch.abs)):
        together = gradient(encoder, pairs, batches, signed).tensors
        for values, *parts in zip(together, *apart, strict=True):
            assert torch.allclose(values, torch.stack([function(part) for part in parts]).mean(0), atol=1e-6)
    assert all(parameter.grad is None for parameter in encoder.parameters())  # the encoder is left as it was
    assert not any(module._forward_pre_hooks for module in encoder.modules())


def test_masked_units_change_the_scores_of_the_others(encoder, pairs):
    rows = [np.arange(16)]
    source = AlignUniformSource(pairs, 0.5)
    factors = with_factor(encoder, (0, 1), 0.0)
    scores = sensitivity(encoder, "mean", source, rows, factors, True, RUNTIME)
    kept = factors.map(torch.Tensor.bool)
    smaller = gradient(without_units(encoder, kept), pairs, rows)
    assert torch.allclose(scores.heads[0][[0, 2, 3]], smaller.heads[0], atol=1e-5)
    assert torch.allclose(scores.neurons[1], smaller.neurons[1], atol=1e-5)
    assert not torch.allclose(scores.heads[1], gradient(encoder, pairs, rows).heads[1], atol=1e-4)


def test_magnitude_is_the_norm_of_what_removal_takes_away(tiny_encoder):
    encoder = BertModel.from_pretrained(str(tiny_encoder))

    def squares(model: BertModel) -> float:
        return sum(parameter.double().square().sum().item() for parameter in model.parameters())

    torch.manual_seed(0)
    with torch.no_grad():
        for layer in encoder.layers:
            layer.intermediate.bias.normal_(0, 0.1)
            layer.attention.query_key_value.bias.normal_(0, 0.1)
    scores = magnitude(encoder).tensors
    for i, j in units_of(encoder)[::5]:
        smaller = without_units(encoder, with_factor(encoder, (i, j), 0.0).map(torch.Tensor.bool))
        assert scores[i][j].item() == pytest.approx((squares(encoder) - squares(smaller)) ** 0.5, rel=1e-4)
