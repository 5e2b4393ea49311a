"""The probe finds the components that each loss has in closed form, on random and on awkward batches alike."""

import json
import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from minbert.errors import InputError
from multitask.base.random_streams import generator
from multitask.cli.main import main
from multitask.evaluation.gradient_probe import (
    SIGNS,
    STEP,
    GradientComponents,
    probe,
    probe_checkpoint,
    signs,
    similar_pairs,
)
from multitask.models.compute_in_batches import TOKENS_PER_BATCH
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.objectives import Objective, build_objective, unit
from multitask.training.settings import ObjectiveConfig
from tests.conftest import ROOT
from tests.multitask.declared import tasks_file

from ..objectives.batches import (
    ALL_OBJECTIVES,
    AWKWARD_BATCHES,
    RANDOM_BATCHES,
    Batch,
    random_batch,
    some_false_negatives,
)

POSITIVES_ONLY = [objective for objective in ALL_OBJECTIVES if objective.takes_labels == "none"]
MANY_PAIRS = random_batch(4, pairs=12, dim=5, noise=0.5)  # more sentences than dimensions
NEAR = Batch("near", MANY_PAIRS.anchors + 3, MANY_PAIRS.positives + 3)  # every negative is hard
BATCHES = [*RANDOM_BATCHES, MANY_PAIRS, NEAR]
ADVERSARIAL = [
    batch
    for batch in AWKWARD_BATCHES
    if batch.name in ("identical views", "opposite views", "duplicated sentences", "collapsed", "huge", "tiny")
]


def found(objective: Objective | Callable[..., Tensor], batch: Batch, **settings) -> GradientComponents:
    return probe(objective, batch.anchors, batch.positives, **settings)


