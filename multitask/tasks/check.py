"""What a data folder or the files of a tasks file hold, and what is wrong with them: `multitask data check`."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, combinations, pairwise
from operator import eq
from pathlib import Path

import numpy as np
import pandas
from numpy.typing import NDArray

from minbert.errors import InputError
from minbert.tokenizer import Tokenizer
from multitask.base import logger
from multitask.base.random_streams import generator
from multitask.data.contamination import Hashes, hash_sentences
from multitask.data.examples import Examples, TextCounts
from multitask.data.markup import aligned
from multitask.data.messages import other_tasks, plain, quote, spelled
from multitask.data.tables import MissingSplitError, RowsFrom
from multitask.tasks.declarations import load_tasks
from multitask.tasks.kinds import MultiLabel, Regression
from multitask.tasks.labels import Labelled, rows_by_label, without_rows
from multitask.tasks.read_examples import held_out, held_out_part, read_examples
from multitask.tasks.scores import same_number
from multitask.tasks.sources import SOURCE_FILES, Lines, read_texts
from multitask.tasks.task import Split, Task

PROBLEMS_SHOWN = 10
"""Lines of problems that are shown of one file, however many tasks read it."""
HISTOGRAM_BINS = 5  # of the histogram of numbers


@dataclass(frozen=True)
class FileReport:
    """What one file holds."""

    name: str
    rows: int  # usable ones
    dropped: int  # rows left out, see `Examples`
    repeated: int  # rows with the same sentences as an earlier row, as contamination records compare them
    tokens: list[int]  # per sentence: 50th percentile, 95th percentile and maximum
    over: float  # share of the sentences that are longer than the maximal length
    labels: dict[str, int]  # rows per label, or per interval of labels; empty without labels


@dataclass
class DataReport:
    """What the files hold."""

    tokenizer: Tokenizer
    max_length: int  # sentences with more tokens are too long
    declared: bool  # whether a tasks file declares the tasks
    files: list[FileReport] = field(default_factory=list)  # those that could be read
    overlaps: list[tuple[str, str, int]] = field(default_factory=list)
    """Two sets, and how many distinct sentences they have in common, as contamination records compare them."""
    absent: list[str] = field(default_factory=list)  # the missing files of each task that has at least one file
    hints: list[str] = field(default_factory=list)  # about labels that may be misspelt or wrong
    gaps: list[str] = field(default_factory=list)  # what development rows cannot tell; see `gaps`
    _problems: dict[str, dict[str, None]] = field(default_factory=dict)  # of each file
    _sentences: dict[tuple[str, str], Hashes] = field(default_factory=dict)  # of each task and split

    @property
    def problems(self) -> list[str]:
        """What is wrong, a line each; of many problems of a file the first ones and how many there are besides."""
        lines: list[str] = []
        for name, found in self._problems.items():
            lines += found if len(found) <= PROBLEMS_SHOWN else list(found)[: PROBLEMS_SHOWN - 1]
            if len(found) > PROBLEMS_SHOWN:
                lines.append(f"{name}: and {len(found) - PROBLEMS_SHOWN + 1:,} more problems")
        return lines

    def add_task(self, task: Task) -> None:
        """Read the files of a task."""
        missing = [source for source in task.files.splits.values() if not source.exists()]
        for source in missing:
            if self.declared:
                self._problems.setdefault(source.file, {})[str(task.problem(f"{source.file}: no such file"))] = None
            elif len(missing) < len(task.files.splits):
                self.absent.append(Path(source.file).name)
        for split, source in task.files.splits.items():
            if source in missing:
                continue
            with self._problems_of(source.file) as problems:
                try:
                    examples = read_examples(task, source, split != "test", problems.append)
                except MissingSplitError:
                    if split != "test":  # one file for all splits may have no test rows
                        raise
                    continue
                if split == "train":
                    self.hints += task.hints(examples)[:PROBLEMS_SHOWN]
                    try:
                        task = task.learned(examples)
                    except InputError as error:
                        if not problems:  # otherwise it may only follow from the rows that were left out
                            problems.append(str(error))
                    self.hints += contradictions(task, source, examples)
                name = f"{task.name} {source}" if self.declared else Path(source.file).name
                self._sentences[task.name, split] = self._add(name, examples, _histogram(task, examples))
                if not problems and split != "test":
                    self.gaps += _gaps_of_dev(task, split, examples)

    def add_unlabelled(self, folder: Path) -> None:
        """Read the files of a folder that have no labels."""
        fixed = {folder / file: kind.columns for kind, file in SOURCE_FILES.values() if kind is not Lines}
        found = {path: columns for path, columns in fixed.items() if path.exists()}
        for path, columns in (found | dict.fromkeys(sorted(folder.glob("*.txt")), Lines.columns)).items():
            with self._problems_of(str(path)) as problems:
                self._add(path.name, read_texts(path, columns, on_problem=problems.append), {})

    def compare(self) -> None:
        """Splits of one task with each other; and the training set of a task with dev and test sets of other tasks."""
        for ((task, split), one), ((other, second), two) in combinations(self._sentences.items(), 2):
            if task == other or (self.declared and "train" in (split, second) and split != second):
                shared = np.intersect1d(one, two, assume_unique=True)
                if task == other or len(shared):
                    self.overlaps.append((f"{task} {split}", f"{other} {second}", len(shared)))

    def _add(self, name: str, read: Examples, labels: dict[str, int]) -> Hashes:
        """Add the report of a file; returns the distinct hashes of its sentences."""
        hashes = np.stack([hash_sentences(column) for column in read.sentences], axis=1)  # [rows, columns]
        repeated = len(hashes) - len(np.unique(hashes, axis=0))
        lengths, unread = self.tokenizer.lengths([*chain(*read.texts)])
        if unread:
            self.hints.append(f"{name}: {TextCounts(len(lengths), unread)}")
        tokens = np.percentile(lengths, [50, 95, 100], method="higher").tolist()
        over = float(np.mean(lengths > self.max_length))
        self.files.append(FileReport(name, len(read), read.dropped, repeated, tokens, over, labels))
        return np.unique(hashes)

    @contextmanager
    def _problems_of(self, name: str) -> Iterator[list[str]]:
        """Yield a list for a file's problems. An `InputError` that ends the block is added too."""
        own: list[str] = []
        try:
            yield own
        except InputError as error:
            own.append(str(error))
        self._problems.setdefault(name, {}).update(dict.fromkeys(own))

    def render(self) -> str:
        """Aligned plain-text tables, without a final newline."""
        header = ["file", "rows", "dropped", "repeated", "tokens 50%", "95%", "max", f"over {self.max_length}"]
        rows = [
            [file.name, *(f"{n:,}" for n in (file.rows, file.dropped, file.repeated, *file.tokens)), f"{file.over:.1%}"]
            for file in self.files
        ]
        labels = [
            "  ".join(f"{plain(label)}: {count:,}" for label, count in file.labels.items()) for file in self.files
        ]
        lines = aligned([header, *rows]).splitlines()
        parts = ["\n".join(f"{line}  {last or '-'}" for line, last in zip(lines, ["labels", *labels], strict=True))]
        if self.overlaps:
            shared = [(first, second, f"{sentences:,}") for first, second, sentences in self.overlaps]
            parts.append(aligned([("file", "and", "sentences in both"), *shared], left=2))
        if self.absent:
            parts.append(f"absent: {', '.join(self.absent)}")
        return "\n\n".join(parts)


