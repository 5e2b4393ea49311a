"""Momentum encoders: weights, queue, losses and gradients against loops; the saved state is in test_every_stage."""

from copy import deepcopy
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from multitask.models.sentence_encoder import SentenceEncoder
from multitask.objectives import build_objective
from multitask.stages.pretrain import Pretraining, pretrain
from multitask.stages.settings_of_pretraining import PretrainConfig
from multitask.training.contrastive_source import build_projection
from multitask.training.momentum import Momentum, MomentumSource, Queue
from multitask.training.settings import ObjectiveConfig
from tests.multitask.stages.conftest import embedded

CONFIG = PretrainConfig(batch_size=8, select="last", pooling="mean", momentum=0.8, queue_size=20)


@pytest.fixture
def training(problem):
    def call(config: PretrainConfig) -> Pretraining:
        found = problem(pretrain, config)
        found.encoder.model.set_dropout(0.0)
        found.module["momentum"].encoder.model.set_dropout(0.0)
        return found

    return call


def test_the_copy_is_an_exponential_moving_average_of_the_trained_weights(tiny_encoder):
    encoder = SentenceEncoder.read(tiny_encoder, "mean").double()
    projection = build_projection("mlp", encoder.width).double()
    copy, decay = Momentum(encoder, projection, 0.9, predicts=False), 0.9
    watched = [projection[2].weight, encoder.model.embeddings.word.weight]
    history = [[parameter.detach().clone() for parameter in watched]]
    copy.follow()  # before the first step nothing has moved
    assert all(torch.equal(a, b) for a, b in zip(copy.encoder.parameters(), encoder.parameters(), strict=True))
    for _ in range(6):
        for parameter in (*encoder.parameters(), *projection.parameters()):
            parameter.data += torch.randn_like(parameter)
        history.append([parameter.detach().clone() for parameter in watched])
        copy.follow()
    for place, mine in enumerate((copy.projection[2].weight, copy.encoder.model.embeddings.word.weight)):
        expected = decay**6 * history[0][place]
        for t in range(1, 7):
            expected = expected + (1 - decay) * decay ** (6 - t) * history[t][place]
        torch.testing.assert_close(mine, expected, rtol=1e-9, atol=1e-12)
    assert not any(parameter.requires_grad for parameter in copy.parameters())


def test_the_queue_has_the_newest_keys_and_knows_their_texts():
    queue, waiting = Queue(7, 3, torch.device("cpu")).double(), []
    draws = np.random.default_rng(0)
    for step in range(6):
        identities = torch.from_numpy(draws.integers(0, 5, (3, 2)))
        mask, apart = (
            queue.excluded(identities, mask_duplicates=True),
            queue.excluded(identities, mask_duplicates=False),
        )
        for i, (anchor, positive) in enumerate(identities.tolist()):
            for j in range(7):
                missing = j >= len(waiting)
                assert apart[i, j] == missing
                earlier, text = waiting[j][1] if not missing else (None, None)
                assert mask[i, j] == (missing or text in (anchor, positive) or earlier == anchor)
        keys = torch.full((3, 3), float(step), dtype=torch.float64)
        queue.add(keys, identities)
        waiting = [*zip(keys.tolist(), identities.tolist(), strict=True), *waiting][:7]
        assert queue.keys[: len(waiting)].tolist() == [key for key, _ in waiting]


def encoded(encoder: nn.Module, heads: nn.Module, source: MomentumSource, column: int, row: int) -> Tensor:
    """The unit vector of a sentence after the heads."""
    return nn.functional.normalize(heads(embedded(encoder, source.columns[column][row])).double(), dim=0)


def predicted(predictor: nn.Sequential, view: Tensor) -> Tensor:
    """The outputs of a predictor, if it has layers, with the batch norm of Ioffe & Szegedy 2015, algorithm 1."""
    if not len(predictor):
        return view
    first, norm, _, last = predictor
    hidden = view @ first.weight.T + first.bias
    mean = hidden.sum(0) / len(hidden)
    variance = ((hidden - mean) ** 2).sum(0) / len(hidden)
    hidden = norm.weight * (hidden - mean) / (variance + norm.eps).sqrt() + norm.bias
    return hidden.clamp_min(0) @ last.weight.T + last.bias


def info_nce(queries: list[Tensor], keys: list[Tensor], others: list[list[Tensor]]) -> Tensor:
    """The mean over queries of −log softmax of their own key among these and other vectors."""
    losses = []
    for i, query in enumerate(queries):
        logits = torch.stack([query @ key / 0.05 for key in (keys[i], *others[i])])
        losses.append(logits.logsumexp(0) - logits[0])
    return torch.stack(losses).mean()


