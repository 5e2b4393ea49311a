"""Labels that may be wrong: written in several ways, misspelt, missing values, or numbers on another scale."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from multitask.data.examples import Examples
from multitask.data.invisible import spelled
from multitask.data.messages import listed
from multitask.tasks.kinds import MultiLabel, Regression
from multitask.tasks.labels import MOST_CLASSES, Labelled, normal_form, rows_by_label
from multitask.tasks.task import Task

RARE, SIMILAR = 10, 0.85
"""A label is pointed out if another one, with so many times as many rows, has a name that is so similar."""
NO_VALUE = (
    *(
        "n/a",
        "na",
        "n.a.",
        "nan",
        "-nan",
        "null",
        "none",
        "nil",
        "-",
        "--",
        "–",
        "—",
        "?",
        "<na>",
        "#na",
        "#n/a",
        "#n/a n/a",
    ),
    *("#null!", "#value!", "#ref!", "#div/0!", "#name?", "#num!"),
)
"""What people and programs write where there is no label."""
SEPARATORS = ",;|/"
"""What may stand between several labels."""
SMALL = 0.25
"""A range is pointed out if all labels are within its lowest part of this size."""

Counts = Mapping[str, int]
"""The number of rows of each label."""
Hint = tuple[list[str], str, str]
"""Labels, what they may be, and what helps then."""


def label_hints(task: Task, examples: Examples) -> list[str]:
    """A line for each kind of labels that may be wrong. Declared names of classes are taken to be right.

    None for more labels than a task can have, since they are compared with one another.
    """
    if examples.labels is None:
        return []
    if isinstance(task, Regression):
        return [f"{examples.source}: {line}" for line in _scale(task, examples.labels)]
    if not isinstance(task, Labelled) or task.labels or len(examples.classes) > MOST_CLASSES:
        return []
    rows = rows_by_label(examples.labels, len(examples.classes)).tolist()
    counts = dict(zip(examples.classes, rows, strict=True))
    lines = []
    for names, what, remedy in chain(_written(task, counts), _lists(task, counts), _misspelt(task, counts)):
        shown = listed((f"{spelled(name)} ({counts[name]:,} row{'s' * (counts[name] != 1)})" for name in names), most=8)
        lines.append(f"{examples.source}: {shown}: perhaps {what}; if so, {remedy}; if not, declare labels")
    return lines


def _scale(task: Regression, labels: NDArray[np.float32]) -> Iterator[str]:
    low, high = task.range or (0.0, 0.0)
    if high >= 2 and labels.max() <= max(1.0, low + SMALL * (high - low)):
        yield (
            f"{task.name}: the labels are from {labels.min():g} to {labels.max():g}, but their range from {low:g} to "
            f"{high:g}; declare the range that they have in a tasks file, or multiply them"
        )


def _written(task: Task, counts: Counts) -> Iterator[Hint]:
    """Missing values, several ways to write a label, and quotes."""
    if missing := [name for name in counts if name.casefold() in NO_VALUE]:
        values = ", ".join(map(spelled, missing))
        yield missing, "there is no label", f"set missing = [{values}] in tasks.{task.name}"
    for meant, *others in _groups(counts):
        if others:
            yield [meant, *others], "one label, written in several ways", _correct(task, others, meant)
    alone = [meant for meant, *others in _groups(counts) if not others]
    if quoted := [name for name in alone if len(name) > 2 and name[0] == name[-1] and name[0] in "\"'"]:
        yield quoted, "the quotes are not part of the label", "remove them, or a space before them"


def _groups(counts: Counts) -> Iterable[list[str]]:
    """Labels that are alike, those with most rows first; without missing values."""
    groups = defaultdict(list)
    for name in sorted(counts, key=lambda name: -counts[name]):
        if name.casefold() not in NO_VALUE:
            groups[normal_form(name)].append(name)
    return groups.values()


def _lists(task: Task, counts: Counts) -> Iterator[Hint]:
    """Of several labels, those with a part that is in another one, too; of classes, those whose parts are classes."""
    several = isinstance(task, MultiLabel)
    for separator in SEPARATORS.replace(getattr(task, "label_separator", ""), ""):
        parts = {name: {part.strip() for part in name.split(separator)} for name in counts if separator in name}
        uses = Counter(chain(counts, *parts.values()))
        shared = {part for part in uses if uses[part] > 1}
        if found := [name for name in parts if (parts[name] & shared if several else parts[name] <= counts.keys())]:
            kind = "" if several else 'kind = "multilabel" and '
            yield found, "several labels", f'set {kind}label_separator = "{separator}" in tasks.{task.name}'


def _misspelt(task: Task, counts: Counts) -> Iterator[Hint]:
    """Rare labels that are similar to frequent ones."""
    for name in [name for name, *others in _groups(counts) if not others]:
        frequent = {other.casefold(): other for other in counts if counts[other] >= RARE * counts[name]}
        for similar in get_close_matches(name.casefold(), frequent, n=1, cutoff=SIMILAR):
            meant = frequent[similar]
            yield [name, meant], "the first is misspelt", _correct(task, [name], meant)


def _correct(task: Task, others: Sequence[str], meant: str) -> str:
    aliases = ", ".join(f"{spelled(other)} = {spelled(meant)}" for other in others)
    return f"correct the file, or add aliases = {{ {aliases} }} to tasks.{task.name}"
