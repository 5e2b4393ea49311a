"""Distillation of teachers into a student: settings and registration."""

from dataclasses import field
from typing import Annotated, Literal

from pydantic import Field

from minbert.errors import InputError
from minbert.settings import AtLeastZero, Count, Share, settings
from multitask.stages.registry import START, ModelInput, Stage, register
from multitask.stages.settings.finetune import FinetuneConfig


@settings
class TeachingConfig:
    """What a student learns from its teachers, and on which rows."""

    unlabelled: tuple[str, ...] = ()
    """Further rows, which only the teachers label. Sentences: `unlabelled`, a text file's name (.txt), or a task.
    Pairs: `pairs`, `nli`, `quora`, or the name of a csv or tsv file with the columns sentence1 and sentence2. Every
    task that reads such rows learns from those that its dev and test sets do not have."""
    unlabelled_limit: Count | None = None
    """Use only this many rows of each unlabelled source."""
    mine_pairs: Count | None = None
    """Also let the teachers label pairs of training sentences: each sentence of a task of pairs with this many of its
    nearest neighbours under the start weights, without pairs that have a gold label or that a dev or test set has."""
    gold_share: Share = 0.5
    """Share of the loss on gold labels; the rest is the loss against the teachers' predictions. 0: no gold labels."""
    temperature: Annotated[float, Field(ge=0.01, le=100)] = 2.0
    """Divides logits before they become probabilities (arXiv 1503.02531). Higher values show more of what the teachers
    think of unlikely classes. Regressions ignore it."""
    embedding_loss: Literal["none", "cosine", "mse"] = "none"
    """Also bring the embeddings near those of the first teacher: by their `cosine`, or by the mean squared error
    (`mse`). A linear layer, discarded after training, translates between different widths. Tasks whose pairs one of the
    two models reads jointly are left out."""
    embedding_weight: AtLeastZero = 1.0
    """Weight of the embeddings' loss."""


@settings
class DistilConfig(FinetuneConfig):
    """Fine-tuning on gold labels and on the predictions of teachers (Hinton et al. 2015, arXiv 1503.02531).

    Teachers that read pairs jointly can teach a student with any heads (Augmented SBERT, arXiv 2010.08240).
    """

    teaching: TeachingConfig = field(default_factory=TeachingConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.held_out is not None:
            raise InputError("held_out is for finetune; the teachers may have been trained on these rows")
        if self.accumulate > 1:
            raise InputError(f"accumulate is {self.accumulate}; expected 1, because only finetune accumulates batches")


TEACHERS = "Fine-tuned runs or model folders. A task learns from the mean prediction of the teachers that have it."
STAGE = register(
    Stage(
        "distil",
        DistilConfig,
        "multitask.stages.distil:train_student",
        "multitask.stages.reads:of_distil",
        "Fine-tune an encoder on gold labels and on the predictions of other models, its teachers.",
        inputs=(START, ModelInput("teacher", "", TEACHERS, several=True)),
        summary="multitask.stages.training_run:summary",
        common=(
            *("tasks", "epochs", "epoch_size", "learning_rate", "train_limit", "seed"),
            *("gold_share", "temperature", "unlabelled", "mine_pairs"),
        ),
        distributed=True,
    )
)
