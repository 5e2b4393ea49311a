"""Scores of units against finite differences and true removals, and the choice against a slow one."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from minbert.config import BertConfig
from minbert.errors import InputError
from minbert.model import BertModel
from minbert.remove_heads_and_neurons import Units, masked, without_units
from minbert.tokenizer import load_tokenizer
from multitask.data.labelled_data import LabelledData
from multitask.runtime.device import start
from multitask.stages.prune import choose, drop_lowest
from multitask.stages.settings.prune import PruneConfig
from multitask.tasks.declarations import load_tasks
from multitask.tasks.read_examples import load_rows
from multitask.training.importance_scores import SOURCE, AlignUniformSource, magnitude, random_scores, sensitivity
from multitask.training.source import losses_of
from multitask.training.trainable import Batch

RUNTIME = start("cpu", "fp32")
SHAPE = BertConfig(num_hidden_layers=3, hidden_size=48, num_attention_heads=6, intermediate_size=10)


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
def test_the_loss_is_alignment_of_positives_and_uniformity_of_different_sentences(encoder, pairs, weight) -> None:
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


def test_the_signed_score_is_what_a_small_step_of_the_mask_changes(encoder, pairs) -> None:
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


def test_the_signed_score_predicts_what_true_removal_changes(encoder, pairs) -> None:
    """To first order only: in rank over all units, and closely for the small ones, the neurons."""
    rows = np.arange(24)
    source = AlignUniformSource(pairs, 0.5)
    scores = gradient(encoder, pairs, [rows]).tensors
    predicted, true = [], []
    places = units_of(encoder)
    with torch.no_grad():
        before = loss(encoder, source, rows).item()
        for i, j in [*places[:8], *places[8::3]]:  # all heads, some neurons
            kept = with_factor(encoder, (i, j), 0.0).map(torch.Tensor.bool)
            true.append(loss(without_units(encoder, kept), source, rows).item() - before)
            predicted.append(scores[i][j].item())
    assert spearmanr(predicted, true).statistic > 0.9
    assert np.corrcoef(predicted[8:], true[8:])[0, 1] > 0.9


def test_scores_are_means_over_batches(encoder, pairs) -> None:
    batches = [np.arange(16), np.arange(16, 32), np.arange(32, 40)]
    apart = [gradient(encoder, pairs, [rows]).tensors for rows in batches]
    for signed, function in ((True, lambda x: x), (False, torch.abs)):
        together = gradient(encoder, pairs, batches, signed).tensors
        for values, *parts in zip(together, *apart, strict=True):
            assert torch.allclose(values, torch.stack([function(part) for part in parts]).mean(0), atol=1e-6)


def test_masked_units_change_the_scores_of_the_others(encoder, pairs) -> None:
    rows = [np.arange(16)]
    source = AlignUniformSource(pairs, 0.5)
    factors = with_factor(encoder, (0, 1), 0.0)
    scores = sensitivity(encoder, "mean", source, rows, factors, True, RUNTIME)
    kept = factors.map(torch.Tensor.bool)
    smaller = gradient(without_units(encoder, kept), pairs, rows)
    assert torch.allclose(scores.heads[0][[0, 2, 3]], smaller.heads[0], atol=1e-5)
    assert torch.allclose(scores.neurons[1], smaller.neurons[1], atol=1e-5)
    assert not torch.allclose(scores.heads[1], gradient(encoder, pairs, rows).heads[1], atol=1e-4)


def test_scoring_leaves_the_encoder_as_it_is(encoder, pairs) -> None:
    gradient(encoder, pairs, [np.arange(8)])
    assert all(parameter.grad is None for parameter in encoder.parameters())
    assert not any(module._forward_pre_hooks for module in encoder.modules())


def test_magnitude_is_the_norm_of_what_removal_takes_away(tiny_encoder) -> None:
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


def test_random_scores_follow_the_seed() -> None:
    one, again, other = (torch.cat(random_scores(SHAPE, seed).tensors) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert len(one) == 3 * 6 + 3 * 10
    assert len(one.unique()) == len(one)
    assert 0 <= one.min() < 0.2 < 0.8 < one.max() <= 1


# The choice.


def slow_choice(scores: list[list[float]], share: float, spare_last: bool) -> list[list[bool]]:
    """One unit after the other, from the lowest; a layer's last head is passed over."""
    kept = [[True] * len(layer) for layer in scores]
    ranked = sorted((value, i, j) for i, layer in enumerate(scores) for j, value in enumerate(layer))
    left = round(share * len(ranked))
    for _, i, j in ranked:
        if left and not (spare_last and sum(kept[i]) == 1):
            kept[i][j] = False
            left -= 1
    return kept


layers_of_scores = st.integers(1, 4).flatmap(
    lambda layers: st.permutations(range(layers * 5)).map(lambda p: [p[i::layers] for i in range(layers)])
)


