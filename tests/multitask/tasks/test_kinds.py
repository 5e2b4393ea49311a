"""Losses, predictions and scores of the tasks against their formulas."""

import numpy as np
import pytest
import torch
from scipy.special import expit, log_softmax, softmax
from scipy.stats import pearsonr

from minbert.errors import InputError
from multitask.stages.finetune import FinetuneConfig
from multitask.tasks.all_tasks import TASKS, task_named
from multitask.tasks.kinds import labels_to_tensor

ROWS = 9


@pytest.fixture
def generator():
    return np.random.default_rng(0)


def draw(task, generator):
    """Outputs as the head gives them, and labels, for a few rows."""
    kind, schema = TASKS[task].kind, TASKS[task].schema
    outputs = generator.normal(size=(ROWS, kind.outputs) if kind.outputs > 1 else ROWS).astype(np.float32)
    if schema.integral:
        labels = generator.integers(int(schema.minimum), int(schema.maximum) + 1, ROWS).astype(np.float32)
    else:
        labels = generator.uniform(schema.minimum, schema.maximum, ROWS).astype(np.float32)
    return outputs, labels


def expected_loss(task, outputs, labels):
    if task in ("sentiment", "reviews"):
        return -log_softmax(outputs, axis=1)[np.arange(ROWS), labels.astype(int)].mean()
    if task == "paraphrase":
        return -np.mean(labels * np.log(expit(outputs)) + (1 - labels) * np.log(expit(-outputs)))
    return np.mean((outputs - labels / 5) ** 2)


@pytest.mark.parametrize("task", TASKS)
def test_loss_equals_its_formula(task, generator):
    outputs, labels = draw(task, generator)
    loss = TASKS[task].kind.loss(torch.from_numpy(outputs), torch.from_numpy(labels))
    assert loss.shape == ()
    assert loss.item() == pytest.approx(expected_loss(task, outputs.astype(float), labels), rel=1e-5)


def test_predictions_are_in_the_labels_units():
    logits = np.array([[0, 3, 1, 2, 2.5], [9, 3, 1, 2, 2.5]], np.float32)
    assert TASKS["sentiment"].kind.predict(logits).tolist() == [1, 0]
    assert TASKS["reviews"].kind.predict(logits[:, :2]).tolist() == [1, 0]
    assert TASKS["paraphrase"].kind.predict(np.array([-2, -1e-9, 0, 1e-9, 7], np.float32)).tolist() == [0, 0, 0, 1, 1]
    similarities = TASKS["similarity"].kind.predict(np.array([-0.4, 0, 0.5, 1, 1.001], np.float32))
    assert similarities.tolist() == [0, 0, 2.5, 5, 5]
    assert similarities.dtype == np.float32


def test_estimates_are_probabilities_or_shares_of_the_maximum(generator):
    for task in TASKS:
        outputs, _ = draw(task, generator)
        expected = {"paraphrase": expit(outputs.astype(float)), "similarity": np.clip(outputs, 0, 1)}.get(task)
        if expected is None:
            expected = softmax(outputs.astype(float), axis=1)
        np.testing.assert_allclose(TASKS[task].kind.estimate(outputs), expected, rtol=1e-12)


def test_decisions_on_estimates():
    assert TASKS["sentiment"].kind.decide(np.array([[0.1, 0.2, 0.4, 0.3, 0], [0.6, 0.4, 0, 0, 0]])).tolist() == [2, 0]
    assert TASKS["paraphrase"].kind.decide(np.array([0.1, 0.5, 0.51])).tolist() == [0, 0, 1]
    assert TASKS["similarity"].kind.decide(np.array([0, 0.5, 1])).tolist() == [0, 2.5, 5]


@pytest.mark.parametrize("task", TASKS)
def test_scores_of_perfect_predictions_are_one(task, generator):
    _, labels = draw(task, generator)
    kind = TASKS[task].kind
    perfect = labels if task == "similarity" else labels.astype(int)
    assert kind.metrics(perfect, labels)[kind.metric] == pytest.approx(1)


@pytest.mark.parametrize("task", TASKS)
def test_score_is_the_courses_measure(task, generator):
    outputs, labels = draw(task, generator)
    kind = TASKS[task].kind
    predictions = kind.predict(outputs)
    expected = pearsonr(predictions, labels)[0] if task == "similarity" else np.mean(predictions == labels)
    assert kind.metrics(predictions, labels)[kind.metric] == pytest.approx(expected, abs=1e-6)


def test_each_task_has_files_and_headers_of_its_own():
    assert len({task.schema.file_stem for task in TASKS.values()}) == len(TASKS)
    assert {name: task.prediction_stem for name, task in TASKS.items()} == {
        "sentiment": "sst",
        "paraphrase": "para",
        "similarity": "sts",
        "reviews": "cfimdb",
    }
    assert all(name == task.name and task.kind.pair == (len(task.schema.sentence_columns) == 2)
               for name, task in TASKS.items())  # fmt: skip
    assert set(FinetuneConfig().tasks) == set(TASKS) - {"reviews"}


def test_labels_become_a_tensor_on_the_device():
    labels = np.array([1, 0, 2.4], np.float32)
    tensor = labels_to_tensor(labels, torch.device("cpu"))
    assert tensor.dtype == torch.float32
    assert tensor.tolist() == labels.tolist()


def test_unknown_task_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match='unknown task "mood"; expected one of: sentiment, paraphrase, similarity'):
        task_named("mood")