def angles(batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cosines [pairs, pairs] in float64, those of the pairs, and the index of each anchor's hardest negative."""
    u, v = batch.anchors.numpy(), batch.positives.numpy()
    cosine = (u / np.linalg.norm(u, axis=1)[:, None]) @ (v / np.linalg.norm(v, axis=1)[:, None]).T
    return cosine, np.diag(cosine), np.where(np.eye(len(u), dtype=bool), -9, cosine).argmax(1)


def close(actual: Tensor, expected: np.ndarray | float) -> None:
    """Equal up to rounding. The rounding error of 1 − p_ii is large if p_ii is near 1."""
    np.testing.assert_allclose(actual.numpy(), np.broadcast_to(expected, actual.shape), rtol=1e-6, atol=1e-12)


def exponentials(batch: Batch, temperature: float, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """e^{s/τ} of the negatives [pairs, pairs], with 0 on the diagonal, and of the positives [pairs]."""
    cosine, positive, _ = angles(batch)
    negatives = np.where(np.eye(len(cosine), dtype=bool), 0, np.exp(cosine / temperature))
    return negatives, np.exp(np.cos(np.arccos(positive.clip(-1, 1)) + angle) / temperature)


@pytest.mark.parametrize("temperature", [0.05, 0.5])
@pytest.mark.parametrize(
    ("name", "batch"),
    [*product(["infonce", "mnrl", "arccon", "dcl"], BATCHES), *(("infonce", batch) for batch in ADVERSARIAL)],
    ids=str,
)
def test_cross_entropies(name, batch, temperature):
    """Coefficients are known even where the vectors that they belong to cancel out or coincide."""
    angle = 0.2 if name == "arccon" else 0.0
    scale = {"scale": 1 / temperature} if name == "mnrl" else {"temperature": temperature}
    seen = found(build_objective(name, **scale, **({"angle": angle} if angle else {})), batch)
    negatives, positives = exponentials(batch, temperature, angle)
    close(seen.dissipation, 1.0 if name == "dcl" else negatives.sum(1) / (positives + negatives.sum(1)))
    close(seen.weights, negatives / negatives.sum(1)[:, None])
    theta = np.arccos(angles(batch)[1].clip(-1, 1))
    close(seen.ratio, np.sin(theta + angle) / np.sin(theta) if angle else 1)


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("margin", [0.05, 0.6])
@pytest.mark.parametrize("name", ["mpt", "met", "mat"])
def test_margin_losses(name, margin, batch):
    objective = build_objective(name, margin=margin)
    seen = found(objective, batch)
    cosine, positive, hardest = angles(batch)
    hard = cosine[np.arange(len(cosine)), hardest]
    gap = {
        "mpt": positive - hard,
        "met": np.sqrt(2 - 2 * hard) - np.sqrt(2 - 2 * positive),
        "mat": (np.arccos(hard) - np.arccos(positive)) / np.pi,
    }[name]
    learning = gap < objective.margin
    close(seen.dissipation, learning.astype(float))
    one_hot = np.eye(len(cosine))[hardest]
    close(seen.weights[learning], one_hot[learning])
    close(seen.hardest_weight[learning], 1.0)
    close(seen.hardest_push[learning], 1.0)
    ratio = {
        "mpt": np.ones(len(cosine)),
        "met": np.sqrt(2 - 2 * hard) / np.sqrt(2 - 2 * positive),
        "mat": np.sqrt((1 - hard**2) / (1 - positive**2)),
    }[name]
    close(seen.ratio[learning], ratio[learning])
    assert seen.ratio[~torch.from_numpy(learning)].isnan().all()


def test_the_gradient_paradigm_has_the_components_it_is_given():
    ratio = 1.5
    cosine, positive, hardest = angles(MANY_PAIRS)
    rows = positive - cosine[np.arange(12), hardest]
    columns = positive - np.where(np.eye(12, dtype=bool), -9, cosine).max(0)
    margin = float(np.median(np.concatenate([rows, columns])))
    seen = found(build_objective("gradient", dissipation=margin, weight=0.1, ratio=ratio), MANY_PAIRS)
    learning = rows < margin
    assert 0 < learning.sum() < 12
    close(seen.dissipation, learning.astype(float))
    negatives, _ = exponentials(MANY_PAIRS, 0.1, 0)
    close(seen.weights[learning], (negatives / negatives.sum(1)[:, None])[learning])
    # u_i is an anchor in one half of the loss and the positive of v_i in the other half, which pulls it too.
    share = learning.sum() / (columns < margin).sum()
    close(seen.ratio[learning], (ratio * (1 + (columns < margin) * share))[learning])


@pytest.mark.parametrize("name", ["mhe", "mhs", "vicreg", "barlow_twins"])
def test_gates_of_the_modified_losses_show_as_dissipation(name):
    u = unit(MANY_PAIRS.anchors).numpy()
    nearest = np.where(np.eye(12, dtype=bool), -9, u @ u.T).max(1)
    values = np.unique(nearest.round(9))  # two that are nearest to each other have the same value, but for rounding
    margin = float(1 - values[len(values) // 2 - 1 :][:2].mean())  # between two values
    parameters = {"dissipation": margin, "ratio": 1.5, **({} if name == "mhs" else {"weight": 0.2})}
    objective = build_objective(name, uniformity_weight=1, **parameters)
    close(found(objective, MANY_PAIRS).dissipation, (1 - nearest < margin).astype(float))
    for plain in (name, "align_uniform"):
        close(found(build_objective(plain), MANY_PAIRS).dissipation, 1.0)


@pytest.mark.parametrize("objective", POSITIVES_ONLY, ids=str)
def test_every_objective_on_every_batch(objective):
    single_dimensions = objective.name == "barlow_twins" and objective.ratio is None
    for batch in (MANY_PAIRS, NEAR, *AWKWARD_BATCHES):
        seen = found(objective, batch)
        unpushed = seen.uniformity_norm == 0
        assert (seen.dissipation.isfinite() | (unpushed & seen.dissipation.isnan())).all()
        assert not (seen.dissipation < 0).any()
        assert all(norm.isfinite().all() for norm in (seen.alignment_norm, seen.uniformity_norm, seen.distance_gap))
        if batch.differentiable and not single_dimensions:
            assert seen.residual < 1e-9
            hard = random_batch(9, pairs=len(batch.anchors)).anchors if objective.takes_hard_negatives else None
            assert found(objective, batch, hard_negatives=hard).residual < 1e-9


def test_plain_barlow_twins_leaves_a_residual():
    assert found(build_objective("barlow_twins"), random_batch(5, pairs=6, dim=20)).residual > 0.01


def test_norms_of_the_parts_against_a_loop():
    batch = NEAR
    seen = found(build_objective("infonce"), batch)
    u, v = unit(batch.anchors).numpy(), unit(batch.positives).numpy()
    cosine, _, hardest = angles(batch)
    for i in range(len(u)):
        tangent = np.eye(5) - np.outer(u[i], u[i])
        p = np.exp(cosine[i] / 0.05) / np.exp(cosine[i] / 0.05).sum()
        beta, alpha = p / 0.05, (p[i] - 1) / 0.05
        beta = np.where(np.arange(len(u)) == i, 0, beta)
        pull, push, step = tangent @ (alpha * v[i]), tangent @ (beta @ v), beta.sum()
        assert seen.alignment_norm[i].item() == pytest.approx(np.linalg.norm(pull), rel=1e-8)
        assert seen.uniformity_norm[i].item() == pytest.approx(np.linalg.norm(push), rel=1e-8)
        hard = tangent @ (beta[hardest[i]] * v[hardest[i]])
        assert seen.hardest_push[i].item() == pytest.approx(hard @ push / (push @ push), rel=1e-8)
        moved = u[i] - STEP * (pull + push) / step
        assert seen.closer[i].item() == (np.linalg.norm(moved - v[i]) < np.linalg.norm(u[i] - v[i]))


def test_the_distance_gap_is_between_mean_angles():
    cosine, positive, _ = angles(MANY_PAIRS)
    theta = np.arccos(cosine)
    expected = theta[~np.eye(12, dtype=bool)].mean() - np.arccos(positive).mean()
    assert found(build_objective("infonce"), MANY_PAIRS).distance_gap.item() == pytest.approx(expected)
    false = some_false_negatives(12)
    masked = found(build_objective("infonce"), MANY_PAIRS, false_negatives=false).distance_gap.item()
    expected = theta[~(np.eye(12, dtype=bool) | false.numpy())].mean() - np.arccos(positive).mean()
    assert masked == pytest.approx(expected)


HARD_WEIGHTS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    # of cosines of anchors with v and w, of anchors with u and w, and of v with v and w: the logarithms of W
    "infonce:temperature=0.2": lambda across, within, other: across / 0.2,
    "mnrl:scale=5": lambda across, within, other: across / 0.2,
    "arccon:temperature=0.2": lambda across, within, other: across / 0.2,
    "dcl:temperature=0.2": lambda across, within, other: across / 0.2,
    "gradient:weight=0.2,dissipation=none": lambda across, within, other: across / 0.2,
    "mpt:margin=2": lambda across, within, other: across * 1e9,
    "met:margin=2": lambda across, within, other: across * 1e9,
    "mat:margin=1": lambda across, within, other: across * 1e9,
    "mhs": lambda across, within, other: across * 1e9,
    "align_uniform": lambda across, within, other: -2 * (2 - 2 * within),
    "mhe:weight=0.2": lambda across, within, other: within / 0.2,
    "mhe": lambda across, within, other: within,
    "vicreg:weight=0.2": lambda across, within, other: within / 0.2,
    "barlow_twins:weight=0.2": lambda across, within, other: other / 0.2,
}


@pytest.mark.parametrize("text", HARD_WEIGHTS)
def test_hard_negatives_are_further_columns_with_the_weights_of_the_page_on_objectives(text):
    batch, hard, false_hard = random_batch(8), random_batch(9, pairs=4).anchors, torch.zeros(6, 4, dtype=torch.bool)
    false_hard[0, 1] = True
    objective = ObjectiveConfig.parse(text).build()
    false = some_false_negatives(6) if objective.name == "infonce" else torch.zeros(6, 6, dtype=torch.bool)
    seen = found(objective, batch, hard_negatives=hard, false_negatives=false, false_hard_negatives=false_hard)
    u, v, w = (unit(rows) for rows in (batch.anchors, batch.positives, hard))
    cosines = u @ torch.cat([v, w]).T, u @ torch.cat([u, w]).T, v @ torch.cat([v, w]).T
    excluded = torch.cat([false | torch.eye(6, dtype=torch.bool), false_hard], dim=1)
    logarithms = HARD_WEIGHTS[text](*cosines).masked_fill(excluded, -math.inf)
    torch.testing.assert_close(seen.weights, logarithms.softmax(-1), rtol=1e-6, atol=1e-9)
    if objective.name == "infonce":
        torch.testing.assert_close(seen.hardest_weight, seen.weights.amax(-1))
        positive = cosines[0].diagonal() / 0.2
        probability = (positive - torch.logaddexp(positive, logarithms.logsumexp(-1))).exp()
        torch.testing.assert_close(seen.dissipation, 1 - probability)


def test_losses_of_others():
    """A user's InfoNCE has the weights and ratio of ours; its dissipation is relative to that of mismatched pairs."""
    batch = random_batch(5, pairs=6, dim=20)

    def by_hand(anchors: Tensor, positives: Tensor) -> Tensor:
        logits = unit(anchors) @ unit(positives).T / 0.05
        return (logits.logsumexp(-1) - logits.diagonal()).mean()

    own = probe(by_hand, batch.anchors, batch.positives)
    named = found(build_objective("infonce"), batch)
    torch.testing.assert_close(own.weights, named.weights)
    torch.testing.assert_close(own.ratio, named.ratio)
    mismatched = probe(build_objective("infonce"), batch.anchors, batch.positives.roll(1, 0)).dissipation.mean()
    torch.testing.assert_close(own.dissipation, named.dissipation / mismatched)


def test_a_constant_loss_has_no_gradient():
    seen = probe(lambda u, v: u.detach().sum() + v.sum(), MANY_PAIRS.anchors, MANY_PAIRS.positives)
    assert not seen.dissipation.any()
    assert seen.summary()["dissipated anchors"] == 1
    assert math.isnan(seen.summary()["ratio"])


ONLY_PULLS = ("mhe:uniformity_weight=0", "vicreg:uniformity_weight=0", "align_uniform:uniformity_weight=0", "byol")


@pytest.mark.parametrize("text", [*ONLY_PULLS, *(f"{text},dissipation=2" for text in ONLY_PULLS[:2])])
def test_the_dissipation_of_a_loss_that_only_pulls_is_undefined(text):
    objective = ObjectiveConfig.parse(text).build()
    seen = found(objective, MANY_PAIRS)
    summary = seen.summary()
    assert seen.alignment_norm.min() > 0.1
    assert seen.dissipation.isnan().all()
    assert math.isnan(summary["dissipation"])
    assert math.isnan(summary["dissipated anchors"])
    assert signs(objective, [summary]) == []


@pytest.mark.parametrize("text", ["infonce", "dcl", "gradient", "mhe:dissipation=0.3", "arccon", "vicreg"])
def test_the_dissipation_of_an_anchor_without_a_negative_is_undefined(text):
    none = torch.zeros(12, 12, dtype=torch.bool)
    none[3] = none[:, 3] = True
    seen = found(ObjectiveConfig.parse(text).build(), MANY_PAIRS, false_negatives=none)
    assert seen.dissipation.isnan().nonzero().flatten().tolist() == [3]
    alone = found(ObjectiveConfig.parse(text).build(), MANY_PAIRS, false_negatives=torch.ones_like(none))
    assert alone.dissipation.isnan().all()


def test_a_loss_of_ones_own_pushes_anchors_whose_negatives_it_does_not_leave_out():
    def infonce(u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return build_objective("infonce")(u, v)

    none = torch.zeros(12, 12, dtype=torch.bool)
    none[3] = True
    masked = probe(infonce, MANY_PAIRS.anchors, MANY_PAIRS.positives, false_negatives=none).dissipation
    torch.testing.assert_close(masked, probe(infonce, MANY_PAIRS.anchors, MANY_PAIRS.positives).dissipation)


@pytest.mark.parametrize(("margin", "dissipated"), [(0.0, 1.0), (0.3, math.nan)])
def test_a_loss_that_only_pulls_is_dissipated_where_every_gate_is_closed(margin, dissipated):
    """A margin is not too low where a part of the anchors is gated, and the others have their whole gradient."""
    objective = build_objective("mhe", uniformity_weight=0, dissipation=margin)
    seen = found(objective, MANY_PAIRS)
    assert (seen.alignment_norm > 0).any() == (margin > 0)
    assert seen.summary()["dissipated anchors"] == pytest.approx(dissipated, nan_ok=True)


def test_anchors_that_only_the_other_half_pulls_are_dissipated():
    """In `gradient`, an anchor is pulled where it or its positive passes, but it is pushed where it passes itself."""
    cosine, positive, _ = angles(MANY_PAIRS)
    others = np.where(np.eye(12, dtype=bool), -9, cosine)
    smallest = [float((positive - others.max(axis)).min()) for axis in (1, 0)]  # of rows and of columns
    views = (MANY_PAIRS.anchors, MANY_PAIRS.positives)[:: 1 if smallest[0] > smallest[1] else -1]
    objective = build_objective("gradient", dissipation=float(np.mean(smallest)))
    seen = found(objective, Batch("swapped", *views))
    assert seen.alignment_norm.any()
    assert not seen.dissipation.any()
    assert seen.summary()["dissipated anchors"] == 1


def test_an_anchor_without_negatives_is_left_out_of_the_means():
    false = torch.zeros(12, 12, dtype=torch.bool)
    false[3] = True
    summary = found(build_objective("dcl"), MANY_PAIRS, false_negatives=false).summary()
    expected = {"dissipation": 1.0, "dissipated anchors": 0.0, "ratio": 1.0, "median ratio": 1.0}
    assert {name: summary[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize("name", ["infonce", "mpt", "vicreg"])
@pytest.mark.parametrize("noise", [0.0, 1e-7])
def test_among_embeddings_with_one_direction_none_is_the_hardest(name, noise):
    """Up to rounding, as of an encoder that has collapsed; the shares that do not depend on directions stay."""
    draws = torch.Generator().manual_seed(0)
    both = torch.randn(384, generator=draws) * (1 + noise * torch.randn(2, 8, 384, generator=draws))
    one = found(build_objective(name), Batch("collapsed", *both))
    assert one.hardest_push.isnan().all()
    assert one.hardest_weight.isnan().all()
    assert one.residual < 1e-6
    close(one.weights, (1 - np.eye(8)) / 7) if name != "mpt" else close(one.weights.sum(1), 1.0)
    apart = found(build_objective(name), Batch("near", *(both + 1e-4 * torch.randn(both.shape, generator=draws))))
    assert apart.hardest_push.isfinite().all()


def test_the_summary_leaves_dissipated_anchors_out_of_the_ratio():
    seen = found(build_objective("met", margin=0.2), MANY_PAIRS)
    kept = seen.dissipation > 0
    assert 0 < kept.sum() < 12
    summary = seen.summary()
    assert summary["ratio"] == pytest.approx(seen.ratio[kept].mean().item())
    assert summary["median ratio"] == pytest.approx(seen.ratio[kept].median().item())
    assert summary["dissipation"] == pytest.approx(kept.double().mean().item())
    assert summary["closer to positive"] == pytest.approx(seen.closer[kept].double().mean().item())


def test_what_cannot_be_probed():
    u = MANY_PAIRS.anchors
    with pytest.raises(InputError, match="cosine learns from labels"):
        probe(build_objective("cosine"), u, u)
    with pytest.raises(InputError, match=r"shapes \[12, 5\] and \[11, 5\]"):
        probe(build_objective("infonce"), u, u[1:])


# Probing a saved model: which texts meet in a batch, and what the command prints and writes.


OBJECTIVE = build_objective("met")
SENTENCES = [f"a band of {number} plays" for number in range(20)]


@pytest.fixture(scope="module")
def encoder(tiny_encoder) -> SentenceEncoder:
    return SentenceEncoder.load(tiny_encoder, device="cpu", precision="fp32")


def test_pairs_are_embedded_without_dropout_in_the_seeds_order(encoder):
    columns = [SENTENCES[:10], SENTENCES[10:]]
    found = probe_checkpoint(encoder, columns, OBJECTIVE, batch_size=4, seed=3)
    assert len(found) == 2  # two rows are left over
    order = generator(3, "probed sentences").permutation(10)
    for number, components in enumerate(found):
        rows = order[4 * number : 4 * number + 4]
        views = [torch.from_numpy(encoder.encode([column[row] for row in rows])) for column in columns]
        torch.testing.assert_close(components.weights, probe(OBJECTIVE, *views).weights, equal_nan=True)


def test_long_texts_are_read_as_their_task_declares(tiny_encoder, tmp_path):
    columns = {"a": [f"{text}{' time' * 70} {text}" for text in SENTENCES[:4]], "label": "x"}
    found = []
    for long in ("head", "middle"):
        tasks = tasks_file(
            tmp_path, columns, own={"kind": "classification", "text": "a", "label": "label", "long": long}
        )
        of, output = ["--model", tiny_encoder, "--data", tasks, "--source", "own"], tmp_path / f"{long}.json"
        assert main([*map(str, ["probe", *of, "--batch-size", 4, "--output", output])]) == 0
        found.append(json.loads(output.read_text())["batches"][0]["dissipation"])
    assert found[0] != pytest.approx(found[1], abs=1e-6)


def test_sentences_differ_from_themselves_by_dropout_only(encoder, tiny_encoder, caplog):
    encoder.model.eval()
    state = torch.get_rng_state()
    objective = build_objective("infonce", temperature=0.5)
    first, again, other = (probe_checkpoint(encoder, [SENTENCES], objective, 8, 2, seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert not encoder.model.training
    assert all(torch.equal(x.dissipation, y.dissipation) for x, y in zip(first, again, strict=True))
    assert not torch.equal(first[0].dissipation, other[0].dissipation)
    without = SentenceEncoder.load(tiny_encoder, device="cpu", precision="fp32")
    without.model.set_dropout(0.0)
    probe_checkpoint(without, [SENTENCES[:10], SENTENCES[10:]], objective, 10)
    assert not caplog.messages
    (identical,) = probe_checkpoint(without, [SENTENCES], objective, 20)
    assert caplog.messages == [f"{tiny_encoder}: the two views of a sentence are equal, as the encoder has no dropout"]
    assert not identical.closer.any()  # nothing is nearer than where it is
    assert first[0].closer.any()


def test_dropout_of_several_batches_is_drawn_in_one_order(encoder, monkeypatch):
    """Several threads would encode what is more than a batch, and each would take masks from the same stream."""
    monkeypatch.setitem(TOKENS_PER_BATCH, "cpu", 16)
    monkeypatch.delattr("multitask.models.compute_in_batches.ThreadPoolExecutor")
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 4):
            torch.set_num_threads(count)
            batches = probe_checkpoint(encoder, [SENTENCES], build_objective("infonce", temperature=0.5), 20)
            found.append(batches[0].dissipation)
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(threads)
    # Other masks change the third digit; threads, the order of sums: some hundred terms of fp32, rounded by 6e-8 each.
    torch.testing.assert_close(*found, rtol=1e-5, atol=0)


def test_texts_that_come_again_are_left_out(encoder):
    texts = [["one", "two", "one", "three", "four"], ["uno", "due", "eins", "uno", "quattro"]]
    kept = probe_checkpoint(encoder, texts, OBJECTIVE, batch_size=3)[0]
    views = [torch.from_numpy(encoder.encode(column)) for column in (["one", "two", "four"], ["uno", "due", "quattro"])]
    order = generator(0, "probed sentences").permutation(3)
    expected = probe(OBJECTIVE, *(view[order] for view in views))
    torch.testing.assert_close(kept.dissipation, expected.dissipation)
    with pytest.raises(InputError, match="batch_size is 4; expected 2 to 3, the number of different texts"):
        probe_checkpoint(encoder, texts, OBJECTIVE, batch_size=4)
    weighing = build_objective("infonce", hard_negative_weight=0.5)
    with pytest.raises(InputError, match=r"hard_negative_weight is 0.5; expected 0, as a probe has no hard negatives"):
        probe_checkpoint(encoder, texts, weighing, batch_size=3)


def test_similar_pairs_have_a_gold_similarity_of_four_or_more(sample_data):
    first, second = similar_pairs(sample_data).texts
    lines = (sample_data / "sts-dev.csv").read_text(encoding="utf-8").splitlines()
    header = lines[0].split("\t")
    rows = [dict(zip(header, line.split("\t"), strict=True)) for line in lines[1:]]
    similar = [row for row in rows if float(row["similarity"]) >= 4]
    assert 0 < len(similar) < len(rows)
    assert first == [row["sentence1"].strip() for row in similar]
    assert second == [row["sentence2"].strip() for row in similar]


def test_similar_pairs_of_another_range_are_in_its_top_fifth(tmp_path):
    columns = {"a": ["one", "two", "three"], "b": ["four", "five", "six"], "score": [4.1, 4.2, 5]}
    alike = {"kind": "cosine", "text": ["a", "b"], "label": "score", "range": [1, 5]}
    assert similar_pairs(tasks_file(tmp_path, columns, alike=alike)).texts == (["two", "three"], ["five", "six"])


def test_the_command_prints_and_writes_the_batches(tiny_encoder, sample_data, tmp_path, capsys):
    output = tmp_path / "probe.json"
    arguments = ["--data", sample_data, "--source", "similar_pairs", "--batch-size", 8, "--batches", 2]
    settings = ["--objective", "mpt:margin=0.5", "--output", output, "--device", "cpu", "--precision", "fp32"]
    assert main([str(argument) for argument in ["probe", "--model", tiny_encoder, *arguments, *settings]]) == 0
    printed = capsys.readouterr().out.splitlines()
    dissipation = [batch["dissipation"] for batch in json.loads(output.read_text())["batches"]]
    assert printed[0] == "mpt(margin=0.5), 2 batches of 8"
    (line,) = [line for line in printed if line.startswith("dissipation ")]
    assert line.split() == ["dissipation", f"{np.mean(dissipation):.4f}", f"{np.std(dissipation):.4f}"]


def test_layers_drop_units_in_every_precision(tiny_encoder, monkeypatch):
    monkeypatch.setattr("minbert.model.ROWS_OF_PRODUCTS", 1)  # spare rows draw too, so dropout would differ
    found = {}
    for precision in ("fp32", "bf16"):
        encoder = SentenceEncoder.load(tiny_encoder, device="cpu", precision=precision, keep_layers=True)
        batches = probe_checkpoint(encoder, [SENTENCES], build_objective("infonce", temperature=0.5), 10)
        found[precision] = np.array([list(batch.summary().values()) for batch in batches])
    np.testing.assert_allclose(found["bf16"], found["fp32"], rtol=0.1, atol=1e-12)  # the residual is rounding


SWEPT = {"temperature": "weight", "margin": "dissipation", "ratio": "ratio"}


def test_signs_are_seen_where_the_published_sweep_lost_and_nowhere_else():
    """Of a row's last probe, the worse of its training and its held-out sentences, as rows of the table differ."""
    scores = pd.read_parquet(ROOT / "docs/studies/results/scores/gradient-paradigm.parquet")
    table = scores[scores.table == "gradient"]
    best = table[(table.source == "similarity") & (table.measure == "spearman")].groupby(["row", "seed"]).value.max()
    best = best.groupby("row").mean()
    last = table[(table.source == "training") & (table.step == table.step.max())]
    means = last.groupby(["row", "measure"]).value.mean()
    told = {}
    for row in set(best.index) - {"defaults"}:
        name, value = row.split("=")
        objective = build_objective("gradient", **{SWEPT[name]: float(value)})
        held_out = {sign.measure: means[row].get(f"held out {sign.measure}", math.nan) for sign in SIGNS}
        held_out["dissipated anchors"] = means[row]["unlabelled dissipated anchors"]
        told[row] = signs(objective, [held_out])
    assert {row for row, lines in told.items() if lines} == {
        *("temperature=0.2", "temperature=0.5", "temperature=1", "margin=0.05", "margin=0.1", "ratio=2")
    }
    assert all(len(lines) <= 1 for lines in told.values())
    lost = best["defaults"] - best
    assert min(lost[row] for row, lines in told.items() if lines) > 0.019
    page = (ROOT / "docs/how-to/probe.md").read_text(encoding="utf-8")
    for row in (*[row for row in told if told[row] and row != "temperature=0.5"], "temperature=0.1", "margin=0.2"):
        assert f"{best[row]:.3f}" in page
    assert told["ratio=2"] == ["median ratio 4.042 is above 3.5: ratio=2 is probably too high"]
    assert signs(build_objective("infonce"), [{sign.measure: 0.999 for sign in SIGNS}]) == []
    assert signs(build_objective("infonce"), [{sign.measure: math.nan for sign in SIGNS}]) == []


ALIKE = "hardest negative weight 0.010 is below 0.2: {} is probably {}, as nearly all negatives count alike"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("infonce:temperature=1", ALIKE.format("temperature=1", "too high")),
        ("mnrl:scale=1", ALIKE.format("scale=1", "too low")),
        ("gradient:weight=1", ALIKE.format("weight=1", "too high")),
        ("gradient:power=0", None),  # it replaces the softmax, so weight does nothing
    ],
)
def test_a_sign_names_a_parameter_that_the_objective_has_and_uses(text, line):
    found = signs(ObjectiveConfig.parse(text).build(), [{sign.measure: 0.01 for sign in SIGNS}])
    assert found == ([] if line is None else [line])
