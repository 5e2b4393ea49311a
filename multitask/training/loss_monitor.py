"""Reading the losses: stop at one that is not finite, and average the others for metrics.jsonl."""

import math

import torch
from torch import Tensor

from multitask.runtime.errors import TrainingError
from multitask.training.checkpoints_and_resume import Progress
from multitask.training.trainable import Update

GRADIENT = "gradient"


class LossMonitor:
    """Losses of recent steps, read together: on CUDA every read waits for the device. `progress` gets their sums."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.unread: list[tuple[int, Update, dict[str, Tensor]]] = []
        self.terms: dict[str, None] = {}  # names of losses, in order

    def add(self, step: int, update: Update, terms: dict[str, Tensor], watched: dict[str, Tensor]) -> None:
        """Note a step's losses and other scalars, without reading them. Steps count from 1."""
        self.terms |= dict.fromkeys(terms)
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
        losses = [means[name] for name in self.terms if name in means]
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
