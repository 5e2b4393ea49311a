"""Data of the suites, and readers of SentEval's folder with one function a shape of file.

Layout and splits are those of SentEval (Conneau & Kiela 2018, arXiv 1803.05449). As there, words are joined by one
space, and a line without any word (CR and MPQA have a few) reads as ".". Errors name the file and the line.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError
from multitask.data.messages import quote
from multitask.data.tables import text_lines
from multitask.evaluation.retrieval import Mask, RetrievalData, drawn_places
from multitask.tasks.declarations import load_tasks
from multitask.tasks.labels import NUMBER
from multitask.tasks.read_examples import load_rows

TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
FEWEST_OF_CLASS = 10
"""Rows that a sample keeps of each class: one for each fold."""
SAME_MEANING = 4.0
"""Relatedness (1 to 5) of SICK and similarity (0 to 5) of the STS Benchmark from which two sentences mean the same."""


@dataclass(frozen=True)
class LabelledRows:
    """Sentences or pairs, with gold similarities or with classes.

    `sentences` are all that are embedded (they may repeat), `scored_columns` those of the rows that are scored.
    """

    columns: tuple[list[str], ...]  # [rows] sentences, or first and second sentences of pairs
    labels: NDArray[Any]  # [rows] similarities, higher is more similar; or classes from 0
    parts: NDArray[np.str_]  # [rows] the split train, dev or test; the sub-set where all rows are scored

    @property
    def sentences(self) -> list[str]:
        return [*chain(*self.columns)]

    @property
    def scored(self) -> Mask:
        """Which rows are scored, [rows]."""
        return ~np.isin(self.parts, ("train", "dev"))

    @property
    def scored_columns(self) -> tuple[list[str], ...]:
        return self.only(self.scored).columns

    def only(self, rows: Mask) -> "LabelledRows":
        """The rows where `rows` is true."""
        columns = ([text for text, kept in zip(column, rows, strict=True) if kept] for column in self.columns)
        return LabelledRows(tuple(columns), self.labels[rows], self.parts[rows])

    def sampled(self, limit: int) -> "LabelledRows":
        """At most `limit` pairs with similarities, or about so many rows of each split; always the same ones.

        Classes keep their shares, but every class keeps at least ten rows if it has them.
        """
        if self.labels.dtype == np.float64:
            return self.only(drawn_places(len(self.labels), limit))
        rows = np.zeros(len(self.labels), bool)
        for split in np.unique(self.parts):
            of_split = self.parts == split
            share = min(1.0, limit / of_split.sum())
            for label in np.unique(self.labels[of_split]):
                places = np.flatnonzero(of_split & (self.labels == label))
                rows[places] = drawn_places(len(places), max(round(share * len(places)), FEWEST_OF_CLASS))
        return self.only(rows)


def read_sts(paths: Sequence[Path]) -> LabelledRows:
    """An input file `STS.input.{subset}.txt` and a file of gold scores for each sub-set; empty scores are skipped."""
    rows = []
    for inputs, scores in zip(paths[::2], paths[1::2], strict=True):
        subset = inputs.name.removeprefix("STS.input.").removesuffix(".txt")
        pairs, gold = _lines(inputs), _lines(scores)
        if len(pairs) != len(gold):
            longer = inputs if len(pairs) > len(gold) else scores
            raise InputError(
                f"{longer}:{min(len(pairs), len(gold)) + 1}: a line without its counterpart; {inputs.name} has "
                f"{len(pairs)} lines and {scores.name} has {len(gold)}; expected a score or an empty line for each pair"
            )
        for line, (pair, score) in enumerate(zip(pairs, map(str.strip, gold), strict=True), start=1):
            if score:
                rows.append((_fields(f"{inputs}:{line}", pair, 2), _score(f"{scores}:{line}", score, 0, 5), subset))
    if not rows:
        raise InputError(f"{paths[0]}: no pair has a gold score")
    return _of_rows(rows)


def read_table(
    paths: Sequence[Path],
    fields: int,
    sentences: Sequence[int],
    label: int,
    more: bool = False,
    header: str = "",
    bounds: Sequence[float] = (),
    classes: Sequence[str] = (),
) -> LabelledRows:
    """Tables of test rows, or of training, perhaps dev, and test rows. suites.toml describes the arguments."""
    splits = {1: ("test",), 2: ("train", "test"), 3: ("train", "dev", "test")}[len(paths)]
    rows = []
    for path, split in zip(paths, splits, strict=True):
        for place, row in _table_rows(path, fields, more, header):
            found = _class(place, row[label], classes) if classes else _score(place, row[label], *bounds)
            rows.append(([row[column] for column in sentences], found, split))
    return _of_rows(rows)


def read_classes(paths: Sequence[Path]) -> LabelledRows:
    """One file with the sentences of each class, for cross-validation."""
    return _of_rows([([text], place, "test") for place, path in enumerate(paths) for text in _texts(path)])


def read_trec(paths: Sequence[Path]) -> LabelledRows:
    """Train and test files with `CLASS:subclass question` on each line, in latin-1."""
    rows = []
    for path, split in zip(paths, ("train", "test"), strict=True):
        for line, text in enumerate(_texts(path, "latin-1"), start=1):
            if not (found := re.fullmatch(r"(\w+):\w+ (\S.*)", text)):
                raise InputError(
                    f"{path}:{line}: {quote(text)} is not a class and a question; expected a line such as "
                    "LOC:city Where?"
                )
            rows.append(([found[2]], _class(f"{path}:{line}", found[1], TREC_CLASSES), split))
    return _of_rows(rows)


def read_quora(paths: Sequence[Path]) -> RetrievalData:
    """The course's dev pairs of Quora questions; the two of a duplicate pair are relevant to each other.

    Questions that only a chain of pairs links are not.
    """
    rows = load_rows(load_tasks(paths[0].parent)["paraphrase"], "dev", labelled=True)
    return RetrievalData.of_pairs(zip(*rows.sentences, rows.gold == 1, strict=True), paths[0])


def read_related(paths: Sequence[Path], **table: Any) -> RetrievalData:
    """Pairs of SICK's test set; those with a high relatedness are relevant to each other."""
    pairs = read_table(paths, **table)
    return RetrievalData.of_pairs(zip(*pairs.columns, pairs.labels >= SAME_MEANING, strict=True), paths[0])


