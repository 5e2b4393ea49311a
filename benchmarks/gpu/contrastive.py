"""Contrastive steps: ours, and a tuned loop around transformers' model."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from benchmarks.finetune import COMPILED, OurLoop, TheirLoop, alternate, check_losses, compile_layers
from benchmarks.pretrain import prepare
from multitask.stages.pretrain.training import Pretraining
from multitask.training.trainable import Batch, Update

SOURCE = "unlabelled"


class TheirContrastiveLoop(TheirLoop):
    """Both dropout views of all sentences in one pass, and InfoNCE as the cross-entropy of their cosines."""

    problem: Pretraining

    def loss(self, batch: Batch) -> Tensor:
        source = self.problem.contrastive[batch.source]
        ids = [torch.tensor(sequence).long() for sequence in source.inputs(batch.rows).ids]
        views = self.embed(ids)
        with torch.autocast(views.device.type, torch.bfloat16, enabled=self.tuned):
            projected = self.heads(views)
        anchors, positives = normalize(projected.float(), dim=1).chunk(2)
        similarities = anchors @ positives.T / self.problem.config.objective.build().temperature
        return cross_entropy(similarities, torch.arange(len(anchors), device=anchors.device))


def contrastive_updates(problem: Pretraining, sentences: int, steps: int) -> list[Update]:
    """Updates of distinct sentences, since equal ones are not negatives of each other in ours."""
    source = problem.contrastive[SOURCE]
    _, distinct = np.unique(source.identities[0], return_index=True)
    generator = np.random.default_rng(0)
    size = min(sentences, len(distinct))
    return [(Batch(SOURCE, generator.choice(distinct, size, replace=False)),) for _ in range(steps)]


def contrastive_problem(shape: str, data: Path, device: Literal["cuda", "cpu"], precision: Literal["bf16", "fp32"]):
    """The training of `benchmarks.pretrain` with mean pooling, as the tuned loop has it."""
    problem = prepare(shape, data, None, device, precision)
    problem.begin = replace(problem.begin, pooling="mean")
    return problem


def contrastive_speeds(
    shape: str, data: Path, sentences: int, steps: int, device: Literal["cuda", "cpu"], ours: str = "ours"
) -> dict[str, list[float]]:
    """Real tokens a second of every step, of ours (or `COMPILED`) and of the tuned loop, in bf16."""
    problem = contrastive_problem(shape, data, device, "bf16")
    with tempfile.TemporaryDirectory() as folder:
        problem.begin.encoder.save(Path(folder))
        tuned = TheirContrastiveLoop(problem, problem.module["projection"], Path(folder), tuned=True)
    if ours == COMPILED:
        compile_layers(problem.begin.encoder)
    loops = {"tuned": tuned, ours: OurLoop(problem)}
    updates = contrastive_updates(problem, sentences, steps + 1)
    check_losses(problem, loops, updates[0])
    lengths = problem.contrastive[SOURCE].lengths
    return alternate(loops, dict.fromkeys(loops, updates), lambda update: int(lengths[update[0].rows].sum()))
