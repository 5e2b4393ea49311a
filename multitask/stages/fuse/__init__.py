"""Fusion training."""

from dataclasses import dataclass, field
from typing import Literal

from multitask.models.config import HeadsConfig
from multitask.runtime.options import check_range
from multitask.stages.finetune import FinetuneConfig
from multitask.stages.pretrain import ContrastiveConfig


@dataclass(frozen=True)
class FuseConfig(FinetuneConfig, ContrastiveConfig):
    """Fusion training: each batch against its labels, then the same sentences against the contrastive objective.

    Source: report, section 4.2. The defaults are the report's: sentiment is the task, pairs need no head.
    """

    tasks: tuple[str, ...] = ("sentiment",)
    untrained: tuple[str, ...] = ("paraphrase", "similarity")
    unlabelled: tuple[str, ...] = ("paraphrase", "similarity")
    """Sources that are only trained contrastively, one after the other at the end of each epoch: tasks, `unlabelled`
    sentences, text files by name."""
    steps: Literal["two", "one"] = "two"
    """One optimizer step for each loss of a batch, or one on their sum."""
    contrastive_weight: float = 1.0
    """Weight of the contrastive losses."""
    quora_share: float = 0.06
    heads: HeadsConfig = field(default_factory=lambda: HeadsConfig(sharing="none"))

    def __post_init__(self) -> None:
        FinetuneConfig.__post_init__(self)
        ContrastiveConfig.__post_init__(self)
        check_range(self, 0, ("contrastive_weight",))
