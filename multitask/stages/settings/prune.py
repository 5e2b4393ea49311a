"""Pruning of attention heads and feed-forward neurons: settings and registration."""

from typing import Annotated, Literal

from pydantic import Field

from minbert.errors import InputError
from minbert.settings import Count, Share, settings
from multitask.stages.registry import START, ModelInput, Stage, register
from multitask.training.config import SentencesConfig


@settings
class PruneConfig(SentencesConfig):
    """Which heads and feed-forward neurons to remove (Michel et al. 2019, arXiv 1905.10650; SparseCSE, 2311.03881)."""

    share: Annotated[float, Field(ge=0.01, le=0.99)] = 0.1
    """Share of the heads and of the neurons to remove, 0.01 to 0.99. Each layer keeps at least one head."""
    what: Literal["heads", "neurons", "both"] = "both"
    """Which units to remove."""
    score: Literal["align_uniform", "task", "magnitude", "random"] = "align_uniform"
    """Which units to remove first: those with the smallest gradient, with respect to a factor on their output, of
    alignment and uniformity (`align_uniform`) or of a task's loss (`task`); those with the smallest weights
    (`magnitude`); or `random` ones."""
    signed: bool = False
    """Keep the gradient's sign: remove first the units whose removal lowers the loss most, not those that change it
    least. A gradient only describes small changes, so use several rounds."""
    uniformity_weight: Share = 0.5
    """λ of (1 - λ) alignment + λ uniformity on the similarity training pairs. Pairs of similarity 4.0 and more are
    aligned."""
    task: str = "similarity"
    """The task of `--score task`. Tasks other than pairs need start weights that were fine-tuned on them."""
    order: Literal["lowest", "highest"] = "lowest"
    """Which scores to remove first. `highest` removes what the score calls most useful, as a test of the score."""
    scope: Literal["global", "layer"] = "global"
    """Remove the share of all units of the encoder (`global`), or the same share in each `layer`."""
    normalize_scores: bool = False
    """In each layer, divide the scores of the heads by their norm, and those of the neurons by theirs."""
    rounds: Count = 1
    """Remove the share in this many steps, and compute new scores before each."""
    batch_size: Count = 64
    """Rows in a batch. Uniformity is computed within a batch; absolute gradients are averaged over batches."""
    train_limit: Count | None = None
    """Compute scores on this many rows only. The same rows are drawn every time."""

    def __post_init__(self) -> None:
        if self.signed and self.score in ("magnitude", "random"):
            raise InputError(f"signed is for scores that are gradients; scores by {self.score} have no sign")


REWIND = ModelInput(
    "rewind_to",
    "rewind_revision",
    "Give the remaining units the weights of this model, an earlier state of the start's training (what it started "
    "from, or a shorter run of it). Default: the start's own weights.",
)
COMMON = ("rewind_to", "share", "what", "score", "signed", "rounds", "train_limit", "seed")
STAGE = register(
    Stage(
        "prune",
        PruneConfig,
        "multitask.stages.prune:remove_units",
        "multitask.stages.reads:of_prune",
        "Remove the attention heads and neurons that matter least; other stages can start from what remains.",
        version=3,
        inputs=(START, REWIND),
        computing=("device", "threads"),
        summary="multitask.stages.prune:summary",
        common=COMMON,
    )
)
