"""Run a stage: its key is known before anything is loaded, and a run with this key is computed once."""

import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from minbert.errors import InputError
from multitask.base import distributed, logger
from multitask.base.device import Runtime, busy, choose_threads, prepare_training, resolve_runtime
from multitask.base.keys import RunKey
from multitask.base.options import RunOptions
from multitask.base.runs import Run, Weights, is_run, locate_model
from multitask.models.model_folder import file_hashes, has_heads
from multitask.stages.registry import Stage
from multitask.tasks.declarations import load_tasks
from multitask.training.loop import OnEvaluation

HERE = RunOptions()
Model = str | Path | Weights
Identity = str | Mapping[str, str]
"""What decides a model's bits: the key of its run, or the hash of each file of its folder."""


@dataclass(frozen=True)
class OpenRun:
    """A run while its stage computes it."""

    artefact: Run
    runtime: Runtime
    options: RunOptions
    started: float  # on the monotonic clock, had all its processes computed without a break
    on_evaluation: OnEvaluation = lambda step, record: None  # of a training

    @property
    def folder(self) -> Path:
        """Where the stage writes."""
        return self.artefact.folder


def run_stage(
    stage: Stage,
    models: Model | Sequence[Model],
    data: Any,
    config: Any = None,
    options: RunOptions = HERE,
    on_evaluation: OnEvaluation = lambda step, record: None,
) -> Run:
    """Compute a run, or find it computed.

    Args:
        stage: what to compute.
        models: the model or models that it starts from: runs' folders, or checkpoints as `BertModel.from_pretrained`
            takes them.
        data: a tasks file, or the folder of the data.
        config: of the stage; None: its defaults.
        options: device, precision, and where to write.
        on_evaluation: called at each evaluation of a training that is not computed yet.

    Raises:
        InputError: a bad checkpoint, file or setting. A run that was refused before it began leaves no folder.
        TrainingError: training diverged.
        Interrupted: a signal stopped the run; the same call resumes it.
        Stopped: `on_evaluation` stopped the training; the same call resumes it.
    """
    if not isinstance(data, str | Path):
        raise InputError(f"data is a {type(data).__name__}; expected the path of a tasks file or data folder")
    named = [models] if isinstance(models, str | Path | Weights) else models
    weights, data, config = [Weights.of(model) for model in named], Path(data), config or stage.config()
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, torch.get_num_threads())  # later calls have their own
        if (asked := runtime_of(stage, options)).fast and asked.device.type == "cuda":
            stack.callback(torch.set_float32_matmul_precision, "highest")
        runtime = prepare_process(stage, options)
        key = key_of_models(stage, weights, data, config, runtime)
        _check_ranks_read_the_same(key.inputs)
        threads = choose_threads(options.threads) if "threads" in key.inputs else None
        labels = _labels(stage, weights, data)
        building = Run.building(options.runs, key, options.name, labels, threads)
        artefact = distributed.from_first(lambda: stack.enter_context(building))  # the first rank holds the lock
        if distributed.from_first(lambda: artefact.done):
            logger.info("already computed")
            return artefact
        if threads is not None:
            own = distributed.from_first(lambda: artefact.threads) or threads
            _tell_of_threads(own, threads, artefact.folder)
            torch.set_num_threads(own)
        started = time.monotonic() - distributed.from_first(lambda: artefact.seconds_before)
        stage.functions.compute(weights, data, key.config, OpenRun(artefact, runtime, options, started, on_evaluation))
        distributed.from_first(lambda: artefact.finish(time.monotonic() - started))
    return artefact


def prepare_process(stage: Stage, options: RunOptions) -> Runtime:
    """Set threads and determinism for a run of a stage, and join the other ranks."""
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    runtime = runtime_of(stage, options)
    if "threads" in stage.computing:
        prepare_training(runtime)
    elif runtime.device.type == "cuda":
        torch.set_float32_matmul_precision("highest")  # as its key means it, whatever the caller has set
    if stage.distributed:
        distributed.join_ranks(runtime.device)
    return runtime


def runtime_of(stage: Stage, options: RunOptions) -> Runtime:
    """Device and precision of a run of a stage. Raises InputError if there is no such device."""
    runtime = resolve_runtime(options.device, options.precision if "precision" in stage.computing else "fp32")
    return replace(runtime, recompute=options.recompute, fast=options.fast and "kernels" in stage.computing)


def _tell_of_threads(own: int, asked: int, folder: Path) -> None:
    """Say what is not as asked, or slow, about the threads of a run."""
    change = f"another number needs --threads and a new beginning: delete {folder}, which loses its steps"
    if own != asked:
        logger.info("threads: %d, as the run began, so that it ends with the same bits; %s", own, change)
    elif (load := busy()) and own > 1:
        logger.warning("%s, where one thread is faster than %d; %s", load, own, change)
    elif load and torch.get_num_threads() > 1:
        logger.info("%s, where one thread is faster, so the run has one; --threads sets their number", load)


def identity_of(model: Weights) -> Identity:
    """What decides the bits of a model that exists. Raises InputError if it is missing, unfinished or damaged."""
    if not is_run(model.name):
        return file_hashes(locate_model(model.name, model.revision))
    run = Run(Path(model.name))
    run.require_complete()
    return run.digest


def key_of_models(stage: Stage, models: Sequence[Weights], data: Path, config: Any, runtime: Runtime) -> RunKey:
    """The key of a run that starts from models that exist; see `key_of`."""
    found = key_of(stage, [identity_of(model) for model in models], data, config, runtime)
    if not getattr(config, "keeps_heads", False) or not has_heads(locate_model(models[0].name, models[0].revision)):
        return found
    return replace(found, inputs={**found.inputs, "heads": "of the start"})


def key_of(stage: Stage, parents: Sequence[Identity], data: Path, config: Any, runtime: Runtime) -> RunKey:
    """Everything that decides the bits of a run. Reads and hashes files, but loads no model and parses no rows.

    Parents are the models that it starts from; a planned run is its key. No heads of theirs go on. The key's
    configuration has the declared tasks in place of defaults that name others.
    """
    if of_declared := getattr(config, "of_declared", None):
        config = of_declared(load_tasks(data))
    reads = getattr(stage.functions, "reads", None)
    read = reads(config, data) if reads else {}
    computing = {name: value for name, value in runtime.describe().items() if name in stage.computing}
    if "threads" in stage.computing and runtime.device.type == "cpu":
        computing["threads"] = "1"  # whatever their number, so that a run is found; the published ones have one
    return RunKey(stage.name, stage.version, config, {"parents": list(parents), **read, **computing})


def _labels(stage: Stage, models: Sequence[Weights], data: Path) -> dict[str, str]:
    """Readable names of the inputs. Results round differently under other torch versions, which are not hashed."""
    names = [model.option for model in stage.inputs] or ["members"]
    named = dict(zip(names, map(str, models), strict=False))
    if not stage.inputs or stage.inputs[-1].several:
        named[names[-1]] = shlex.join(map(str, models[len(names) - 1 :]))
    return {**named, "data": str(data), "torch": torch.__version__}


def _check_ranks_read_the_same(inputs: Mapping[str, Any]) -> None:
    """Raise InputError on every rank if start weights, data, device or precision differ between ranks."""
    first, *others = distributed.all_of(dict(inputs))
    for rank, other in enumerate(others, start=1):
        if different := [name for name in first if other.get(name) != first[name]]:
            raise InputError(f"rank {rank} has other {', '.join(different)} than rank 0; give all ranks the same files")
