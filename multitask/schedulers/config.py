"""Options of schedulers."""

from dataclasses import field
from typing import Annotated, Literal

from pydantic import Field

from minbert.settings import AtLeastZero, Count, Share, settings
from multitask.training.config import SentencesConfig


@settings
class SchedulerConfig:
    """Options of particular schedulers."""

    sampling_alpha: AtLeastZero = 1.0
    """For proportional: draw a task with probability proportional to size^alpha; 0 draws all equally often."""
    reduction: Literal["sum", "mean"] = "sum"
    """For aggregators that add up gradients (pcgrad, gradvac, graddrop, config, nash_mtl, fairgrad): the `sum`, as in
    their papers, or the `mean` over tasks, which has the same scale as the scheduler average."""
    cagrad_c: AtLeastZero = 0.5
    """For cagrad: how far the update may be from the average gradient, in units of its norm. 0: the average itself."""
    gradvac_beta: Share = 0.01
    """For gradvac: how fast the target cosines follow the observed ones, 0 to 1."""
    fairgrad_alpha: Annotated[float, Field(ge=0.01)] = 1.0
    """For fairgrad: the kind of fairness. 1: proportional fairness; large values approach max-min fairness."""
    stch_mu: Annotated[float, Field(ge=0.01)] = 0.1
    """For stch: how smooth the maximum is. Small values train on the task with the largest loss."""


@settings
class ScheduledTraining(SentencesConfig):
    """Which tasks are trained together, and how they share the training steps."""

    tasks: tuple[str, ...] = ()
    """Tasks to train together. Name one for single-task training. None named: all of the tasks file; of the course's
    tasks (sentiment, paraphrase, similarity, reviews) the first three."""
    epochs: Count = 3
    """Number of epochs."""
    batch_size: Count = 16
    """Examples of each task in a step."""
    accumulate: Count = 1
    """Gradient accumulation: a step takes this many batches of each task, one after the other, and has the gradient of
    one batch of so many times the size. For losses that are means over rows."""
    epoch_size: Count | None = None
    """Examples of each task in an epoch. Default: the size of the smallest task's training set."""
    scheduler: str = "average"
    """How the tasks share training steps: average, batch_round_robin, epoch_round_robin, single, proportional,
    annealed, uncertainty, or a gradient aggregator such as pcgrad. A wrong name lists them all."""
    task_weights: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    """Weight of each task's loss, in the order of the tasks. Default: the weights in the tasks' declarations (1)."""
    scheduling: SchedulerConfig = field(default_factory=SchedulerConfig)

    @property
    def step_size(self) -> int:
        """Examples of each task in a step."""
        return self.batch_size * self.accumulate
