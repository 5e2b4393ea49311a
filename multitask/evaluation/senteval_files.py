"""Readers of SentEval's data folder, its similarity and transfer sets. Errors name the file and the line.

Layout and splits are those of SentEval (Conneau & Kiela 2018, arXiv 1803.05449): STS12 to STS16 have an input file and
a file of gold scores for each sub-set, STS Benchmark and SICK are tables, and transfer sets have one sentence on each
line. As in SentEval, words are joined by one space, and a line without any word (CR and MPQA have a few) reads as ".".
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError
from multitask.data.problems import quote
from multitask.data.text_lines import text_lines
from multitask.runtime.random_streams import generator
from multitask.tasks.labels import NUMBER

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class SimilarityData:
    """Sentence pairs with gold similarities.

    Args:
        columns: first and second sentences, [pairs] each.
        gold: [pairs] float64, higher is more similar.
        subsets: name of the sub-set of each pair, [pairs].
    """

    columns: tuple[list[str], list[str]]
    gold: NDArray[np.float64]
    subsets: NDArray[np.str_]

    @property
    def sentences(self) -> list[str]:
        """All sentences that are embedded; they may repeat."""
        return [*chain(*self.columns)]

    @property
    def scored(self) -> Mask:
        """Which pairs are scored, [pairs]: all."""
        return np.ones(len(self.gold), bool)

    def only(self, rows: Mask) -> "SimilarityData":
        """The pairs where `rows` is true."""
        first, second = (_chosen(column, rows) for column in self.columns)
        return SimilarityData((first, second), self.gold[rows], self.subsets[rows])

    def sampled(self, limit: int) -> "SimilarityData":
        """At most `limit` pairs, a random sample that is always the same."""
        return self.only(drawn(len(self.gold), limit))


@dataclass(frozen=True)
class ClassificationData:
    """Labelled sentences or pairs.

    Args:
        columns: [rows] sentences, or first and second sentences of pairs.
        labels: [rows] int64 from 0.
        splits: [rows] train, dev or test; for cross-validation, all rows are test.
    """

    columns: tuple[list[str], ...]
    labels: NDArray[np.int64]
    splits: NDArray[np.str_]

    @property
    def sentences(self) -> list[str]:
        """All sentences that are embedded; they may repeat."""
        return [*chain(*self.columns)]

    @property
    def scored(self) -> Mask:
        """Which rows are scored, [rows]."""
        return self.splits == "test"

    def sampled(self, limit: int) -> "ClassificationData":
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
        columns = tuple(_chosen(column, rows) for column in self.columns)
        return ClassificationData(columns, self.labels[rows], self.splits[rows])


def _chosen(column: Sequence[str], rows: Mask) -> list[str]:
    return [text for text, kept in zip(column, rows, strict=True) if kept]


def drawn(size: int, count: int) -> Mask:
    """The rows of a sample: a mask [size] with `count` random places, or all places if there are not more."""
    rows = np.zeros(size, bool)
    rows[generator(0, "rows of a suite", size).permutation(size)[:count]] = True
    return rows


Data = TypeVar("Data")


@dataclass(frozen=True)
class DataSet(Generic[Data]):
    """One data set of the folder.

    Args:
        name: SentEval's name of the set.
        column: its heading in the papers' tables.
        files: paths within the data folder.
        read: maps the files' full paths to the data; raises InputError for a malformed file.
    """

    name: str
    column: str
    files: tuple[str, ...]
    read: Callable[[Sequence[Path]], Data]

    def paths(self, folder: Path) -> list[Path]:
        """The files' full paths."""
        return [folder / name for name in self.files]


def _lines(path: Path, encoding: str = "utf-8") -> list[str]:
    if encoding == "utf-8":
        return [line.removesuffix("\n") for line in text_lines(path)] or [""]
    text = path.read_bytes().decode(encoding)
    return text.removesuffix("\n").split("\n")  # splitlines would also split at characters such as U+0085


def _clean(text: str) -> str:
    return " ".join(text.split()) or "."