def check_data(data: Path, tokenizer: Tokenizer, max_length: int | None = None) -> DataReport:
    """Read all files of a tasks file, or all known files of a folder: the course's tasks, triplets, pairs and texts.

    Sentences with more tokens than `max_length` (None: the encoder's limit) are counted as too long. Raises InputError
    if the folder is missing, has none of the known files, or has a tasks file and no files of the course's tasks; or
    the tasks file is not valid.
    """
    declared = data.suffix == ".toml"
    if not declared and not data.exists():
        raise InputError(f"{data}: no such folder")
    report = DataReport(tokenizer, tokenizer.max_length if max_length is None else max_length, declared)
    tasks = load_tasks(data)
    for task in tasks.values():
        report.add_task(task)
    if not declared:
        report.add_unlabelled(data)
    names = [Path(task.source("train").file).name for task in tasks.values()]
    others = other_tasks(data / names[0])
    has_tasks = any(source.exists() for task in tasks.values() for source in task.files.splits.values())
    if not report.problems and not has_tasks and (others or not report.files):
        names += [file for _, file in SOURCE_FILES.values()]
        raise InputError(f"{data}: no data file; expected some of {', '.join(names)}{others}")
    report.compare()
    return report


def undefined_on(task: Task, labels: NDArray[np.float32]) -> list[str]:
    """The scores that no predictions have on these labels, because those by chance do not."""
    shape = (len(labels), task.outputs) if task.outputs > 1 or labels.ndim == 2 else len(labels)
    draws, undefined = generator(0, "predictions by chance"), None
    for _ in range(32):  # predictions of few rows are often all equal
        found = task.metrics(draws.random(shape), labels)
        undefined = [name for name in undefined or found if isinstance(found[name], float) and math.isnan(found[name])]
        if not undefined:
            break
    return undefined or []


