"""Code shared by all training stages: load the start weights, train once into an artefact."""

import logging
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain, count, islice
from operator import or_
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from minbert.download_checkpoint import weights_file
from minbert.errors import InputError
from minbert.files import atomic_folder, sha256_of_file
from minbert.model import BertModel
from minbert.tokenizer import Tokenizer, load_tokenizer
from multitask.data.contamination import Hashes, TrainedOn
from multitask.models.config import Pooling
from multitask.models.model_folder import resolve_pooling, write_pooling
from multitask.models.pooling import PoolingMethod
from multitask.runs.artefact import Artefact, Weights, locate_model
from multitask.runs.run_hash import RunKey
from multitask.runtime import distributed
from multitask.runtime.device import Runtime, make_deterministic, seed_everything, start, use_threads
from multitask.runtime.options import RunOptions
from multitask.runtime.random_streams import torch_seed
from multitask.training.loop import LoopConfig, train
from multitask.training.tensorboard import tensorboard_log
from multitask.training.trainable import Trainable

logger = logging.getLogger("multitask")


@dataclass(frozen=True)
class Start:
    """Start weights, loaded."""

    name: str
    folder: Path
    encoder: BertModel
    tokenizer: Tokenizer
    pooling: PoolingMethod
    trained_on: TrainedOn = field(default_factory=TrainedOn)

    @classmethod
    def load(cls, weights: Weights, pooling: Pooling, seed: int) -> Self:
        """Seed all generators and load an encoder.

        Args:
            weights: a run's folder, or a checkpoint as `BertModel.from_pretrained` takes it.
            pooling: as configured.
            seed: random seed of the layers that the stage adds, and of its dropout.

        Raises:
            InputError: the checkpoint is missing or damaged.
        """
        folder = locate_model(weights.name, weights.revision)
        seed_everything(seed)
        return cls(
            str(weights),
            folder,
            BertModel.from_pretrained(str(folder)),
            load_tokenizer(str(folder)),
            resolve_pooling(pooling, folder),
            TrainedOn.of_folder(folder, weights.name),
        )

    def identity(self) -> dict[str, Any]:
        """Fingerprint of the start weights, as JSON types."""
        weights = {"sha256": sha256_of_file(weights_file(self.folder)), "config": self.encoder.config.values()}
        return {"start": weights, "tokenizer": self.tokenizer.fingerprint(), "pooling": self.pooling}

    def labels(self, data: Path) -> dict[str, str]:
        """Readable names of the inputs; they do not enter the hash."""
        return {"start": self.name, "data": str(data)}

    def save(self, folder: Path, head: Mapping[str, Tensor] | None = None, keep: Sequence[Path] = ()) -> None:
        """Write the encoder's current weights as a checkpoint, with its pooling in sentence-transformers' format.

        Args:
            folder: where to write, atomically.
            head: tensors to write together with the encoder's.
            keep: files to copy into the folder.
        """
        with atomic_folder(folder) as temporary:
            self.encoder.save(temporary, head)
            self.tokenizer.save(temporary)
            write_pooling(temporary, self.pooling, self.encoder.config.hidden_size)
            for path in keep:
                shutil.copyfile(path, temporary / path.name)


def begin_stage(weights: str | Weights, pooling: Pooling, seed: int, options: RunOptions) -> tuple[Start, Runtime]:
    """Prepare this process for training and load the start weights."""
    use_threads(options.threads)
    runtime = replace(start(options.device, options.precision), recompute=options.recompute)
    if runtime.device.type == "cpu":
        runtime = replace(runtime, threads=torch.get_num_threads())
    make_deterministic(runtime)
    distributed.start(runtime.device)
    return Start.load(Weights.of(weights), pooling, seed), runtime


def trained_on(problem: Trainable, steps: int, sentences: Mapping[str, Sequence[Hashes]]) -> TrainedOn:
    """The rows that the first steps visit.

    Args:
        problem: what is trained.
        steps: number of steps.
        sentences: hashes [rows] of every column of sentences, for each source. A source may be left out if it reads
            the rows of another source.
    """
    visited = {name: np.zeros(len(columns[0]), bool) for name, columns in sentences.items()}
    updates = (update for epoch in count() for update in problem.plan(epoch))
    for batch in chain.from_iterable(islice(updates, steps)):
        if batch.source in visited:
            visited[batch.source][batch.rows] = True
    seen = [[column[visited[name]] for column in columns] for name, columns in sentences.items()]
    return reduce(or_, map(TrainedOn.of_rows, seen))


def train_once(
    key: RunKey,
    problem: Trainable,
    loop: LoopConfig,
    seed: int,
    labels: Mapping[str, str],
    before: TrainedOn,
    sentences: Mapping[str, Sequence[Hashes]],
    options: RunOptions,
    runtime: Runtime,
) -> Artefact:
    """Train into the artefact of this key, unless the artefact is already complete.

    Args:
        key: the stage, its resolved configuration, hashes of all its inputs, and the runtime's description.
        problem: what to train.
        loop: epochs, optimizer, evaluations.
        seed: seeds each rank's dropout.
        labels: readable names of the inputs.
        before: the data that the start weights were trained on; it is stored with the model.
        sentences: hashes of the rows, as `trained_on` takes them; those that are visited are stored with the model.
        options: where to write.
        runtime: device and precision.

    Raises:
        TrainingError: training diverged.
        Interrupted: a signal stopped the run; it can be resumed.
    """
    # Results round differently under other torch versions. They are recorded, but not hashed.
    labels = {**labels, "torch": torch.__version__}
    _check_ranks_read_the_same(key.inputs)
    with ExitStack() as stack:
        building = Artefact.building(options.runs, key, options.name, labels, options.keep)
        run = distributed.from_first(lambda: stack.enter_context(building))  # the first rank holds the lock
        if distributed.from_first(lambda: run.done):
            logger.info("already computed")
            return run
        if rank := distributed.rank():  # all ranks begin with the same weights, but each draws its own dropout
            seed_everything(torch_seed(seed, "dropout of a rank", rank))
        events = run.folder if options.tensorboard and distributed.is_first() else None
        with tensorboard_log(events) as on_evaluation:
            train(problem, loop, run.folder, runtime, options.save_every, on_evaluation)

        def finish() -> None:
            (before | trained_on(problem, run.history()[-1]["step"], sentences)).keep(run.folder)
            run.finish()

        distributed.from_first(finish)
    return run


def _check_ranks_read_the_same(identity: Mapping[str, Any]) -> None:
    """Raise InputError on every rank if start weights, data, device or precision differ between ranks."""
    first, *others = distributed.all_of(dict(identity))
    for rank, other in enumerate(others, start=1):
        if different := [name for name in first if other.get(name) != first[name]]:
            raise InputError(f"rank {rank} has other {', '.join(different)} than rank 0; give all ranks the same files")
