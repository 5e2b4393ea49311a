"""Settings and registrations of the stages that train on labels. Free of torch, because `--help` imports it."""

import re
from collections.abc import Collection, Mapping
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from minbert.errors import InputError
from minbert.settings import AtLeastZero, Count, Share, settings
from multitask.base.keys import NOT_IN_KEY
from multitask.models.settings import HeadsConfig
from multitask.stages.registry import START, ModelInput, Stage, register
from multitask.tasks import MAIN_TASKS
from multitask.training.settings import (
    ContrastiveConfig,
    MatryoshkaConfig,
    OptimizerConfig,
    RegularisationConfig,
    ScheduledTraining,
    SourceNames,
)


@settings
class FinetuneConfig(MatryoshkaConfig, ScheduledTraining):
    """Multi-task or single-task fine-tuning (report, section 4.2).

    The defaults are the recipe of docs/studies/multitask-report.md for all-MiniLM-L6-v2, with equal task weights;
    `REPORT_SETTINGS` has the report's settings.
    """

    untrained: tuple[str, ...] = ()
    """Further tasks to score without training them. Meant for `sharing = none`, where pairs need no trained head."""
    train_limit: Count | None = None
    """Use only this many training rows of each task. The same rows are drawn every time."""
    ordinal: tuple[str, ...] = ()
    """Classifications whose classes have an order, as `ordinal = true` declares in a tasks file: wrong classes cost
    more the farther they are from the label. Of the course's tasks, it is meant for sentiment."""
    new_heads: bool = field(default=False, metadata=NOT_IN_KEY)
    """Begin all heads anew. Otherwise, the heads of a fine-tuned start go on where their tasks have the same labels or
    range, and the heads the same layers."""
    held_out: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of each task's training rows to hold out and score on. Dev sets are not read. The same tasks
    hold out the same rows every time, and none is trained on a sentence of these rows."""
    encoder_dropout: Annotated[float, Field(ge=0, le=0.99)] | None = 0.0
    """Dropout within the encoder. `none` takes the checkpoint's. Dropout moves the two embeddings of a pair apart in
    training only, so heads that compare embeddings may rate pairs as more similar in evaluation."""
    freeze: Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)] | None = None
    """Keep the embeddings and so many of the lowest layers as the start has them; `encoder` trains the heads alone.
    The frozen part has no dropout."""
    patience: Count | None = None
    """Stop after this many epochs without a better dev score."""
    calibrate: bool = False
    """Fit a temperature for each classification on its dev set and store it with the model, so that probabilities are
    nearer to the shares of right predictions. It does not change the predicted classes."""
    keep_task_bests: bool = True
    """Also keep the best checkpoint of each task, for ensembles."""
    conflicts_every: Count | None = None
    """Record the cosines and norms of the tasks' gradients every so many steps. Does not change the training."""
    heads: HeadsConfig = HeadsConfig("separate", pairs="features", similarity_pairs="embeddings", residual=True)
    optimizer: OptimizerConfig = OptimizerConfig(7e-5, head_learning_rate=1e-3, schedule="linear", warmup=0.1)
    regularisation: RegularisationConfig = field(default_factory=RegularisationConfig)

    def __post_init__(self) -> None:
        weights, count = self.task_weights, len(self.tasks)
        if weights is not None and count not in (0, len(weights)):
            raise InputError(f"task_weights are {weights}; expected {count} numbers, one for each task")
        if self.freeze not in (None, "encoder") and not re.fullmatch("[1-9][0-9]{,3}", self.freeze):
            raise InputError(f"freeze is {self.freeze}; expected encoder, or a number of layers")
        regularisation = self.regularisation
        if self.accumulate > 1 and (regularisation.smart_weight or regularisation.r_drop_weight):
            raise InputError(f"accumulate is {self.accumulate}; expected 1 with smart_weight or r_drop_weight")
        named = (*self.tasks, *self.untrained)
        if len(set(named)) < len(named):
            more = f", and untrained {', '.join(self.untrained)}" if self.untrained else ""
            raise InputError(f"tasks are {', '.join(self.tasks)}{more}; expected each named once")

    @property
    def keeps_heads(self) -> bool:
        """Whether heads of the start may go on."""
        return not self.new_heads


