"""Fine-tuning on labelled tasks, together or alone: settings and registration."""

from dataclasses import field
from typing import Annotated

from pydantic import Field

from minbert.errors import InputError, did_you_mean
from minbert.settings import Count, settings
from multitask.models.config import HeadsConfig
from multitask.runs.run_hash import NOT_IN_KEY
from multitask.schedulers.config import ScheduledTraining
from multitask.stages.registry import Stage, register
from multitask.training.config import MatryoshkaConfig, OptimizerConfig, RegularisationConfig


@settings
class FinetuneConfig(MatryoshkaConfig, ScheduledTraining):
    """Multi-task or single-task fine-tuning (report, section 4.2).

    The defaults are the best recipe known for all-MiniLM-L6-v2 (docs/studies/multitask-report.md); `REPORT` has the
    report's settings.
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
    """Share of each task's training rows to hold out and score on. Dev sets are not read. The same rows are held out
    every time, and no task is trained on a sentence of these rows."""
    encoder_dropout: Annotated[float, Field(ge=0, le=0.99)] | None = 0.0
    """Dropout within the encoder; `none` takes the checkpoint's. Dropout moves the two embeddings of a pair apart in
    training only, so heads that compare embeddings may rate pairs as more similar in evaluation."""
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
        if self.scheduler != "average":
            self._check_scheduler()
        weights, count = self.task_weights, len(self.tasks)
        if weights is not None and count not in (0, len(weights)):
            raise InputError(f"task_weights are {weights}; expected {count} numbers, one for each task")
        regularisation = self.regularisation
        if self.accumulate > 1 and (regularisation.smart_weight or regularisation.r_drop_weight):
            raise InputError(f"accumulate is {self.accumulate}; expected 1 with smart_weight or r_drop_weight")
        named = (*self.tasks, *self.untrained)
        if len(set(named)) < len(named):
            raise InputError(f"tasks are {', '.join(named)}; expected each named once")
        if self.held_out is not None and self.untrained:
            raise InputError("held_out is for trained tasks; leave out untrained")

    @property
    def keeps_heads(self) -> bool:
        """Whether heads of the start may go on."""
        return not self.new_heads

    def _check_scheduler(self) -> None:
        from multitask.schedulers import SCHEDULERS  # imports torch, for which `--help` must not wait

        if self.scheduler == "fusion":
            raise InputError("scheduler is fusion, which is a stage: run `multitask fuse`")
        if self.scheduler not in SCHEDULERS:
            known = sorted(SCHEDULERS)
            hint = did_you_mean(self.scheduler, known)
            raise InputError(f'scheduler is "{self.scheduler}"; expected one of: {", ".join(known)}{hint}')


REPORT = FinetuneConfig(epochs=10, encoder_dropout=None, heads=HeadsConfig(), optimizer=OptimizerConfig())
"""The report's settings (section 5.3): learning rate 1e-5 for everything, no schedule, the checkpoint's dropout."""
COMMON = (
    *("tasks", "epochs", "epoch_size", "batch_size", "learning_rate", "head_learning_rate"),
    *("train_limit", "scheduler", "seed"),
)


STAGE = register(
    Stage(
        "finetune",
        FinetuneConfig,
        "multitask.stages.finetune:train_tasks",
        "multitask.stages.reads:of_finetune",
        "Fine-tune an encoder on the tasks and keep the models that are best on the dev sets.",
        version=8,
        summary="multitask.stages.training_run:summary",
        common=(*COMMON, "new_heads"),
        distributed=True,
    )
)
