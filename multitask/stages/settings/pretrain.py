"""Contrastive pre-training (SimCSE and others): settings and registration."""

from dataclasses import field
from typing import Annotated, Literal

from pydantic import Field

from minbert.errors import InputError
from minbert.settings import AtLeastZero, Count, settings
from multitask.stages.registry import Stage, register
from multitask.training.config import (
    ContrastiveConfig,
    MaskingConfig,
    MatryoshkaConfig,
    OptimizerConfig,
    SentencesConfig,
)

HELD_OUT = "held out"
"""What metrics.jsonl puts before statistics of held-out sentences, in place of a source's name."""


@settings
class PretrainConfig(ContrastiveConfig, MatryoshkaConfig, SentencesConfig):
    """Contrastive pre-training."""

    sources: tuple[str, ...] = ("unlabelled",)
    """What to train on, one source after the other within each epoch: dropout views of `unlabelled` sentences, of
    another text file (its name, ending in .txt) or of a task's sentences; supervised `quora` pairs; `nli` triplets;
    `pairs` of paraphrases, or a csv or tsv file of such pairs. The report's "3 given" is: quora sentiment
    similarity. With an objective that learns from scores (cosent, cosine), a task of pairs with numbers stands for its
    scored pairs."""
    partners: Count | None = None
    """Pair each sentence of a task with this many others of its label instead of with itself, which suits few rows
    (SetFit, arXiv 2209.11055). Sentences of equal labels are then no negatives of each other. Needs tasks that classify
    sentences."""
    train_limit: Count | None = None
    """Use only this many rows of each source. The same ones are drawn every time; of unlabelled text, the first."""
    epochs: Count = 1
    """Number of epochs."""
    batch_size: Count = 16
    """Rows in a step: pairs, triplets, or sentences in two views."""
    freeze_embeddings: bool = False
    """Keep the embedding layer of the start weights: its tables and its norm."""
    chunk: Count | None = None
    """Gradient caching: encode this many rows at a time on each rank, for batches that do not fit into memory."""
    mlm_weight: AtLeastZero = 0.0
    """Weight of an auxiliary masked-language-model loss on the same sentences (SimCSE: 0.1). 0 switches it off."""
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    evaluate_every: Count | None = None
    """Steps between evaluations. Default: one evaluation an epoch."""
    select: Literal["similarity", "last"] = "similarity"
    """Keep the state with the best Spearman correlation on the similarity dev set, or the last one."""
    probe_every: Count | None = None
    """Record the dissipation, weights and ratio of the anchors' gradient every so many steps. Does not change the
    training. Labelled sources are not probed."""
    probe_held_out: Annotated[int, Field(ge=2)] | None = None
    """At the same steps, also probe this many sentences of the similarity dev set, each in two dropout views, without
    the projection. Does not change the training."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)

    def __post_init__(self) -> None:
        if self.probe_held_out is not None and self.probe_every is None:
            raise InputError("probe_held_out has no effect without probe_every; set both")


COMMON = (
    *("sources", "objective", "epochs", "batch_size", "learning_rate"),
    *("train_limit", "max_length", "select", "seed"),
)
STAGE = register(
    Stage(
        "pretrain",
        PretrainConfig,
        "multitask.stages.pretrain:train_contrastively",
        "multitask.stages.reads:of_pretrain",
        "Train an encoder contrastively; other stages can start from it.",
        version=5,
        common=COMMON,
        distributed=True,
    )
)
