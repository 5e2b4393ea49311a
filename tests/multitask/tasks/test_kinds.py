"""Losses, predictions and scores of every kind of task, against torch's own functions, slow loops and brute force."""

import math
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import expit, logsumexp, softmax
from scipy.stats import entropy, pearsonr
from torch import Tensor, nn

from minbert.errors import InputError
from multitask.data.examples import Examples
from multitask.models.prediction_heads import build_heads
from multitask.models.settings import HeadsConfig
from multitask.tasks.declarations import load_tasks, task_of
from multitask.tasks.kinds import KINDS, Classification, Cosine, MultiLabel, Regression
from multitask.tasks.scores import distance_loss, focus
from multitask.tasks.task import Task

ROWS = 9
TASKS = load_tasks("data")  # the course's


def declared(kind: str, **fields: Any) -> Task:
    text = ["a", "b"] if kind in ("pair_classification", "pair_regression", "cosine") else "a"
    return task_of("topic", {"kind": kind, "text": text, "label": "c", **fields})


def examples(labels: Any, classes: tuple[str, ...] = ()) -> Examples:
    labels = np.array(labels, np.float32)
    return Examples(([str(i) for i in range(len(labels))],), labels, classes, None, "train.csv")


@pytest.fixture
def generator():
    return np.random.default_rng(0)


def draw(task, generator):
    """Outputs as the head gives them, and labels, for a few rows."""
    outputs = generator.normal(size=(ROWS, task.outputs) if task.outputs > 1 else ROWS).astype(np.float32)
    if task.kind == "cosine":
        return outputs, generator.uniform(*task.bounds, ROWS).astype(np.float32)
    return outputs, generator.integers(0, len(task.labels), ROWS).astype(np.float32)


# The course's tasks.


def probabilities(task, outputs):
    """Of the values of each distribution, [..., values]."""
    if task.kind in ("classification", "pair_classification") and outputs.ndim == 2:
        return softmax(outputs, axis=1)
    return np.stack([expit(outputs), expit(-outputs)], axis=-1)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_divergence_is_symmetric_and_that_of_scipy(kind, classes, generator):
    is_number = issubclass(KINDS[kind], Regression)
    task = declared(kind, **({} if is_number else {"labels": ["a", "b", "c"][:classes]}))
    first, second = generator.normal(size=(2, ROWS, task.outputs) if task.outputs > 1 else (2, ROWS))
    if is_number:
        expected = np.mean((first - second) ** 2)
    else:
        p, q = probabilities(task, first), probabilities(task, second)
        expected = np.mean(entropy(p, q, axis=-1) + entropy(q, p, axis=-1))
    a, b = torch.from_numpy(first), torch.from_numpy(second)
    assert task.divergence(a, b).shape == ()
    assert task.divergence(a, b).item() == pytest.approx(expected, rel=1e-12)
    assert torch.equal(task.divergence(a, b), task.divergence(b, a))
    assert task.divergence(a, a) == 0


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_soft_loss_is_the_cross_entropy_of_tempered_probabilities(kind, classes, generator):
    """In numbers the squared difference. Estimates of logits at the same temperature have no gradient."""
    is_number, temperature = issubclass(KINDS[kind], Regression), 2.5
    task = declared(kind, **({} if is_number else {"labels": ["a", "b", "c"][:classes]}))
    outputs, theirs = generator.normal(size=(2, ROWS, task.outputs) if task.outputs > 1 else (2, ROWS))
    if is_number:
        estimates, expected = theirs, np.mean((outputs - theirs) ** 2)
    else:
        p, q = probabilities(task, theirs / temperature), probabilities(task, outputs / temperature)
        expected = temperature**2 * np.mean(-(p * np.log(q)).sum(axis=-1))
        estimates = p if p.ndim == 2 and task.outputs > 1 else p[..., 0]
    loss = task.soft_loss(torch.from_numpy(outputs), torch.from_numpy(estimates), temperature)
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    same = torch.from_numpy(theirs).requires_grad_()
    task.soft_loss(same, torch.from_numpy(estimates), temperature).backward()
    assert same.grad.abs().max() < 1e-12


