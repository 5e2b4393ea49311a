"""Classes: labels as files write them (text, numbers, lists, or blank), tasks that have them, and likely mistakes."""

import json
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from html import unescape
from itertools import chain
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from minbert.errors import InputError
from minbert.settings import AtLeastZero, Positive
from multitask.base import logger
from multitask.base.keys import NOT_IN_KEY
from multitask.data.examples import Examples
from multitask.data.messages import REMOVED, listed, plain, quote, spelled
from multitask.data.tables import as_text
from multitask.data.texts import visible_text
from multitask.tasks.task import TUNED, Task

MOST_CLASSES = 1000
RARE, SIMILAR = 10, 0.85
"""A label is pointed out if another one, with so many times as many rows, has a name that is so similar."""
NO_VALUE = (
    *("n/a", "na", "n.a.", "nan", "-nan", "null", "none", "nil", "-", "--", "–", "—", "?", "<na>", "#na", "#n/a"),
    *("#n/a n/a", "#null!", "#value!", "#ref!", "#div/0!", "#name?", "#num!"),
)
"""What people and programs write where there is no label."""
LABEL_SEPARATORS = ",;|/"
"""What may stand between several labels."""
Counts = Mapping[str, int]
"""The number of rows of each label."""
Hint = tuple[list[str], str, str]
"""Labels, what they may be, and what helps then."""
LOG_TEMPERATURES = (math.log(0.05), math.log(20))

ClassWeights = tuple[Positive, ...] | Literal["balanced"] | None
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
LARGEST_NUMBER = float(np.finfo(np.float32).max) / 4  # so that differences are finite, too


QUOTES = "\"'`´“”„‘’‚«»‹›"
TRUTH = {"false": "0", "true": "1"}
FLAGS = {"0": False, "1": True, "false": False, "true": True}


def label_name(value: Any) -> str | None:
    """The name of a class: text as it is written, without the white space around it; None if the value is blank.

    A whole number that is not text has no decimal point: integers are often stored as floats, for missing cells.
    Raises ValueError if the value is neither text nor a number.
    """
    if isinstance(value, str):
        return visible_text(value) or None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if not isinstance(value, int | float):
        raise ValueError("expected a name or a number")
    return as_text(value)


def flag(value: Any) -> bool | None:
    """Whether a label applies, by 0 or 1, false or true; None if the value is blank. Raises ValueError otherwise."""
    name = label_name(value)
    if name is None:
        return None
    found = FLAGS.get(f"{float(name):g}" if NUMBER.fullmatch(name) else name.lower())
    if found is None:
        raise ValueError("expected 0 or 1")
    return found


def number(value: Any) -> float | None:
    """A finite number; NaN of anything else; None if the value is blank. (`float` would also take `nan` and `1_0`.)"""
    if value is None:
        return None
    if isinstance(value, str):
        text = value.strip()
        if not text:
            return None
        value = float(text) if NUMBER.fullmatch(text) else math.nan
    # `Examples` keeps labels in fp32.
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST_NUMBER
    return float(value) if is_number else math.nan


def parts(value: Any, separator: str) -> list[str] | None:
    """The labels in a list, in the text of a JSON list, or in a text with separators; None if the value is blank."""
    if isinstance(value, str):
        text = visible_text(value)
        if not text:
            return None
        try:
            as_written: dict[str, Any] = {"parse_int": str, "parse_float": str}
            listed = json.loads(text, **as_written) if text.startswith("[") else text.split(separator)
        except (ValueError, RecursionError):
            raise ValueError(f"expected names with {separator} between them, or a JSON list, which [ begins") from None
    elif value is None:
        return None
    else:
        listed = value if isinstance(value, list) else [value]
    found = map(label_name, listed)
    return list(dict.fromkeys(name for name in found if name is not None))


def normal_form(name: str) -> str | float:
    """The same for names that people take for one: they differ in case, quotes, signs between words, what nobody sees,
    how accents, widths or signs of HTML are stored, or as numbers are written; `true` is 1.
    """
    text = REMOVED.sub("", unicodedata.normalize("NFKC", unescape(name))).casefold()
    text = re.sub("[‐‑–—−]", "-", unicodedata.normalize("NFC", text).strip().strip(QUOTES).strip())
    text = re.sub(r"(?<=\d)[,_](?=\d{3}(?!\d))", "", text)  # thousands
    text = re.sub(r"(?<=\w)[\s_-]+(?=\w)", " ", TRUTH.get(text, text))
    return float(text) if NUMBER.fullmatch(text) else text or name