def _fields(path: Path, line: int, text: str, count: int, more: bool = False) -> list[str]:
    """The tab-separated fields of a line, stripped of white space. An empty field is an error."""
    fields = [" ".join(field.split()) for field in text.split("\t")]
    if len(fields) < count or (len(fields) > count and not more):
        expected = f"{count} or more" if more else count
        raise InputError(f"{path}:{line}: the line has {len(fields)} fields; expected {expected}, separated by tabs")
    if not all(fields[:count]):
        raise InputError(f"{path}:{line}: field {fields.index('') + 1} is empty; expected {count} fields with text")
    return fields


def _score(path: Path, line: int, text: str, least: float, most: float) -> float:
    value = float(text) if NUMBER.fullmatch(text) else math.nan
    if not least <= value <= most:
        hint = " (decimal point, not comma)" if "," in text else ""
        raise InputError(
            f"{path}:{line}: similarity is {quote(text)}; expected a number from {least:g} to {most:g}{hint}"
        )
    return value


def _label(path: Path, line: int, text: str, labels: Sequence[str]) -> int:
    if text not in labels:
        raise InputError(f"{path}:{line}: label is {quote(text)}; expected one of {', '.join(labels)}")
    return labels.index(text)


def _similarity_data(rows: Sequence[tuple[str, str, float, str]], paths: Sequence[Path]) -> SimilarityData:
    if not rows:
        raise InputError(f"{paths[0]}: no pair has a gold score")
    first, second, gold, subsets = zip(*rows, strict=True)
    return SimilarityData((list(first), list(second)), np.array(gold, np.float64), np.array(subsets))


def _read_sts(paths: Sequence[Path]) -> SimilarityData:
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
        for line, (pair, score) in enumerate(zip(pairs, gold, strict=True), start=1):
            if score.strip():
                value = _score(scores, line, score.strip(), 0, 5)
                first, second = _fields(inputs, line, pair, 2)
                rows.append((first, second, value, subset))
    return _similarity_data(rows, paths)


def _read_sts_benchmark(paths: Sequence[Path]) -> SimilarityData:
    rows = []
    for line, fields in _sts_benchmark_rows(paths[0]):
        rows.append((fields[5], fields[6], _score(paths[0], line, fields[4], 0, 5), "test"))
    return _similarity_data(rows, paths)


