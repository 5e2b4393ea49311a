"""Effects of words against closed forms and slow sums; objectives against the library and finite differences."""

import copy

import numpy as np
import pytest
import torch

from minbert.errors import InputError
from multitask.base.choices_with_parameters import parameters
from multitask.base.device import resolve_runtime
from multitask.base.random_streams import generator
from multitask.evaluation.gradient_probe import probe, probe_checkpoint
from multitask.models.multitask_model import MultitaskModel
from multitask.models.predictions import Prediction, interpret
from multitask.objectives import OBJECTIVES, build_objective, unit
from multitask.service.explain import (
    contrastive_step,
    dropout_views,
    explained_number,
    fields_of,
    integrated_gradients,
    objective_of,
    occlusion,
    step,
    without,
    without_labels,
    words_of,
)
from multitask.tasks.declarations import task_of
from multitask.tasks.labels import Labelled
from tests.conftest import interrupted
from tests.multitask.service.conftest import TASKS, build

TEXT = "Two dogs run, and the good band plays unheardof music."
UNBOUNDED = {"kind": "regression", "text": ["s"], "label": "l", "learned_range": [1, 5]}
PAIR = ["Two dogs run.", "The band plays for dogs."]


@pytest.fixture(scope="module")
def model(tiny_encoder) -> MultitaskModel:
    """A task of every kind; one reads its pairs jointly, one separately."""
    return build(tiny_encoder, length=None)


def attribute(model, texts, steps=500):
    """With so many steps because the kinks of ReLU and of bounded values slow the quadrature's convergence."""
    found = model.predict_all([texts[0] if len(texts) == 1 else tuple(texts)])
    return found, {
        task: integrated_gradients(model, texts, task, explained_number(prediction), steps)
        for task, (prediction,) in found.items()
    }


@pytest.mark.parametrize("texts", [["  A   gem, truly.\nFunny "], ["one two", "three"], ["", " "]])
def test_a_row_without_a_word_has_the_others(texts):
    words = words_of(texts)
    everything = [(column, text) for column, each in enumerate(texts) for text in each.split()]
    assert [(column, word.group()) for column, word in words] == everything
    for number, word in enumerate(words):
        left = without(texts, word)
        found = [left] if isinstance(left, str) else left
        kept = [(column, text) for column, each in enumerate(found) for text in each.split()]
        assert kept == everything[:number] + everything[number + 1 :]


@pytest.mark.parametrize(
    ("whole", "partial", "number", "effects"),
    [
        (Prediction("a", 0.7, {"b": 0.3, "a": 0.7}), [Prediction("b", 0.6, {"b": 0.6, "a": 0.4})], "a", [0.3, None]),
        (Prediction(probabilities={"a": 0.2, "b": 0.4}), [Prediction(probabilities={"b": 0.1})], "b", [0.3, None]),
        (Prediction(value=2.0), [Prediction(value=3.5)], "value", [-1.5, None]),
    ],
)
def test_by_occlusion_effects_are_differences_of_predictions(whole, partial, number, effects):
    found = occlusion(whole, partial, 2)
    assert found.number == number
    assert found.words == [pytest.approx(effects[0]), None]


@pytest.mark.parametrize(
    ("texts", "roberta"),
    [([TEXT], False), (PAIR, False), (PAIR, True), (["Two [PAD] dogs run.", "[PAD] The [PAD] band plays."], True)],
    ids=["one", "pair", "RoBERTa", "RoBERTa with padding in the text"],
)
def test_integrated_gradients_add_up_to_the_difference_from_the_baseline(model, texts, roberta):
    model = copy.deepcopy(model)
    if roberta:  # its positions do not count padding tokens
        model.encoder.bert.embeddings.uncounted = model.encoder.tokenizer.pad_token_id
        model.encoder.bert.embeddings.position_offset = 1
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    predictions, found = attribute(model, texts)
    assert len(found) == (3 if len(texts) == 1 else 2)
    for task, effects in found.items():
        (prediction,) = predictions[task]
        value = prediction.probabilities[effects.number] if prediction.value is None else prediction.value
        row, baseline = effects.ends
        assert row == pytest.approx(value, abs=1e-5)
        assert row != pytest.approx(baseline, abs=1e-3)  # there is something to explain
        tolerance = 1e-3 if prediction.value is None else 0.02  # of 4 or 5 units; its bounds are kinks
        assert sum(effects.words) == pytest.approx(row - baseline, abs=tolerance)
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    coarse = attribute(model, texts, steps=1)[1]
    assert max(abs(sum(each.words) - each.ends[0] + each.ends[1]) for each in coarse.values()) > 0.01