def class_order(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct names in the order of their classes: numbers by value, otherwise by the alphabet."""
    distinct = set(names)
    if all(map(NUMBER.fullmatch, distinct)):
        return tuple(sorted(distinct, key=lambda name: (float(name), name)))
    return tuple(sorted(distinct))


@dataclass(frozen=True, kw_only=True)
class Labelled(Task):
    """A task whose labels have names."""

    # the names in the order of the classes; empty until they are learned from the training rows. Text is read as it is
    # written; a number also stands for text that is this number, such as 1 for `1.0`.
    labels: tuple[str | int | float | bool, ...] = ()
    # what predictions show instead of the names, in their order; empty: the names
    shown: tuple[str, ...] = field(default=(), metadata=NOT_IN_KEY)
    # other names that files have for labels, such as a misspelt one, and the labels that they mean
    aliases: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    # weight of each class in the loss; `balanced` weighs a class by the inverse of its frequency
    class_weights: ClassWeights = None
    focal: AtLeastZero = 0.0  # γ of focal loss, which lowers the loss of rows that are nearly right; 0 is cross-entropy
    # divides the outputs before they become probabilities
    temperature: Positive = field(default=1.0, metadata=TUNED)

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.names
        if None in names or len(set(names)) < len(names) or len(names) == 1:
            shown = listed(quote(label) for label in self.labels)
            raise InputError(f"labels are {shown}; expected two or more different names")
        if len(set(self.shown)) < len(self.shown) or len(self.shown) not in (0, len(names)):
            raise InputError(f"shown is {listed(map(quote, self.shown))}; expected a different text for each of labels")
        aliases = {label_name(alias): label_name(label) for alias, label in self.aliases.items()}
        if None in aliases or None in aliases.values():
            raise InputError("aliases have an empty name; expected names of labels")
        if both := [label for label in aliases.values() if aliases.get(label, label) != label]:
            raise InputError(
                f"aliases have {quote(both[0])} as a label and as another name of one; expected labels alone"
            )
        object.__setattr__(self, "aliases", aliases)
        if isinstance(self.class_weights, tuple) and not names:
            raise InputError("class_weights need labels, which say the order of the classes")
        if isinstance(self.class_weights, tuple) and len(self.class_weights) != len(names):
            shown = listed(self.class_weights)
            raise InputError(f"class_weights are {shown}; expected one number for each of {listed(names)}")

    @property
    def names(self) -> tuple[str, ...]:
        """The labels' names in the order of the classes."""
        return tuple(map(label_name, self.labels))  # type: ignore[arg-type]  # none is blank

    @property
    def shown_names(self) -> dict[str, str]:
        """Each label's name as people read it."""
        return dict(zip(self.names, self.shown or self.names, strict=True))

    @property
    def log_odds(self) -> bool:
        """Whether each output is the log odds of a distribution of its own. If not, all are logits of one softmax."""
        return self.kind == "multilabel" or (self.pair and len(self.labels) == 2)

    @property
    def outputs(self) -> int:
        return 1 if self.pair and self.log_odds else len(self.labels)

    @property
    def complete(self) -> bool:
        return bool(self.labels)

    def learned(self, training: Examples) -> Self:
        names = self.names or training.classes
        if len(names) > MOST_CLASSES:
            raise self.problem(
                f"{training.source} has {len(names):,} different labels in {self.files.label_columns[0]}; expected at "
                f"most {MOST_CLASSES:,} (of numbers, declare a regression)"
            )
        if len(names) < 2:
            found = f"only the label {plain(names[0])}" if names else "no label"
            raise self.problem(f"{training.source} has {found}; expected two or more")
        counts = rows_by_label(training.gold, len(names))
        if missing := [name for name, count in zip(names, counts, strict=True) if not count]:
            raise self.problem(f"no training row of {training.source} has the label {listed(missing)}")
        weights = self.class_weights
        if weights == "balanced":
            several = training.gold.ndim == 2
            others = np.maximum(len(training) - counts, 1)
            weights = tuple((others / counts if several else len(training) / (len(names) * counts)).tolist())
        return replace(self, labels=self.labels or names, class_weights=weights)

    def hints(self, examples: Examples) -> list[str]:
        """A line for each kind of labels that may be wrong: written in several ways, misspelt, or missing values.

        Declared names of classes are taken to be right. Empty if there are too many labels to compare.
        """
        if self.labels or len(examples.classes) > MOST_CLASSES:
            return []
        rows = rows_by_label(examples.gold, len(examples.classes)).tolist()
        counts = dict(zip(examples.classes, rows, strict=True))
        lines = []
        for names, what, remedy in chain(_written(self, counts), _lists(self, counts), _misspelt(self, counts)):
            each = (f"{spelled(name)} ({counts[name]:,} row{'s' * (counts[name] != 1)})" for name in names)
            shown = listed(each, most=8)
            lines.append(f"{examples.source}: {shown}: perhaps {what}; if so, {remedy}; if not, declare labels")
        return lines

    def divergence(self, first: Tensor, second: Tensor) -> Tensor:
        if self.log_odds:
            return ((first.sigmoid() - second.sigmoid()) * (first - second)).mean()
        p, q = first.log_softmax(dim=1), second.log_softmax(dim=1)
        return ((p.exp() - q.exp()) * (p - q)).sum(dim=1).mean()

    def soft_loss(self, outputs: Tensor, estimates: Tensor, temperature: float) -> Tensor:
        compare = F.binary_cross_entropy_with_logits if self.log_odds else F.cross_entropy
        return temperature**2 * compare(outputs / temperature, estimates)

    def estimated(self, outputs: Tensor) -> Tensor:
        scaled = outputs / self.temperature
        return scaled.sigmoid() if self.log_odds else scaled.softmax(dim=1)

    def readable(self, outputs: Tensor) -> Tensor:
        found = self.estimated(outputs)
        return torch.stack([self.estimated(-outputs), found], dim=1) if self.outputs == 1 else found

    def calibrated(self, outputs: NDArray[np.float32], labels: NDArray[np.float32]) -> Self:
        """Temperature scaling: Guo et al. 2017, arXiv 1706.04599, section 4.2.

        The temperature is 1, with a warning, if none between the ends of the search fits better than the ends.
        """
        from scipy.optimize import minimize_scalar  # takes 0.4 s, and predictions do not need it

        plain = self.with_cross_entropy()
        values, gold = torch.from_numpy(outputs).double(), torch.from_numpy(labels).double()

        def loss(log: float) -> float:
            return float(plain.loss(values / math.exp(log), gold))

        found = minimize_scalar(loss, bounds=LOG_TEMPERATURES, method="bounded")
        sharpest, flattest = map(loss, LOG_TEMPERATURES)
        if found.fun < min(sharpest, flattest):
            return replace(self, temperature=math.exp(found.x))
        decided = outputs > 0 if self.log_odds else outputs.argmax(axis=1)
        if flattest <= sharpest:
            why = "the less the probabilities differ, the better they fit its labels"
        elif (decided == labels).all():
            why = "all its rows are predicted right, so any higher probability fits better"
        else:
            why = "the outputs differ too little"
        logger.warning("%s: the temperature stays 1, as none fits the dev set: %s", self.name, why)
        return replace(self, temperature=1.0)

    def with_cross_entropy(self) -> Self:
        """The task with plain cross-entropy as its loss."""
        return replace(self, class_weights=None, focal=0.0)

    def kept(self) -> dict[str, Any]:
        shown = {"shown": list(self.shown)} if self.shown else {}
        return {**super().kept(), "labels": list(self.labels), **shown}

    def declaration(self, tuned: bool = True) -> dict[str, Any]:
        found = super().declaration(tuned)
        return {**found, "labels": list(self.names)} if self.labels else found

    @property
    def numeric(self) -> bool:
        return bool(self.numbers)

    @cached_property
    def numbers(self) -> dict[float, str]:
        """The names of labels that are declared as numbers."""
        declared = zip(self.labels, self.names, strict=True)
        return {float(label): name for label, name in declared if type(label) in (int, float)}

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.names)

    def label_named(self, name: str) -> str | None:
        """The label that is called so, or is this number; any name until labels are known. None if there is none."""
        if name in self._names or not self.labels:
            return name
        return self.numbers.get(float(name)) if NUMBER.fullmatch(name) else None

    def _label_of(self, written: str) -> str:
        """The label that a name in a file means."""
        name = str(self.aliases.get(written, written))
        if (label := self.label_named(name)) is not None:
            return label
        near = [
            f"; or add aliases = {{ {spelled(name)} = {spelled(n)} }}"
            for n in self.names
            if normal_form(n) == normal_form(name)
        ]
        raise ValueError(f"expected one of {listed(self.names)}{''.join(near[:1])}")


