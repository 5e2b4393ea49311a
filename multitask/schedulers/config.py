"""Options of schedulers."""

from typing import Annotated, Literal, Protocol

from pydantic import Field

from minbert.settings import AtLeastZero, Share, settings


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


class ScheduledTraining(Protocol):
    """The part of a training's configuration that schedulers read; `FinetuneConfig` has it and explains it."""

    @property
    def scheduler(self) -> str: ...
    @property
    def scheduling(self) -> SchedulerConfig: ...
    @property
    def tasks(self) -> tuple[str, ...]: ...
    @property
    def task_weights(self) -> tuple[float, ...] | None: ...
    @property
    def epochs(self) -> int: ...
    @property
    def epoch_size(self) -> int | None: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def seed(self) -> int: ...
