"""Read tasks from their declarations: a tasks file (TOML), the course's tasks of a data folder, or a trained model."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from minbert.errors import InputError, did_you_mean
from minbert.files import read_toml
from minbert.settings import as_json, read_as
from multitask.data.messages import listed, plain, quote
from multitask.data.tables import HUB, LABEL_SETTINGS, TYPED, Format, RowsFrom
from multitask.tasks import MAIN_TASKS
from multitask.tasks.kinds import KINDS, Cosine, MultiLabel
from multitask.tasks.labels import Labelled
from multitask.tasks.task import SPLITS, Split, Task, TaskFiles

COURSE = Path(__file__).with_name("course.toml")
FOUND_BY_TRAINING = ("learned_range", "temperature", "thresholds")
"""Fields that only stored models have."""
Part = TypeVar("Part")


def load_tasks(data: str | Path) -> dict[str, Task]:
    """The tasks of a tasks file, or the course's tasks with the files of a data folder; by name.

    Raises:
        InputError: no such file, not TOML, or a declaration that is not valid; the message names the task and field.
    """
    path = Path(data)
    if path.suffix != ".toml" and path.is_file():
        raise InputError(f"{path}: expected the folder of the course's files, or a tasks file whose name ends in .toml")
    declared, root = (path, path.parent) if path.suffix == ".toml" else (COURSE, path)
    found = read_toml(declared)
    tables, files = found.get("tasks"), found.get("files", {})
    if others := [key for key in found if key not in ("tasks", "files")]:
        raise InputError(f"{declared}: {plain(others[0])}: expected tables [tasks.NAME], perhaps [files.NAME]")
    if not isinstance(tables, dict) or not tables or not isinstance(files, dict):
        raise InputError(f"{declared}: expected tables [tasks.NAME], perhaps [files.NAME]")
    try:
        if no_tables := [file for file, table in files.items() if not isinstance(table, dict)]:
            raise InputError(f"files.{no_tables[0]}: expected a table [files.NAME]")
        formats = {str(root / file): (read_as(Format, table, f"files.{file}"), table) for file, table in files.items()}
        for file, table in files.items():
            _refuse_line_breaks(f"files.{file}", table)
        tasks = {name: _declared(name, table, root, formats) for name, table in tables.items()}
    except InputError as error:
        raise InputError(f"{declared}: {error}") from None
    writers: dict[str, str] = {}
    for name, task in tasks.items():
        if (other := writers.setdefault(stem := task.prediction_file or name, name)) != name:
            shared = f"{stem}-dev-output.csv would have the predictions of {other}, too; set another prediction_file"
            raise InputError(f"{declared}: tasks.{name}: {shared}")
    read = {source.file for task in tasks.values() for source in task.files.splits.values()}
    if unread := [file for file in files if str(root / file) not in read]:
        hub = unread[0].startswith(HUB)
        why = "a hub data set is no file; set this in its [tasks.NAME]" if hub else "no task reads it"
        raise InputError(f"{declared}: files.{plain(unread[0])}: {why}")
    return tasks


def default_tasks(data: str | Path) -> tuple[str, ...]:
    """The tasks that a training takes if none are named: all of a tasks file, or the course's main tasks."""
    return tuple(load_tasks(data)) if Path(data).suffix == ".toml" else MAIN_TASKS


def chosen_tasks(data: str | Path, names: tuple[str, ...]) -> dict[str, Task]:
    """The tasks of these names. Raises InputError, which lists the known names, if there is none of a name."""
    tasks = load_tasks(data)
    for name in names:
        if name not in tasks:
            raise InputError(f'{data}: no task "{name}", only {", ".join(tasks)}{did_you_mean(name, tasks)}')
    return {name: tasks[name] for name in names}


def task_named(data: str | Path, name: str) -> Task:
    """The task of this name. Raises InputError if there is none."""
    return chosen_tasks(data, (name,))[name]


def similarity_task(data: Path) -> Cosine:
    """The first task of the kind `cosine`: encoders without heads are measured on it. Raises InputError without one."""
    if (found := next((task for task in load_tasks(data).values() if isinstance(task, Cosine)), None)) is None:
        raise InputError(f"{data}: has no task of the kind cosine, whose pairs have similarities")
    return found


def files_folder(data: Path) -> Path:
    """The folder of further training sentences: the data folder, or the folder of the tasks file."""
    return data.parent if data.suffix == ".toml" else data


def task_of(name: str, declaration: Any) -> Task:
    """A task from what `Task.declaration` gave. Raises InputError if it is not valid."""
    values = dict(declaration) if isinstance(declaration, dict) else {}
    kind = KINDS.get(str(found := values.pop("kind", "missing")))
    if kind is None:
        raise InputError(f"tasks.{name}: kind is {plain(str(found))}; expected one of: {', '.join(KINDS)}")
    if isinstance(values.get("text"), str):
        values["text"] = [values["text"]]
    parts: dict[Any, list[str]] = {part: [field.name for field in fields(part)] for part in (TaskFiles, kind, Format)}
    inner = ("name", "format", "files", "form")
    known = [key for keys in parts.values() for key in keys if key not in inner]
    if unknown := [key for key in values if key not in known]:
        kinds = {} if unknown[0] in inner else KINDS
        owners = [other for other, of_kind in kinds.items() if unknown[0] in {field.name for field in fields(of_kind)}]
        expected = ["kind", "file", "split", *(key for key in known if key not in FOUND_BY_TRAINING)]
        hint = f", only {listed(owners)}" if owners else did_you_mean(unknown[0], expected)
        hint = hint or f"; it has {', '.join(expected)}"
        raise InputError(f"tasks.{name}: {found} has no field {plain(unknown[0])}{hint}")

    def read(part: type[Part], **more: Any) -> Part:
        own = {key: value for key, value in values.items() if key in parts[part]}
        return read_as(part, own | more, f"tasks.{name}")

    files = replace(read(TaskFiles), format=read(Format))
    return read(kind, name=name, files=as_json(files))


