"""Experiments: tables with the recipes of their rows, scored on the dev sets or on SentEval's tasks."""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multitask.evaluation.suite_sets import SETS
from studies.engine.recipes import Node, Recipes, evaluation
from studies.engine.table import MAIN_TASKS, Row, Table, TableKind

Line = tuple[Row, Node | None]
"""A row and the recipe of its model. A row that only the report can have has no recipe."""

STS, TRANSFER, RETRIEVAL = "STS", "Transfer", "Retrieval"
SUITE_COLUMNS = {"sts": STS, "transfer": TRANSFER, "retrieval": RETRIEVAL}
GROUPS = {SUITE_COLUMNS[suite]: tuple(entry.name for entry in sets) for suite, sets in SETS.items()}


@dataclass(frozen=True)
class Experiment:
    """A table and how its rows are made."""

    table: Table
    models: Mapping[str, Node]  # the recipe of each row's model, by the row's key and in the table's order
    evaluation: Callable[[Node], Node] = evaluation  # from a row's model to the stage with its scores
    on_request: bool = False  # run only if it is named


def experiment(
    key: str,
    title: str,
    note: str,
    lines: Iterable[Line],
    *,
    reference: str | None = None,
    columns: Sequence[str] = MAIN_TASKS,
    metrics: Mapping[str, tuple[str, ...]] | None = None,
    kind: TableKind = "table",
    on_request: bool = False,
) -> Experiment:
    """A table scored on the dev sets, from its rows and their recipes; see `Table` and `Experiment`."""
    lines = tuple(lines)
    rows = tuple(row for row, _ in lines)
    table = Table(key, title, note, rows, reference, tuple(columns), metrics=metrics or {}, kind=kind)
    return Experiment(table, _models(lines), on_request=on_request)


def read_tables(module: str) -> dict[str, dict[str, Any]]:
    """The tables that `tables.toml` next to a module's `__file__` describes, by key, as arguments of `experiment`."""
    text = Path(module).with_name("tables.toml").read_text(encoding="utf-8")
    return {key: {"key": key, **table} for key, table in tomllib.loads(text).items()}


def suites_experiment(recipes: Recipes, key: str, title: str, note: str, lines: Iterable[Line]) -> Experiment:
    """A table of scores on SentEval's tasks, run on request."""
    lines = tuple(lines)
    groups = {SUITE_COLUMNS[suite]: GROUPS[SUITE_COLUMNS[suite]] for suite in recipes.suites.suites}
    table = Table(
        key,
        title,
        f"{note} Scores are SentEval's, of frozen embeddings: Spearman correlation of seven similarity tasks, accuracy "
        "of seven transfer tasks, and their means. Retrieval is nDCG at 10 among the sentences of Quora's and SICK's "
        "pairs.",
        tuple(row for row, _ in lines),
        columns=tuple(name for names in groups.values() for name in names),
        groups=groups,
    )
    return Experiment(table, _models(lines), recipes.on_suites, on_request=True)


def _models(lines: tuple[Line, ...]) -> dict[str, Node]:
    return {row.key: model for row, model in lines if model is not None}
