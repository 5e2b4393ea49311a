"""A table of a study: rows with keys, and published scores. Recipes and results are attached to it by key."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal

TableKind = Literal["table", "curves", "simulations"]
Value = str | int | float | bool | None | tuple[str, ...]
Point = Mapping[str, Value]
"""The parameters that tell a row from the others, by name."""
OVERALL = "overall"
MAIN_TASKS = ("sentiment", "paraphrase", "similarity")
"""The course's tasks, which the papers' tables are about."""
OWN_TASKS: Final = "tasks"
"""The table of a tasks file, and the preset that runs it."""


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    key: str  # identifies the row within its table; stable, short, ASCII
    label: str  # its name for readers; nothing else depends on it
    point: Point = field(default_factory=dict)  # its parameters; empty if rows do not differ by parameters
    # the paper's scores by column; columns without a score are missing
    published: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def at(cls, point: Point, label: str, published: Mapping[str, float] | None = None) -> "Row":
        """A row whose key is made from its point."""
        return cls(key_of(point), label, point, published or {})


def key_of(point: Point) -> str:
    """The key of a row that its point identifies: `margin=0.3`, or `loss=vicreg,components=weight+ratio`."""
    return ",".join(f"{name}={_text(value)}" for name, value in point.items())


def _text(value: Value) -> str:
    if isinstance(value, tuple):
        return "+".join(value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


@dataclass(frozen=True)
class Table:
    """Rows that are compared with each other.

    Raises:
        ValueError: two rows have the same key or label, or no row has the reference's key.
    """

    key: str  # how the command line calls it: 1 to 10 for the report's tables, else a name
    title: str
    note: str  # what a reader must know about the rows
    rows: tuple[Row, ...]  # with different keys and different labels
    reference: str | None = None  # key of the row that the others are compared with
    columns: tuple[str, ...] = MAIN_TASKS  # the tasks that rows are scored on
    # means of columns by name. Several columns without groups have one mean, `overall`
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # metrics of tasks in place of the tasks' own: the first is compared, others are shown beside it
    metrics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # shown as a table or as curves over the epochs. Simulations have no scores; the study's page shows them
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