@settings(max_examples=60)
@given(scores=layers_of_scores, share=st.floats(0.01, 0.99), spare_last=st.booleans())
def test_the_lowest_go_and_a_layers_last_head_stays(scores, share, spare_last) -> None:
    tensors = [torch.tensor(layer).float() for layer in scores]
    whole = [torch.ones(5, dtype=torch.bool)] * len(scores)
    pooled = drop_lowest(tensors, whole, share, True, spare_last)
    assert [layer.tolist() for layer in pooled] == slow_choice(scores, share, spare_last)
    apart = drop_lowest(tensors, whole, share, False, spare_last)
    assert [layer.tolist() for layer in apart] == [slow_choice([layer], share, spare_last)[0] for layer in scores]


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    share=st.floats(0.01, 0.99),
    rounds=st.integers(1, 4),
    scope=st.sampled_from(["global", "layer"]),
    what=st.sampled_from(["heads", "neurons", "both"]),
)
def test_the_share_is_removed_in_any_number_of_rounds(seed, share, rounds, scope, what) -> None:
    config = PruneConfig(share=share, rounds=rounds, scope=scope, what=what, score="random")
    masks: list[Units] = []

    def score(factors: Units) -> Units:
        masks.append(factors)
        return random_scores(SHAPE, seed + len(masks))

    kept, _ = choose(SHAPE, score, config)
    for name, size, most in (("heads", 6, 5), ("neurons", 10, 10)):
        removed = [int((~layer).sum()) for layer in getattr(kept, name)]
        groups = [(sum(removed), 3)] if scope == "global" else [(count, 1) for count in removed]
        for count, layers in groups:
            expected = min(round(share * size * layers), most * layers)
            assert count == (expected if what in (name, "both") else 0)
        assert max(removed) <= most
        for earlier, later in zip(masks, [*masks[1:], kept], strict=True):  # what is gone stays gone
            for before, after in zip(getattr(earlier, name), getattr(later, name), strict=True):
                assert not (after.bool() & ~before.bool()).any()
    assert len(masks) == rounds
    assert all((factor == 1).all() for factor in masks[0].tensors)


@pytest.mark.parametrize(
    ("order", "kept"), [("lowest", [False, False, True, True, True]), ("highest", [True] * 3 + [False] * 2)]
)
def test_the_lowest_or_the_highest_scores_go_first(order, kept) -> None:
    def score(factors: Units) -> Units:
        return Units.full(SHAPE, 0.0).map(lambda values: torch.arange(len(values)).float())

    found, scores = choose(SHAPE, score, PruneConfig(share=0.4, order=order, scope="layer", what="neurons"))
    assert [layer.tolist() for layer in found.neurons] == [[keep for keep in kept for _ in range(2)]] * 3
    assert scores.neurons[0].tolist() == list(range(10))  # as they were computed


def test_scores_are_those_of_the_round_that_removed_the_unit() -> None:
    rounds = iter([1.0, 2.0])

    def score(factors: Units) -> Units:
        bonus = next(rounds)
        return Units.full(SHAPE, 0.0).map(lambda values: bonus * (1 + torch.arange(len(values))))

    kept, scores = choose(SHAPE, score, PruneConfig(share=0.4, rounds=2, scope="layer", what="neurons"))
    assert kept.neurons[0].tolist() == [False] * 4 + [True] * 6
    assert scores.neurons[0].tolist() == [1, 2, *(2 * n for n in range(3, 11))]


def test_normalising_makes_layers_alike() -> None:
    def score(factors: Units) -> Units:
        raw = random_scores(SHAPE, 4)
        return Units(*(tuple(10.0**i * layer for i, layer in enumerate(kind)) for kind in (raw.heads, raw.neurons)))

    raw, even = (choose(SHAPE, score, PruneConfig(share=0.5, normalize_scores=n))[0].neurons for n in (False, True))
    assert [int(layer.sum()) for layer in raw] == [0, 5, 10]
    values = torch.cat([layer / layer.norm() for layer in score(raw).neurons])
    assert torch.equal(torch.cat(even), values > values.sort().values[14])


def test_scores_that_are_not_finite_are_refused() -> None:
    with pytest.raises(InputError, match="not finite"):
        choose(SHAPE, lambda factors: Units.full(SHAPE, float("nan")), PruneConfig())


@pytest.mark.parametrize(
    "settings_, complaint",
    [
        ({"share": 0.0}, "share is 0.0"),
        ({"share": 1.0}, "share is 1.0"),
        ({"uniformity_weight": 1.5}, "uniformity_weight is 1.5"),
        ({"rounds": 0}, "rounds is 0"),
        ({"score": "random", "signed": True}, "signed goes with gradients; scores by random have no sign"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings_, complaint) -> None:
    with pytest.raises(InputError, match=complaint):
        PruneConfig(**settings_)
