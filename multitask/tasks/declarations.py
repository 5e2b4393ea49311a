"""Read tasks from their declarations: a tasks file (TOML), the course's tasks of a data folder, or a trained model."""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from minbert.errors import InputError
from minbert.files import read_toml
from multitask.data.problems import plain, quote
from multitask.data.tables import HUB, Source
from multitask.runs.records import adapter
from multitask.tasks.kinds import KINDS
from multitask.tasks.task import SPLITS, Task

COURSE = Path(__file__).with_name("course.toml")
MAIN_TASKS = ("sentiment", "paraphrase", "similarity")
"""The course's tasks that a training takes if none are named."""
EXPECTED = {
    "text": "a column, or a list of two columns",
    "label": "a column, or a list of columns",
    "labels": "a list of names or numbers",
    "class_weights": '"balanced" or a list of numbers',
    "range": "a list of two numbers",
    "learned_range": "a list of two numbers",
    "thresholds": "a list of numbers",
    **dict.fromkeys(("weight", "dev_share", "temperature"), "a number"),
    **dict.fromkeys(("quotes", "line_breaks"), "true or false"),
}
"""What the fields of a declaration may be; the others are text."""


def load_tasks(data: str | Path) -> dict[str, Task]:
    """The tasks of a tasks file, or the course's tasks with the files of a data folder; by name.

    Raises:
        InputError: no such file, not TOML, or a declaration that is not valid; the message names the task and field.
    """
    path = Path(data)
    if path.suffix != ".toml" and path.is_file():
        raise InputError(f"{path}: expected the folder of the course's files, or a tasks file whose name ends in .toml")
    declared, root = (path, path.parent) if path.suffix == ".toml" else (COURSE, path)
    try:
        found = read_toml(declared)
    except IsADirectoryError:
        raise InputError(f"{declared}: a folder; expected a tasks file") from None
    tables = found.get("tasks")
    if not isinstance(tables, dict) or not tables or found.keys() != {"tasks"}:
        raise InputError(f"{declared}: expected tables [tasks.NAME] and nothing else")
    try:
        return {name: _declared(name, table, root) for name, table in tables.items()}
    except InputError as error:
        raise InputError(f"{declared}: {error}") from None


def default_tasks(data: str | Path) -> tuple[str, ...]:
    """The tasks that a training takes if none are named: all of a tasks file, or the course's main tasks."""
    return tuple(load_tasks(data)) if Path(data).suffix == ".toml" else MAIN_TASKS


def chosen_tasks(data: str | Path, names: tuple[str, ...]) -> dict[str, Task]:
    """The tasks of these names. Raises InputError, which lists the known names, if there is none of a name."""
    tasks = load_tasks(data)
    for name in names:
        if name not in tasks:
            raise InputError(f'unknown task "{name}"; expected one of: {", ".join(tasks)}')
    return {name: tasks[name] for name in names}


def task_named(data: str | Path, name: str) -> Task:
    """The task of this name. Raises InputError if there is none."""
    return chosen_tasks(data, (name,))[name]


def files_folder(data: Path) -> Path:
    """The folder of further training sentences: the data folder itself, or that of the tasks file."""
    return data.parent if data.suffix == ".toml" else data


def task_of(name: str, declaration: Any) -> Task:
    """A task from what `Task.declaration` gave. Raises InputError if it is not valid."""
    found = declaration.get("kind", "missing") if isinstance(declaration, dict) else "missing"
    if not isinstance(found, str) or found not in KINDS:
        raise InputError(f"tasks.{name}: kind is {plain(str(found))}; expected one of: {', '.join(KINDS)}")
    values = {key: value for key, value in declaration.items() if key != "kind"}
    if isinstance(values.get("text"), str):
        values["text"] = [values["text"]]
    kind = KINDS[found]
    if unknown := [key for key in values if key == "name" or key not in kind.__dataclass_fields__]:
        raise InputError(f"tasks.{name}: {_unknown_field(kind, unknown[0])}")
    try:
        return adapter(kind).validate_json(json.dumps({**values, "name": name}), strict=True)
    except ValidationError as error:
        raise InputError(f"tasks.{name}: {_bad_value(kind, error, values)}") from None
    except TypeError:  # of dates and times, which TOML has
        raise InputError(f"tasks.{name}: has a date or a time; put it into quotes") from None


def _declared(name: str, table: Any, root: Path) -> Task:
    """A task with its files, as a table of a tasks file declares them."""
    values = dict(table) if isinstance(table, dict) else {}
    common = {"file": values.pop("file", None), "split": values.pop("split", None)}
    sources = {split: _source(name, split, values.pop(split, None), common, root) for split in SPLITS}
    task = task_of(name, values)
    if not sources["train"]:
        raise task.problem("train is missing; expected a file, or hf: and the name of a data set")
    return replace(task, train=sources["train"], dev=sources["dev"], test=sources["test"])


def _source(name: str, split: str, value: Any, common: Mapping[str, Any], root: Path) -> Source | None:
    """Where a split's rows come from: a file's name, a table of file and split, or the task's one file."""
    if value is None and common["file"] is not None:
        value = {"file": common["file"], "split": split}
    if value is None:
        return None
    own_split = common["split"] if split == "train" else None
    table = value if isinstance(value, dict) else {"file": value, "split": own_split}
    if not isinstance(table.get("file"), str) or table.keys() - {"file", "split"}:
        raise InputError(f'tasks.{name}: {split} is not a file; expected "FILE" or {{file = "FILE", split = "NAME"}}')
    if not isinstance(table.get("split"), str | None):
        raise InputError(f"tasks.{name}: the split of {split} is not text")
    file = table["file"]
    if not file.isprintable():
        raise InputError(f"tasks.{name}: {split} is {quote(file)}, a name with a control character")
    if file.startswith(HUB):
        local = root / file.removeprefix(HUB)
        if table.get("split") and local.is_dir() and not (local / "dataset_dict.json").is_file():
            # Every split would be the whole data set, so a model would be scored on its training rows.
            raise InputError(f"tasks.{name}: {split} names a split, but {local} is a single data set without splits")
        return Source(f"{HUB}{local}" if local.is_dir() else file, table.get("split") or split)
    return Source(str(root / file), table.get("split"))


def _unknown_field(kind: type[Task], name: str) -> str:
    known = ["kind", "file", "split", *(field.name for field in fields(kind) if field.name != "name")]
    close = get_close_matches(name, known, 1, cutoff=0.7)
    others = [other for other, found in KINDS.items() if name in found.__dataclass_fields__ and name != "name"]
    hint = f"; did you mean {close[0]}?" if close else f"; {', '.join(others)} have it" if others else ""
    return f"{kind.kind} has no field {plain(name)}{hint}"


def _bad_value(kind: type[Task], error: ValidationError, values: Mapping[str, Any]) -> str:
    """The first problem that a validation found."""
    first = error.errors()[0]
    if not first["loc"]:  # of half a surrogate pair, which JSON may have
        return f"not a declaration ({plain(first['msg'])})"
    name = str(first["loc"][0])
    if name not in values:
        return f"{name} is missing"
    expected = EXPECTED.get(name, "text") if name != "metric" else f"one of {', '.join(kind.metrics_of_kind)}"
    return f"{name} = {quote(values[name])}; expected {expected}"