def refuse_settings(config: FinetuneConfig, refused: Mapping[str, str]) -> None:
    """Raise InputError for a setting that a stage refuses and that is not at its default. `refused` has the reasons."""
    for name, why in refused.items():
        if getattr(config, name) != getattr(FinetuneConfig, name):
            raise InputError(f"{name} {why}")


REPORT_SETTINGS = FinetuneConfig(epochs=10, encoder_dropout=None, heads=HeadsConfig(), optimizer=OptimizerConfig())
"""The report's settings (section 5.3): learning rate 1e-5 for everything, no schedule, the checkpoint's dropout."""
FINETUNE_OPTIONS = (
    *("tasks", "epochs", "epoch_size", "batch_size", "learning_rate", "head_learning_rate"),
    *("train_limit", "scheduler", "seed"),
)
FINETUNE = register(
    Stage(
        "finetune",
        FinetuneConfig,
        "Fine-tune an encoder on the tasks and keep the models that are best on the dev sets.",
        version=10,
        common=(*FINETUNE_OPTIONS, "new_heads"),
        distributed=True,
    )
)


@settings
class TeachingConfig:
    """What a student learns from its teachers, and on which rows."""

    unlabelled: SourceNames = ()
    """Further rows, which only the teachers label. Sentences: `unlabelled`, a text file's name (.txt), or a task.
    Pairs: `pairs`, `nli`, `quora`, or the name of a csv or tsv file with the columns sentence1 and sentence2. Every
    task that reads such rows learns from those that its dev and test sets do not have."""
    unlabelled_limit: Count | None = None
    """Use only this many rows of each unlabelled source."""
    mine_pairs: Count | None = None
    """Also let the teachers label pairs of training sentences: each sentence of a task of pairs with this many of its
    nearest neighbours under the start weights, without pairs that have a gold label or that a dev or test set has."""
    gold_share: Share = 0.5
    """Share of the loss on gold labels, in which rows may have weights; the rest is the loss against the teachers'
    predictions, in which all rows count alike. 0: no gold labels."""
    temperature: Annotated[float, Field(ge=0.01, le=100)] = 2.0
    """Divides logits before they become probabilities (arXiv 1503.02531). Higher values show more of what the teachers
    think of unlikely classes. Regressions ignore it."""
    embedding_loss: Literal["none", "cosine", "mse"] = "none"
    """Also bring the embeddings near those of the first teacher: by their `cosine`, or by the mean squared error
    (`mse`). A linear layer, discarded after training, translates between different widths. Tasks that the first teacher
    lacks, or whose pairs one of the two models reads jointly, are left out, and named."""
    embedding_weight: AtLeastZero = 1.0
    """Weight of the embeddings' loss."""

    def __post_init__(self) -> None:
        if self.unlabelled_limit is not None and not self.unlabelled:
            raise InputError("unlabelled_limit has no effect without unlabelled; set both")
        if self.embedding_loss == "none" and self.embedding_weight != TeachingConfig.embedding_weight:
            raise InputError("embedding_weight has no effect without embedding_loss; set both")
        if self.gold_share == 1 and self.temperature != TeachingConfig.temperature:
            raise InputError("temperature has no effect with gold_share = 1; lower gold_share, or leave it out")
        if self.gold_share == 1 and self.embedding_loss == "none":
            for name in ("unlabelled", "mine_pairs"):
                if getattr(self, name):
                    more = "its rows have no gold label; lower gold_share, or set embedding_loss"
                    raise InputError(f"{name} has no use with gold_share = 1: {more}")


