"""Integrated gradients: a closed form for a linear model, a slow midpoint sum over the padded encoder, completeness."""

import copy
import sys

import numpy as np
import pytest
import torch
from torch import nn

from minbert.errors import InputError
from multitask.inference.explore.integrated_gradients import integrated_gradients, numbers_of, predicted_numbers
from multitask.inference.explore.word_effects import explained_number, words_of
from multitask.models.multitask_model import MultitaskModel
from multitask.models.predictions import interpret
from multitask.tasks.declarations import task_of
from tests.multitask.inference.serve.conftest import TASKS, build

TEXT = "Two dogs run, and the good band plays unheardof music."
UNBOUNDED = {"kind": "regression", "text": ["s"], "label": "l", "learned_range": [1, 5]}
PAIR = ["Two dogs run.", "The band plays for dogs."]


@pytest.fixture(scope="module")
def model(tiny_encoder) -> MultitaskModel:
    """A task of every kind; one reads its pairs jointly, one separately."""
    return build(tiny_encoder, length=None)


def attribute(model, texts, steps=500):
    """With so many steps because the kinks of ReLU and of bounded values slow the quadrature's convergence."""
    pytest.importorskip("captum", reason="needs: pip install captum")
    found = model.predict_all([texts[0] if len(texts) == 1 else tuple(texts)])
    explained = {task: explained_number(prediction) for task, (prediction,) in found.items()}
    return explained, integrated_gradients(model, texts, words_of(texts), explained, steps)


@pytest.mark.parametrize("texts", [[TEXT], PAIR], ids=["one", "pair"])
def test_the_effects_add_up_to_the_difference_from_the_baseline(model, texts):
    explained, found = attribute(model, texts)
    assert len(found) == (3 if len(texts) == 1 else 2)
    for task, attribution in found.items():
        number, tolerance = explained[task], 1e-3
        row = texts[0] if len(texts) == 1 else tuple(texts)
        (prediction,) = model.predict(task, [row])
        if prediction.value is None:
            value = prediction.probabilities[number]
        else:
            value, tolerance = prediction.value, 0.02  # of 4 or 5 units; its bounds are kinks
        assert attribution.row == pytest.approx(value, abs=1e-5)
        assert sum(attribution.effects) == pytest.approx(attribution.row - attribution.baseline, abs=tolerance)
        assert attribution.gap == pytest.approx(sum(attribution.effects) - attribution.row + attribution.baseline)
        assert attribution.row != pytest.approx(attribution.baseline, abs=1e-3)  # there is something to explain


def test_too_few_steps_show_as_a_gap(model):
    _, found = attribute(model, [TEXT], steps=1)
    assert max(abs(attribution.gap) for attribution in found.values()) > 0.01


def test_of_a_linear_model_the_effect_of_a_token_is_its_weight(model):
    """The mean of word embeddings, times a vector: without norms, layers and bounds nothing is to integrate."""
    pytest.importorskip("captum", reason="needs: pip install captum")
    linear = copy.deepcopy(model)
    linear.encoder.embeddings.norm = nn.Identity()
    linear.encoder.layers = nn.ModuleList()
    task = task_of("stars", UNBOUNDED)
    linear.tasks = {"stars": task}
    direction = torch.randn(linear.encoder.config.hidden_size)
    linear.heads = nn.ModuleDict({"stars": nn.Linear(len(direction), 1, bias=False)})
    linear.heads["stars"].weight.data = direction[None]
    words = words_of([TEXT])
    found = integrated_gradients(linear, [TEXT], words, {"stars": "value"}, steps=1)["stars"]
    low, high = task.bounds
    encoding = linear.tokenizer.backend.encode(TEXT)
    table = linear.encoder.embeddings.word.weight
    expected = np.zeros(len(words))
    for token, (start, _), special in zip(encoding.ids, encoding.offsets, encoding.special_tokens_mask, strict=True):
        if not special:
            change = (table[token] - table[linear.tokenizer.pad_token_id]) @ direction / len(encoding.ids)
            (word,) = [i for i, each in enumerate(words) if each.start <= start < each.end]
            expected[word] += change.item() * (high - low)
    np.testing.assert_allclose(found.effects, expected, atol=1e-5)
    assert found.gap == pytest.approx(0, abs=1e-5)


def test_effects_equal_a_midpoint_sum_over_the_padded_encoder(model):
    """500 points of the padded path, whose table of words a hook replaces."""
    explained, found = attribute(model, [TEXT])
    own = copy.deepcopy(model)
    batch = own.tokenizer([TEXT])
    ids = batch.input_ids[0]
    blank = torch.where(torch.isin(ids, torch.tensor(own.tokenizer.special_ids)), ids, own.tokenizer.pad_token_id)
    blank[ids == own.tokenizer.backend.token_to_id("[UNK]")] = own.tokenizer.pad_token_id
    row, baseline = (own.encoder.embeddings.word.weight[part].detach() for part in (ids, blank))
    steps = 500
    shares = ((torch.arange(steps) + 0.5) / steps)[:, None, None]
    path = (baseline + shares * (row - baseline)).requires_grad_()
    own.encoder.embeddings.word.register_forward_hook(lambda *_: path)
    hidden = own.encoder(batch.input_ids.expand(steps, -1)).last_hidden_state
    probabilities = own.heads["mood"](hidden.mean(dim=1)).softmax(dim=1)
    chosen = own.tasks["mood"].names.index(explained["mood"])
    (gradient,) = torch.autograd.grad(probabilities[:, chosen].sum(), path)
    tokens = (gradient.mean(dim=0) * (row - baseline)).sum(dim=1)
    encoding = own.tokenizer.backend.encode(TEXT)
    for word, effect in zip(words_of([TEXT]), found["mood"].effects, strict=True):
        inside = [word.start <= start and end <= word.end and end > 0 for start, end in encoding.offsets]
        assert effect == pytest.approx(tokens[inside].sum().item(), abs=5e-4)


def test_words_that_are_cut_have_no_effect(tiny_encoder):
    short = build(tiny_encoder, length=6)
    for attribution in attribute(short, [TEXT], steps=2)[1].values():
        assert [effect is None for effect in attribution.effects] == [False] * 3 + [True] * 7


def test_the_model_stays_as_it_is(model):
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    attribute(model, [TEXT], steps=2)
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())


@pytest.mark.parametrize("task", [*TASKS, "unbounded"])
def test_numbers_are_those_of_predictions(task):
    declared = task_of(task, {**TASKS, "unbounded": UNBOUNDED}[task])
    outputs = torch.randn(7, declared.outputs) if declared.outputs > 1 else torch.randn(7) * 0.7 + 0.5
    numbers = predicted_numbers(declared, outputs)
    assert numbers.shape == (7, len(numbers_of(declared)))
    for row, prediction in zip(numbers.tolist(), interpret(declared, declared.estimate(outputs.numpy())), strict=True):
        if prediction.value is None:
            assert dict(zip(numbers_of(declared), row, strict=True)) == pytest.approx(dict(prediction.probabilities))
        else:
            assert row == pytest.approx([prediction.value])


def test_without_captum_one_line_says_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "captum", None)
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    expected = r'^integrated gradients need captum; install with: pip install -e "\.\[explore\]"$'
    with pytest.raises(InputError, match=expected):
        integrated_gradients(model, [TEXT], words_of([TEXT]), {"mood": "good"})
