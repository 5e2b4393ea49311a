"""What stages read of their data, for the keys of runs: declarations of tasks and hashes of files, never parsed rows.

A file or split that does not exist has no hash; the stage that needs it says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from multitask.base.keys import hash_of_file
from multitask.data.messages import checked
from multitask.data.tables import MissingSplitError, Source
from multitask.evaluation.suite_sets import SETS
from multitask.tasks.declarations import chosen_tasks, default_tasks, files_folder, load_tasks
from multitask.tasks.sources import paired_file, text_file
from multitask.tasks.task import Split, Task

SPLITS_BY_USE: dict[str, Split] = {"training": "train", "dev": "dev", "test": "test"}
"""The entries of inputs.json that have hashes of tasks' files, and the splits that these are."""
READING = 3
"""Raise it when some files give other rows or labels than before, or a kind that the course's tasks do not have
computes something else. Their keys stay."""


def declared(tasks: Iterable[Task]) -> list[dict[str, Any]]:
    """The declarations of tasks, in their order, and how their files are read."""
    return [
        {
            "name": task.name,
            **task.declaration(),
            "dialect": task.format.changed(),
            "weight": task.weight,
            "splits": [_format(source) for source in (task.train, task.dev, task.test)],
            **({"held_out": task.dev_share} if task.dev is None else {}),  # no training rows
            **({"reading": READING} if task.prediction_file is None else {}),
        }
        for task in tasks
    ]


def _format(source: Source | None) -> list[Any] | None:
    """A source's split and format; None if it names neither, so that a test file of no format changes no key."""
    if source is None or not (source.split or source.format):
        return None
    return [source.split, source.format and source.format.changed()]


def rows_of(tasks: Iterable[Task], split: Split) -> dict[str, str | None]:
    """Hashes of what the tasks' rows are read from. A task without a development file reads training rows for it."""
    sources = {task.name: task.train if split == "dev" and task.dev is None else getattr(task, split) for task in tasks}
    return {name: _fingerprint(source) if source and source.exists() else None for name, source in sources.items()}


def _fingerprint(source: Source) -> str | None:
    try:
        return source.fingerprint()
    except MissingSplitError:
        return None


def changed_file(inputs: Mapping[str, Any], data: Path, uses: Iterable[str] = SPLITS_BY_USE) -> Source | None:
    """A file of a task whose hash is another one than a run's inputs.json says; None if there is none."""
    tasks = load_tasks(data)
    for use in uses:
        split = SPLITS_BY_USE[use]
        for name, fingerprint in inputs.get(use, {}).items():
            if name in tasks and rows_of([tasks[name]], split)[name] != fingerprint:
                return getattr(tasks[name], split) or tasks[name].train
    return None


def of_finetune(config: Any, data: Path) -> dict[str, Any]:
    """Training and dev rows of the tasks; without dev rows where training rows are held out."""
    tasks = chosen_tasks(data, (*(config.tasks or default_tasks(data)), *config.untrained))
    trained = [task for name, task in tasks.items() if name not in config.untrained]
    return {
        "tasks": declared(tasks.values()),
        "training": rows_of(trained, "train"),
        "dev": rows_of(tasks.values(), "dev") if config.held_out is None else {},
    }


def of_distil(config: Any, data: Path) -> dict[str, Any]:
    """What fine-tuning reads, and the sentences and pairs without labels, which leave out rows of test sets."""
    found, further = of_finetune(config, data), sources(config.teaching.unlabelled, data)
    extended = config.teaching.unlabelled or config.teaching.mine_pairs is not None
    tests = {"test": rows_of(chosen_tasks(data, tuple(found["training"])).values(), "test")} if extended else {}
    return {**found, **tests, "unlabelled": further["training"], "tasks": [*found["tasks"], *further["tasks"]]}


def of_fuse(config: Any, data: Path) -> dict[str, Any]:
    """What fine-tuning reads, and the sources that are trained contrastively."""
    config = config.of_declared(load_tasks(data))
    found = of_finetune(config.finetune, data)
    views = sources((*found["training"], *config.unlabelled), data)
    return {**found, "views": views["training"], "tasks": [*found["tasks"], *views["tasks"]]}


def of_pretrain(config: Any, data: Path) -> dict[str, Any]:
    """The sources, and the similarity dev set if it selects or is probed."""
    needs_dev = config.select == "similarity" or config.probe_held_out is not None
    similarity = [task for name, task in load_tasks(data).items() if needs_dev and name == "similarity"]
    found = sources(config.sources, data)
    return {**found, "tasks": [*found["tasks"], *declared(similarity)], "dev": rows_of(similarity, "dev")}


def of_mlm(config: Any, data: Path) -> dict[str, Any]:
    """The sources."""
    return sources(config.sources, data)


def of_prune(config: Any, data: Path) -> dict[str, Any]:
    """The training rows that scores are computed on."""
    named = {"align_uniform": ("similarity",), "task": (config.task,)}.get(config.score, ())
    tasks = chosen_tasks(data, named).values()
    return {"tasks": declared(tasks), "training": rows_of(tasks, "train")}


def of_evaluate(_config: Any, data: Path) -> dict[str, Any]:
    """The dev sets of all tasks that are declared; which of them a model has is not known before it is loaded."""
    tasks = load_tasks(data).values()
    return {"tasks": declared(tasks), "dev": rows_of(tasks, "dev")}


def of_predictions(config: Any, data: Path) -> dict[str, Any]:
    """The dev and test sets of all tasks that are declared."""
    return {**of_evaluate(config, data), "test": rows_of(load_tasks(data).values(), "test")}


def of_suites(config: Any, data: Path) -> dict[str, Any]:
    """The files of the suites' tasks, as far as they are there."""
    paths = [path for suite in config.suites for entry in SETS[suite] for path in entry.paths(data) if path.is_file()]
    return {"files": {path.relative_to(data).as_posix(): checked(path, hash_of_file) for path in paths}}


def sources(names: Sequence[str], data: Path) -> dict[str, Any]:
    """What sources without labels are read from: a text file, triplets, pairs, or the training rows of a task."""
    tasks, folder = load_tasks(data), files_folder(data)
    read: dict[str, Task] = {}
    hashes: dict[str, str | None] = {}
    for name in names:
        layout = paired_file(name)
        path = folder / layout.file if layout else text_file(name, folder)
        task = "paraphrase" if name == "quora" else name
        if path is not None:
            hashes[name] = checked(path, hash_of_file) if path.is_file() else None
        elif task in tasks:
            read[task] = tasks[task]
            hashes[name] = rows_of([tasks[task]], "train")[task]
    return {"tasks": declared(read.values()), "training": hashes}
