"""Losses of several sizes equal a slow loop over truncated embeddings, and the model knows the sizes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from minbert.config import BertConfig
from minbert.errors import InputError
from multitask import SentenceEncoder
from multitask.models.prediction_heads import CosineHead
from multitask.models.settings import HeadsConfig
from multitask.objectives import build_objective
from multitask.stages.finetune import finetune
from multitask.stages.pretrain import pretrain
from multitask.stages.settings import FinetuneConfig
from multitask.stages.settings_of_pretraining import PretrainConfig
from multitask.training.settings import ObjectiveConfig
from tests.multitask.stages.conftest import embedded, gradients

SIZES = (32, 20, 5)
PRETRAIN = PretrainConfig(batch_size=8, select="last", pooling="mean", matryoshka=SIZES)
FINETUNE = FinetuneConfig(("similarity",), batch_size=8, epochs=1, pooling="mean", matryoshka=SIZES)


def through(layer: nn.Module, vector: Tensor) -> Tensor:
    """What a layer makes of the first numbers of its inputs: the weights of all others have no part in it."""
    if isinstance(layer, nn.Linear):
        return layer.weight[:, : len(vector)] @ vector + layer.bias
    return layer(vector)


def projected(projection: nn.Module, vector: Tensor) -> Tensor:
    for layer in projection if isinstance(projection, nn.Sequential) else [projection]:
        vector = through(layer, vector)
    return vector


def assert_equal(module: nn.Module, value: Tensor, expected: Tensor) -> None:
    """`value` is the loss whose gradient the module holds."""
    ours = gradients(module)
    expected.backward()
    theirs = gradients(module)
    torch.testing.assert_close(value, expected.detach(), rtol=1e-5, atol=1e-6)
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize(
    ("source", "objective", "projection", "chunk"),
    [
        ("nli", "infonce", "none", None),
        ("nli", "infonce", "mlp", 3),
        ("unlabelled", "vicreg", "none", 3),  # compares dimensions, too
        ("unlabelled", "mpt", "linear", None),
        ("quora", "quora_pairs", "mlp", None),
    ],
)
def test_contrastive_losses_are_the_mean_of_those_of_truncated_embeddings(
    source, objective, projection, chunk, problem
):
    name = "infonce" if source == "quora" else objective
    config = replace(PRETRAIN, sources=(source,), projection=projection, objective=ObjectiveConfig(name), chunk=chunk)
    training = problem(pretrain, config)
    training.encoder.model.set_dropout(0.0)
    (update, *_) = training.plan(0)
    rows, found = update[0].rows, training.contrastive[source]
    value = training.backward(update).terms[source]
    vectors = [[embedded(training.encoder.model, column[row]) for row in rows] for column in found.columns]
    labels = None if found.labels is None else torch.from_numpy(found.labels[rows])
    losses = []
    for size in SIZES:
        layers = training.module["projection"]
        views = [torch.stack([projected(layers, vector[:size]) for vector in column]) for column in vectors]
        losses.append(build_objective(objective)(views[0], views[1], views[2] if len(views) == 3 else None, labels))
    assert_equal(training.module, value, sum(losses) / 3)


@pytest.mark.parametrize("heads", [HeadsConfig("none"), FINETUNE.heads], ids=["bare", "residual"])
def test_cosine_tasks_have_the_mean_loss_of_truncated_embeddings(heads, problem):
    training = problem(finetune, replace(FINETUNE, heads=replace(heads, dropout=0.0)))
    head, source = training.model.heads["similarity"], training.sources["similarity"]
    assert isinstance(head, CosineHead)
    if heads.residual:  # which is zero at first
        nn.init.normal_(head.transform.transform.second.weight, std=0.3)
    (update, *_) = training.plan(0)
    rows = update[0].rows
    losses = training.losses(update)
    losses.terms["similarity"].backward()
    gold = torch.from_numpy(source.labels[rows]) / 5
    vectors = [[embedded(training.encoder.model, column[row]) for row in rows] for column in source.data.columns]

    def transformed(vector: Tensor) -> Tensor:
        padded = torch.cat([vector, torch.zeros(32 - len(vector))])
        mlp = head.transform.transform if heads.residual else None
        return padded if mlp is None else padded + mlp.second(through(mlp.first, vector).relu())

    expected = []
    for size in SIZES:
        first, second = (torch.stack([transformed(vector[:size]) for vector in column]) for column in vectors)
        cosines = (first * second).sum(1) / first.norm(dim=1) / second.norm(dim=1)
        expected.append((cosines - gold).square().mean())
        if size == 32:  # what penalties on outputs compare
            torch.testing.assert_close(losses.outputs["similarity"], cosines, rtol=1e-4, atol=1e-5)
    assert_equal(training.module, losses.terms["similarity"].detach(), sum(expected) / 3)


def test_other_heads_read_whole_embeddings(problem):
    training = problem(finetune, replace(FINETUNE, tasks=("sentiment", "similarity")))
    assert training.sources["sentiment"].sizes == (None,)


def test_the_model_names_the_sizes_of_its_last_training(run_stage):
    first = run_stage(pretrain, replace(PRETRAIN, train_limit=16))
    encoder = SentenceEncoder.load(first.folder, device="cpu", precision="fp32")
    assert encoder.model.config.matryoshka_dimensions == SIZES
    whole = encoder.encode(["A gem.", "It falls apart."])
    np.testing.assert_array_equal(encoder.encode(["A gem.", "It falls apart."], dimensions=5), whole[:, :5])
    again = run_stage(pretrain, replace(PRETRAIN, train_limit=16, matryoshka=()), start=first.folder)
    assert BertConfig.from_file(again.model_folder() / "config.json").matryoshka_dimensions is None
    with pytest.raises(InputError, match="matryoshka is 33; the embeddings of"):
        run_stage(pretrain, replace(PRETRAIN, matryoshka=(33, 4)))