def gaps(task: Task, examples: Examples) -> list[str]:
    """Lines that say what labelled rows cannot tell of any model, and how scores count it."""
    labels, found = examples.gold, []
    if undefined := undefined_on(task, labels):
        value = quote(task.names[int(labels.flat[0])]) if isinstance(task, Labelled) else same_number(labels)
        one = f"all {len(labels):,} labels are {value}" if len(labels) > 1 else "there is only one row"
        why = one if labels.ndim == 1 else "each label stands in every row or in none"
        verb = "is" if len(undefined) == 1 else "are"
        found.append(f"{' and '.join(undefined)} {verb} undefined for every model, as {why}")
    if isinstance(task, Labelled):
        found += without_rows(task, labels)
    if task.pair and all(map(eq, *examples.sentences)):
        found.append("the two texts of every pair are equal, so embeddings cannot tell one pair from another")
    return [f"{task.name}: {examples.source}: {line}" for line in found]


def warn_of_gaps(task: Task, examples: Examples) -> None:
    """Log what labelled rows cannot tell; see `gaps`."""
    for line in gaps(task, examples):
        logger.warning(line)


def _gaps_of_dev(task: Task, split: Split, examples: Examples) -> list[str]:
    """The gaps of development rows; without any, of those that a training holds out. InputError for too few rows."""
    if isinstance(task, Labelled) and not task.labels:  # the training rows could not be read
        return []
    if split == "train" and task.files.dev is None:
        return gaps(task, held_out_part(examples, held_out(examples, task.files.dev_share)[1]))
    return gaps(task, examples) if split == "dev" else []


def contradictions(task: Task, source: RowsFrom, examples: Examples) -> list[str]:
    """A line that counts the texts or pairs with different labels and shows the first, if there are any.

    Numbers differ if they are more than half the range apart; sets of labels are not compared.
    """
    if isinstance(task, MultiLabel):
        return []
    half = (task.bounds[1] - task.bounds[0]) / 2 * (1 + 1e-6) if isinstance(task, Regression) else 0  # labels are fp32
    text = pandas.DataFrame(dict(enumerate(examples.sentences))).groupby([*range(len(examples.sentences))]).ngroup()
    labels = pandas.Series(examples.gold.astype(np.float64)).groupby(text)
    rows = np.flatnonzero(labels.transform("max") - labels.transform("min") > half)
    if not len(rows):
        return []
    assert examples.numbers is not None, "rows of files have numbers"
    of_first = labels.get_group(text[rows[0]])
    pair = sorted((of_first.idxmin(), of_first.idxmax()))
    names = [examples.classes[int(label)] if examples.classes else str(label) for label in examples.gold[pair]]
    unit = "rows" if source.path is None or source.form in (".parquet", ".xlsx") else "lines"
    places = " and ".join(f"{examples.numbers[row]} ({plain(name)})" for row, name in zip(pair, names, strict=True))
    count, what = text[rows].nunique(), "pair" if task.pair else "text"
    found = f"{count:,} {what}s have" if count > 1 else f"1 {what} has"
    far = " (more than half the range apart)" if isinstance(task, Regression) else ""
    shown = ", ".join(quote(column[pair[0]]) for column in examples.sentences)
    line = f"{source}: {found} different labels for {task.name}{far}, first {shown} in {unit} {places}"
    return [f"{line}; correct or remove such rows"]


def _histogram(task: Task, examples: Examples) -> dict[str, int]:
    labels = examples.labels
    if labels is None:
        return {}
    if isinstance(task, Labelled):
        counts = rows_by_label(labels, len(examples.classes))
        names = [spelled(name) if "\\u" in spelled(name) else name for name in examples.classes]
        return dict(zip(names, counts.tolist(), strict=True))
    assert isinstance(task, Regression)
    ends = min(task.bounds[0], labels.min()), max(task.bounds[1], labels.max())
    heights, edges = np.histogram(labels.astype(np.float64), bins=HISTOGRAM_BINS, range=ends)
    texts = next(
        texts for digits in range(6, 18) if len(set(texts := [f"{edge:.{digits}g}" for edge in edges])) > HISTOGRAM_BINS
    )
    return {f"{low}-{high}": int(height) for (low, high), height in zip(pairwise(texts), heights, strict=True)}
