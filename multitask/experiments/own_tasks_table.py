"""The table of a tasks file: each task alone, and all tasks together under several schedulers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from minbert.errors import InputError
from multitask.base.choices_with_parameters import parameters
from multitask.base.runs import Weights
from multitask.experiments.table_definitions import OWN_TASKS, Experiment, Node, Preset, Row, experiment, notes_on_start
from multitask.models.prediction_heads import CosineHead, build_heads
from multitask.stages.settings import FinetuneConfig
from multitask.stages.settings_without_training import EnsembleConfig
from multitask.tasks.declarations import chosen_tasks, default_tasks
from multitask.tasks.labels import Labelled
from multitask.tasks.read_examples import load_rows, load_training_rows
from multitask.tasks.task import Task
from multitask.training.schedulers import SCHEDULERS, build_scheduler
from multitask.training.settings import SchedulerConfig


def tasks_preset(tasks_file: Path, start: str, settings: FinetuneConfig, schedulers: Sequence[str]) -> Preset:
    """The table of a tasks file. Reads all training and dev sets, to find their problems before any training.

    Without a size of an epoch in the settings, all rows take that of the smallest training set. Raises InputError for a
    file that is not valid, less than two tasks, or a scheduler that does not exist or is not installed.
    """
    tasks: dict[str, Task] = {}
    sizes = []
    for name, declared in chosen_tasks(tasks_file, settings.tasks or default_tasks(tasks_file)).items():
        tasks[name], rows = load_training_rows(declared)
        load_rows(tasks[name], "dev")
        sizes.append(min(len(rows), settings.train_limit or len(rows)))
    if len(tasks) < 2:
        raise InputError(f"{tasks_file}: a table compares two or more tasks; for one use `multitask finetune`")
    settings = replace(settings, tasks=tuple(tasks), epoch_size=settings.epoch_size or min(sizes))
    table = _table(tasks_file, Weights(start), settings, tasks, _fitting(settings, schedulers))
    return Preset(OWN_TASKS, Weights(start), tasks_file, (table,), notes_on_start(start), predicted=(settings.tasks,))


def _table(
    data: Path, start: Weights, settings: FinetuneConfig, tasks: Mapping[str, Task], schedulers: Sequence[str]
) -> Experiment:
    def finetuned(**changed: Any) -> Node:
        return Node("finetune", replace(settings, new_heads=True, **changed), (start,), data)

    def for_one(task: Task) -> Node:
        """A training without the settings that are for other tasks, or for several."""
        ordinal = tuple(name for name in settings.ordinal if name == task.name)
        compares = isinstance(build_heads([task], 1, settings.heads)[task.name], CosineHead)
        return finetuned(
            tasks=(task.name,),
            ordinal=ordinal,
            patience=settings.patience if task.selects else None,
            calibrate=settings.calibrate and isinstance(task, Labelled),
            matryoshka=settings.matryoshka if compares else (),
            task_weights=None,
            conflicts_every=None,
        )

    alone = {name: for_one(task) for name, task in tasks.items()}
    together = {text: finetuned(scheduler=_scheduler(text)) for text in schedulers}
    united = "Each task alone" if "Each" in tasks else "Each alone"
    return experiment(
        OWN_TASKS,
        "Each task alone and all tasks together",
        _note(settings, tasks, united),
        (
            *((Row(f"alone={task}", f"{task} alone", {"alone": task}), model) for task, model in alone.items()),
            (Row("alone", united), Node("ensemble", EnsembleConfig(), tuple(alone.values()), data)),
            *(
                (Row.at({"scheduler": name}, f"Together, {_scheduler(name)}"), model)
                for name, model in together.items()
            ),
        ),
        reference="alone",
        columns=settings.tasks,
    )


def _note(settings: FinetuneConfig, tasks: Mapping[str, Task], united: str) -> str:
    most = "at most " if settings.patience is not None else ""
    epochs = "one epoch" if settings.epochs == 1 else f"{most}{settings.epochs} epochs"
    left_out = ", ".join(name for name, task in tasks.items() if not task.selects)
    errors = f" Overall leaves out {left_out}, because lower scores are better there; alone, the last epoch is kept."
    return (
        f"Every row trains for {epochs} of {settings.epoch_size:,} examples of each task; sampling by size takes as "
        f'many in all, with more of larger sets. A model of one task is scored on that task only. "{united}", the '
        "reference row, unites these models: each task has an encoder of its own, kept from the epoch that is best for "
        "that task. The differences to it are what one model for all tasks gains or loses."
        + (errors if left_out else "")
    )


def _scheduler(text: str) -> SchedulerConfig:
    """A scheduler from its text. Sums of gradients are means by default, so that all rows make steps of one scale."""
    found = SchedulerConfig.parse(text)
    sums = "reduction" in parameters(SCHEDULERS[found.name])
    return SchedulerConfig.of(found.name, **({"reduction": "mean"} if sums else {}) | dict(found.parameters))


def _fitting(settings: FinetuneConfig, names: Sequence[str]) -> list[str]:
    """The schedulers of these texts, each once. Raises InputError for one that is unknown or not installed."""
    found: dict[SchedulerConfig, str] = {}
    for name in names:
        if name != "all" and (problem := _problem(settings, name)):
            raise InputError(f"--schedulers: {problem}")
        for each in SCHEDULERS if name == "all" else [name]:
            if _problem(settings, each) is None:
                found.setdefault(_scheduler(each), each)
    return list(found.values())


def _problem(settings: FinetuneConfig, name: str) -> InputError | None:
    """Why a scheduler cannot train the tasks."""
    try:
        build_scheduler(replace(settings, scheduler=_scheduler(name)), torch.device("cpu"))
    except InputError as error:
        return error
    return None