def rows_by_label(labels: NDArray[np.float32], classes: int) -> NDArray[np.int64]:
    """Number of rows of each class or label, [classes]; labels as in `Examples`."""
    if labels.ndim == 2:
        return labels.sum(axis=0).astype(np.int64)
    return np.bincount(labels.astype(np.int64), minlength=classes)


def without_rows(task: Labelled, labels: NDArray[np.float32]) -> list[str]:
    """A line that names the labels without a row, and says how macro F1 counts them; none if there are none."""
    counts = rows_by_label(labels, len(task.names))
    lacking = [name for name, count in zip(task.names, counts, strict=True) if not count]
    names, most = listed(map(quote, lacking)), 1 - len(lacking) / len(counts)
    return [f"no row has the label {names}, whose F1 counts as 0: macro_f1 is at most {most:.4f}"] if lacking else []


def _written(task: Task, counts: Counts) -> Iterator[Hint]:
    """Missing values, several ways to write a label, and quotes."""
    if missing := [name for name in counts if name.casefold() in NO_VALUE]:
        table = task.files.train and task.files.train.format  # a table [files] counts alone
        values = ", ".join(map(spelled, (*(table or task.files.format).missing, *missing)))
        place = "the table of its file" if table else f"tasks.{task.name}"
        yield missing, "there is no label", f"set missing = [{values}] in {place}"
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
    several = task.kind == "multilabel"
    for separator in LABEL_SEPARATORS.replace(getattr(task, "label_separator", ""), ""):
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
