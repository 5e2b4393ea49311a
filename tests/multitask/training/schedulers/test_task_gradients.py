"""Conflicts between tasks equal cosines by hand; scalarizations equal their formulas."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.models.settings import HeadsConfig
from multitask.stages.settings import FinetuneConfig
from multitask.training.schedulers import build_scheduler, scalarizations
from multitask.training.schedulers.task_gradients import TaskGradients, split_parameters
from multitask.training.settings import SchedulerConfig
from tests.conftest import COURSE_TASKS

from .toy import OWN, SHARED, TASKS, UPDATE, Toy, cosines

CPU = torch.device("cpu")
PAIRS = [("sentiment", "paraphrase", 0, 1), ("sentiment", "similarity", 0, 2), ("paraphrase", "similarity", 1, 2)]


@pytest.mark.parametrize("name", ["average", "pcgrad", "uncertainty"])
@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (0.5, 2.0, 3.0)], ids=str)
def test_conflicts_are_cosines_and_norms(name, weights):
    toy = Toy()
    scheduler = build_scheduler(FinetuneConfig(TASKS, scheduler=name, task_weights=weights), CPU)
    scheduler.backward(toy, UPDATE)
    seen = {key: value.item() for key, value in scheduler.conflicts(toy, UPDATE).items()}
    matrix = toy.matrix()
    expected = {f"cosine {first}/{second}": cosines(matrix)[i, j] for first, second, i, j in PAIRS}
    norms = np.linalg.norm(matrix, axis=1) * weights
    assert seen == pytest.approx(expected | {f"norm {task}": norms[k] for k, task in enumerate(TASKS)})


@pytest.mark.parametrize("name", ["average", "pcgrad"])
def test_looking_leaves_no_trace(name):
    toy = Toy(dropout=0.5)
    scheduler = build_scheduler(FinetuneConfig(TASKS, scheduler=name), CPU)
    scheduler.backward(toy, UPDATE)
    gradients = {key: value.clone() for key, value in toy.gradients().items() if value is not None}
    before = torch.get_rng_state()
    if name == "pcgrad":  # it has just computed these gradients
        calls = len(toy.graphs)
        scheduler.conflicts(toy, UPDATE)
        assert len(toy.graphs) == calls
    other = tuple(reversed(UPDATE))  # not the step's own update, so the aggregator has to compute it
    first, second = (scheduler.conflicts(toy, other) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert {key: value.item() for key, value in first.items()} == {key: value.item() for key, value in second.items()}
    assert all(torch.equal(toy.named()[key].grad, value) for key, value in gradients.items())
    assert {key for key, value in toy.gradients().items() if value is not None} == set(gradients)


def test_the_cosine_with_no_gradient_is_zero():
    toy = Toy()
    gradients = TaskGradients(toy.module, dict.fromkeys(TASKS, 1.0))
    gradients.compute(toy, UPDATE[0])
    seen = gradients.conflicts()
    assert seen["cosine sentiment/paraphrase"] == seen["norm paraphrase"] == 0
    assert seen["norm sentiment"] > 0


@pytest.mark.parametrize(
    "kind, common",
    [("separate", set()), ("shared_first_layer", {"first"}), ("shared", {"first", "second"})],
    ids=["separate", "first layer shared", "shared"],  # a set has no fixed order in names
)
def test_shared_are_the_encoder_and_layers_of_several_heads(tiny_encoder, kind, common):
    encoder = SentenceEncoder.read(tiny_encoder)
    model = MultitaskModel(encoder, COURSE_TASKS, HeadsConfig(kind))
    shared, own = split_parameters(model, TASKS)
    names = {parameter: name for name, parameter in model.named_parameters()}
    layers = {f"heads.paraphrase.transform.{layer}.{part}" for layer in common for part in ("weight", "bias")}
    assert {names[p] for p in shared} == layers | {f"encoder.{name}" for name, _ in encoder.named_parameters()}
    for task in TASKS:
        assert all(names[parameter].startswith(f"heads.{task}.") for parameter in own[task])
        assert {*own[task], *shared} >= set(model.heads[task].parameters())


def test_a_layer_that_one_trained_task_uses_is_its_own():
    toy = Toy()
    shared, own = split_parameters(toy.module, ("sentiment", "paraphrase"))
    common = toy.module.get_parameter("heads.paraphrase.0.weight")
    assert not any(parameter is common for parameter in shared)
    assert any(parameter is common for parameter in own["paraphrase"])


# The weights that scalarizers give the tasks equal their papers' formulas.


FACTORS = np.array([1.0, 2.0, 4.0])  # of the tasks' losses
LEARNED = np.array([0.3, -1.2, 0.9])
FORMULAS = {
    "uncertainty": lambda losses: np.exp(-LEARNED) / 2,
    "imtl_l": lambda losses: np.exp(LEARNED),
    "dwa": lambda losses: np.ones(3),  # before the third epoch
    "famo": lambda losses: 3 / losses / (1 / losses).sum(),  # with equal weights
    "stch": lambda losses: 3 * softmax(losses / 3 / 0.2),
    "geometric_mean": lambda losses: losses.prod() ** (1 / 3) / losses,
}


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


def build(name: str, device: str = "cpu"):
    scheduler = SchedulerConfig.of(name, **({"mu": 0.2} if name == "stch" else {}))
    config = FinetuneConfig(TASKS, scheduler=scheduler, task_weights=tuple(FACTORS))
    return build_scheduler(config, torch.device(device)).double()


def losses_of(toy: Toy) -> np.ndarray:
    """The tasks' losses times their factors."""
    return FACTORS * [term.item() for term in toy.losses(UPDATE).terms.values()]


