"""What a person sees of a training while it runs: a bar on a terminal, plain lines in logs and notebooks."""

import logging
import math
import time
from collections.abc import Mapping

from multitask.runtime import distributed
from multitask.runtime.progress import ProgressBar, time_left
from multitask.tasks.metrics import score_text
from multitask.training.checkpoints_and_resume import Progress

logger = logging.getLogger("multitask")

DUPLICATES = " duplicates"
LEAST_GRADIENT = 1e-8
"""The epsilon of AdamW: a gradient of this norm moves no weight by more than half the learning rate in a step."""
BAR = "{desc}|{bar}| step {n_fmt}/{total_fmt}{postfix}"  # short enough for 80 columns, so that nothing is cut


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
        scored = ", ".join(f"{name} {score_text(score)}" for name, score in scores.items()) or "not scored"
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
        [ended] = (line["dev"] for line in self.progress.history if kept == f"step-{line['step']:07d}")
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
