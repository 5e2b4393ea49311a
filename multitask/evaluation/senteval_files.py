"""Readers of SentEval's data folder, its similarity and transfer sets. Errors name the file and the line.

Layout and splits are those of SentEval (Conneau & Kiela 2018, arXiv 1803.05449): STS12 to STS16 have an input file and
a file of gold scores for each sub-set, STS Benchmark and SICK are tables, and transfer sets have one sentence on each
line. As in SentEval, words are joined by one space, and a line without any word (CR and MPQA have a few) reads as ".".
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError
from multitask.data.problems import quote
from multitask.data.text_lines import text_lines
from multitask.runtime.random_streams import generator
from multitask.tasks.labels import NUMBER

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class SentenceRows:
    """Rows of one or two sentences; subclasses add arrays with an entry for each row."""

    columns: tuple[list[str], ...]  # [rows] sentences, or first and second sentences of pairs

    @property
    def sentences(self) -> list[str]:
        """All sentences that are embedded; they may repeat."""
        return [*chain(*self.columns)]

    @property
    def scored_columns(self) -> tuple[list[str], ...]:
        """The sentences of the rows that are scored: all."""
        return self.columns

    def only(self, rows: Mask) -> Self:
        """The rows where `rows` is true."""
        parts: dict[str, Any] = {name: values[rows] for name, values in vars(self).items() if name != "columns"}
        columns = ([text for text, kept in zip(column, rows, strict=True) if kept] for column in self.columns)
        return replace(self, columns=tuple(columns), **parts)


@dataclass(frozen=True)
class SimilarityData(SentenceRows):
    """Sentence pairs with gold similarities."""

    gold: NDArray[np.float64]  # [pairs] higher is more similar
    subsets: NDArray[np.str_]  # name of the sub-set of each pair, [pairs]

    def sampled(self, limit: int) -> Self:
        """At most `limit` pairs, a random sample that is always the same."""
        return self.only(drawn(len(self.gold), limit))


@dataclass(frozen=True)
class ClassificationData(SentenceRows):
    """Labelled sentences or pairs."""

    labels: NDArray[np.int64]  # [rows] from 0
    splits: NDArray[np.str_]  # [rows] train, dev or test; for cross-validation, all rows are test

    @property
    def scored(self) -> Mask:
        """Which rows are scored, [rows]."""
        return self.splits == "test"

    @property
    def scored_columns(self) -> tuple[list[str], ...]:
        return self.only(self.scored).columns

    def sampled(self, limit: int) -> Self:
        """About `limit` rows of each split, a random sample that is always the same.

        Classes keep their shares, but every class keeps at least ten rows if it has them, one for each fold.
        """
        rows = np.zeros(len(self.labels), bool)
        for split in np.unique(self.splits):
            of_split = self.splits == split
            share = min(1.0, limit / of_split.sum())
            for label in np.unique(self.labels[of_split]):
                places = np.flatnonzero(of_split & (self.labels == label))
                rows[places] = drawn(len(places), max(round(share * len(places)), 10))
        return self.only(rows)


def drawn(size: int, count: int) -> Mask:
    """The rows of a sample: a mask [size] with `count` random places, or all places if there are not more."""
    rows = np.zeros(size, bool)
    rows[generator(0, "rows of a suite", size).permutation(size)[:count]] = True
    return rows


def _lines(path: Path, encoding: str) -> list[str]:
    if encoding == "utf-8":
        return [line.removesuffix("\n") for line in text_lines(path)] or [""]
    text = path.read_bytes().decode(encoding)
    return text.removesuffix("\n").split("\n")  # splitlines would also split at characters such as U+0085


def _texts(path: Path, encoding: str = "utf-8") -> list[str]:
    """The lines of a file with one space between words."""
    return [" ".join(line.split()) or "." for line in _lines(path, encoding)]


def _rows(path: Path, count: int, more: bool = False, column: str = "") -> Iterator[tuple[str, list[str]]]:
    """The place of each line for error messages, and its tab-separated fields; no field may be empty.

    Args:
        path: of the file.
        count: number of fields.
        more: whether there may be more.
        column: one that the header must have; if empty, there is no header.
    """
    lines = _lines(path, "utf-8")
    if column and column not in [name.strip() for name in lines[0].split("\t")]:
        raise InputError(f"{path}:1: no column {column}; expected a header of {count} columns, separated by tabs")
    if column and len(lines) == 1:
        raise InputError(f"{path}: no row below the header")
    for number, text in enumerate(lines, start=1):
        if number > 1 or not column:
            yield f"{path}:{number}", _fields(f"{path}:{number}", text, count, more)


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


def _label(place: str, text: str, labels: Sequence[str]) -> int:
    if text not in labels:
        raise InputError(f"{place}: label is {quote(text)}; expected one of {', '.join(labels)}")
    return labels.index(text)


def _similarity_data(rows: Iterable[tuple[str, str, float, str]], paths: Sequence[Path]) -> SimilarityData:
    found = list(rows)
    if not found:
        raise InputError(f"{paths[0]}: no pair has a gold score")
    first, second, gold, subsets = zip(*found, strict=True)
    return SimilarityData((list(first), list(second)), np.array(gold, np.float64), np.array(subsets))


def read_sts(paths: Sequence[Path]) -> SimilarityData:
    """An input file `STS.input.{subset}.txt` and a file of gold scores for each sub-set; empty scores are skipped."""
    rows = []
    for inputs, scores in zip(paths[::2], paths[1::2], strict=True):
        subset = inputs.name.removeprefix("STS.input.").removesuffix(".txt")
        pairs, gold = _lines(inputs, "utf-8"), _lines(scores, "utf-8")
        if len(pairs) != len(gold):
            longer = inputs if len(pairs) > len(gold) else scores
            raise InputError(
                f"{longer}:{min(len(pairs), len(gold)) + 1}: a line without its counterpart; {inputs.name} has "
                f"{len(pairs)} lines and {scores.name} has {len(gold)}; expected a score or an empty line for each pair"
            )
        for line, (pair, score) in enumerate(zip(pairs, map(str.strip, gold), strict=True), start=1):
            if score:
                value = _score(f"{scores}:{line}", score, 0, 5)
                first, second = _fields(f"{inputs}:{line}", pair, 2)
                rows.append((first, second, value, subset))
    return _similarity_data(rows, paths)


def read_sts_benchmark(paths: Sequence[Path]) -> SimilarityData:
    """Genre, file, year, number, score and two sentences; some releases add sources. There is no header."""
    rows = _rows(paths[0], 7, more=True)
    return _similarity_data(((row[5], row[6], _score(at, row[4], 0, 5), "test") for at, row in rows), paths)


def read_genres(folder: Path) -> list[tuple[str, str, str]]:
    """Genre and sentences of every pair of STS Benchmark, all splits.

    Args:
        folder: SentEval's data folder.

    Raises:
        InputError: a missing or malformed file.
    """
    paths = [folder / f"STS/STSBenchmark/sts-{split}.csv" for split in ("train", "dev", "test")]
    return [(row[0], row[5], row[6]) for path in paths for _, row in _rows(path, 7, more=True)]


def read_sick(paths: Sequence[Path]) -> SimilarityData:
    """A header, then pair_ID, sentence_A, sentence_B, relatedness_score (1 to 5), entailment_judgment."""
    rows = _rows(paths[0], 5, column="relatedness_score")
    return _similarity_data(((row[1], row[2], _score(at, row[3], 1, 5), "test") for at, row in rows), paths)


def read_two_classes(paths: Sequence[Path]) -> ClassificationData:
    """A file with the sentences of class 0 and one with those of class 1, for cross-validation."""
    classes = [_texts(path) for path in paths]
    labels = np.repeat(np.arange(len(classes)), [len(sentences) for sentences in classes])
    return ClassificationData(([*chain(*classes)],), labels, np.full(len(labels), "test"))


def _classification_data(rows: Iterable[tuple[Sequence[str], int, str]]) -> ClassificationData:
    sentences, labels, splits = zip(*rows, strict=True)
    columns = tuple(list(column) for column in zip(*sentences, strict=True))
    return ClassificationData(columns, np.array(labels, np.int64), np.array(splits))


def read_sst(paths: Sequence[Path]) -> ClassificationData:
    """Train, dev and test files with a sentence and 0 or 1 on each line."""
    return _classification_data(
        ([sentence], _label(place, label, ("0", "1")), split)
        for path, split in zip(paths, ("train", "dev", "test"), strict=True)
        for place, (sentence, label) in _rows(path, 2)
    )


TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")


def read_trec(paths: Sequence[Path]) -> ClassificationData:
    """Train and test files with `CLASS:subclass question` on each line, in latin-1."""
    rows = []
    for path, split in zip(paths, ("train", "test"), strict=True):
        for line, text in enumerate(_texts(path, "latin-1"), start=1):
            if not (found := re.fullmatch(r"(\w+):\w+ (\S.*)", text)):
                raise InputError(
                    f"{path}:{line}: {quote(text)} is not a class and a question; expected a line such as "
                    "LOC:city Where?"
                )
            rows.append(([found[2]], _label(f"{path}:{line}", found[1], TREC_CLASSES), split))
    return _classification_data(rows)


def read_mrpc(paths: Sequence[Path]) -> ClassificationData:
    """Train and test files with a header, then Quality (1 for a paraphrase), two ids, two sentences."""
    return _classification_data(
        (row[3:5], _label(place, row[0], ("0", "1")), split)
        for path, split in zip(paths, ("train", "test"), strict=True)
        for place, row in _rows(path, 5, column="Quality")
    )