def _table_rows(path: Path, fields: int, more: bool, header: str = "") -> list[tuple[str, list[str]]]:
    """The place of each line for error messages, and its fields; see `read_table`."""
    lines = [(f"{path}:{number}", text) for number, text in enumerate(_lines(path), start=1)]
    if header and header not in [name.strip() for name in lines.pop(0)[1].split("\t")]:
        raise InputError(f"{path}:1: no column {header}; expected a header of {fields} columns, separated by tabs")
    if not lines:
        raise InputError(f"{path}: no row below the header")
    return [(place, _fields(place, text, fields, more)) for place, text in lines]


def _lines(path: Path, encoding: str = "utf-8") -> list[str]:
    return [line.removesuffix("\n") for line in text_lines(path, encoding)] or [""]


def _texts(path: Path, encoding: str = "utf-8") -> list[str]:
    return [" ".join(line.split()) or "." for line in _lines(path, encoding)]


def _fields(place: str, text: str, count: int, more: bool = False) -> list[str]:
    fields = [" ".join(field.split()) for field in text.split("\t")]
    if len(fields) < count or (len(fields) > count and not more):
        expected = f"{count} or more" if more else count
        raise InputError(f"{place}: the line has {len(fields)} fields; expected {expected}, separated by tabs")
    if not all(fields[:count]):
        raise InputError(f"{place}: field {fields.index('') + 1} is empty; expected {count} fields with text")
    return fields


def _score(place: str, text: str, least: float, most: float) -> float:
    value = float(text) if NUMBER.fullmatch(text) else math.nan
    if not least <= value <= most:
        hint = " (decimal point, not comma)" if "," in text else ""
        raise InputError(f"{place}: similarity is {quote(text)}; expected a number from {least:g} to {most:g}{hint}")
    return value


def _class(place: str, text: str, classes: Sequence[str]) -> int:
    if text not in classes:
        raise InputError(f"{place}: label is {quote(text)}; expected one of {', '.join(classes)}")
    return classes.index(text)


def _of_rows(rows: Iterable[tuple[Sequence[str], float, str]]) -> LabelledRows:
    sentences, labels, parts = zip(*rows, strict=True)
    return LabelledRows(tuple(map(list, zip(*sentences, strict=True))), np.array(labels), np.array(parts))