def test_integrated_gradients_of_weights_in_bf16_explain_the_prediction(model, monkeypatch):
    """As on a GPU; on a processor other layers take the place of linear ones, which have no gradients."""
    monkeypatch.setattr("multitask.models.sentence_encoder.processor_has_bf16", lambda: False)
    rounded = copy.deepcopy(model).on(resolve_runtime("cpu", "bf16"), keep_layers=False)
    predictions, found = attribute(rounded, [TEXT], steps=50)
    for task in ("mood", "stars"):
        row, baseline = found[task].ends
        (prediction,) = predictions[task]
        value = prediction.value if prediction.value is not None else prediction.probabilities[prediction.label]
        assert row == pytest.approx(value, abs=1e-6)
        assert sum(found[task].words) == pytest.approx(row - baseline, abs=0.05)


def test_effects_equal_a_midpoint_sum_over_the_padded_encoder(model):
    """500 points of the padded path, whose table of words a hook replaces."""
    _, found = attribute(model, [TEXT])
    own = copy.deepcopy(model)
    tokenizer = own.encoder.tokenizer
    batch = tokenizer([TEXT])
    ids = batch.input_ids[0]
    blank = torch.where(
        torch.isin(ids, torch.tensor(own.encoder.tokenizer.special_ids)), ids, own.encoder.tokenizer.pad_token_id
    )
    blank[ids == tokenizer.backend.token_to_id("[UNK]")] = tokenizer.pad_token_id
    row, baseline = (own.encoder.model.embeddings.word.weight[part].detach() for part in (ids, blank))
    steps = 500
    shares = ((torch.arange(steps) + 0.5) / steps)[:, None, None]
    path = (baseline + shares * (row - baseline)).requires_grad_()
    own.encoder.model.embeddings.word.register_forward_hook(lambda *_: path)
    hidden = own.encoder.model(batch.input_ids.expand(steps, -1)).last_hidden_state
    probabilities = own.heads["mood"](hidden.mean(dim=1)).softmax(dim=1)
    chosen = own.tasks["mood"].names.index(found["mood"].number)
    (gradient,) = torch.autograd.grad(probabilities[:, chosen].sum(), path)
    tokens = (gradient.mean(dim=0) * (row - baseline)).sum(dim=1)
    encoding = tokenizer.backend.encode(TEXT)
    for (_, word), effect in zip(words_of([TEXT]), found["mood"].words, strict=True):
        inside = [word.start() <= start and end <= word.end() and end > 0 for start, end in encoding.offsets]
        assert effect == pytest.approx(tokens[inside].sum().item(), abs=5e-4)


def test_words_that_are_cut_have_no_effect(tiny_encoder):
    short = build(tiny_encoder, length=6)
    del short.tasks["topics"], short.tasks["stars"]  # which read more than the beginning
    for effects in attribute(short, [TEXT], steps=2)[1].values():
        assert [effect is None for effect in effects.words] == [False] * 3 + [True] * 7


@pytest.mark.parametrize("task", [*TASKS, "unbounded"])
def test_numbers_are_those_of_predictions(task):
    declared = task_of(task, {**TASKS, "unbounded": UNBOUNDED}[task])
    outputs = torch.randn(7, declared.outputs) if declared.outputs > 1 else torch.randn(7) * 0.7 + 0.5
    numbers = declared.readable(outputs).tolist()
    for row, prediction in zip(numbers, interpret(declared, declared.estimate(outputs.numpy())), strict=True):
        if isinstance(declared, Labelled):
            assert dict(zip(declared.names, row, strict=True)) == pytest.approx(dict(prediction.probabilities))
        else:
            assert row == pytest.approx(prediction.value)


# What the page tells of an objective equals the library's own functions and finite differences.


SENTENCES = ("Two dogs run.", "A band plays.", "The film is long and dull.", "He eats.", "The market fell.")


@pytest.fixture(scope="module")
def views(encoder):
    return dropout_views(encoder, SENTENCES, 0.1, seed=0)


def test_views_are_those_of_the_probe(encoder):
    """The same masks as `probe_checkpoint`, which draws them for a batch in an order of its own."""
    objective = build_objective("infonce")
    (expected,) = probe_checkpoint(encoder, [SENTENCES], objective, batch_size=len(SENTENCES), batches=1, seed=3)
    order = generator(3, "probed sentences").permutation(len(SENTENCES))
    rate = encoder.model.config.hidden_dropout_prob
    found = probe(objective, *dropout_views(encoder, [SENTENCES[i] for i in order], rate, seed=3))
    torch.testing.assert_close(found.dissipation, expected.dissipation)
    torch.testing.assert_close(found.weights, expected.weights)


def test_the_encoder_stays_in_eval_mode_with_its_own_dropout(encoder):
    before = encoder.encode(SENTENCES)
    for view in dropout_views(encoder, SENTENCES, 0.0, seed=0):
        torch.testing.assert_close(view, torch.from_numpy(before))
    state, rates = torch.get_rng_state(), [m.p for m in encoder.model.modules() if isinstance(m, torch.nn.Dropout)]
    dropout_views(encoder, SENTENCES, 0.5, seed=0)
    assert not any(module.training for module in encoder.model.modules())
    assert [m.p for m in encoder.model.modules() if isinstance(m, torch.nn.Dropout)] == rates
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(encoder.encode(SENTENCES), before)


