"""Code shared by all training stages: load the start weights, train into an open run."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain, count, islice
from operator import or_
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from minbert.errors import InputError, install_with
from multitask.base import distributed, logger
from multitask.base.device import Runtime
from multitask.base.random_streams import torch_seed
from multitask.base.runs import Weights, locate_model
from multitask.data.contamination import TrainedOn
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.models.sentence_transformers_encoder import beyond_encoder
from multitask.stages.run_stage import OpenRun
from multitask.training.loop import LoopConfig, train
from multitask.training.optimizer import rates_in_use
from multitask.training.settings import OptimizerConfig, SentencesConfig
from multitask.training.source import Trainable


@dataclass(frozen=True)
class StartModel:
    """Start weights, loaded: an encoder with the user's name for it, where it was, and its training data."""

    name: str
    folder: Path
    encoder: SentenceEncoder
    trained_on: TrainedOn = field(default_factory=TrainedOn)

    @classmethod
    def load(
        cls, weights: Weights, config: SentencesConfig, runtime: Runtime, matryoshka: tuple[int, ...] | None = None
    ) -> Self:
        """Seed all generators, for the layers that the stage adds and for its dropout, and load an encoder.

        `matryoshka` are the sizes of embeddings that the stage trains; None leaves those that the encoder names. Warns
        of further modules of sentence-transformers, such as dense layers, which are left out. Raises InputError if the
        checkpoint is missing or damaged, or its embeddings have fewer numbers than the sizes.
        """
        folder = locate_model(weights.name, weights.revision)
        if config.pooling == "auto" and (reason := beyond_encoder(folder)) is not None:
            logger.warning("%s; only the encoder and its pooling are taken", reason)
        torch.manual_seed(config.seed)
        encoder = SentenceEncoder.read(folder, config.pooling, config.max_length).on(runtime)
        if matryoshka is not None:
            if matryoshka and matryoshka[0] > (width := encoder.width):
                raise InputError(f"matryoshka is {matryoshka[0]}; the embeddings of {weights} have {width} numbers")
            encoder.model.config = replace(encoder.model.config, matryoshka_dimensions=matryoshka or None)
        return cls(str(weights), folder, encoder, encoder.trained_on(weights.name))


def trained_on(problem: Trainable, steps: int) -> TrainedOn:
    """The rows that the first steps visit."""
    sentences = problem.sentences
    visited = {name: np.zeros(len(columns[0]), bool) for name, columns in sentences.items()}
    updates = (update for epoch in count() for update in problem.plan(epoch))
    for batch in chain.from_iterable(islice(updates, steps)):
        if batch.source in visited:
            visited[batch.source][batch.rows] = True
    seen = [[column[visited[name]] for column in columns] for name, columns in sentences.items()]
    return reduce(or_, map(TrainedOn.of_rows, seen))


@contextmanager
def tensorboard_log(folder: Path | None) -> Iterator[Callable[[int, dict[str, Any]], None]]:
    """A function that logs a step and its line of metrics.jsonl; without a folder, the function does nothing.

    Raises InputError if the optional package tensorboard is not installed.
    """
    if folder is None:
        yield lambda step, record: None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError(f"--tensorboard needs the package tensorboard; {install_with('tensorboard')}") from None
    with SummaryWriter(str(folder / "tensorboard")) as writer:

        def log(step: int, record: dict[str, Any]) -> None:
            for group in ("training", "scores"):
                for name, value in record[group].items():
                    writer.add_scalar(f"{group}/{name}", value, step)

        yield log


def warn_of_idle_rates(module: nn.Module, config: OptimizerConfig, usual: OptimizerConfig) -> None:
    """Warn of learning rates that were chosen, as they differ from the usual, but that nothing is trained with."""
    parts = {"learning_rate": "of the encoder", "head_learning_rate": "outside the encoder"}
    used = rates_in_use(module, config)
    for name, part in parts.items():
        rate = getattr(config, name)
        if name not in used and rate not in (None, getattr(usual, name)):
            logger.warning("%s is %g and has no effect: no weight %s is trained", name, rate, part)


def train_run(
    run: OpenRun, begin: StartModel, problem: Trainable, config: Any, watch_every: int | None = None, usual: Any = None
) -> None:
    """Train into a run's folder, and store with the model what it and its start weights were trained on.

    The configuration has a seed, epochs, an optimizer and maybe patience or the steps between evaluations. `usual` is
    the stage's default; None: that of its class.

    Raises:
        TrainingError: training diverged.
        Interrupted: a signal stopped the run; it can be resumed.
    """
    if rank := distributed.rank():  # all ranks begin with the same weights, but each draws its own dropout
        torch.manual_seed(torch_seed(config.seed, "dropout of a rank", rank))
    patience, evaluate_every = (getattr(config, name, None) for name in ("patience", "evaluate_every"))
    loop = LoopConfig(config.epochs, config.optimizer, patience, evaluate_every, watch_every)
    warn_of_idle_rates(problem.module, config.optimizer, (usual or type(config)()).optimizer)
    events = run.folder if run.options.tensorboard and distributed.is_first() else None
    with tensorboard_log(events) as log:

        def on_evaluation(step: int, record: dict[str, Any]) -> bool | None:
            log(step, record)
            return run.on_evaluation(step, record)

        def on_save() -> None:
            distributed.from_first(lambda: run.artefact.keep_seconds(time.monotonic() - run.started))

        train(problem, loop, run.folder, run.runtime, run.options.save_every, on_evaluation, on_save)

    def keep() -> None:
        (begin.trained_on | trained_on(problem, run.artefact.history()[-1]["step"])).keep(run.folder)

    distributed.from_first(keep)
