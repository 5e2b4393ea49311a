"""Losses, gradients and embeddings on the device compared with those of the processor in fp32, without dropout."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from benchmarks.finetune import build_problem
from benchmarks.gpu.contrastive import contrastive_problem, contrastive_updates
from minbert.packing import PackedBatch
from multitask.models.pooling import pool
from multitask.stages.finetune.training import Finetuning
from multitask.stages.pretrain.training import Pretraining
from multitask.training.trainable import Update

if TYPE_CHECKING:
    from benchmarks.gpu.parts import Sizes

# fp32 sums in another order; bf16 may be as far from fp32 as it is on the processor, and somewhat more.
FP32_LIMIT = 1e-3
BF16_RATIO = 2.0
LEAST_COSINE = {"fp32": 1 - 1e-5, "bf16": 0.999}


@dataclass(frozen=True)
class Found:
    """What a problem gives for an update."""

    losses: Tensor
    gradient: Tensor  # of all parameters, end to end
    embeddings: Tensor  # of the first batch's sentences


def found(problem: Finetuning | Pretraining, update: Update) -> Found:
    """Losses, gradient and embeddings without dropout, on the CPU."""
    problem.module.eval()
    losses = torch.stack(list(problem.losses(update).terms.values()))
    losses.mean().backward()
    gradients = [p.grad.flatten().cpu() for p in problem.module.parameters() if p.grad is not None]
    sequences = problem.sources[update[0].source].inputs(update[0].rows).ids
    batch = PackedBatch.from_sequences(sequences).to(problem.runtime.device)
    with torch.no_grad(), problem.runtime.autocast():
        embeddings = pool(problem.module["encoder"].forward_packed(batch), batch, "mean")
    return Found(losses.detach().cpu(), torch.cat(gradients), embeddings.float().cpu())


def distance(one: Tensor, exact: Tensor) -> float:
    """Of two vectors, relative to the exact one's length."""
    return float((one - exact).norm() / exact.norm())


def equality(sizes: "Sizes") -> Iterator[dict[str, Any]]:
    """A row for each shape, training and precision."""

    def computed(kind: str, shape: str, device: Literal["cuda", "cpu"], precision: Literal["fp32", "bf16"]) -> Found:
        if kind == "contrastive":
            problem = contrastive_problem(shape, sizes.data, device, precision)
            return found(problem, contrastive_updates(problem, 16, 1)[0])
        tasks = build_problem(shape, 4, sizes.data, precision, device=device)
        return found(tasks, tasks.plan(0)[0])

    for shape in sizes.shapes:
        for kind in ("fine-tuning", "contrastive"):
            exact, rounded = (computed(kind, shape, "cpu", precision) for precision in ("fp32", "bf16"))
            limits = {"fp32": FP32_LIMIT, "bf16": BF16_RATIO * distance(rounded.gradient, exact.gradient)}
            for precision, limit in limits.items():
                ours = computed(kind, shape, sizes.device, precision)
                gradient = distance(ours.gradient, exact.gradient)
                cosine = float(cosine_similarity(ours.embeddings, exact.embeddings).min())
                loss = float((ours.losses - exact.losses).abs().max())
                yield {
                    "shape": shape,
                    "training": kind,
                    "precision": precision,
                    "loss difference": loss,
                    "gradient difference": gradient,
                    "limit": limit,
                    "smallest cosine": round(cosine, 6),
                    "ok": gradient <= limit and cosine >= LEAST_COSINE[precision] and loss <= limit * 2,
                }