@settings
class DistilConfig(FinetuneConfig):
    """Fine-tuning on gold labels and on the predictions of teachers (Hinton et al. 2015, arXiv 1503.02531).

    Teachers that read pairs jointly can teach a student with any heads (Augmented SBERT, arXiv 2010.08240).
    """

    refused: ClassVar = {
        "held_out": "is for finetune; the teachers may have been trained on these rows",
        "accumulate": "is for finetune, which alone accumulates batches",
    }

    teaching: TeachingConfig = field(default_factory=TeachingConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_settings(self, self.refused)


TEACHERS = "Fine-tuned runs or model folders. A task learns from the mean prediction of the teachers that have it."
DISTIL = register(
    Stage(
        "distil",
        DistilConfig,
        "Fine-tune an encoder on gold labels and on the predictions of other models, its teachers.",
        version=3,
        inputs=(START, ModelInput("teacher", "", TEACHERS, several=True)),
        common=(
            *("tasks", "epochs", "epoch_size", "learning_rate", "train_limit", "seed"),
            *("gold_share", "temperature", "unlabelled", "mine_pairs"),
        ),
        distributed=True,
    )
)


PAIR_TASKS = MAIN_TASKS[1:]
"""The report's sources that are only trained contrastively."""
SUPERVISED = replace(REPORT_SETTINGS, tasks=("sentiment",), untrained=PAIR_TASKS, heads=HeadsConfig(sharing="none"))
"""The report's supervision: sentiment is trained, and pairs need no head."""
CONTRASTIVE_BY_FUSION = ContrastiveConfig(quora_share=0.06)
"""The report's contrastive training of these sources."""


@settings
class FuseConfig:
    """Fusion training: each batch on its labels, then the same sentences with the contrastive objective.

    Source: report, section 4.2. The defaults are the report's.
    """

    refused: ClassVar = {
        "held_out": "is for finetune; contrastive training would read these rows, too",
        "freeze": "is for finetune; contrastive training trains the encoder",
        "accumulate": "is for finetune; contrastive losses compare the rows of a batch",
    }

    finetune: FinetuneConfig = SUPERVISED
    """How the labelled batches are trained. `train_limit` and `max_length` hold for all sources."""
    contrastive: ContrastiveConfig = CONTRASTIVE_BY_FUSION
    """What the contrastive batches compare."""
    unlabelled: SourceNames = PAIR_TASKS
    """Sources that are only trained contrastively, one after the other at the end of each epoch: tasks, `unlabelled`
    sentences, text files by name. The default leaves out tasks that a tasks file lacks. If it lacks sentiment, the
    default is to train all its tasks on labels, and no source contrastively alone."""
    steps: Literal["two", "one"] = "two"
    """One optimizer step for each of a batch's two losses, or one step on their sum."""
    contrastive_weight: AtLeastZero = 1.0
    """Weight of the contrastive losses."""

    def __post_init__(self) -> None:
        refuse_settings(self.finetune, self.refused)
        self.contrastive.check_quora(self.unlabelled, CONTRASTIVE_BY_FUSION)

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
        pairs = tuple(name for name in PAIR_TASKS if name in tasks and supervised)
        changes: dict[str, Any] = {} if self.finetune.untrained != PAIR_TASKS else {"untrained": pairs}
        if self.finetune.tasks == SUPERVISED.tasks and not supervised:
            changes["tasks"] = ()
        unlabelled = pairs if self.unlabelled == PAIR_TASKS else self.unlabelled
        return replace(self, finetune=replace(self.finetune, **changes), unlabelled=unlabelled)


def _with_seed(config: FuseConfig, seed: int) -> Any:
    return replace(config, finetune=replace(config.finetune, seed=seed))


FUSE = register(
    Stage(
        "fuse",
        FuseConfig,
        "Train each batch on its labels, then its sentences with the contrastive objective.",
        version=8,
        with_seed=_with_seed,
        common=(*FINETUNE_OPTIONS, "objective"),
        distributed=True,
    )
)