def stored_task(name: str, kept: Any) -> Task:
    """A task from what a model keeps of it (`Task.kept`). Raises InputError if it is not valid.

    Version 0.1 keeps None of the course's tasks, and version 0.3 not what their labels mean.
    """
    if kept is None:
        return task_named(COURSE, name)
    values = dict(kept) if isinstance(kept, dict) else {}
    if (form := values.pop("form", "")) not in ("", *TYPED):
        raise InputError(f"tasks.{name}: form is {quote(form)}; expected one of: {', '.join(TYPED)}")
    task = task_of(name, values)
    task = replace(task, files=replace(task.files, form=form))
    if isinstance(task, Labelled) and task.prediction_file is not None and not task.shown:
        own = load_tasks(COURSE).get(name)
        if isinstance(own, Labelled) and (own.prediction_file, own.names) == (task.prediction_file, task.names):
            return replace(task, shown=own.shown)
    return task


FileFormats = Mapping[str, tuple[Format, dict[str, Any]]]
"""By path, the formats of the files that have tables of their own, and these tables."""


def _declared(name: str, table: Any, root: Path, formats: FileFormats) -> Task:
    """A task with its files, as a table of a tasks file declares them."""
    values = dict(table) if isinstance(table, dict) else {}
    file, own_split = values.pop("file", None), values.pop("split", None)
    if own_split is not None and not isinstance(values.get("train"), str):
        expected = 'name it in train = {file = "FILE", split = "NAME"}'
        raise InputError(f'tasks.{name}: split is for train = "FILE"; {expected}')
    for split in SPLITS:
        source = values.get(split)
        if isinstance(source, dict) and "format" in source:
            raise InputError(f'tasks.{name}: {split} has a format; declare it in a table [files."FILE"]')
        if source is None and file is not None:
            values[split] = {"file": file, "split": split}
        elif isinstance(source, str):
            values[split] = {"file": source, "split": own_split if split == "train" else None}
        elif not isinstance(source, dict | None):
            expected = 'expected "FILE" or {file = "FILE", split = "NAME"}'
            raise InputError(f"tasks.{name}: {split} is {quote(source)}; {expected}")
    task = task_of(name, values)
    if task.files.train is None:
        raise task.problem("train is missing; expected a file, or hf: and the name of a data set")
    if labels := sorted({*task.files.text_columns}.intersection(task.files.label_columns)):
        raise task.problem(f"text reads {labels[0]}, a column of labels, which models would only copy; leave it out")
    located: dict[str, Any] = {split: _located(task, split, root, formats) for split in task.files.splits}
    task = replace(task, files=replace(task.files, **located))
    _refuse_without_effect(task, values)
    if isinstance(task, Labelled):
        _refuse_unknown_labels(task)
    return task


def _refuse_unknown_labels(task: Labelled) -> None:
    """Raise InputError if an alias means none of the declared labels."""
    for alias, meant in task.aliases.items():
        if task.label_named(name := str(meant)) is None:
            expected = f"expected one of {listed(task.names)}{did_you_mean(name, task.names)}"
            raise task.problem(f"aliases have {quote(alias)} = {quote(name)}; {expected}")


def _refuse_without_effect(task: Task, values: Mapping[str, Any]) -> None:
    """Raise InputError if the values that declare a task have one that nothing reads."""
    if "dev_share" in values and task.files.dev is not None:
        raise task.problem("dev_share has no effect with a dev set; leave one out (`file` declares both sets)")
    _refuse_line_breaks(f"tasks.{task.name}", values)
    if isinstance(task, MultiLabel) and not isinstance(task.files.label, str):
        for name in ("aliases", "label_separator"):
            if name in values:
                raise task.problem(f"{name} has no effect if label is a list of columns with 0 or 1; leave it out")
    for name in FOUND_BY_TRAINING:
        if name in values:
            raise task.problem(f"{name} is found by training, and only stored models have it; leave it out")
    idle = [name for name in task.files.format.changed() if name not in LABEL_SETTINGS]
    if idle and all(source.format for source in task.files.splits.values()):
        raise task.problem(f"{listed(idle)}: every file has a table [files] of its own; set this there")


def _refuse_line_breaks(place: str, values: Mapping[str, Any]) -> None:
    """Raise InputError if fields that are never quoted may contain line breaks."""
    if values.get("line_breaks") and values.get("quotes") is False:
        raise InputError(f"{place}: line_breaks has no effect with quotes = false; leave it out")


def _located(task: Task, split: Split, root: Path, formats: FileFormats) -> RowsFrom:
    """Where a split's rows come from, with its path below the tasks file's folder.

    `decimal` and `missing` of the task also hold for a file with a table of its own that does not name them.
    """
    source = task.source(split)
    if not source.file.startswith(HUB):
        path = str(root / source.file)
        if path not in formats:
            return RowsFrom(path, source.split)
        own, table = formats[path]
        of_task: dict[str, Any] = {n: getattr(task.files.format, n) for n in LABEL_SETTINGS if n not in table}
        return RowsFrom(path, source.split, replace(own, **of_task))
    local = root / source.file.removeprefix(HUB)
    if source.split and local.is_dir() and not (local / "dataset_dict.json").is_file():
        # Every split would be the whole data set, so a model would be scored on its training rows.
        raise task.problem(f"{split} names a split, but {local} is a single data set without splits")
    return RowsFrom(f"{HUB}{local}" if local.is_dir() else source.file, source.split or split)
