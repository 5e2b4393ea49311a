"""The files of a training run: the best checkpoints, the metrics, and the state from which a killed run resumes.

    metrics.jsonl           a line for each evaluation
    checkpoints/step-N/     the models that are best on some score
    best.json               the best checkpoint of each score, written at the end
    state/state.pt          everything that the rest of the run depends on, and a hash of it at the end of the file;
                            removed when the run is complete

Only the first rank writes.
"""

import io
import json
import math
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from minbert.checkpoint import not_finite
from minbert.files import atomic_file, before_checksum, json_text, sha256_of_file, write_json, write_text
from multitask.base import distributed, logger
from multitask.base.device import generator_states, restore_generators
from multitask.base.errors import TrainingError
from multitask.base.runs import STATE
from multitask.training.optimizer import Optimizer
from multitask.training.source import Trainable


@dataclass
class Progress:
    """How far a run is: everything in its state except tensors."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    stale: int = 0  # evaluations since the first score last rose
    scores: dict[str, float] = field(default_factory=dict)  # best so far
    best: dict[str, str] = field(default_factory=dict)  # score -> checkpoint
    history: list[dict[str, Any]] = field(default_factory=list)  # lines of metrics.jsonl
    at_start: dict[str, dict[str, float]] = field(default_factory=dict)  # metrics of the start weights' embeddings
    loss_sums: dict[str, float] = field(default_factory=dict)  # since the last evaluation
    loss_counts: dict[str, int] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)  # which of these scalars are losses
    largest_gradient: float = 0.0  # norm


def checkpoint_name(step: int) -> str:
    """The folder of the model after a step."""
    return f"step-{step:07d}"


class RunState:
    """The state of a training run, in memory and in the run's folder.

    It has the module, the optimizer with its average of the weights, and the random generators of CPU and device.
    """

    def __init__(self, folder: Path, trainable: Trainable, optimizer: Optimizer, device: torch.device) -> None:
        self.folder = folder
        self.trainable = trainable
        self.optimizer = optimizer
        self.device = device
        self.path = folder / STATE
        self.progress = Progress()
        self.saved_best: frozenset[str] = frozenset()  # the checkpoints that the saved state names

    def check_weights(self) -> None:
        """Raise TrainingError if a weight is not finite: the last step may have spoilt what no loss has shown yet."""
        state = self.trainable.module.state_dict()
        tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}  # schedulers keep others
        if (name := not_finite(tensors)) is not None:
            raise TrainingError(
                f"step {self.progress.step}: the weights {name} are NaN or infinite after the step; the last saved "
                "state and the checkpoints are good: try a lower learning rate, clipping or --precision fp32"
            )

    def save(self) -> None:
        """Write everything that the rest of the run depends on. Raises TrainingError if a weight is not finite."""
        self.check_weights()
        # Of all ranks, in their order.
        own = generator_states(self.device)
        generators = {kind: torch.cat(distributed.all_of(state)) for kind, state in own.items()}
        distributed.from_first(lambda: self._write(generators))

    def _write(self, generators: dict[str, Tensor]) -> None:
        state = {
            "progress": json.dumps(asdict(self.progress)),
            "module": self.trainable.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generators": generators,
        }
        with atomic_file(self.path) as temporary:
            with temporary.open("wb") as file:  # torch reports a full disk only of files that Python has opened
                try:
                    torch.save(state, file)
                except RuntimeError as error:  # torch fails to end the file, and hides why it could not be written
                    raise error.__context__ if isinstance(error.__context__, OSError) else error from None
            digest = sha256_of_file(temporary)
            with temporary.open("ab") as file:
                file.write(digest.encode())
        self.saved_best = frozenset(self.progress.best.values())
        self._drop_leftovers()

    def resume(self) -> bool:
        """Load the saved state; returns whether there is one. A damaged one is put aside, with a warning."""
        state = distributed.from_first(self._read)
        if state is None:
            return False
        self.progress = Progress(**json.loads(state["progress"]))
        self.saved_best = frozenset(self.progress.best.values())
        self.trainable.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        states = state["generators"]
        own = {kind: all_.chunk(distributed.ranks())[distributed.rank()].clone() for kind, all_ in states.items()}
        restore_generators(own)
        self._write_history()  # drops lines that are newer than the state
        logger.info("resuming at step %d", self.progress.step)
        return True

    def _read(self) -> dict[str, Any] | None:
        if not self.path.is_file():
            return None
        if (state := before_checksum(self.path)) is not None:
            return torch.load(io.BytesIO(state), map_location="cpu", weights_only=True)
        aside = self.path.with_name("damaged-state.pt")
        self.path.replace(aside)
        logger.warning("%s: damaged; put aside as %s, and training begins again", self.path, aside.name)
        return None

    def keep_if_best(self, scores: dict[str, float]) -> None:
        """Keep the model as a checkpoint if any score is a new best; without scores, keep it as the last one."""
        # An undefined score (the correlation of a constant) counts as the worst. Of models without another, the last is
        # kept.
        progress, first = self.progress, next(iter(scores), None)
        ranked = {name: -math.inf if math.isnan(score) else score for name, score in scores.items()}
        best = {name: progress.scores.get(name, -math.inf) for name in scores}
        rises = first is not None and (first not in progress.scores or ranked[first] > best[first])
        progress.stale = 0 if rises else progress.stale + 1
        better = [name for name, score in ranked.items() if score > best[name] or score == -math.inf == best[name]]
        if better or not scores:
            checkpoint = checkpoint_name(progress.step)
            distributed.from_first(lambda: self.trainable.save(self.folder / "checkpoints" / checkpoint))
            progress.scores.update({name: ranked[name] for name in better})
            progress.best.update(dict.fromkeys(better or ["last"], checkpoint))
            distributed.from_first(self._drop_leftovers)

    def record(self, line: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        self.progress.history.append(line)
        self._write_history()

    def _write_history(self) -> None:
        """Write metrics.jsonl whole, so that a kill cannot leave half a line."""
        lines = "".join(json_text(line) + "\n" for line in self.progress.history)
        distributed.from_first(lambda: write_text(self.folder / "metrics.jsonl", lines))

    def finish(self) -> dict[str, str]:
        """Write best.json and return it. The state stays until the stage has marked the whole run as done."""
        distributed.from_first(self._write_best)
        return self.progress.best

    def _write_best(self) -> None:
        write_json(self.folder / "best.json", self.progress.best)
        self.saved_best = frozenset()
        self._drop_leftovers()

    def _drop_leftovers(self) -> None:
        """Remove checkpoints that are best on no score, now or in the saved state, and files that a kill left."""
        for checkpoint in (self.folder / "checkpoints").glob("*"):
            if checkpoint.is_file():  # such as .DS_Store of a Mac
                checkpoint.unlink()
            elif checkpoint.name not in self.saved_best.union(self.progress.best.values()):
                shutil.rmtree(checkpoint)
        for temporary in (self.folder / "state").glob(".*"):
            temporary.unlink()
