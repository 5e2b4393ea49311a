"""Read text without labels: triplets, pairs of sentences with the same meaning, and plain sentences.

A triplet or pair with an empty sentence is left out, and one warning per file counts such rows. Blank lines of a text
file are skipped. Anything else that is wrong is an error.
"""

from dataclasses import dataclass
from pathlib import Path

from minbert.errors import InputError
from minbert.files import sha256_of_file
from multitask.data.problems import LOGGER, OnProblem, checked, refuse, warn_incomplete
from multitask.data.tables import Dialect, Source, open_table
from multitask.data.text_lines import text_lines

TRIPLETS_FILE = "nli_triplets.csv"
PAIRS_FILE = "positive_pairs.tsv"
SENTENCES_FILE = "sentences.txt"
CAPTIONS_FILE = "captions.txt"
NEWS_FILE = "news.txt"


@dataclass(frozen=True)
class TripletRows:
    """Triplets of sentences, row by row: a premise, what it entails and what contradicts it.

    Args:
        anchors: the premises.
        positives: a sentence that each premise entails.
        hard_negatives: a sentence that contradicts each premise.
        fingerprint: SHA-256 of the file's bytes, 64 hex digits.
        dropped: number of rows left out because a sentence is empty.
    """

    anchors: list[str]
    positives: list[str]
    hard_negatives: list[str]
    fingerprint: str
    dropped: int


@dataclass(frozen=True)
class PairRows:
    """Pairs of sentences with the same meaning, row by row; `fingerprint` and `dropped` as in `TripletRows`."""

    anchors: list[str]
    positives: list[str]
    fingerprint: str
    dropped: int


@dataclass(frozen=True)
class SentenceRows:
    """Unlabelled sentences.

    Args:
        sentences: one per line that is not blank.
        fingerprint: SHA-256 of the file's bytes (as stored, compressed or not), 64 hex digits.
        blank: number of blank lines skipped.
    """

    sentences: list[str]
    fingerprint: str
    blank: int


def read_triplets(path: Path, on_problem: OnProblem = refuse) -> TripletRows:
    """Read a comma-separated file with the columns `sent0`, `sent1` and `hard_neg`.

    Raises:
        InputError: as `read_examples`, except for ids and labels.
    """
    fingerprint, dropped, columns = _text_columns(path, ",", ("sent0", "sent1", "hard_neg"), on_problem)
    return TripletRows(columns[0], columns[1], columns[2], fingerprint, dropped)


def read_pairs(path: Path, on_problem: OnProblem = refuse) -> PairRows:
    """Read a tab-separated file with the columns `sentence1` and `sentence2`, which have the same meaning.

    Raises:
        InputError: as `read_examples`, except for ids and labels.
    """
    fingerprint, dropped, columns = _text_columns(path, "\t", ("sentence1", "sentence2"), on_problem)
    return PairRows(columns[0], columns[1], fingerprint, dropped)


def read_sentences(path: Path, limit: int | None = None) -> SentenceRows:
    """Read a text file with one sentence per line; a compressed one by its suffix (.gz, .bz2, .xz, .zst).

    Args:
        path: the file.
        limit: stop after this many sentences; blank lines do not count.

    Raises:
        InputError: the file is missing, has no sentence up to the limit, is not UTF-8, or is a damaged compressed file.
    """
    fingerprint = checked(path, sha256_of_file)
    sentences: list[str] = []
    blank = 0
    for line in text_lines(path):
        if limit is not None and len(sentences) >= limit:
            break
        if text := line.strip():
            sentences.append(text)
        else:
            blank += 1
    if blank:
        LOGGER.warning("%s: skipped %d blank lines", path, blank)
    if not sentences:
        raise InputError(f"{path}: no sentence; expected one sentence per line")
    return SentenceRows(sentences, fingerprint, blank)


def _text_columns(
    path: Path, separator: str, columns: tuple[str, ...], on_problem: OnProblem
) -> tuple[str, int, list[list[str]]]:
    """A file whose columns are all sentences: its fingerprint, the number of rows left out, and the named columns."""
    fingerprint = checked(path, sha256_of_file)
    table = open_table(Source(str(path)), Dialect(separator), on_problem)
    table.require(columns)
    rows: list[list[str]] = []
    incomplete: list[int] = []
    for line, row in table.rows:
        fields = [row[column].strip() for column in columns]
        if all(fields):
            rows.append(fields)
        else:
            incomplete.append(line)
    warn_incomplete(str(path), "left out", "without a sentence", len(incomplete), incomplete[:5])
    if not rows:
        raise InputError(f"{path}: no usable row below the header")
    return fingerprint, len(incomplete), [list(column) for column in zip(*rows, strict=True)]