def weights(losses) -> np.ndarray:
    return np.array([losses.watched[f"weight {task}"].item() for task in TASKS])


@pytest.mark.parametrize("name", FORMULAS)
def test_gradients_have_their_closed_form(name):
    toy, scheduler = Toy(), build(name)
    if name in ("uncertainty", "imtl_l"):
        (learned,) = scheduler.parameters()
        assert learned.tolist() == [0, 0, 0]
        learned.data.copy_(torch.from_numpy(LEARNED))
    found = scheduler.backward(toy, UPDATE)
    expected = FORMULAS[name](losses_of(toy))
    np.testing.assert_allclose(weights(found), expected, rtol=1e-6)  # FAMO adds 1e-8 to each loss
    shares = FACTORS * expected / 3
    np.testing.assert_allclose(toy.shared(), shares @ toy.matrix(), rtol=1e-6, atol=1e-12)
    reference = toy.reference()
    for task, share in zip(TASKS, shares, strict=True):
        for parameter in OWN[task]:
            torch.testing.assert_close(
                toy.named()[parameter].grad, share * reference[task][parameter], rtol=1e-6, atol=0
            )
        assert not found.terms[task].requires_grad
        assert not found.watched[f"weight {task}"].requires_grad


@pytest.mark.parametrize(
    ("name", "rest"), [("uncertainty", lambda loss: math.log(loss)), ("imtl_l", lambda loss: -math.log(loss))]
)
def test_what_is_learned_rests_where_its_loss_is_least(name, rest):
    toy, scheduler = Toy(), build(name)
    (learned,) = scheduler.parameters()
    learned.data.copy_(torch.tensor([rest(loss) for loss in losses_of(toy)]))
    scheduler.backward(toy, UPDATE)
    torch.testing.assert_close(learned.grad, torch.zeros(3, dtype=torch.float64))


def test_dwa_prefers_tasks_whose_loss_falls_slowly():
    """Equation 7 of arXiv 1803.10704 with temperature 2."""
    toy, scheduler = Toy(), build("dwa")
    batches = {batch.source: [batch.rows, batch.rows] for batch in UPDATE}
    assert len(scheduler.arrange(batches, np.random.default_rng(0))) == 2  # steps of an epoch
    means = []
    for scale in (1.0, 0.5):
        before = []
        for _ in range(2):
            before.append(losses_of(toy))
            assert weights(scheduler.backward(toy, UPDATE)).tolist() == [1, 1, 1]
            toy.targets[:, 1] *= scale
        means.append(np.mean(before, axis=0))
    expected = 3 * softmax(means[1] / means[0] / 2)
    resumed = build("dwa")
    resumed.load_state_dict(scheduler.state_dict())
    np.testing.assert_allclose(weights(resumed.backward(toy, UPDATE)), expected, rtol=1e-6)
    np.testing.assert_allclose(weights(scheduler.backward(toy, UPDATE)), expected, rtol=1e-6)
    assert expected.std() > 0.01


def test_a_geometric_mean_may_have_a_loss_of_zero(monkeypatch):
    """Its gradient is that of the mean of the logarithms, times a number."""
    toy, scheduler = Toy(), build("geometric_mean")
    found = toy.losses(UPDATE)
    factors = dict(zip(TASKS, (0.0, 1.0, 1.0), strict=True))
    with_zero = replace(found, terms={name: factors[name] * term for name, term in found.terms.items()})
    monkeypatch.setattr(toy, "losses", lambda update: with_zero)
    assert weights(scheduler.backward(toy, UPDATE))[0] == 0
    monkeypatch.undo()
    losses = np.array([term.item() for term in found.terms.values()])
    of_logarithms = (toy.matrix()[1:] / losses[1:, None]).sum(axis=0)
    ratios = toy.shared() / of_logarithms
    assert ratios.min() > 0
    np.testing.assert_allclose(ratios, ratios.mean(), rtol=1e-9)


def test_famo_learns_from_what_the_last_step_did_to_its_rows():
    """Algorithm 1 of arXiv 2306.03792: a first step of Adam has the length of its rate in each logit."""
    toy, scheduler = Toy(), build("famo")
    scheduler.backward(toy, UPDATE)
    before = losses_of(toy)
    with torch.no_grad():
        for parameter in SHARED:
            toy.named()[parameter].mul_(0.9)
    after = losses_of(toy)
    found = scheduler.backward(toy, UPDATE)
    improvement = np.log(before) - np.log(after)
    gradient = (improvement - improvement.mean()) / 3  # through a softmax of equal weights
    logits = -0.025 * np.sign(gradient)
    expected = softmax(logits) / after
    np.testing.assert_allclose(weights(found), 3 * expected / expected.sum(), rtol=1e-5)


@pytest.mark.parametrize("name", ["dwa", "famo"])
def test_a_state_read_on_the_cpu_continues_on_the_device(name, monkeypatch):
    """`meta` stands for a GPU: a tensor that stays on the CPU raises. It has no random generators."""
    monkeypatch.setattr(scalarizations, "generator_states", lambda device: {})
    toy, scheduler = Toy(), build(name)
    scheduler.steps = 2
    for _ in range(5):  # two epochs, whose means DWA keeps, and a step of the third
        scheduler.backward(toy, UPDATE)
    resumed = build(name, "meta")
    resumed.set_extra_state(scheduler.get_extra_state())
    toy.module.to("meta")
    toy.inputs, toy.targets = toy.inputs.to("meta"), toy.targets.to("meta")
    assert resumed.backward(toy, UPDATE).watched[f"weight {TASKS[0]}"].is_meta