def predicted(task, outputs):
    return TASKS[task].decide(TASKS[task].estimate(np.array(outputs, np.float32)))


@pytest.mark.parametrize("task", TASKS)
def test_score_is_the_courses_measure_and_one_of_perfect_predictions(task, generator):
    outputs, labels = draw(TASKS[task], generator)
    predictions = predicted(task, outputs)
    low, high = TASKS[task].bounds if task == "similarity" else (0, len(TASKS[task].labels) - 1)
    assert low <= predictions.min() <= predictions.max() <= high
    expected = pearsonr(predictions, labels)[0] if task == "similarity" else np.mean(predictions == labels)
    assert TASKS[task].score(TASKS[task].estimate(outputs), labels) == pytest.approx(expected, abs=1e-6)
    perfect = {"similarity": labels / 5, "paraphrase": labels}.get(task)
    if perfect is None:
        perfect = np.eye(len(TASKS[task].labels))[labels.astype(int)]
    assert TASKS[task].score(perfect.astype(float), labels) == pytest.approx(1)


# Classification.


@pytest.mark.parametrize("kind", ["classification", "pair_classification"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_weighted_losses_equal_torchs(kind, classes, weighted, generator):
    labels = [f"c{i}" for i in range(classes)]
    weights = {"class_weights": [0.25, 2.0, 1.5][:classes]} if weighted else {}
    task = declared(kind, labels=labels, **weights)
    outputs, gold = (torch.from_numpy(values) for values in draw(task, generator))
    # One logit is the log odds of the second class: the same as two logits of which the first is 0.
    logits = torch.stack([torch.zeros(ROWS), outputs], dim=1) if task.outputs == 1 else outputs
    expected = nn.CrossEntropyLoss(torch.tensor(weights["class_weights"]) if weighted else None)(logits, gold.long())
    assert task.loss(outputs, gold).shape == ()
    assert task.outputs == (1 if kind == "pair_classification" and classes == 2 else classes)
    torch.testing.assert_close(task.loss(outputs, gold), expected)
    probabilities = task.probabilities(task.estimate(outputs.numpy()))
    np.testing.assert_allclose(probabilities, softmax(logits.double().numpy(), axis=1), rtol=1e-12)
    assert task.decide(task.estimate(outputs.numpy())).tolist() == probabilities.argmax(axis=1).tolist()


def test_a_temperature_divides_the_outputs(generator):
    for kind, expected in (("classification", lambda x: softmax(x, axis=1)), ("multilabel", expit)):
        task = declared(kind, labels=["a", "b", "c"], temperature=2.5)
        outputs, _ = draw(task, generator)
        np.testing.assert_allclose(task.estimate(outputs), expected(outputs.astype(float) / 2.5), rtol=1e-12)


def test_the_order_of_classes_and_balanced_weights_are_learned():
    task = declared("classification", class_weights="balanced").learned(examples([0, 0, 0, 1, 2, 2], ("a", "b", "c")))
    assert task.labels == ("a", "b", "c")
    assert task.class_weights == pytest.approx((6 / 9, 6 / 3, 6 / 6))  # as of scikit-learn
    for rows in (["b", "10", "9"], ["9", "b", "10"]):
        encoded, names = declared("classification").encode_labels(rows)  # learned
        assert names == ("10", "9", "b")
        assert [names[int(i)] for i in encoded] == rows
    encoded, names = declared("classification", labels=["9", 10, "b"]).encode_labels(["b", "10", "9"])
    assert (encoded.tolist(), names) == ([2, 1, 0], ("9", "10", "b"))
    task = declared("multilabel", class_weights="balanced").learned(
        examples([[1, 1], [1, 0], [0, 1], [1, 0]], ("a", "b"))
    )
    assert task.class_weights == pytest.approx((1 / 3, 2 / 2))


# Several labels a row.


def test_several_labels_come_from_lists_text_and_columns():
    lists = declared("multilabel", labels=["b", "a", 1])
    rows = [["a", 1.0], [], None, ["b"]]
    expected = [("1", "a"), (), None, ("b",)]
    assert [lists.labels_from({"c": row}) for row in rows] == expected
    assert [lists.labels_from({"c": text}) for text in ("a|1|a", "[]", " ", " b ")] == expected
    commas = declared("multilabel", labels=["b", "a", 1], label_separator=",")
    assert commas.labels_from({"c": "a, 1"}) == ("1", "a")
    columns = declared("multilabel", label=["b", "1", "a"])
    values = [("0", "1", 1), (0, 0.0, False), ("1", "", "0"), ("1.0", "False", "0")]
    assert [columns.labels_from(dict(zip(("b", "1", "a"), row, strict=True))) for row in values] == expected
    none = [replace(task, empty="none") for task in (lists, columns)]
    assert [none[0].labels_from({"c": blank}) for blank in (None, " ", "b")] == [(), (), ("b",)]
    assert none[1].labels_from({"b": "", "a": 1, "1": None}) == ("a",)
    assert columns.names == ("b", "1", "a")
    encoded, names = lists.encode_labels([("a", "1"), (), ("b",)])
    assert (encoded.tolist(), names) == ([[0, 1, 1], [0, 0, 0], [1, 0, 0]], ("b", "a", "1"))
    assert declared("multilabel").encode_labels([("a", "1"), ("b",)])[1] == ("1", "a", "b")


@pytest.mark.parametrize("weights", [None, [0.5, 2.0, 3.0]])
def test_the_loss_of_several_labels_equals_torchs(weights, generator):
    task = declared("multilabel", labels=["a", "b", "c"], **({"class_weights": weights} if weights else {}))
    outputs = torch.from_numpy(generator.normal(size=(ROWS, 3)).astype(np.float32))
    gold = torch.from_numpy(generator.integers(0, 2, (ROWS, 3)).astype(np.float32))
    p = outputs.double().sigmoid()
    factor = torch.tensor(weights or [1.0] * 3)
    expected = -(factor * gold * p.log() + (1 - gold) * (1 - p).log()).mean()
    assert task.loss(outputs, gold).item() == pytest.approx(expected.item(), rel=1e-5)


def test_thresholds_are_chosen_label_by_label_and_used():
    task = declared("multilabel", labels=["a", "b"])
    estimates = np.array([[0.9, 0.2], [0.4, 0.1], [0.3, 0.05]])
    gold = np.array([[1, 1], [1, 1], [0, 0]], np.float32)
    assert task.decide(estimates).tolist() == [[1, 0], [0, 0], [0, 0]]
    tuned = task.tuned(estimates, gold)
    assert isinstance(tuned, MultiLabel)
    assert tuned.thresholds == pytest.approx((0.35, 0.075))
    assert tuned.decide(estimates).tolist() == gold.tolist()
    assert tuned.score(estimates, gold) == 1
    assert task_of("topic", tuned.declaration()) == tuned
    assert "thresholds" not in tuned.declaration(tuned=False)


# Numbers.


@pytest.mark.parametrize("kind", ["regression", "pair_regression", "cosine"])
def test_regressions_learn_shares_of_their_range(kind, generator):
    task = declared(kind, range=[-1, 3])
    outputs, labels = generator.normal(size=ROWS).astype(np.float32), generator.uniform(-1, 3, ROWS).astype(np.float32)
    loss = task.loss(torch.from_numpy(outputs), torch.from_numpy(labels))
    assert task.decide(task.estimate(outputs)).dtype == np.float32
    assert loss.item() == pytest.approx(np.mean((outputs - (labels + 1) / 4) ** 2), rel=1e-5)
    np.testing.assert_allclose(task.decide(task.estimate(outputs)), np.clip(outputs * 4 - 1, -1, 3), rtol=1e-5)


def test_cosent_of_a_cosine_task_compares_all_pairs_of_rows(generator):
    task = declared("cosine", range=[0, 5], objective="cosent")
    outputs, labels = generator.uniform(-1, 1, ROWS), generator.integers(0, 5, ROWS).astype(float)
    terms = [20 * (outputs[i] - outputs[j]) for i in range(ROWS) for j in range(ROWS) if labels[i] < labels[j]]
    loss = task.loss(torch.from_numpy(outputs), torch.from_numpy(labels))
    assert loss.item() == pytest.approx(np.log(1 + np.exp(terms).sum()), rel=1e-9)
    assert task_of("topic", task.declaration()) == task


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("row_weights", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@given(classes=st.integers(2, 3), cuts=st.sets(st.integers(1, ROWS - 1)).map(sorted), seed=st.integers(0, 99))
def test_losses_of_parts_add_up_to_the_loss_of_the_batch(kind, weighted, row_weights, classes, cuts, seed):
    names = {} if issubclass(KINDS[kind], Regression) else {"labels": ["a", "b", "c"][:classes]}
    options = {"class_weights": [0.25, 2.0, 7.0][:classes], "focal": 2.0} if names and weighted else {}
    if kind.endswith("classification") and weighted:
        options["ordinal"] = True
    task, generator = declared(kind, **names, **options), np.random.default_rng(seed)
    several = kind == "multilabel"
    labels = generator.integers(0, classes if names and not several else 2, (ROWS, classes) if several else ROWS)
    outputs = torch.from_numpy(generator.normal(size=(ROWS, task.outputs) if task.outputs > 1 else ROWS))
    weights = generator.uniform(0, 3, ROWS) * (generator.uniform(size=ROWS) > 0.3) if row_weights else None
    whole, gold = task.divisor(labels, weights), torch.from_numpy(labels).double()
    every, found = None if weights is None else torch.from_numpy(weights), 0.0
    for rows in np.split(np.arange(ROWS), cuts):
        own = None if every is None else every[rows]
        share = task.divisor(labels[rows], None if weights is None else weights[rows]) / whole
        found = found + share * task.loss(outputs[rows], gold[rows], own)
    torch.testing.assert_close(found, task.loss(outputs, gold, every))


def test_rows_of_a_hub_have_the_form_of_parquet():
    forms = {
        name: declared("regression", train={"file": name}).form for name in ("hf:glue/mrpc", "rows.csv", "rows.jsonl")
    }
    assert forms == {"hf:glue/mrpc": ".parquet", "rows.csv": "", "rows.jsonl": ".jsonl"}


def test_a_range_is_learned_and_predictions_may_leave_it():
    task = declared("regression").learned(examples([2, 4, 12]))
    assert task.bounds == (2, 12)
    np.testing.assert_allclose(
        task.decide(task.estimate(np.array([-0.1, 0.5, 1.2], np.float32))), [1, 7, 14], rtol=1e-6
    )
    assert declared("regression", range=[0, 20]).learned(examples([2, 4])).bounds == (0, 20)
    assert task.selects
    assert not declared("regression", metric="rmse").selects  # never on an error
    assert not declared("classification", ordinal=True, metric="mae").selects
    assert declared("classification", ordinal=True, metric="kappa").selects


@pytest.mark.parametrize(
    ("bounds", "below", "at"),
    [([0, 5], 3.99, 4), ([1, 5], 4.19, 4.2), ([0, 1], 0.79, 0.8), ([-1, 1], 0.59, 0.6), ([0, 100], 79, 80)],
)
def test_pairs_in_the_top_fifth_of_the_range_mean_the_same(bounds, below, at):
    task = declared("cosine", range=bounds)
    assert isinstance(task, Cosine)
    gold = examples([bounds[0], below, at, bounds[1]]).gold
    assert list(task.mean_the_same(gold)) == [False, False, True, True]


@pytest.mark.parametrize(
    ("labels", "warned", "refused"),
    [
        ([1.7e9 + i for i in range(9999)], "1700000064 is 1700000000", "1700000000 to 1700009984, too close for fp32"),
        ([1.7e9 + 128 * i for i in range(60)], "", "1700000000 to 1700007552, too close for fp32"),
        ([2000 + i / 1000 for i in range(60)], "", ""),
        ([0.1, 0.1], "", "are 0.1; nothing to learn"),
    ],
)
def test_labels_that_fp32_cannot_tell_apart_are_not_called_equal(labels, warned, refused, caplog):
    task = declared("regression")
    training = examples(task.encode_labels(labels)[0])
    assert [warned in message for message in caplog.messages] == [True] * bool(warned)
    with pytest.raises(InputError, match=refused) if refused else nullcontext():
        task.learned(training)


def test_a_task_may_have_the_name_of_an_attribute_of_modules():
    tasks = [replace(declared("classification", labels=["a", "b"]), name=name) for name in ("type", "values", "train")]
    heads = nn.ModuleDict({"heads": build_heads(tasks, 8, HeadsConfig())})["heads"].eval()
    assert list(heads) == ["type", "values", "train"]
    assert heads["type"](torch.zeros(3, 8)).shape == (3, 2)
    assert not heads["values"].training
    again = build_heads(tasks, 8, HeadsConfig())
    again.load_state_dict(heads.state_dict())
    torch.testing.assert_close(dict(again.named_parameters()), dict(heads.named_parameters()))


# Ordered classes, focal loss and weighted rows, against slow loops, closed forms and rows that are written twice.


LABELS = ["a", "b", "c", "d"]
ALPHA = st.sampled_from([1.0, 1.5, 2.0])
LOGITS = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(2, 6)), elements=st.floats(-200, 200))


@given(LOGITS, ALPHA, st.randoms())
def test_distances_cost_what_a_loop_over_the_classes_adds_up(logits, alpha, random):
    gold = [random.randrange(logits.shape[1]) for _ in logits]
    expected = []
    for row, y in zip(logits, gold, strict=True):
        # log(1 - p_j) is the log of the other classes' sum.
        missed = [logsumexp(np.delete(row, j)) - logsumexp(row) for j in range(len(row))]
        expected.append(-sum(missed[j] * abs(j - y) ** alpha for j in range(len(row))))
    outputs = torch.from_numpy(logits).requires_grad_()
    found = distance_loss(outputs.log_softmax(dim=1), torch.tensor(gold), alpha)
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-9, atol=1e-9)
    found.sum().backward()
    assert outputs.grad is not None
    assert torch.isfinite(outputs.grad).all()


