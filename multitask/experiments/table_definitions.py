"""Tables: rows with keys and published scores, the recipes of their models, presets, and the record of what one ran."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from minbert.errors import InputError
from minbert.files import read_text, write_json
from minbert.settings import adapter, read_as
from multitask.base.keys import FORMAT_VERSION
from multitask.base.runs import Run, Weights, check_names
from multitask.stages.registry import stage_named
from multitask.stages.settings_without_training import EvaluateConfig
from multitask.tasks import MAIN_TASKS

TableKind = Literal["table", "curves", "simulations"]
PointValue = str | int | float | bool | None | tuple[str, ...]
Point = Mapping[str, PointValue]  # the parameters that tell a row from the others, by name
OVERALL = "overall"
OWN_TASKS: Final = "tasks"  # the table of a tasks file, and the preset that runs it


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    key: str  # identifies the row within its table; stable, short, ASCII
    label: str  # its name for readers; nothing else depends on it
    point: Point = field(default_factory=dict)  # its parameters; empty if rows do not differ by parameters
    # the paper's scores by column; columns without a score are missing
    published: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def at(cls, point: Point, label: str) -> "Row":
        """A row whose key is made from its point."""
        return cls(row_key(point), label, point)


def row_key(point: Point) -> str:
    """The key of a row that its point identifies: `margin=0.3`, or `loss=vicreg,components=weight+ratio`."""
    return ",".join(f"{name}={_text(value)}" for name, value in point.items())


def _text(value: PointValue) -> str:
    if isinstance(value, tuple):
        return "+".join(value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


@dataclass(frozen=True)
class StudyTable:
    """Rows that are compared with each other.

    Raises ValueError if two rows have the same key or label, or no row has the reference's key.
    """

    key: str  # how the command line calls it: 1 to 10 for the report's tables, else a name
    title: str
    note: str  # what a reader must know about the rows
    rows: tuple[Row, ...]  # with different keys and different labels
    reference: str | None = None  # key of the row that the others are compared with
    columns: tuple[str, ...] = MAIN_TASKS  # the tasks that rows are scored on
    # means of columns by name. Several columns without groups have one mean, `overall`
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # metrics of tasks in place of the tasks' own: the first is compared, others are shown, too
    metrics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # shown as a table or as curves over training. Simulations have no scores; the study's page shows them
    kind: TableKind = "table"

    def __post_init__(self) -> None:
        keys, labels = [row.key for row in self.rows], [row.label for row in self.rows]
        if len(set(keys)) < len(keys) or len(set(labels)) < len(labels):
            raise ValueError(f"table {self.key}: two rows have the same key or label")
        if self.reference is not None and self.reference not in keys:
            raise ValueError(f"table {self.key}: no row has the key {self.reference}; there are {', '.join(keys)}")

    def label(self, key: str) -> str:
        """The label of a row, or its key if the table lacks the row."""
        return next((row.label for row in self.rows if row.key == key), key)

    @property
    def name(self) -> str:
        """For files and links: `table-3`, `figure2`."""
        return f"table-{self.key}" if self.key.isdigit() else self.key

    @property
    def numbered_title(self) -> str:
        """The title with the report's number of the table or figure, if it has one."""
        numbered = re.fullmatch(r"(figure)?(\d+)", self.key)
        return f"{(numbered[1] or 'table').capitalize()} {numbered[2]}: {self.title}" if numbered else self.title

    @cached_property
    def score_columns(self) -> tuple[str, ...]:
        """All columns with scores: means first, then tasks."""
        return (*(tuple(self.groups) or (OVERALL,)), *self.columns) if len(self.columns) > 1 else self.columns

    def tasks(self, column: str) -> tuple[str, ...]:
        """The tasks of which a column is the mean."""
        return {OVERALL: self.columns, **self.groups}.get(column, (column,))


@dataclass(frozen=True)
class Node:
    """A stage with all that it computes from."""

    stage: str
    config: Any
    parents: tuple["Node | Weights", ...]  # the models that it starts from, in the order of the stage's function
    data: Path

    def seeded(self, seed: int) -> "Node":
        """The same chain with this seed in every stage that a seed changes."""
        parents = tuple(parent.seeded(seed) if isinstance(parent, Node) else parent for parent in self.parents)
        with_seed = stage_named(self.stage).with_seed
        return replace(self, config=with_seed(self.config, seed) if with_seed else self.config, parents=parents)

    @property
    def needs(self) -> tuple["Node", ...]:
        """The stages that it starts from."""
        return tuple(parent for parent in self.parents if isinstance(parent, Node))

    def chain(self) -> Iterator["Node"]:
        """All stages of the recipe, each once, parents before children, itself last."""
        yield from dict.fromkeys(node for parent in self.needs for node in parent.chain())
        yield self


