"""What a training reports: losses, which stop it where one is not finite, and its progress to the user."""

import math
import time
from collections.abc import Mapping

import torch
from torch import Tensor

from multitask.base import distributed, logger
from multitask.base.errors import TrainingError
from multitask.base.progress import ProgressBar, time_left
from multitask.tasks.scores import score_text
from multitask.training.checkpoints_and_resume import Progress, checkpoint_name
from multitask.training.source import Update

DUPLICATES = " duplicates"
LEAST_GRADIENT = 1e-8
"""The epsilon of AdamW: a gradient of this norm moves no weight by more than half the learning rate in a step."""
BAR = "{desc}|{bar}| step {n_fmt}/{total_fmt}{postfix}"  # short enough for 80 columns, so that nothing is cut
GRADIENT = "gradient"


class LossMonitor:
    """Losses of recent steps, read together: on CUDA every read waits for the device. `progress` gets their sums."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.unread: list[tuple[int, Update, dict[str, Tensor]]] = []

    def add(self, step: int, update: Update, terms: dict[str, Tensor], watched: dict[str, Tensor]) -> None:
        """Note a step's losses and other scalars, without reading them. Steps count from 1."""
        self.progress.losses += [name for name in terms if name not in self.progress.losses]
        self.unread.append((step, update, {**terms, **watched}))

    def read(self) -> None:
        """Read the scalars of all noted steps. Raises TrainingError at the first that is not finite."""
        noted = [(step, update, *item) for step, update, scalars in self.unread for item in scalars.items()]
        values = torch.stack([value for *_, value in noted]).tolist() if noted else []
        for (step, update, name, _), value in zip(noted, values, strict=True):
            if not math.isfinite(value):
                raise TrainingError(_not_finite(step, update, name, value))
            if name == GRADIENT:
                self.progress.largest_gradient = max(self.progress.largest_gradient, value)
            self.progress.loss_sums[name] = self.progress.loss_sums.get(name, 0.0) + value
            self.progress.loss_counts[name] = self.progress.loss_counts.get(name, 0) + 1
        self.unread.clear()

    def means(self) -> dict[str, float]:
        """Mean of every scalar that was read since the last evaluation."""
        return {name: total / self.progress.loss_counts[name] for name, total in self.progress.loss_sums.items()}

    def mean_loss(self) -> float | None:
        """Mean of the losses among them; None if no loss was read."""
        means = self.means()
        losses = [means[name] for name in self.progress.losses if name in means]
        return sum(losses) / len(losses) if losses else None

    def clear(self) -> None:
        """Begin new means."""
        self.progress.loss_sums.clear()
        self.progress.loss_counts.clear()


def _not_finite(step: int, update: Update, name: str, value: float) -> str:
    batches = [batch for batch in update if batch.source == name] or update
    rows = "; ".join(f"{batch.source} rows {', '.join(map(str, batch.rows.tolist()))}" for batch in batches)
    what = "gradient norm" if name == GRADIENT else f"{name} loss"
    return (
        f"step {step}: the {what} is {value} ({rows}, counted from 0 in the training data); the last saved state "
        "and the checkpoints are good: try a lower learning rate, clipping or --precision fp32"
    )


class ProgressReport(ProgressBar):
    """Reports a training's progress on its first rank. A context, which ends with the training.

    `steps` are those of the whole training, about: epochs of some schedulers differ in length.
    """

    def __init__(self, progress: Progress, steps: int, epochs: int) -> None:
        self.progress = progress
        self.steps = steps
        self.epochs = epochs
        self.before = progress.step, progress.tokens, progress.seconds  # of earlier processes
        super().__init__(total=steps, initial=progress.step, bar_format=BAR)

    def step(self, loss: float | None) -> None:
        """Report a step, with the mean loss since the last evaluation; None before any is read."""
        self.bar.total = max(self.steps, self.progress.step)
        self.bar.set_postfix_str(self._state(loss), refresh=False)
        self.move(1, lambda: f"step {self.progress.step} of {self.steps}: {self._state(loss)}")

    def evaluating(self) -> None:
        """Say that an evaluation begins, which may take longer than the steps before it; in a log, of the first one."""
        self.bar.set_description_str("evaluating")
        if self.bar.disable and not self.progress.history:
            logger.info("evaluating")

    def evaluation(self, epoch: int, loss: float | None, scores: Mapping[str, float]) -> None:
        """Report an evaluation in an epoch, from 1, with the mean loss of the steps before it."""
        place = f"epoch {epoch} of {self.epochs}, step {self.progress.step} of {self.steps}"
        scored = ", ".join(f"{name} {score_text(score)}" for name, score in scores.items()) or "no score selects"
        self.bar.set_description_str("", refresh=False)
        self.tell(f"{place}: {scored}; {self._state(loss)}")

    def end(self, fault: str = "") -> None:
        """Warn of what went wrong: of the fault, or where the kept model scores below the start weights' embeddings."""
        progress, score = self.progress, next(iter(self.progress.scores), "")
        if not distributed.is_first():
            return
        if idle := self._idle():
            fault = f"nothing was learned from {idle}: the loss is 0, as every row repeats others of its batch"
        elif progress.largest_gradient <= LEAST_GRADIENT:
            fault = f"nothing was learned: the gradient was 0 in all {progress.step:,} steps"
        elif not fault and progress.scores.get(score) == -math.inf:
            fault = f"{score} was undefined at every evaluation: the last model is kept, which may not be the best"
        if fault:
            logger.warning(fault)
        else:
            self._compare_with_start()

    def _idle(self) -> str:
        """The sources whose rows are all each other's duplicates, which have neither negatives nor a loss."""
        seen: dict[str, set[tuple[float, float]]] = {}
        for means in (line["training"] for line in self.progress.history):
            for key in [key for key in means if key.endswith(DUPLICATES)]:
                name = key.removesuffix(DUPLICATES)
                seen.setdefault(name, set()).add((means[name], means[key]))
        return " and ".join(name for name, found in seen.items() if found == {(0, 1)})

    def _compare_with_start(self) -> None:
        kept = next(iter(self.progress.best.values()))
        [ended] = (line["dev"] for line in self.progress.history if kept == checkpoint_name(line["step"]))
        for task, metrics in self.progress.at_start.items():
            for name, before in metrics.items():
                if ended[task][name] < before:
                    logger.warning(
                        f"{task} ends below its start: {name} {ended[task][name]:.4f}, the start weights' embeddings "
                        f"alone {before:.4f}; a lower learning rate or more rows may keep what they know"
                    )

    def _state(self, loss: float | None) -> str:
        speed = (self.progress.tokens - self.before[1]) / max(self.progress.seconds - self.before[2], 1e-9)
        a_step = (time.monotonic() - self.began) / max(self.progress.step - self.before[0], 1)
        shown = "" if loss is None else f"loss {loss:.3f}, "
        return f"{shown}{speed:,.0f} tokens/s, {time_left((self.steps - self.progress.step) * a_step)}"