def test_gradients_are_those_of_small_differences():
    logits, gold = torch.randn(5, 4, dtype=torch.float64, requires_grad=True), torch.tensor([0, 1, 2, 3, 3])
    assert torch.autograd.gradcheck(lambda x: distance_loss(x.log_softmax(dim=1), gold, 1.5), logits)
    assert torch.autograd.gradcheck(lambda x: focus(F.logsigmoid(x), 2.0), logits)


def test_of_two_classes_the_distance_costs_the_cross_entropy_again():
    """Whatever the power: the only other class is one class away."""
    outputs, gold = torch.randn(7, dtype=torch.float64), torch.tensor([0.0, 1, 1, 0, 1, 0, 0], dtype=torch.float64)
    task = declared("pair_classification", labels=["no", "yes"], ordinal=True, ordinal_weight=0.25, ordinal_alpha=2)
    expected = 1.25 * F.binary_cross_entropy_with_logits(outputs, gold)
    torch.testing.assert_close(task.loss(outputs, gold), expected)


@given(st.floats(0, 5), st.floats(-30, 30))
def test_focal_loss_is_its_formula(gamma, logit):
    task = declared("pair_classification", labels=["no", "yes"], focal=gamma)
    p = 1 / (1 + math.exp(-logit))
    found = task.loss(torch.tensor([logit], dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    assert found.item() == pytest.approx(-((1 / (1 + math.exp(logit))) ** gamma) * math.log(p), rel=1e-6, abs=1e-15)


def test_focal_loss_has_gradients_where_a_row_is_surely_right():
    outputs = torch.tensor([[200.0, -200.0], [-200.0, 200.0]], requires_grad=True)
    declared("classification", labels=["a", "b"], focal=0.5).loss(outputs, torch.zeros(2)).backward()
    torch.testing.assert_close(outputs.grad, torch.tensor([[0.0, 0.0], [-0.5, 0.5]]))


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((kind, {} if issubclass(of, Regression) else {"labels": LABELS[:2]}) for kind, of in KINDS.items()),
    ("classification", {"labels": LABELS, "class_weights": [1, 2, 0.5, 3], "focal": 2}),
    ("classification", {"labels": LABELS, "class_weights": [1, 2, 0.5, 3], "ordinal": True}),
    ("pair_classification", {"labels": LABELS[:2], "class_weights": [1, 3]}),
    ("multilabel", {"labels": LABELS, "class_weights": [1, 2, 0.5, 3], "focal": 1}),
]


@pytest.mark.parametrize(("kind", "fields"), VARIANTS, ids=str)
def test_a_row_of_weight_two_is_two_rows_and_one_of_weight_zero_none(kind, fields):
    task = declared(kind, **fields)
    draws = torch.Generator().manual_seed(0)
    outputs = torch.randn(6, task.outputs, dtype=torch.float64, generator=draws)
    outputs = outputs.squeeze(1) if task.outputs == 1 else outputs
    labels = torch.rand(6, dtype=torch.float64, generator=draws)
    if kind == "multilabel":
        labels = (torch.rand(outputs.shape, generator=draws) < 0.5).double()
    elif isinstance(task, Classification):
        labels = (labels * len(task.labels)).floor()
    weights = torch.tensor([1.0, 2, 0, 1, 2, 0], dtype=torch.float64)
    twice = torch.tensor([0, 1, 1, 3, 4, 4])

    def value_and_gradient(rows: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        leaf = outputs.clone().requires_grad_()
        loss = task.loss(leaf[rows], labels[rows], weights)
        return loss.detach(), torch.autograd.grad(loss, leaf)[0]

    every = torch.arange(6)
    torch.testing.assert_close(value_and_gradient(every, weights), value_and_gradient(twice, None))
    torch.testing.assert_close(value_and_gradient(every, 3 * weights), value_and_gradient(twice, None))
    torch.testing.assert_close(value_and_gradient(every, torch.ones(6)), value_and_gradient(every, None))
    nothing = value_and_gradient(every, torch.zeros(6))
    assert all(not part.any() for part in nothing)


def test_without_weight_the_order_changes_the_scores_only_and_calibration_fits_the_cross_entropy():
    outputs, gold = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32), np.arange(40.0) % 4
    plain = declared("classification", labels=LABELS)
    shaped = declared("classification", labels=LABELS, ordinal=True, focal=3, class_weights=[1, 2, 3, 4])
    ordered = replace(plain, ordinal=True, ordinal_weight=0.0)
    values = torch.from_numpy(outputs), torch.from_numpy(gold)
    assert torch.equal(ordered.loss(*values), plain.loss(*values))
    found, expected = (task.calibrated(outputs, gold.astype(np.float32)) for task in (shaped, plain))
    assert isinstance(found, Classification)
    assert found.temperature == expected.temperature
    estimates = ordered.estimate(outputs)
    assert ordered.metrics(estimates, gold).keys() - plain.metrics(estimates, gold).keys() == {"mae", "kappa"}
