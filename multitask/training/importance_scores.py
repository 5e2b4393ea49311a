"""Importance scores of an encoder's units: attention heads and feed-forward neurons.

A factor m = 1 multiplies a unit's output. The gradient of a loss with respect to m predicts, to first order, how much
removing the unit changes the loss: ΔL = −∂L/∂m.

Sources: Michel et al. 2019, arXiv 1905.10650, section 4.1; SparseCSE, arXiv 2311.03881 (the loss).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minbert.config import BertConfig
from minbert.model import BertModel, Layer
from minbert.remove_heads_and_neurons import Units, masked
from multitask.data.examples import LabelledData, Rows
from multitask.models.pooling import PoolingMethod
from multitask.objectives import alignment, uniformity, unit
from multitask.runtime.device import Runtime
from multitask.runtime.random_streams import generator, torch_seed
from multitask.tasks.kinds import POSITIVE
from multitask.training.source import BatchLoss, Inputs, Source, losses_of
from multitask.training.trainable import Batch

SOURCE = "scoring"


class AlignUniformSource(Source):
    """(1 − λ)·alignment of the pairs with the same meaning + λ·uniformity of a batch's distinct sentences.

    `data` are pairs with similarities from 0 to 5, and λ is `uniformity_weight`.
    """

    def __init__(self, data: LabelledData, uniformity_weight: float) -> None:
        self.data = data
        self.uniformity_weight = uniformity_weight
        self.lengths = data.lengths
        self.positive = data.examples.gold >= POSITIVE
        numbers: dict[str, int] = {}
        self.identities = np.array([[numbers.setdefault(t, len(numbers)) for t in c] for c in data.examples.sentences])

    def inputs(self, rows: Rows) -> Inputs:
        """Each distinct sentence once; targets are the indices [2, pairs] of the sentences of the pairs to align."""
        ids, types = self.data.sequences(rows)
        pairs = self.identities[:, rows]  # [2, rows]
        _, first, places = np.unique(pairs, return_index=True, return_inverse=True)
        aligned = places.reshape(pairs.shape)[:, self.positive[rows]]
        return Inputs([ids[i] for i in first], [types[i] for i in first], aligned)

    def loss(self, hidden: Tensor, embeddings: Tensor, targets: Any, rows: Rows) -> BatchLoss:
        directions = unit(embeddings)
        loss = self.uniformity_weight * uniformity(directions)
        if targets.size:
            first, second = directions[torch.from_numpy(targets).to(directions.device, non_blocking=True)]
            loss = loss + (1 - self.uniformity_weight) * alignment(first, second)
        return BatchLoss(loss)


def scored_batches(rows: Rows, batch_size: int, seed: int) -> list[Rows]:
    """The rows in random batches of about equal size."""
    order = generator(seed, "scored rows").permutation(rows)
    return np.array_split(order, -(-len(order) // batch_size))


def sensitivity(
    encoder: BertModel,
    pooling: PoolingMethod,
    source: Source,
    batches: Sequence[Rows],
    factors: Units,
    signed: bool,
    runtime: Runtime,
) -> Units:
    """Mean over batches of |∂L/∂m|, or of −∂L/∂m if signed: the first-order change of the loss if the unit is removed.

    Without the sign, harmful units score as high as equally helpful ones. `factors` are the m at which the gradient is
    taken: 1, or 0 for masked units. The encoder must be in eval mode on the runtime's device; scores are on the CPU.
    """
    factors = factors.map(lambda factor: factor.to(runtime.device, non_blocking=True).requires_grad_())
    totals = [torch.zeros_like(factor) for factor in factors.tensors]
    with masked(encoder, factors):
        for rows in batches:
            losses = losses_of(encoder, pooling, {SOURCE: source}, (Batch(SOURCE, rows),), runtime)
            gradients = torch.autograd.grad(losses.terms[SOURCE], factors.tensors)
            for total, gradient in zip(totals, gradients, strict=True):
                total += -gradient if signed else gradient.abs()
    means = [(total / len(batches)).detach().cpu() for total in totals]
    layers = len(factors.heads)
    return Units(tuple(means[:layers]), tuple(means[layers:]))


@torch.no_grad()
def magnitude(encoder: BertModel) -> Units:
    """L2 norm of all weights and biases that are removed with the unit."""
    heads, neurons = [], []
    for layer in encoder.layers:
        assert isinstance(layer, Layer)
        attention, size = layer.attention, encoder.config.head_size
        rows = attention.query_key_value.weight.square().sum(1) + attention.query_key_value.bias.square()  # [3 * width]
        rows = rows.view(3, -1).sum(0) + attention.output.weight.square().sum(0)  # [width]
        heads.append(rows.view(-1, size).sum(1).sqrt().cpu())
        inner = layer.intermediate.weight.square().sum(1) + layer.intermediate.bias.square()  # [neurons]
        neurons.append((inner + layer.output.weight.square().sum(0)).sqrt().cpu())
    return Units(tuple(heads), tuple(neurons))


def random_scores(shape: BertConfig, seed: int) -> Units:
    """Scores of an encoder's units, drawn uniformly from 0 to 1."""
    generator = torch.Generator().manual_seed(torch_seed(seed, "random scores"))
    return Units.full(shape, 0.0).map(lambda values: torch.rand(len(values), generator=generator))