def evaluation(model: Node) -> Node:
    """The stage that scores a model on the dev sets: the model's own stage if that writes scores."""
    return model if stage_named(model.stage).scores else Node("evaluate", EvaluateConfig(), (model,), model.data)


GridLine = tuple[Row, Node | None]
"""A row and the recipe of its model. A row that only the report can have has no recipe."""


@dataclass(frozen=True)
class Experiment:
    """A table and how its rows are made."""

    table: StudyTable
    models: Mapping[str, Node]  # the recipe of each row's model, by the row's key and in the table's order
    evaluation: Callable[[Node], Node] = evaluation  # from a row's model to the stage with its scores
    on_request: bool = False  # run only if it is named


def experiment(
    key: str,
    title: str,
    note: str,
    lines: Iterable[GridLine],
    *,
    reference: str | None = None,
    columns: Sequence[str] = MAIN_TASKS,
    metrics: Mapping[str, Sequence[str]] | None = None,
    kind: TableKind = "table",
    on_request: bool = False,
) -> Experiment:
    """A table scored on the dev sets, from its rows and their recipes; see `StudyTable` and `Experiment`."""
    lines = tuple(lines)
    rows = tuple(row for row, _ in lines)
    of_tasks = {task: tuple(names) for task, names in (metrics or {}).items()}  # TOML has lists
    table = StudyTable(key, title, note, rows, reference, tuple(columns), metrics=of_tasks, kind=kind)
    return Experiment(table, models_of(lines), on_request=on_request)


def models_of(lines: Iterable[GridLine]) -> dict[str, Node]:
    """The recipes by their rows' keys."""
    return {row.key: model for row, model in lines if model is not None}


@dataclass(frozen=True)
class Preset:
    """Tables to compute."""

    name: str  # of the record in the folder of runs
    start: Weights  # start weights of all rows, as they are called
    data: Path  # folder of the data, or a tasks file
    experiments: tuple[Experiment, ...]
    notes: tuple[str, ...] = ()  # warnings that belong next to the scores
    order: tuple[str, ...] = ()  # keys of all tables that the record may have, in their order
    predicted: tuple[tuple[str, ...], ...] = ()  # groups of tasks; the best model of each group writes prediction files
    next_step: str = ""  # printed after the tables are computed


START_NOTES = {
    "all-minilm-l6-v2": "The start weights, all-MiniLM-L6-v2, are already tuned contrastively on over a billion "
    "sentence pairs, Quora questions and NLI among them. Scores from them must not be compared with scores from plain "
    "BERT."
}
"""What a reader of scores must know, by the name of the start weights."""


def notes_on_start(start: str) -> tuple[str, ...]:
    """What a reader must know of start weights, also where they are called by their folder or hub id."""
    return tuple(note for name, note in START_NOTES.items() if name == Path(start).name.lower())


SCORED_BY = ("evaluate", "suites", "ensemble")
"""Stages whose runs hold a row's scores and predictions. Ensembles are their own evaluation; simulations have none."""


@dataclass(frozen=True)
class RecordedRun:
    """One seed of one row."""

    table: str  # the table's key
    row: str  # the row's key
    seed: int  # of all its stages
    chain: tuple[str, ...] = ()  # names of all its runs that are complete, parents before children. Rows can share runs
    error: str | None = None
    log: str | None = None  # of the stage that failed, a path within the folder of runs

    @property
    def evaluation(self) -> str | None:
        """Name of the run with its scores and predictions, if it is complete."""
        return self.chain[-1] if self.chain and self.chain[-1].startswith(tuple(f"{s}-" for s in SCORED_BY)) else None

    @property
    def model(self) -> str | None:
        """Name of the run with the row's final model, if it is scored; ensembles and start weights score themselves."""
        alone = self.evaluation is None or self.evaluation.startswith("ensemble-") or len(self.chain) == 1
        return self.evaluation if alone else self.chain[-2]


