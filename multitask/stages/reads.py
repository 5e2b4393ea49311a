"""What stages read of their data, for the keys of runs: declarations of tasks and hashes of files, never parsed rows.

A file or split that does not exist has no hash; the stage that needs it says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from multitask.base.keys import hash_of_file
from multitask.data.messages import read_or_refuse
from multitask.data.tables import MissingSplitError, RowsFrom
from multitask.tasks.declarations import COURSE, load_tasks
from multitask.tasks.labels import Labelled
from multitask.tasks.sources import TaskTexts, source_named
from multitask.tasks.task import Split, Task

SPLITS_BY_USE: dict[str, Split] = {"training": "train", "dev": "dev", "test": "test"}
"""The entries of inputs.json that have hashes of tasks' files, and the splits that these are."""
READING = 8
"""Raise it when some files give other rows or labels than before, or what the course's tasks do not have computes
something else. Their keys stay."""


def declared(tasks: Iterable[Task]) -> list[dict[str, Any]]:
    """The declarations of tasks, in their order, and how their files are read."""
    course = [(_declared(task), _labels_as_written(task)) for task in load_tasks(COURSE).values()]
    return [
        own if (own, written) in course else {**own, "reading": READING, **written}
        for own, written in ((_declared(task), _labels_as_written(task)) for task in tasks)
    ]


def _declared(task: Task) -> dict[str, Any]:
    return {
        "name": task.name,
        **task.declaration(),
        "dialect": task.files.format.changed(),
        "weight": task.weight,
        "splits": [_format(source) for source in (task.files.train, task.files.dev, task.files.test)],
        **({"held_out": task.files.dev_share} if task.files.dev is None else {}),  # no training rows
    }


def _labels_as_written(task: Task) -> dict[str, Any]:
    """What decides how models of a task read and show labels, besides its declaration."""
    numbers = {"numbers": [*task.numbers.values()]} if isinstance(task, Labelled) and task.numbers else {}
    return {"shown": [*getattr(task, "shown", ())], **numbers}


def _format(source: RowsFrom | None) -> list[Any] | None:
    """A source's split and format. None if it has neither, so that keys without them stay as they were."""
    if source is None or not (source.split or source.format):
        return None
    return [source.split, source.format and source.format.changed()]


def rows_of(tasks: Iterable[Task], split: Split) -> dict[str, str | None]:
    """Hashes of what the tasks' rows are read from. A task without a development file reads training rows for it."""
    sources = {task.name: _source_of(task, split) for task in tasks}
    return {name: _fingerprint(source) if source and source.exists() else None for name, source in sources.items()}


def _source_of(task: Task, split: Split) -> RowsFrom | None:
    return task.files.splits.get("train" if split == "dev" and task.files.dev is None else split)


def _fingerprint(source: RowsFrom) -> str | None:
    try:
        return source.fingerprint()
    except MissingSplitError:
        return None


def changed_file(inputs: Mapping[str, Any], data: Path, uses: Iterable[str] = SPLITS_BY_USE) -> RowsFrom | None:
    """A file of a task whose hash is another one than a run's inputs.json says; None if there is none."""
    tasks = load_tasks(data)
    for use in uses:
        split = SPLITS_BY_USE[use]
        for name, fingerprint in inputs.get(use, {}).items():
            if name in tasks and rows_of([tasks[name]], split)[name] != fingerprint:
                return _source_of(tasks[name], split) or tasks[name].files.train
    return None


def sources_of(names: Sequence[str], data: Path, option: str = "--sources") -> dict[str, Any]:
    """What sources of sentences are read from: files, or the training rows of tasks. Errors name the `option`."""
    read: dict[str, Task] = {}
    hashes: dict[str, str | None] = {}
    for source in (source_named(name, data, option) for name in names):
        if isinstance(source, TaskTexts):
            read[source.task.name] = source.task
            hashes[source.name] = rows_of([source.task], "train")[source.task.name]
        else:
            hashes[source.name] = read_or_refuse(source.path, hash_of_file) if source.path.is_file() else None
    return {"tasks": declared(read.values()), "training": hashes}
