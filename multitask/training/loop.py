"""The one training loop: updates in a planned order, evaluation, checkpoints, and a state that survives a kill.

It knows nothing of tasks and objectives: a stage hands it a `Trainable` and a way to turn losses into gradients. An
epoch's plan is a pure function of the configuration and the epoch, and all randomness within a step comes from torch's
generators, so weights, optimizer, generators and a step number are the whole state: a resumed run gives the same bits.

Several ranks (see `distributed`) run it in lockstep: gradients are averaged once, before clipping, and the first rank
alone evaluates and writes.
"""

import json
import logging
import math
import shutil
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from tqdm import tqdm

from minbert.files import atomic_file, write_json, write_text
from multitask.data.shuffle_and_batch import Rows
from multitask.runtime import distributed
from multitask.runtime.device import Runtime
from multitask.runtime.errors import Interrupted, TrainingError
from multitask.runtime.signals import stop_signals
from multitask.training.config import OptimizerConfig
from multitask.training.optimizer import build_optimizer, learning_rate_factor

logger = logging.getLogger("multitask")

# On CUDA reading a loss waits for the device, so losses are looked at together; a CPU has nothing to wait for.
STEPS_BETWEEN_CHECKS = {"cuda": 20, "cpu": 1}


@dataclass(frozen=True)
class Batch:
    """Rows of one of the stage's data sets."""

    source: str
    rows: Rows


Update = tuple[Batch, ...]  # what one optimizer step trains on


@dataclass(frozen=True)
class Losses:
    """Scalar losses by name, the number of real tokens behind them, and scalars to watch beside."""

    terms: dict[str, Tensor]
    tokens: int
    watched: dict[str, Tensor] = field(default_factory=dict)

    def detached(self) -> "Losses":
        """The same without graph."""
        return replace(self, terms={name: term.detach() for name, term in self.terms.items()})

    def plus(self, other: "Losses", share: float) -> "Losses":
        """With a share of others' losses added, for a batch that is computed in parts."""

        def added(own: dict[str, Tensor], more: dict[str, Tensor]) -> dict[str, Tensor]:
            return own | {name: own.get(name, 0.0) + share * value for name, value in more.items()}

        return Losses(added(self.terms, other.terms), self.tokens + other.tokens, added(self.watched, other.watched))


@dataclass(frozen=True)
class Evaluation:
    """Dev metrics, and the scores (higher is better) that checkpoints are kept by; the first decides early stopping."""

    metrics: dict[str, Any]
    scores: dict[str, float]


class Trainable(Protocol):
    """What a stage hands to the loop. Parameters `encoder.*` have the encoder's learning rate, others the heads'."""

    module: nn.Module

    def plan(self, epoch: int) -> Sequence[Update]:
        """The epoch's updates; a pure function of the configuration and the epoch."""

    def losses(self, update: Update) -> Losses:
        """The losses of an update's batches, with graph; the same on every rank."""

    def evaluate(self) -> Evaluation:
        """Dev metrics of the module as it is; uses no randomness. Called on the first rank alone."""

    def save(self, folder: Path) -> None:
        """Write the model as it is into a new folder, atomically. Called on the first rank alone."""


@runtime_checkable
class Watchable(Protocol):
    """A `Trainable` that can look closer at a step than its losses do."""

    def watch(self, update: Update, step: int) -> dict[str, Tensor]:
        """Scalars by name, for metrics.jsonl. Called once the gradient is in place, before the step is taken (from 0).

        Must leave everything as it is: parameters, gradients, random generators. Equal arguments and state give equal
        values.
        """


@dataclass(frozen=True)
class LoopConfig:
    """What the loop needs of a stage's configuration."""

    epochs: int
    optimizer: OptimizerConfig
    patience: int | None = None  # evaluations
    evaluate_every: int | None = None  # steps; after every epoch when left out, and always at the end
    watch_every: int | None = None  # steps between calls of a `Watchable`'s watch, the first at once


