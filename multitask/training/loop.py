"""The training loop of every stage: update by update, with evaluations, checkpoints, and a state that survives a kill.

The loop knows no tasks and no objectives. A stage hands it a `Trainable`, whose plan of an epoch is a pure function.
All randomness within a step comes from torch's generators. Weights, optimizer, generators and the number of the step
are therefore the whole state: a resumed run gives the same bits.

Several ranks (see `distributed`) run the loop in lockstep. Gradients are averaged once, before clipping. Only the first
rank evaluates and writes.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from minbert.errors import InputError
from multitask.base import distributed
from multitask.base.device import Runtime
from multitask.base.errors import Interrupted, Stopped, stop_signals
from multitask.training.checkpoints_and_resume import RunState
from multitask.training.optimizer import Optimizer
from multitask.training.progress_report import GRADIENT, LossMonitor, ProgressReport
from multitask.training.settings import OptimizerConfig
from multitask.training.source import Trainable, Update

OnEvaluation = Callable[[int, dict[str, Any]], bool | None]
"""Called with the step and its new line of metrics.jsonl. Returns True to stop the training there."""

MOST_SCHEDULED_EPOCHS = 10_000

# Reading a loss on a GPU waits for the device, so several steps' losses are read together.
STEPS_BETWEEN_READS = {"cuda": 20, "mps": 20, "cpu": 1}


@dataclass(frozen=True)
class LoopConfig:
    """What the loop needs of a stage's configuration."""

    epochs: int
    optimizer: OptimizerConfig
    patience: int | None = None  # evaluations
    evaluate_every: int | None = None  # steps; None: after every epoch. The loop always evaluates at the end.
    watch_every: int | None = None  # steps between calls of `Trainable.watch`, beginning with the first step

    def __post_init__(self) -> None:
        if self.optimizer.needs_total_steps and self.epochs > MOST_SCHEDULED_EPOCHS:
            raise InputError(
                f"epochs is {self.epochs}; expected at most {MOST_SCHEDULED_EPOCHS} with a warm-up or a linear "
                "schedule, which plan all epochs before the first step"
            )

    def watches(self, step: int) -> bool:
        """Whether a step (from 0) is watched."""
        return self.watch_every is not None and step % self.watch_every == 0

    def evaluates(self, steps: int, epoch: int, ends_epoch: bool) -> bool:
        """Whether to evaluate after so many steps. The last of them is in `epoch` (from 0), and may end it."""
        if self.evaluate_every is None:
            return ends_epoch
        return steps % self.evaluate_every == 0 or (ends_epoch and epoch == self.epochs - 1)


def train(
    trainable: Trainable,
    config: LoopConfig,
    folder: Path,
    runtime: Runtime,
    save_every: float,
    on_evaluation: OnEvaluation = lambda step, record: None,
    on_save: Callable[[], None] = lambda: None,
) -> dict[str, str]:
    """Train from the beginning, or from the saved state if there is one. Returns what best.json says.

    `folder` gets metrics.jsonl, checkpoints/, best.json and, every `save_every` seconds, state/.

    Raises:
        TrainingError: a loss, a gradient or a weight is not finite.
        Interrupted: any rank got SIGTERM or SIGINT; the state is saved.
        Stopped: `on_evaluation` asked for it; the state is saved.
    """
    planned = range(config.epochs) if config.optimizer.needs_total_steps else ()
    total = sum(len(trainable.plan(epoch)) for epoch in planned)
    optimizer = Optimizer(trainable.module, config.optimizer, total)
    state = RunState(folder, trainable, optimizer, runtime.device)
    if not state.resume():
        state.progress.at_start = distributed.from_first(trainable.metrics_of_start)
    progress = state.progress
    losses = LossMonitor(progress)
    trainable.module.train()
    saved = time.monotonic()
    about = config.epochs * len(trainable.plan(0))  # steps; epochs of some schedulers differ in length
    with stop_signals() as stop, ProgressReport(progress, about, config.epochs) as report:
        for epoch, update, ends_epoch in _steps(trainable, config.epochs, progress.step):
            if config.patience is not None and progress.stale >= config.patience:
                break
            _step(trainable, update, config, state, losses)
            report.step(losses.mean_loss())

            enough = False
            if config.evaluates(progress.step, epoch, ends_epoch):
                with optimizer.averaged():
                    line = _evaluate(trainable, state, losses, epoch + 1, report)
                    enough = bool(on_evaluation(progress.step, line))

            # Any rank's signal or wish stops all ranks; any rank's clock makes all ranks save.
            wishes = (stop[0] if stop else 0, enough, time.monotonic() - saved > save_every)
            stopped_by, all_enough, save = distributed.highest(wishes)
            if stopped_by or all_enough or save:
                losses.read()
                state.save()
                on_save()
                saved = time.monotonic()
            if stopped_by:
                raise Interrupted(int(stopped_by))
            if all_enough:
                raise Stopped
    losses.read()
    trainable.module.eval()
    with torch.no_grad(), optimizer.averaged():
        report.end(distributed.from_first(trainable.fault))
    return state.finish()


def _steps(trainable: Trainable, epochs: int, done: int) -> Iterator[tuple[int, Update, bool]]:
    """The epoch (from 0) and the update of each step after the first `done`, and whether the step ends its epoch.

    An epoch is planned when its first step comes.
    """
    for epoch in range(epochs):
        updates = trainable.plan(epoch)
        for place in range(done, len(updates)):
            yield epoch, updates[place], place == len(updates) - 1
        done = max(done - len(updates), 0)


def _step(trainable: Trainable, update: Update, config: LoopConfig, state: RunState, losses: LossMonitor) -> None:
    """Change the weights once, by the gradients of all ranks, and count the step."""
    progress, optimizer = state.progress, state.optimizer
    began = time.monotonic()
    computed = trainable.backward(update)
    distributed.average(optimizer.gradients)
    watched = trainable.watch(update, progress.step) if config.watches(progress.step) else {}
    norm = optimizer.clip()
    losses.add(progress.step + 1, update, computed.terms, {GRADIENT: norm, **computed.watched, **watched})
    if (progress.step + 1) % STEPS_BETWEEN_READS[state.device.type] == 0:
        losses.read()  # before the step, so that a bad loss does not even spoil the weights in memory
    optimizer.step(progress.step)
    progress.step += 1
    progress.tokens += computed.tokens
    progress.seconds += time.monotonic() - began


def _evaluate(
    trainable: Trainable, state: RunState, losses: LossMonitor, epoch: int, report: ProgressReport
) -> dict[str, Any]:
    """Evaluate, keep the model if a score is a new best, and add a line to metrics.jsonl, which is returned."""
    losses.read()
    report.evaluating()
    state.check_weights()
    trainable.module.eval()
    with torch.no_grad():
        evaluation = distributed.from_first(trainable.evaluate)
    trainable.module.train()
    progress = state.progress
    line = {
        "step": progress.step,
        "epoch": epoch,
        "training": losses.means(),
        "dev": evaluation.metrics,
        "scores": evaluation.scores,
        "tokens": progress.tokens,
        "seconds": round(progress.seconds, 3),
    }
    state.keep_if_best(evaluation.scores)
    state.record(line)
    report.evaluation(epoch, losses.mean_loss(), evaluation.scores)
    losses.clear()
    return line
