"""Pruning of heads and neurons."""

from dataclasses import dataclass
from typing import Literal

from minbert.errors import InputError
from multitask.models.config import Pooling
from multitask.runtime.options import check_range


@dataclass(frozen=True)
class PruneConfig:
    """Which heads and feed-forward neurons to remove (Michel et al. 2019, arXiv 1905.10650; SparseCSE, 2311.03881)."""

    share: float = 0.1
    """Share of the heads and of the neurons to remove, 0.01 to 0.99; each layer keeps a head."""
    what: Literal["heads", "neurons", "both"] = "both"
    score: Literal["align_uniform", "task", "magnitude", "random"] = "align_uniform"
    """What is removed first: units with the smallest gradient of alignment and uniformity, or of a task's loss, with
    respect to a factor on their result; the smallest weights; or a random draw."""
    signed: bool = False
    """Keep the sign: first goes what lowers the loss most by its removal, not what changes it least. A gradient speaks
    of small changes, which the removal of many units at once is not: use several rounds."""
    uniformity_weight: float = 0.5
    """λ of (1 - λ) alignment + λ uniformity, on the similarity training pairs; those from 4.0 on are aligned."""
    task: str = "similarity"
    """The task of score=task. Other tasks than pairs need start weights that were fine-tuned on them."""
    scope: Literal["global", "layer"] = "global"
    """Remove the lowest of all layers together, or the same share of each layer."""
    normalize: bool = False
    """Divide the scores by their norm within each layer, heads and neurons apart."""
    rounds: int = 1
    """Remove in so many steps, and score what is left anew for each."""
    batch_size: int = 64
    """Rows of a scored batch; uniformity is that of a batch, and its absolute gradients are averaged over batches."""
    train_limit: int | None = None
    """Score on so many rows only, drawn at random but always the same."""
    max_length: int | None = None
    """Cut sentences to so many tokens; the encoder's limit when left out."""
    pooling: Pooling = "auto"
    seed: int = 0
    """Of the batches, and of random scores."""

    def __post_init__(self) -> None:
        check_range(self, 0.01, ("share",), most=0.99)
        check_range(self, 0, ("uniformity_weight",), most=1)
        check_range(self, 1, ("rounds", "batch_size", "train_limit"))
        check_range(self, 0, ("seed",))
        if self.signed and self.score in ("magnitude", "random"):
            raise InputError(f"signed goes with gradients; scores by {self.score} have no sign")
