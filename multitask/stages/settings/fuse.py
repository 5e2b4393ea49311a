"""Fusion training: settings and registration."""

from collections.abc import Collection
from dataclasses import field, replace
from typing import Any, Literal

from minbert.errors import InputError
from minbert.settings import AtLeastZero, settings
from multitask.models.config import HeadsConfig
from multitask.stages.registry import Stage, register
from multitask.stages.settings.finetune import COMMON, REPORT, FinetuneConfig
from multitask.training.config import ContrastiveConfig

PAIRS = ("paraphrase", "similarity")
"""The report's sources that are only trained contrastively."""
SUPERVISED = replace(REPORT, tasks=("sentiment",), untrained=PAIRS, heads=HeadsConfig(sharing="none"))
"""The report's supervision: sentiment is trained, and pairs need no head."""


@settings
class FuseConfig:
    """Fusion training: each batch on its labels, then the same sentences with the contrastive objective.

    Source: report, section 4.2. The defaults are the report's.
    """

    finetune: FinetuneConfig = SUPERVISED
    """How the labelled batches are trained. `train_limit` and `max_length` hold for all sources."""
    contrastive: ContrastiveConfig = field(default_factory=lambda: ContrastiveConfig(quora_share=0.06))
    """What the contrastive batches compare."""
    unlabelled: tuple[str, ...] = PAIRS
    """Sources that are only trained contrastively, one after the other at the end of each epoch: tasks, `unlabelled`
    sentences, text files by name. The default leaves out tasks that a tasks file lacks. If it lacks sentiment, the
    default is to train all its tasks on labels, and no source contrastively alone."""
    steps: Literal["two", "one"] = "two"
    """One optimizer step for each of a batch's two losses, or one step on their sum."""
    contrastive_weight: AtLeastZero = 1.0
    """Weight of the contrastive losses."""

    def __post_init__(self) -> None:
        if self.finetune.held_out is not None:
            raise InputError("held_out is for finetune; contrastive training would read these rows, too")
        if self.finetune.accumulate > 1:
            raise InputError(
                f"accumulate is {self.finetune.accumulate}; expected 1, because contrastive losses compare the rows "
                "of a batch"
            )

    @property
    def seed(self) -> int:
        """Of all that is random."""
        return self.finetune.seed

    @property
    def keeps_heads(self) -> bool:
        """Whether heads of the start may go on."""
        return self.finetune.keeps_heads

    def of_declared(self, tasks: Collection[str]) -> "FuseConfig":
        """With the report's tasks, where they stand by default, as far as they are declared; without sentiment, all."""
        supervised = set(SUPERVISED.tasks) <= set(tasks)
        pairs = tuple(name for name in PAIRS if name in tasks and supervised)
        changes: dict[str, Any] = {} if self.finetune.untrained != PAIRS else {"untrained": pairs}
        if self.finetune.tasks == SUPERVISED.tasks and not supervised:
            changes["tasks"] = ()
        unlabelled = pairs if self.unlabelled == PAIRS else self.unlabelled
        return replace(self, finetune=replace(self.finetune, **changes), unlabelled=unlabelled)


def _with_seed(config: FuseConfig, seed: int) -> Any:
    return replace(config, finetune=replace(config.finetune, seed=seed))


STAGE = register(
    Stage(
        "fuse",
        FuseConfig,
        "multitask.stages.fuse:train_both",
        "multitask.stages.reads:of_fuse",
        "Train each batch on its labels, then its sentences with the contrastive objective.",
        version=6,
        with_seed=_with_seed,
        summary="multitask.stages.training_run:summary",
        common=(*COMMON, "objective"),
        distributed=True,
    )
)