@dataclass(frozen=True)
class PresetRecord:
    """Everything that one preset ran: the last run of every table.

    Raises ValueError for a run of a row that no table has.
    """

    preset: str
    start: str  # start weights as they were called
    data: str  # folder of the data as it was called, or a tasks file
    notes: tuple[str, ...]  # warnings that belong next to the scores
    tables: tuple[StudyTable, ...]  # what was run
    # one for each seed of each row, in the tables' order. Rows without a recipe have none
    runs: tuple[RecordedRun, ...]
    # hashes of the start weights and of what the stages read of the data, by name. Older records have none
    inputs: Mapping[str, str] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION  # of the runs

    def __post_init__(self) -> None:
        rows = {(table.key, row.key) for table in self.tables for row in table.rows}
        if unknown := {(run.table, run.row) for run in self.runs} - rows:
            raise ValueError(f"runs of rows that no table has: {sorted(unknown)}")

    @property
    def failures(self) -> list[tuple[str, RecordedRun]]:
        """Failed runs with the labels of their rows."""
        tables = {table.key: table for table in self.tables}
        return [(tables[run.table].label(run.row), run) for run in self.runs if run.error is not None]

    @property
    def subject(self) -> str:
        """What the report is about, for its headings."""
        return f"tasks of {Path(self.data).name}" if self.preset == OWN_TASKS else f"{self.preset} preset"

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks whose best model the report shows: those of a tasks file's table, or the course's main tasks."""
        return next((table.columns for table in self.tables if table.key == OWN_TASKS), MAIN_TASKS)

    def of_row(self, table: str, row: str) -> tuple[RecordedRun, ...]:
        """The runs of a row, one for each seed."""
        return tuple(run for run in self.runs if (run.table, run.row) == (table, row))

    def of_tables(self, keys: Collection[str]) -> "PresetRecord":
        """What it says of some tables."""
        tables = tuple(table for table in self.tables if table.key in keys)
        return replace(self, tables=tables, runs=tuple(run for run in self.runs if run.table in keys))

    def artefacts(self, *tables: str) -> set[str]:
        """Names of all runs of the tables with these keys, or of all tables."""
        return {name for run in self.runs if not tables or run.table in tables for name in run.chain}

    def with_tables_of(self, earlier: "PresetRecord", folder: Path, order: Sequence[str]) -> "PresetRecord":
        """The record plus the tables that only an earlier record has, if it has the same start weights, data and notes.

        Start weights and data are the same if their paths are, and if no file that both records name has changed.
        Tables that are not in `order`, the keys of all tables, and those whose runs are incomplete are left out.
        """

        def described(record: PresetRecord) -> tuple[object, ...]:
            """However its paths are spelled."""
            return Path(record.start).resolve(), Path(record.data).resolve(), record.notes, record.format_version

        inputs = {**earlier.inputs, **self.inputs}
        if described(earlier) != described(self) or inputs != {**self.inputs, **earlier.inputs}:
            return self
        own = {table.key for table in self.tables}

        def kept(key: str) -> bool:
            done = (Run(folder / name).done for name in earlier.artefacts(key))
            return key in order and key not in own and all(done)

        others = {table.key for table in earlier.tables if kept(table.key)}
        if not others:
            return self
        place = {key: number for number, key in enumerate(order)}
        tables = [*self.tables, *(table for table in earlier.tables if table.key in others)]
        runs = [*self.runs, *(run for run in earlier.runs if run.table in others)]
        tables.sort(key=lambda table: place.get(table.key, len(place)))
        runs.sort(key=lambda run: place.get(run.table, len(place)))
        return replace(self, tables=tuple(tables), runs=tuple(runs), inputs=inputs)

    @staticmethod
    def path(folder: Path, preset: str) -> Path:
        """The file of a preset's record."""
        return folder / f"experiments-{preset}.json"

    def write(self, folder: Path) -> None:
        """Write the record into the folder of runs."""
        write_json(self.path(folder, self.preset), adapter(PresetRecord).dump_python(self, mode="json"))

    @classmethod
    def read(cls, folder: Path, preset: str) -> "PresetRecord":
        """A preset's record. Raises InputError if there is none, another version wrote it, or it is damaged."""
        what = "--tasks-file FILE" if preset == OWN_TASKS else preset
        path, command = cls.path(folder, preset), f"`multitask experiments run {what}`"
        if not path.is_file():
            raise InputError(f"{path}: no such file; run {command} first")
        try:
            record: PresetRecord = read_as(PresetRecord, read_text(path), path)
            if record.format_version != FORMAT_VERSION:
                raise InputError(f"{path}: written by another version")
            check_names(record.artefacts(), path)
        except InputError as error:
            raise InputError(f"{error}; run {command} again") from None
        return record

    @classmethod
    def read_all(cls, folder: Path) -> "list[PresetRecord]":
        """The records of all presets. Raises InputError if one is damaged."""
        names = sorted(path.stem.removeprefix("experiments-") for path in folder.glob("experiments-*.json"))
        return [cls.read(folder, name) for name in names]


def duration(seconds: float) -> str:
    """`12.3 s`, `4 min 10 s` or `3 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left:02d} min" if hours else f"{minutes} min {rest:02d} s"