def _sts_benchmark_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Rows of genre, file, year, number, score and two sentences; some releases add sources. There is no header."""
    for line, text in enumerate(_lines(path), start=1):
        yield line, _fields(path, line, text, 7, more=True)


def read_genres(folder: Path) -> list[tuple[str, str, str]]:
    """Genre and sentences of every pair of STS Benchmark, all splits.

    Args:
        folder: SentEval's data folder.

    Raises:
        InputError: a missing or malformed file.
    """
    rows = []
    for split in ("train", "dev", "test"):
        path = folder / f"STS/STSBenchmark/sts-{split}.csv"
        if not path.is_file():
            raise InputError(f"{path}: no such file; expected SentEval's data folder")
        rows += [(fields[0], fields[5], fields[6]) for _, fields in _sts_benchmark_rows(path)]
    return rows


def read_sick(paths: Sequence[Path]) -> SimilarityData:
    """A header, then pair_ID, sentence_A, sentence_B, relatedness_score (1 to 5), entailment_judgment."""
    rows = []
    for line, fields in _below_header(paths[0], 5, "relatedness_score"):
        rows.append((fields[1], fields[2], _score(paths[0], line, fields[3], 1, 5), "test"))
    return _similarity_data(rows, paths)


def _below_header(path: Path, count: int, column: str) -> Iterator[tuple[int, list[str]]]:
    header, *lines = _lines(path)
    if column not in [name.strip() for name in header.split("\t")]:
        raise InputError(f"{path}:1: no column {column}; expected a header of {count} columns, separated by tabs")
    if not lines:
        raise InputError(f"{path}: no row below the header")
    for line, text in enumerate(lines, start=2):
        yield line, _fields(path, line, text, count)


def _read_two_classes(paths: Sequence[Path]) -> ClassificationData:
    """A file with the sentences of class 0 and one with those of class 1, for cross-validation."""
    classes = [[_clean(text) for text in _lines(path)] for path in paths]
    labels = np.repeat(np.arange(len(classes)), [len(sentences) for sentences in classes])
    return ClassificationData(([*chain(*classes)],), labels, np.full(len(labels), "test"))


def _classification_data(rows: Sequence[tuple[Sequence[str], int, str]]) -> ClassificationData:
    sentences, labels, splits = zip(*rows, strict=True)
    columns = tuple(list(column) for column in zip(*sentences, strict=True))
    return ClassificationData(columns, np.array(labels, np.int64), np.array(splits))


def _read_sst(paths: Sequence[Path]) -> ClassificationData:
    """Train, dev and test files with a sentence and 0 or 1 on each line."""
    rows = []
    for path, split in zip(paths, ("train", "dev", "test"), strict=True):
        for line, text in enumerate(_lines(path), start=1):
            sentence, label = _fields(path, line, text, 2)
            rows.append(((sentence,), _label(path, line, label, ("0", "1")), split))
    return _classification_data(rows)


TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")


def _read_trec(paths: Sequence[Path]) -> ClassificationData:
    """Train and test files with `CLASS:subclass question` on each line, in latin-1."""
    rows = []
    for path, split in zip(paths, ("train", "test"), strict=True):
        for line, text in enumerate(_lines(path, "latin-1"), start=1):
            found = re.fullmatch(r"(\w+):\w+\s+(\S.*)", text.strip())
            if not found:
                raise InputError(
                    f"{path}:{line}: {quote(text.strip())} is not a class and a question; expected a line such as "
                    "LOC:city Where?"
                )
            rows.append(((_clean(found[2]),), _label(path, line, found[1], TREC_CLASSES), split))
    return _classification_data(rows)


def _read_mrpc(paths: Sequence[Path]) -> ClassificationData:
    """Train and test files with a header, then Quality (1 for a paraphrase), two ids, two sentences."""
    rows = []
    for path, split in zip(paths, ("train", "test"), strict=True):
        for line, fields in _below_header(path, 5, "Quality"):
            rows.append(((fields[3], fields[4]), _label(path, line, fields[0], ("0", "1")), split))
    return _classification_data(rows)


def _sts_year(year: int, *subsets: str) -> DataSet[SimilarityData]:
    folder = f"STS/STS{year}-en-test"
    files = [f"{folder}/STS.{kind}.{subset}.txt" for subset in subsets for kind in ("input", "gs")]
    return DataSet(f"STS{year}", f"STS{year}", tuple(files), _read_sts)


STS_SETS: tuple[DataSet[SimilarityData], ...] = (
    _sts_year(12, "MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    _sts_year(13, "FNWN", "headlines", "OnWN"),
    _sts_year(14, "deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    _sts_year(15, "answers-forums", "answers-students", "belief", "headlines", "images"),
    _sts_year(16, "answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
    DataSet("STSBenchmark", "STS-B", ("STS/STSBenchmark/sts-test.csv",), _read_sts_benchmark),
    DataSet("SICKRelatedness", "SICK-R", ("SICK/SICK_test_annotated.txt",), read_sick),
)
TRANSFER_SETS: tuple[DataSet[ClassificationData], ...] = (
    DataSet("MR", "MR", ("MR/rt-polarity.neg", "MR/rt-polarity.pos"), _read_two_classes),
    DataSet("CR", "CR", ("CR/custrev.neg", "CR/custrev.pos"), _read_two_classes),
    DataSet("SUBJ", "SUBJ", ("SUBJ/subj.objective", "SUBJ/subj.subjective"), _read_two_classes),
    DataSet("MPQA", "MPQA", ("MPQA/mpqa.neg", "MPQA/mpqa.pos"), _read_two_classes),
    DataSet("SST2", "SST", tuple(f"SST/binary/sentiment-{split}" for split in ("train", "dev", "test")), _read_sst),
    DataSet("TREC", "TREC", ("TREC/train_5500.label", "TREC/TREC_10.label"), _read_trec),
    DataSet("MRPC", "MRPC", ("MRPC/msr_paraphrase_train.txt", "MRPC/msr_paraphrase_test.txt"), _read_mrpc),
)
