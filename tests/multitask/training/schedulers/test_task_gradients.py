"""Conflicts between tasks equal cosines computed by hand, and measuring them does not change the training."""

import numpy as np
import pytest
import torch

from minbert.model import BertModel
from minbert.tokenizer import load_tokenizer
from multitask.models.multitask_model import MultitaskModel
from multitask.models.settings import HeadsConfig
from multitask.stages.settings import FinetuneConfig
from multitask.training.schedulers import build_scheduler
from multitask.training.schedulers.task_gradients import TaskGradients, split_parameters
from tests.conftest import COURSE_TASKS

from .toy import TASKS, UPDATE, Toy, cosines

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
    encoder = BertModel.from_pretrained(str(tiny_encoder))
    model = MultitaskModel(encoder, load_tokenizer(str(tiny_encoder)), COURSE_TASKS, "cls", HeadsConfig(kind))
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