@pytest.mark.parametrize("name", without_labels())
def test_a_contrast_has_cosines_loss_and_the_probes_components(name, views):
    objective = build_objective(name)
    found = contrastive_step(objective, *views, 0.1)
    cosines = torch.nn.functional.cosine_similarity(views[0][:, None].double(), views[1][None].double(), dim=-1)
    torch.testing.assert_close(found.before, cosines)
    assert (found.losses is None) == (name in ("gradient", "mixed", "vicreg", "barlow_twins"))
    if found.losses is not None:
        assert found.losses[0] == pytest.approx(objective(*views).item(), rel=1e-4, abs=1e-5)
    expected = probe(objective, *views)
    torch.testing.assert_close(found.components.dissipation, expected.dissipation, equal_nan=True)
    torch.testing.assert_close(found.components.weights, expected.weights, equal_nan=True)
    torch.testing.assert_close(found.components.ratio, expected.ratio, equal_nan=True)


def plain_vicreg(anchors, positives):
    spread = sum((view.T @ view / len(view)).square().sum() for view in (anchors, positives))
    return (anchors - positives).square().sum(-1).mean() + 30 / 2 * spread


@pytest.mark.parametrize("name", ["infonce", "mpt", "dcl", "align_uniform", "vicreg"])
def test_a_step_goes_down_the_slope_of_finite_differences(name, views):
    """All embeddings move along minus the gradient, by its size relative to the largest one.

    The value of `vicreg` has no meaning, so the slopes of its plain form are taken.
    """
    objective, length, small = build_objective(name, **({"margin": 1.5} if name == "mpt" else {})), 1e-4, 1e-6
    units = [unit(view.double()) for view in views]
    slopes = [torch.zeros_like(view) for view in units]
    for which, view in enumerate(units):
        for place in np.ndindex(*view.shape):
            losses = []
            for sign in (1, -1):
                moved = [each.clone() for each in units]
                moved[which][place] += sign * small
                losses.append(plain_vicreg(*map(unit, moved)) if name == "vicreg" else objective(*moved))
            slopes[which][place] = (losses[0] - losses[1]) / (2 * small)
    largest = max(float(slope.norm(dim=-1).max()) for slope in slopes)
    for after, before, slope in zip(step(objective, *views, length), units, slopes, strict=True):
        torch.testing.assert_close(after - before, -length * slope / largest, rtol=0, atol=1e-3 * length)


def test_without_a_gradient_nothing_moves(views):
    closed = build_objective("mpt", margin=0.0)
    apart = torch.eye(5, 8)
    after = step(closed, apart, apart, 0.5)
    torch.testing.assert_close(after[0], apart.double())
    torch.testing.assert_close(after[1], apart.double())


@pytest.mark.parametrize("name", without_labels())
def test_every_field_has_the_default_and_takes_its_bounds(name):
    declared = parameters(OBJECTIVES[name])
    fields = fields_of(OBJECTIVES[name])
    assert {field["name"] for field in fields} == declared.keys() - {"hard_negative_weight"}
    assert objective_of(name, {field["name"]: field["default"] for field in fields}) == build_objective(name)
    for field in fields:
        values = field["choices"] or (field["high"] or 2, field["low"] + field["step"])
        for value in (*map(str, values), *([""] if field["optional"] else [])):
            objective_of(name, {field["name"]: value})


def test_integrated_gradients_of_texts_that_are_read_beyond_their_beginning_are_refused(tiny_encoder):
    model = build(tiny_encoder)
    assert [model.tasks[name].long for name in ("mood", "topics", "stars")] == ["head", "middle", "windows"]
    for task, number in (("topics", "film"), ("stars", "value")):
        assert integrated_gradients(model, ["A gem."], task, number, 2).words
        with pytest.raises(InputError, match="a text has more than 24 tokens; integrated gradients cover only texts"):
            integrated_gradients(model, ["time " * 40], task, number, 2)
    assert integrated_gradients(model, ["time " * 40], "mood", "bad", 2).words


def test_texts_that_are_served_meanwhile_do_not_change_how_a_row_is_cut(tiny_encoder, monkeypatch):
    """Another thread asks for a text without its middle just before the explained one is split."""
    model, texts = build(tiny_encoder), ["time " * 40]
    tokenizer, expected = model.encoder.tokenizer, integrated_gradients(model, texts, "mood", "bad", 2)
    meanwhile = interrupted(tokenizer, "encode_batch", lambda: tokenizer.encode_and_count(texts, 24, "middle"))
    monkeypatch.setattr(tokenizer, "backend", meanwhile)
    assert integrated_gradients(model, texts, "mood", "bad", 2) == expected
