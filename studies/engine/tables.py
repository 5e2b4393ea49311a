"""Tables: a file each, with a function `table` from a preset's recipes to a `Table`. A new file is a new table."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules

from minbert.errors import InputError
from studies.engine.recipes import Node, Recipes, evaluation
from studies.engine.record import MAIN_TASKS, Published, TableKind

PAPERS = ("multitask_report", "gradient_paradigm", "sparse_cse")


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Args:
        label: its name.
        model: how it is made; None for a row that only the report can have.
        published: what the report has there.
    """

    label: str
    model: Node | None
    published: Published | None = None


@dataclass(frozen=True)
class Table:
    """Rows that are compared with each other.

    Args:
        key: how the command line calls it.
        title: what is compared.
        note: what a reader must know to read the rows, in a sentence or two.
        rows: with labels that differ.
        reference: label of the row that the others are compared with.
        columns: the tasks that rows are scored on.
        kind: shown as a table, or as curves over the epochs; or simulations, for the study.
        on_request: run only where it is named.
        groups: columns that are means of others, by name; of several columns without groups the mean of all is shown.
        evaluation: from a row's model to the stage with its scores.
    """

    key: str
    title: str
    note: str
    rows: tuple[Row, ...]
    reference: str | None = None
    columns: tuple[str, ...] = MAIN_TASKS
    kind: TableKind = "table"
    on_request: bool = False
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    evaluation: Callable[[Node], Node] = evaluation


def all_tables(recipes: Recipes) -> tuple[Table, ...]:
    """Every table of every paper: the multi-task report's in its order, then figures and others by name."""
    packages = [import_module(f"studies.{paper}.tables") for paper in PAPERS]
    found = [(module.name, package.__name__) for package in packages for module in iter_modules(package.__path__)]
    found.sort(key=lambda module: ("table_" not in module[0], module[0]))
    return tuple(import_module(f"{package}.{name}").table(recipes) for name, package in found)


def choose(tables: tuple[Table, ...], keys: Collection[str]) -> tuple[Table, ...]:
    """The tables of these keys, in their own order. Raises InputError for a key that no table has."""
    known = [table.key for table in tables]
    if unknown := [key for key in keys if key not in known]:
        raise InputError(f"--tables {','.join(keys)}: no table {', '.join(unknown)}; there are {', '.join(known)}")
    return tuple(table for table in tables if table.key in keys)
