"""What a task is: which files it has, what their columns mean, and how it is scored. `kinds` has the kinds."""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from minbert.config import Long
from minbert.errors import InputError
from minbert.settings import Positive, adapter
from multitask.base.keys import NOT_IN_KEY
from multitask.data.examples import Examples
from multitask.data.messages import listed, quote
from multitask.data.tables import TYPED, FileRow, Format, RowsFrom
from multitask.data.texts import Template, joined, template
from multitask.tasks.scores import LOWER_IS_BETTER, Metric

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")

Finite = Annotated[float, Field(allow_inf_nan=False)]
ColumnName = Annotated[str, Field(min_length=1)]

TUNED = {"tuned": True}
"""Metadata of a field that is chosen on the dev set."""
RESERVED = ("overall", "training", "embeddings", "facts", "gradient", "last")
"""Names that stand for something else in files of scores and losses, and in `--select`."""


@dataclass(frozen=True, kw_only=True)
class TaskFiles:
    """Where a task's rows are, how the files are written, and what their columns mean.

    Args:
        text: the columns of its sentences, or templates (see `texts`): one, or two of a pair. Of single sentences,
            several columns become one template.
        label: the label's column; of several labels a row, also one column for each label.
        train: where its training rows come from.
        dev: its development rows. None: a share of the training rows.
        test: its test rows, which need no labels.
        dev_share: the share of the training rows that is held out if there is no `dev`.
        id: column of the rows' ids, if they have any.
        duplicates: what becomes of a row with the id, or the texts and label, of an earlier one. None: rows may be
            equal, ids may not.
        format: how files without a format of their own are written.
        form: of a stored model, the format of its training file, see `Task.form`.
    """

    text: tuple[str, ...]
    label: str | tuple[str, ...]
    train: RowsFrom | None = field(default=None, metadata=NOT_IN_KEY)
    dev: RowsFrom | None = field(default=None, metadata=NOT_IN_KEY)
    test: RowsFrom | None = field(default=None, metadata=NOT_IN_KEY)
    dev_share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    id: str | None = None
    duplicates: Literal["drop", "keep", "error"] | None = None
    format: Format = field(default=Format(), metadata=NOT_IN_KEY)
    form: str = field(default="", metadata=NOT_IN_KEY)

    @property
    def splits(self) -> dict[Split, RowsFrom]:
        """Where the rows of the declared splits come from."""
        return {split: source for split in SPLITS if (source := getattr(self, split)) is not None}

    @property
    def contents(self) -> tuple[Template, ...]:
        """What its sentences are in a row's columns, without fixed words around a single column."""
        return tuple(template(text).content for text in self.text)

    @property
    def words(self) -> tuple[Template, ...]:
        """What makes the texts that a model reads of their contents."""
        return tuple(template(text).around for text in self.text)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns that its sentences are made of."""
        return tuple(column for made in self.contents for column in made.columns)

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The columns that its labels stand in."""
        return (self.label,) if isinstance(self.label, str) else self.label


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A declared task.

    Args:
        name: the task's name in options, files and tables.
        files: where its rows are, and how to read them.
        metric: the score that selects models and enters "overall".
        weight: factor of its loss; or the column that weighs each training row's loss.
        long: how texts with more tokens than the encoder takes are read.
        prediction_file: predictions are written in the course's format, to `{prediction_file}-{dev,test}-output.csv`.
        prediction_column: title of the second column of these files, with the course's spelling.
    """

    kind: ClassVar[str]

    name: str = field(metadata=NOT_IN_KEY)
    files: TaskFiles = field(metadata=NOT_IN_KEY)  # `declaration` has its own fields
    metric: Metric
    weight: Positive | ColumnName = field(default=1.0, metadata=NOT_IN_KEY)
    long: Long = "head"
    prediction_file: str | None = None
    prediction_column: str | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w-]*", self.name) or self.name in RESERVED:
            raise InputError(f"expected a name of letters, digits, _ and - other than {listed(RESERVED)}")
        if (file := self.prediction_file) is not None and (not file.strip(".") or {"/", "\\"}.intersection(file)):
            raise InputError(f"prediction_file is {quote(file)}; expected the beginning of a name, no folder")
        text, label = self.files.text, self.files.label
        if len(text) != 2 if self.pair else not text:
            columns = "a list of two columns or templates" if self.pair else "a column, several ones or a template"
            raise InputError(f"text is {listed(map(quote, text))}; {self.kind} reads {columns}")
        if not self.pair and len(text) > 1:
            object.__setattr__(self, "files", replace(self.files, text=(joined(text),)))
        for written in self.files.text:
            template(written)  # or an error
        if not isinstance(label, str) and self.kind != "multilabel":
            raise InputError(f"label is {listed(map(quote, label))}; {self.kind} reads one column")

    @property
    def pair(self) -> bool:
        """Whether rows are pairs of sentences."""
        return self.kind.startswith("pair_") or self.kind == "cosine"

    @property
    def selects(self) -> bool:
        """Whether a model may be selected on its score."""
        return self.metric not in LOWER_IS_BETTER

    @property
    def compares_rows(self) -> bool:
        """Whether its loss compares the rows of a batch with each other, and is no mean over rows."""
        return False

    @property
    def file_format(self) -> Format:
        """How other files than its own are written, if nothing else is said: as its training rows are.

        The course's files are no example for others.
        """
        if self.prediction_file is not None:
            return Format()
        train, own = self.files.train, self.files.format
        if train is None:
            return own
        own = train.format or own
        return own.of_form(own.form_read(train.form), self.form)

    @property
    def form(self) -> str:
        """The format of its training file, as a suffix of `TYPED`; empty of delimited text, and if it is not known."""
        train = self.files.train
        if train is None:
            return self.files.form
        read = (train.format or self.files.format).form_read(train.form) if train.path else ".parquet"  # of a hub
        return read if read in TYPED else ""

    @property
    @abstractmethod
    def numeric(self) -> bool:
        """Whether its labels are numbers, which may have a decimal mark of the file's own. All others are text."""

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Whether its labels, or the range of its numbers, are known: declared, or learned from training rows."""

    @property
    def loss_weight(self) -> float:
        """The factor of its loss."""
        return 1.0 if isinstance(self.weight, str) else self.weight

    def problem(self, text: str) -> InputError:
        """An error of the task's declaration."""
        return InputError(f"tasks.{self.name}: {text}")

    def source(self, split: Split) -> RowsFrom:
        """Where the rows of a split come from. Raises InputError if it is not declared."""
        if split not in self.files.splits:
            raise self.problem(f"no {split} file is declared")
        return self.files.splits[split]

    def kept(self) -> dict[str, Any]:
        """What a trained model keeps of it, as JSON types: its declaration, and how its files are written."""
        form = {"form": self.form} if self.form else {}
        return self.declaration() | self.file_format.changed() | form

    def declaration(self, tuned: bool = True) -> dict[str, Any]:
        """What decides its meaning, as JSON types; what is chosen on the dev set only if `tuned`."""
        return {"kind": self.kind, **_meaning(self.files, tuned), **_meaning(self, tuned)}

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Width of the head's output; 1 for one number per row."""

    @abstractmethod
    def labels_from(self, row: FileRow, missing: Collection[str] = ()) -> Any:
        """The label of a row as it is written: None if it is blank. Raises ValueError, which says what is expected.

        Among several labels, `missing` are none.
        """

    @abstractmethod
    def encode_labels(self, labels: list[Any]) -> tuple[NDArray[np.float32], tuple[str, ...]]:
        """Labels as numbers, [rows] or [rows, labels], and the classes' names. Learns the classes if none are known."""

    def hints(self, examples: Examples) -> list[str]:
        """Lines that say which labels of rows may be wrong, and what helps then."""
        return []

    @abstractmethod
    def learned(self, training: Examples) -> Self:
        """The task with everything that its training rows decide. Raises InputError if they do not suffice."""

    @abstractmethod
    def loss(self, outputs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        """Mean loss, scalar; with weights of the rows [rows], Σ w l / Σ w.

        Outputs [rows, outputs], or [rows] for one number per row; labels as in `Examples`.
        """

    def divisor(self, labels: NDArray[np.float32], weights: NDArray[Any] | None = None) -> float:
        """What `loss` divides the sum of the rows' losses by, so that losses of parts of a batch can be added up."""
        return float(len(labels) if weights is None else weights.sum(dtype=np.float64))

    @abstractmethod
    def divergence(self, first: Tensor, second: Tensor) -> Tensor:
        """How far apart two outputs for the same rows are: symmetric, 0 for equal ones, mean over rows, scalar.

        KL(P‖Q) + KL(Q‖P) of probabilities, as in SMART (arXiv 1911.03437, section 3.1), and the squared difference of
        numbers. Each label of several counts as a distribution of its own, and their mean is taken.
        """

    @abstractmethod
    def soft_loss(self, outputs: Tensor, estimates: Tensor, temperature: float) -> Tensor:
        """Mean loss, scalar, against estimates in place of labels; both are [rows, outputs] or [rows].

        T² · H(p, softmax(outputs / T)) of probabilities p that were computed with the temperature T (Hinton et al.
        2015, arXiv 1503.02531, section 2), the mean over several labels; and the squared difference of numbers.
        """

    @abstractmethod
    def estimated(self, outputs: Tensor) -> Tensor:
        """Outputs as values that can be averaged over models: probabilities, or shares of the range. Same shape."""

    @abstractmethod
    def readable(self, outputs: Tensor) -> Tensor:
        """Outputs as people read them: probabilities [rows, labels], or values in the labels' unit [rows]."""

    def estimate(self, outputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """`estimated` in float64."""
        return self.estimated(torch.from_numpy(outputs).double()).numpy()

    @abstractmethod
    def decide(self, estimates: NDArray[np.float64]) -> NDArray[Any]:
        """Predictions in the labels' units, from estimates or averages of estimates: as in `Examples.labels`."""

    @abstractmethod
    def metrics(self, estimates: NDArray[np.float64], labels: NDArray[np.float32]) -> dict[str, Any]:
        """All scores of estimates by name."""

    def calibrated(self, outputs: NDArray[np.float32], labels: NDArray[np.float32]) -> Self:
        """The task with the temperature that fits the dev set best, given a head's outputs and the labels of it."""
        return self

    def tuned(self, estimates: NDArray[np.float64], labels: NDArray[np.float32]) -> Self:
        """The task with what is chosen on the dev set, given estimates and labels of it."""
        return self

    def score(self, estimates: NDArray[np.float64], labels: NDArray[np.float32]) -> float:
        """The task's own score of estimates."""
        return float(self.metrics(estimates, labels)[self.metric])


def _meaning(part: Any, tuned: bool) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults, without those that say where and how to read."""
    kind: Any = type(part)
    marks = {each.name: each.metadata for each in fields(kind)}
    left_out = {name for name, mark in marks.items() if not mark.get("key", True) or (mark.get("tuned") and not tuned)}
    found: dict[str, Any] = adapter(kind).dump_python(part, mode="json", exclude_defaults=True, exclude=left_out)
    return found
