"""What a model was trained on: hashes of its training sentences and pairs, in which evaluations look up their own.

Artefacts and exports keep this record as `trained_on.npz`. A run's record covers the run and all runs that it started
from, so it stays complete when those are deleted; an ensemble's record covers all members. It contains every row of the
training splits that the planned epochs visit. The kept weights may have seen fewer rows, if training ended early or an
earlier state was the best. Dev sets are not recorded, although states and members were selected on them. Only whole
sentences are found, neither a part of a training sentence nor a longer text that contains one.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError
from minbert.files import atomic_file, read_arrays, read_toml, sha256_of_file
from multitask.base.runs import is_run, run_of

RECORD = "trained_on.npz"
MOST_UNKNOWN_BYTES = 2**24  # of the lines of what is not known
HASH_VERSION = 1  # raise this when `normalised` changes: hashes of different versions cannot be compared

Hashes = NDArray[np.uint64]

# Copies of the same data differ in tokenisation, quoting and damaged accents. These patterns remove the differences.
_CAT_V = re.compile(r"M-(?:\^[@-_]|(?<=[a-z]M-)([`-~]))")  # `cat -v` of Latin-1 (SentEval's MR and SUBJ): clichM-i
_CP1252_DASHES = ("M-^V", "M-^W")
_TREEBANK_BRACKET = re.compile(r"-(?<!\S-)[lr][rsc]b-(?!\S)")
_ANGLE_BRACKETS = re.compile(r"<([^<>]*)>")
_CONTROLS, _ACCENTS, _SPACES_AND_QUOTES = range(0x20), range(0x300, 0x370), range(0x2000, 0x2070)
_DROPPED = dict.fromkeys(
    [*map(ord, " !\"'()*,;?[\\]_`{}¡«»¿"), *_CONTROLS, *range(0x7F, 0xA1), 0xAD, *_ACCENTS, *_SPACES_AND_QUOTES]
)
_SIGNS = {**dict.fromkeys([*range(0x2010, 0x2016), 0x2212], "-"), 0x2044: "/"}  # dashes; NFKD's slash in fractions
# Characters removed or replaced in texts with and without digits.
_DROPPED_WITH_DIGITS = _DROPPED | _SIGNS
_DROPPED_WITHOUT_DIGITS = _DROPPED | dict.fromkeys([*map(ord, "-./:"), *_SIGNS])
_DIGIT = re.compile(r"\d")
_DASHES = re.compile("-{2,}")  # the Penn Treebank's dash
_NOT_WITHIN_NUMBER = re.compile(r"(?<!\d)[-./:]+|[-./:]+(?!\d)")


def normalised(sentence: str) -> str:
    """A sentence in the form that is compared: copies with other case, spacing, tokenisation or quoting are equal.

    Removed are white space, accents and other combining marks, quotes, brackets (also `-LRB-` and the like, and < > in
    pairs), the marks . , ; : ! ? * _, hyphens, dashes, slashes and backslashes. So these are equal: "It's a co-writer
    (2002)." and "it 's a co - writer -LRB- 2002 -RRB-", "cliché" and "Cliche", but also "resume" and "résumé", "the
    rapist" and "therapist". Sentences stay different if they differ in a letter, a digit, a symbol (C, C++ and C#), or
    one of - . / : between digits (1.5 and 15, 2-1 and 21; a comma between digits is removed). If nothing would be left,
    only white space is removed.
    """
    text = _CAT_V.sub(_undamaged, sentence)
    text = text.casefold() if text.isascii() else unicodedata.normalize("NFKD", text).casefold()
    text = _ANGLE_BRACKETS.sub(r"\1", _TREEBANK_BRACKET.sub("", text))
    if _DIGIT.search(text):
        kept = _NOT_WITHIN_NUMBER.sub("", _DASHES.sub("-", text.translate(_DROPPED_WITH_DIGITS)))
    else:
        kept = text.translate(_DROPPED_WITHOUT_DIGITS)
    return kept or "".join(sentence.split())


def _undamaged(found: re.Match[str]) -> str:
    if found[1]:
        return chr(ord(found[1]) + 0x80)
    return "-" if found[0] in _CP1252_DASHES else " "


def hash_sentences(sentences: Iterable[str]) -> Hashes:
    """64-bit hashes of `normalised` sentences, [sentences] uint64.

    A sentence has the same hash as one of a million other sentences with a probability of less than 10^-13.
    """
    return _digests(normalised(sentence).encode() for sentence in sentences)


def _hash_pairs(first: Hashes, second: Hashes) -> Hashes:
    """Hashes of pairs of sentences, [pairs]; the order within a pair does not matter."""
    pairs = np.sort(np.stack([first, second], axis=1), axis=1).astype("<u8")
    return _digests(pair.tobytes() for pair in pairs)


def _are_hashes(*arrays: NDArray[Any]) -> bool:
    """Whether all arrays are sorted distinct hashes."""
    return all(a.ndim == 1 and a.dtype == np.uint64 and (a[1:] > a[:-1]).all() for a in arrays)


def _digests(texts: Iterable[bytes]) -> Hashes:
    digests = (int.from_bytes(blake2b(text, digest_size=8).digest(), "little") for text in texts)
    return np.fromiter(digests, np.uint64)


@dataclass(frozen=True, eq=False)
class TrainedOn:
    """Sentences and pairs that a model was trained on."""

    # sorted distinct hashes of the sentences
    sentences: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    # sorted distinct hashes of the sentences that were trained on as a pair
    pairs: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    unknown: tuple[str, ...] = ()  # one line for each part of the training data whose sentences are not known

    @classmethod
    def of_folder(cls, folder: Path, name: str) -> Self:
        """Everything that the model in a run's or a model's folder was trained on, over all trainings before it.

        `name` is the user's name of the model, which `unknown` shows and which identifies published checkpoints.
        Raises InputError if the record is damaged.
        """
        run = run_of(folder)
        for place in (folder, run):
            if (found := cls.read(place)) is not None:
                return found
        if is_run(run):
            remedy = "run its command again, then the commands of runs that start from it"
            return cls(unknown=(f"{run.name} records no sentences; {remedy}",))
        return cls(unknown=_known_of_checkpoint(folder, name))

    @classmethod
    def of_rows(cls, columns: Sequence[Hashes]) -> Self:
        """Hashes of columns of sentences, [rows] each. The first column makes pairs with each other column."""
        first, *others = columns
        pairs = [np.empty(0, np.uint64), *(_hash_pairs(first, other) for other in others)]
        return cls(np.unique(np.concatenate(columns)), np.unique(np.concatenate(pairs)))

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Read what `keep` wrote; None if there is no record of this version. Raises InputError if it is damaged."""
        path = folder / RECORD
        if not path.is_file():
            return None
        if not np.array_equal(read_arrays(path, "version")["version"], HASH_VERSION):
            return None
        sentences, pairs, unknown = read_arrays(path, "sentences", "pairs", "unknown").values()
        lines = unknown.ndim == 1 and unknown.dtype.kind == "U" and unknown.nbytes <= MOST_UNKNOWN_BYTES
        if not lines or not _are_hashes(sentences, pairs):
            raise InputError(f"{path}: damaged; delete it and run the command of this run again")
        return cls(sentences, pairs, tuple(unknown.tolist()))

    def keep(self, folder: Path) -> None:
        """Write the record into an artefact's folder, atomically, unless the folder has one."""
        if self.read(folder) is not None:
            return
        unknown = np.array(self.unknown, np.str_)
        with atomic_file(folder / RECORD) as temporary, temporary.open("wb") as file:
            np.savez(file, version=np.array(HASH_VERSION), sentences=self.sentences, pairs=self.pairs, unknown=unknown)

    def __or__(self, other: "TrainedOn") -> "TrainedOn":
        """The union of two records."""
        return TrainedOn(
            np.union1d(self.sentences, other.sentences),
            np.union1d(self.pairs, other.pairs),
            tuple(dict.fromkeys((*self.unknown, *other.unknown))),
        )

    def sentences_seen(self, sentences: Sequence[str]) -> NDArray[np.bool_]:
        """Whether each sentence was trained on, [sentences]; sentences are compared as `normalised`."""
        return np.isin(hash_sentences(sentences), self.sentences)

    def pairs_seen(self, first: Sequence[str], second: Sequence[str]) -> NDArray[np.bool_]:
        """Whether each pair was trained on as a pair, in either order, [pairs].

        Pairs with a label (paraphrase, similarity) count, positive pairs, and in triplets the anchor with each of the
        other two sentences. Two dropout views of a sentence do not count.
        """
        return np.isin(_hash_pairs(hash_sentences(first), hash_sentences(second)), self.pairs)

    def rows_seen(self, columns: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
        """Whether each row was trained on, [rows]: one of two columns as a pair."""
        return (self.pairs_seen if len(columns) == 2 else self.sentences_seen)(*columns)


@cache
def _published() -> list[dict[str, list[str]]]:
    return list(read_toml(Path(__file__).with_name("checkpoints.toml"))["checkpoint"])


def _known_of_checkpoint(folder: Path, name: str) -> tuple[str, ...]:
    """What is known of a published checkpoint's training data. It is recognised by its weights or by its hub id."""
    weights = folder / "model.safetensors"
    digest = sha256_of_file(weights) if weights.is_file() else ""
    called = "" if Path(name).is_dir() else name.lower()
    shown = name if called else Path(name).resolve().name  # records of exports are published
    for checkpoint in _published():
        if digest in checkpoint["sha256"] or called in checkpoint["names"]:
            return tuple(f"{shown}: {line}; its sentences are not known" for line in checkpoint["trained_on"])
    return (f"the training data of {shown} is not recorded",)
