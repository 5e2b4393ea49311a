"""What a data folder holds and what is wrong with it: the tables of `multitask data check`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from minbert.errors import InputError
from multitask.data.parse_rows import OnProblem
from multitask.data.read_task_files import SPLITS, Examples, Schema, Split, read_examples
from multitask.data.read_unlabelled_files import (
    PAIRS_FILE,
    SENTENCES_FILE,
    TRIPLETS_FILE,
    read_pairs,
    read_sentences,
    read_triplets,
)

SHOWN_PROBLEMS = 20  # per file
BINS = 5  # of the histogram of labels that need not be whole numbers


@dataclass(frozen=True)
class FileReport:
    """What one file holds.

    Args:
        name: the file's name.
        rows: number of usable rows.
        dropped: number of rows left out because a label or sentence is empty; in a text file, of blank lines.
        repeated: number of rows with the same sentences as an earlier row, ignoring case.
        words: 50th percentile, 95th percentile and maximum of the words per sentence.
        labels: number of rows per label, or per interval of labels; empty without labels.
    """

    name: str
    rows: int
    dropped: int
    repeated: int
    words: tuple[int, int, int]
    labels: Mapping[str, int]


@dataclass(frozen=True)
class SplitOverlap:
    """How many distinct sentences, ignoring case, two splits of a task have in common."""

    task: str
    splits: tuple[Split, Split]
    sentences: int


@dataclass(frozen=True)
class FolderReport:
    """What a data folder holds. `absent` names the missing files of each task that has at least one file."""

    files: tuple[FileReport, ...]
    overlaps: tuple[SplitOverlap, ...]
    absent: tuple[str, ...]

    def render(self) -> str:
        """Aligned plain-text tables, without a final newline."""
        header = ("file", "rows", "dropped", "repeated", "words 50%", "95%", "max", "labels")
        rows = [
            (
                file.name,
                *(f"{number:,}" for number in (file.rows, file.dropped, file.repeated, *file.words)),
                "  ".join(f"{label}: {count:,}" for label, count in file.labels.items()) or "-",
            )
            for file in self.files
        ]
        parts = [_table([header, *rows], numeric=range(1, 7))]
        if self.overlaps:
            shared = [(o.task, " and ".join(o.splits), f"{o.sentences:,}") for o in self.overlaps]
            parts.append(_table([("task", "splits", "sentences in both"), *shared], numeric=(2,)))
        if self.absent:
            parts.append(f"absent: {', '.join(self.absent)}")
        return "\n\n".join(parts)


def check_folder(folder: Path, schemas: Mapping[str, Schema]) -> tuple[FolderReport, list[str]]:
    """Read every known file in a folder: those of the tasks, triplets, pairs, and all text files (`.txt`).

    Args:
        folder: the data folder.
        schemas: file formats by task. A task without any file in the folder is skipped.

    Returns:
        The report, and the problems as lines of text: at most 20 per file, then the number of further ones.

    Raises:
        InputError: the folder is missing or holds none of the known files.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    files: list[FileReport] = []
    overlaps: list[SplitOverlap] = []
    absent: list[str] = []
    problems: list[str] = []
    for task, schema in schemas.items():
        paths: dict[Split, Path] = {split: schema.path(folder, split) for split in SPLITS}
        present = [split for split in SPLITS if paths[split].exists()]
        if present:
            absent += [paths[split].name for split in SPLITS if split not in present]
        read: dict[Split, Examples] = {}
        for split in present:
            with _problems_of(paths[split], problems) as on_problem:
                read[split] = read_examples(paths[split], schema, split != "test", on_problem)
                files.append(_examples_report(read[split], schema))
        overlaps += _overlaps(task, read)
    files += _unlabelled_reports(folder, problems)
    if not files and not problems:
        names = [f"{schema.file_stem}-train.csv" for schema in schemas.values()]
        raise InputError(
            f"{folder}: no data file; expected some of {', '.join([*names, TRIPLETS_FILE, SENTENCES_FILE])}"
        )
    return FolderReport(tuple(files), tuple(overlaps), tuple(absent)), problems


@contextmanager
def _problems_of(path: Path, problems: list[str]) -> Iterator[OnProblem]:
    """Yield a function that collects a file's problems, and add them to `problems`.

    An `InputError` that ends the block is added too.
    """
    own: list[str] = []
    try:
        yield own.append
    except InputError as error:
        own.append(str(error))
    problems += own[:SHOWN_PROBLEMS]
    if len(own) > SHOWN_PROBLEMS:
        problems.append(f"{path}: and {len(own) - SHOWN_PROBLEMS:,} more problems")


def _unlabelled_reports(folder: Path, problems: list[str]) -> list[FileReport]:
    files: list[FileReport] = []
    if (path := folder / TRIPLETS_FILE).exists():
        with _problems_of(path, problems) as on_problem:
            triplets = read_triplets(path, on_problem)
            columns = (triplets.anchors, triplets.positives, triplets.hard_negatives)
            files.append(_file_report(path.name, triplets.dropped, columns, {}))
    if (path := folder / PAIRS_FILE).exists():
        with _problems_of(path, problems) as on_problem:
            pairs = read_pairs(path, on_problem)
            files.append(_file_report(path.name, pairs.dropped, (pairs.anchors, pairs.positives), {}))
    for path in sorted(folder.glob("*.txt")):
        with _problems_of(path, problems):
            sentences = read_sentences(path)
            files.append(_file_report(path.name, sentences.blank, (sentences.sentences,), {}))
    return files


def _examples_report(examples: Examples, schema: Schema) -> FileReport:
    return _file_report(examples.source.name, examples.dropped, examples.sentences, _histogram(examples, schema))


def _file_report(name: str, dropped: int, columns: Sequence[Sequence[str]], labels: Mapping[str, int]) -> FileReport:
    rows = len(columns[0])
    distinct = len(set(zip(*map(_same_case, columns), strict=True)))
    lengths = [len(text.split()) for column in columns for text in column]
    middle, high, most = np.percentile(lengths, [50, 95, 100], method="higher").tolist()
    return FileReport(name, rows, dropped, rows - distinct, (middle, high, most), labels)


def _histogram(examples: Examples, schema: Schema) -> dict[str, int]:
    if examples.labels is None:
        return {}
    if schema.integral:
        counts = Counter(examples.labels.astype(int).tolist())
        return {str(label): counts[label] for label in range(int(schema.minimum), int(schema.maximum) + 1)}
    heights, edges = np.histogram(examples.labels, bins=BINS, range=(schema.minimum, schema.maximum))
    return {f"{edges[i]:g}-{edges[i + 1]:g}": int(heights[i]) for i in range(BINS)}


def _overlaps(task: str, read: Mapping[Split, Examples]) -> list[SplitOverlap]:
    sentences = {
        split: {text for column in data.sentences for text in _same_case(column)} for split, data in read.items()
    }
    return [SplitOverlap(task, (a, b), len(sentences[a] & sentences[b])) for a, b in combinations(sentences, 2)]


def _same_case(texts: Iterable[str]) -> Iterable[str]:
    return (text.lower() for text in texts)  # the readers have removed white space


def _table(rows: Sequence[Sequence[str]], numeric: Iterable[int]) -> str:
    """Align columns; those in `numeric` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = set(numeric)
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