@dataclass
class Progress:
    """How far a run is: everything in its state that is not tensors."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    stale: int = 0  # evaluations since the leading score last rose
    scores: dict[str, float] = field(default_factory=dict)  # best so far
    best: dict[str, str] = field(default_factory=dict)  # score -> checkpoint
    history: list[dict[str, Any]] = field(default_factory=list)  # lines of metrics.jsonl
    loss_sums: dict[str, float] = field(default_factory=dict)  # since the last evaluation
    loss_counts: dict[str, int] = field(default_factory=dict)


def train(
    trainable: Trainable,
    backward: Callable[[Trainable, Update], Losses],
    config: LoopConfig,
    folder: Path,
    runtime: Runtime,
    save_every: float,
    on_evaluation: Callable[[int, dict[str, Any]], None] = lambda step, record: None,
) -> dict[str, str]:
    """Train, from the saved state if there is one.

    Args:
        trainable: the module, its data and its evaluation.
        backward: puts an update's gradient into the parameters, whose mean over ranks is the whole update's.
        config: epochs, optimizer, patience.
        folder: the artefact's folder; gets metrics.jsonl, checkpoints/, best.json and state/.
        runtime: device and precision.
        save_every: seconds between saved states.
        on_evaluation: called with the step and the line that metrics.jsonl gets.

    Returns:
        For each score the name of its best checkpoint, as in best.json.

    Raises:
        TrainingError: a loss or gradient is not finite.
        Interrupted: SIGTERM or SIGINT came, to whichever rank; the state is saved.
    """
    run = TrainingRun(trainable, config, folder, runtime)
    run.resume()
    planned, updates = -1, list[Update]()
    saved = started = time.monotonic()
    with stop_signals() as stop, run.progress_bar() as bar:
        while run.progress.step < run.total_steps and not run.out_of_patience():
            epoch, index = run.position()
            if epoch != planned:
                planned, updates = epoch, list(trainable.plan(epoch))
            losses = backward(trainable, updates[index])
            run.average_gradients()
            losses = run.watched(updates[index], losses)
            run.step(updates[index], losses)
            bar.update()
            if run.evaluation_due():
                run.progress.seconds += time.monotonic() - started
                on_evaluation(run.progress.step, run.evaluate(epoch + 1))
                started = time.monotonic()
            if run.check_due():
                run.check()
                bar.set_postfix(run.summary(time.monotonic() - started), refresh=False)
            wishes = distributed.all_of((stop[0] if stop else 0, time.monotonic() - saved > save_every))
            stopped_by, save = map(max, zip(*wishes, strict=True))
            if stopped_by or save:
                run.progress.seconds += time.monotonic() - started
                run.save_state()
                saved = started = time.monotonic()
            if stopped_by:
                raise Interrupted(stopped_by)
    return run.finish()


class TrainingRun:
    """The loop's mutable half: optimizer, progress and files."""

    def __init__(self, trainable: Trainable, config: LoopConfig, folder: Path, runtime: Runtime) -> None:
        self.trainable = trainable
        self.config = config
        self.folder = folder
        self.runtime = runtime
        self.progress = Progress()
        self.optimizer = build_optimizer(trainable.module, config.optimizer)
        self.peaks = [group["lr"] for group in self.optimizer.param_groups]
        self.parameters = [p for p in trainable.module.parameters() if p.requires_grad]
        self.epoch_ends = list(accumulate(len(trainable.plan(epoch)) for epoch in range(config.epochs)))
        self.total_steps = self.epoch_ends[-1]
        self.most_norm = math.inf if config.optimizer.clip is None else config.optimizer.clip
        self.unchecked: list[tuple[int, Update, list[str], Tensor]] = []
        trainable.module.train()

    def average_gradients(self) -> None:
        """Make the gradient in place that of all ranks' rows. Every rank has one for the same parameters."""
        distributed.average([p.grad for p in self.parameters if p.grad is not None])

    def step(self, update: Update, losses: Losses) -> None:
        """One optimizer step on the gradient in place."""
        norm = clip_grad_norm_(self.parameters, self.most_norm)
        seen = {**losses.terms, "gradient": norm, **losses.watched}
        self.unchecked.append((self.progress.step + 1, update, list(seen), torch.stack(list(seen.values()))))
        if self.runtime.device.type == "cpu":
            self.check()  # before the step, so that even the weights in memory stay good
        factor = learning_rate_factor(self.progress.step, self.total_steps, self.config.optimizer)
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = peak * factor
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.progress.step += 1
        self.progress.tokens += losses.tokens

    def watched(self, update: Update, losses: Losses) -> Losses:
        """With what the trainable watches, when that is due."""
        if self.config.watch_every is None or self.progress.step % self.config.watch_every:
            return losses
        assert isinstance(self.trainable, Watchable)
        return replace(losses, watched={**losses.watched, **self.trainable.watch(update, self.progress.step)})

    def position(self) -> tuple[int, int]:
        """The epoch that the next step belongs to, and its index there."""
        epoch = bisect_right(self.epoch_ends, self.progress.step)
        return epoch, self.progress.step - (self.epoch_ends[epoch - 1] if epoch else 0)

    def evaluation_due(self) -> bool:
        """Whether it is time to evaluate: at an epoch's end or every so many steps, and at the end."""
        if self.config.evaluate_every is None:
            return self.progress.step in self.epoch_ends
        return self.progress.step % self.config.evaluate_every == 0 or self.progress.step == self.total_steps

    def check_due(self) -> bool:
        """Whether it is time to look at the losses."""
        return self.progress.step % STEPS_BETWEEN_CHECKS[self.runtime.device.type] == 0

    def check(self) -> None:
        """Read the losses since the last check. Raises TrainingError at the first that is not finite."""
        if not self.unchecked:
            return
        values = iter(torch.cat([vector for *_, vector in self.unchecked]).tolist())
        for step, update, names, _ in self.unchecked:
            for name in names:
                value = next(values)
                if not math.isfinite(value):
                    raise TrainingError(_not_finite(step, update, name, value))
                self.progress.loss_sums[name] = self.progress.loss_sums.get(name, 0.0) + value
                self.progress.loss_counts[name] = self.progress.loss_counts.get(name, 0) + 1
        self.unchecked.clear()

    def evaluate(self, epoch: int) -> dict[str, Any]:
        """Evaluate, keep the model where a score is a new best, and add a line to metrics.jsonl."""
        self.check()
        progress = self.progress
        self.trainable.module.eval()
        with torch.no_grad():
            evaluation = distributed.from_first(self.trainable.evaluate)
        self.trainable.module.train()
        record = {
            "step": progress.step,
            "epoch": epoch,
            "training": self.mean_losses(),
            "dev": evaluation.metrics,
            "scores": evaluation.scores,
            "tokens": progress.tokens,
            "seconds": round(progress.seconds, 3),
        }
        progress.loss_sums.clear()
        progress.loss_counts.clear()
        # An undefined score (the correlation of a constant) is the worst, and still keeps a model where there is none.
        scores = {name: -math.inf if math.isnan(score) else score for name, score in evaluation.scores.items()}
        best = progress.scores
        better = [name for name, score in scores.items() if name not in best or score > best[name]]
        leading = next(iter(evaluation.scores), None)
        progress.stale = 0 if leading in better else progress.stale + 1
        if better or not evaluation.scores:
            checkpoint = f"step-{progress.step:07d}"
            distributed.from_first(lambda: self.trainable.save(self.folder / "checkpoints" / checkpoint))
            best.update({name: scores[name] for name in better})
            progress.best.update(dict.fromkeys(better or ["last"], checkpoint))
        progress.history.append(record)
        self.write_history()
        logger.info(
            "epoch %d, step %d: %s",
            epoch,
            progress.step,
            ", ".join(f"{n} {s:.4f}" for n, s in evaluation.scores.items()),
        )
        return record

    def out_of_patience(self) -> bool:
        """Whether the leading score has not risen for `patience` evaluations."""
        return self.config.patience is not None and self.progress.stale >= self.config.patience

    def mean_losses(self) -> dict[str, float]:
        """Mean of each loss and of the gradient norm since the last evaluation."""
        return {name: total / self.progress.loss_counts[name] for name, total in self.progress.loss_sums.items()}

    def summary(self, seconds: float) -> dict[str, str]:
        """Losses and speed for the progress bar."""
        speed = self.progress.tokens / max(self.progress.seconds + seconds, 1e-9)
        return {name: f"{value:.3f}" for name, value in self.mean_losses().items()} | {"tokens/s": f"{speed:.0f}"}

    def progress_bar(self) -> "tqdm[Any]":
        """Quiet when not a terminal."""
        quiet = None if distributed.is_first() else True
        return tqdm(total=self.total_steps, initial=self.progress.step, unit="step", disable=quiet)

    def save_state(self) -> None:
        """Write everything that the rest of the run depends on."""
        self.check()
        generators = {"cpu": torch.cat(distributed.all_of(torch.get_rng_state()))}  # of all ranks end to end
        if self.runtime.device.type == "cuda":
            generators["cuda"] = torch.cat(distributed.all_of(torch.cuda.get_rng_state()))
        distributed.from_first(lambda: self._write_state(generators))

    def _write_state(self, generators: dict[str, Tensor]) -> None:
        state = {
            "progress": json.dumps(asdict(self.progress)),
            "module": self.trainable.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generators": generators,
        }
        with atomic_file(self.folder / "state" / "state.pt") as temporary:
            torch.save(state, temporary)
        self.drop_leftovers()

    def resume(self) -> None:
        """Take up the saved state, if there is one."""
        state = distributed.from_first(self._read_state)
        if state is None:
            return
        self.progress = Progress(**json.loads(state["progress"]))
        self.trainable.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        states = state["generators"]
        own = {kind: all_.chunk(distributed.ranks())[distributed.rank()].clone() for kind, all_ in states.items()}
        torch.set_rng_state(own["cpu"])
        if self.runtime.device.type == "cuda":
            torch.cuda.set_rng_state(own["cuda"])
        self.write_history()
        logger.info("resuming at step %d of %d", self.progress.step, self.total_steps)

    def _read_state(self) -> dict[str, Any] | None:
        path = self.folder / "state" / "state.pt"
        return torch.load(path, map_location="cpu", weights_only=True) if path.is_file() else None

    def write_history(self) -> None:
        """Write metrics.jsonl whole: a kill leaves neither half a line nor one from a future that is computed anew."""
        lines = "".join(json.dumps(line) + "\n" for line in self.progress.history)
        distributed.from_first(lambda: write_text(self.folder / "metrics.jsonl", lines))

    def drop_leftovers(self) -> None:
        """Remove checkpoints that no saved state refers to any more, and what a kill left half written."""
        for checkpoint in (self.folder / "checkpoints").glob("*"):
            if checkpoint.name not in self.progress.best.values():
                shutil.rmtree(checkpoint)
        for temporary in (self.folder / "state").glob(".*"):
            temporary.unlink()

    def finish(self) -> dict[str, str]:
        """Name the best checkpoints. The state stays until the whole run is marked as done: a kill may come before."""
        self.check()
        distributed.from_first(self._write_best)
        return self.progress.best

    def _write_best(self) -> None:
        write_json(self.folder / "best.json", self.progress.best)
        self.drop_leftovers()


def _not_finite(step: int, update: Update, name: str, value: float) -> str:
    batches = [batch for batch in update if batch.source == name] or update
    rows = "; ".join(f"{batch.source} rows {', '.join(map(str, batch.rows.tolist()))}" for batch in batches)
    what = "gradient norm" if name == "gradient" else f"{name} loss"
    return (
        f"step {step}: the {what} is {value} ({rows}, counted from 0 in the training data); the last saved state and "
        "the checkpoints are good: try a lower learning rate, clipping or --precision fp32"
    )