def test_each_size_of_embeddings_has_its_own_part_of_the_queue(training):
    """The loss is the mean of those of the sizes, each with keys of its size."""
    problem = training(replace(CONFIG, matryoshka=(32, 8), projection="none", mask_duplicates=False))
    source, (first, second, *_) = problem.contrastive["unlabelled"], problem.plan(0)
    problem.backward(first)
    queue = source.queue.keys[:8].clone()
    assert not queue[:, 40:].any()  # the smaller size ends in zeros
    loss = problem.backward(second).terms["unlabelled"]
    parts = []
    for size in (32, 8):
        queries, keys = (
            torch.stack([embedded(encoder, source.columns[column][row])[:size] for row in second[0].rows])
            for column, encoder in ((0, problem.encoder.model), (1, problem.module["momentum"].encoder.model))
        )
        hard = queue[:, :size] if size == 32 else queue[:, 32 : 32 + size]
        parts.append(build_objective("infonce")(queries, keys, hard))
    torch.testing.assert_close(loss, torch.stack(parts).mean().detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "objective"), [("unlabelled", "infonce"), ("nli", "infonce"), ("pairs", "byol")], ids=str
)
def test_losses_and_gradients_of_several_steps_follow_a_loop(name, objective, training):
    config = replace(CONFIG, sources=(name,), objective=ObjectiveConfig(objective), mask_duplicates=False)
    problem = training(replace(config, queue_size=1024) if objective == "byol" else config)
    source, module, waiting = problem.contrastive[name], problem.module, []
    encoder, projection, predictor = module["encoder"], module["projection"], module["momentum"].predictor
    copies = deepcopy(encoder), deepcopy(projection)
    for update in [*problem.plan(0), *problem.plan(1)][:4]:
        rows = update[0].rows
        for mine, theirs in zip(
            chain(*(c.parameters() for c in copies)), chain(encoder.parameters(), projection.parameters()), strict=True
        ):
            mine.data = (0.8 * mine.double() + 0.2 * theirs.double()).float()
        columns = range(len(source.columns))
        with torch.no_grad():
            keys = [[encoded(*copies, source, column, row) for row in rows] for column in columns]
        raw = [torch.stack([projection(embedded(encoder, source.columns[c][row])) for row in rows]) for c in columns]
        queries = [nn.functional.normalize(predicted(predictor, view).double()) for view in raw]
        if objective == "byol":
            pairs = [*zip(queries[0], keys[1], strict=True), *zip(queries[1], keys[0], strict=True)]
            expected = torch.stack([2 - 2 * query @ key for query, key in pairs]).sum() / len(rows)
        else:
            hard = keys[2] if name == "nli" else []
            others = [[*keys[1][:i], *keys[1][i + 1 :], *hard, *waiting] for i in range(len(rows))]
            expected = info_nce(queries[0], keys[1], others)
            waiting = [*keys[1], *waiting][:20]
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        gradients = torch.autograd.grad(expected, [*trained.values()], allow_unused=True, materialize_grads=True)
        largest = max(gradient.abs().max().item() for gradient in gradients)
        losses = problem.backward(update)
        torch.testing.assert_close(losses.terms[name].double(), expected.detach(), rtol=1e-4, atol=1e-5)
        for (label, parameter), gradient in zip(trained.items(), gradients, strict=True):
            if parameter.grad is None:
                assert not gradient.any(), label
                continue
            # In fp32. A bias before a batch norm has no gradient but rounding.
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-4 * largest, msg=label)
            parameter.data -= 0.1 * parameter.grad
            parameter.grad = None
    assert all(parameter.grad is None for parameter in module.parameters())
    assert not any(label.startswith("momentum") for label in trained if objective != "byol")


def test_the_same_sentence_is_no_negative_when_it_comes_again(training):
    """In the second epoch, the queue has the sentences of the first."""
    problem = training(replace(CONFIG, batch_size=20, queue_size=80))
    source = problem.contrastive["unlabelled"]
    for update in [*problem.plan(0), *problem.plan(1)]:
        problem.backward(update)
    excluded = source.compared[4]
    texts = source.identities[0][update[0].rows]
    queued = source.queue.identities[20:, 1].tolist()  # before the last batch came
    assert excluded[:, :60].tolist() == [[text == other for other in queued] for text in texts]
    assert excluded[:, :60].sum() == 20


def test_only_the_encoder_is_kept(run_stage):
    artefact = run_stage(pretrain, replace(CONFIG, objective=ObjectiveConfig("byol"), queue_size=1024))
    names = load_file(artefact.model_folder() / "model.safetensors")
    assert not [name for name in names if "momentum" in name or "predictor" in name]
