"""What a table of rows is, where it comes from, and how it is written. `read_tables` opens tables."""

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from minbert.errors import InputError
from multitask.data.problems import LOGGER, checked, listed, plain, quote, reason
from multitask.data.text_lines import suffixes
from multitask.runs.run_hash import hash_of_file

HUB = "hf:"
SEPARATORS = {".csv": ",", ".tsv": "\t"}
TYPED = (".jsonl", ".jsonlines", ".parquet", ".xlsx", ".txt")
"""Formats other than delimited text: only some of a `Format` concerns them."""
CONFIGURED = ("glue", "super_glue", "tweet_eval", "xtreme", "clue")
"""Data sets of the hub without an owner in their name whose last part is a configuration: `glue/mrpc`."""
EXCHANGED = str.maketrans(",.", ".,")

Row = dict[str, Any]


class MissingSplitError(InputError):
    """A file or data set that is there, but has no rows of a split."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """How text is written in a file.

    Args:
        separator: between fields; None: a comma in .csv and a tab in .tsv.
        quotes: whether fields may stand in quotes; if not, quotes are ordinary characters.
        line_breaks: whether a quoted field may contain line breaks.
        encoding: of the text, as Python names it: `cp1252` of many spreadsheets, `utf-16`.
        decimal: the decimal mark of labels that are numbers.
        missing: fields that count as empty, such as `n/a`.
    """

    separator: str | None = None
    quotes: bool = True
    line_breaks: bool = False
    encoding: str = "utf-8"
    decimal: Literal[".", ","] = "."
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.separator is not None and (len(self.separator) != 1 or self.separator in '"\r\n'):
            raise InputError(f"separator is {quote(self.separator)}; expected one character")
        try:
            "\n".encode(codecs.lookup(self.encoding).name)
        except (LookupError, ValueError):
            raise InputError(f"encoding is {quote(self.encoding)}; expected one such as utf-8 or cp1252") from None

    def field(self, value: Any) -> Any:
        """A field of a row; None if it counts as empty."""
        return None if isinstance(value, str) and value.strip() in self.missing else value

    def label_field(self, value: Any) -> Any:
        """A label's field, with a decimal point if it is a number with this decimal mark."""
        if self.decimal == "," and isinstance(value, str) and re.fullmatch(r"[\d.,eE+-]+", value.strip()):
            value = value.translate(EXCHANGED)  # 1.000 is a thousand there, and no number here
        return self.field(value)

    def of_form(self, form: str) -> "Format":
        """What holds for another file too, given its format as a suffix: only delimited text has all of it."""
        if form in TYPED:
            return Format(decimal=self.decimal, missing=self.missing)
        return replace(self, separator=None) if form == ".tsv" else self

    def changed(self) -> dict[str, Any]:
        """What differs from the default."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}


@dataclass(frozen=True)
class Source:
    """Where rows come from.

    Args:
        file: a file, or `hf:` and a data set of the hub (`hf:OWNER/NAME`, `hf:OWNER/NAME/CONFIGURATION`,
            `hf:glue/mrpc`) or the folder of one that was saved to disk.
        split: of a data set, the split; of a file, the rows whose column `split` has this value. None: all rows.
        format: how the file is written, if it has its own table in the tasks file.
    """

    file: Annotated[str, Field(pattern=r"^\P{C}+$")]  # no control characters
    split: str | None = None
    format: Format | None = None

    def __str__(self) -> str:
        return self.file if self.split is None else f"{self.file} ({self.split})"

    @property
    def path(self) -> Path | None:
        """The file; None for a data set of the hub."""
        return None if self.file.startswith(HUB) else Path(self.file)

    @property
    def form(self) -> str:
        """The format, as the suffix that says it: `.csv` of `train.csv.gz`."""
        return suffixes(Path(self.file))[0]

    def exists(self) -> bool:
        """Whether the file exists, or a link of its name; True for a data set of the hub."""
        return self.path is None or self.path.exists() or self.path.is_symlink()

    def fingerprint(self) -> str:
        """A hash of the content, 64 hex digits. Raises InputError if there is no such file or data set."""
        if self.path is not None:
            return checked(self.path, hash_of_file)
        return sha256(self.data_set()._fingerprint.encode()).hexdigest()

    def data_set(self) -> Any:
        """The split of a data set that was saved to disk, or of the hub."""
        try:
            import datasets
        except ImportError:
            raise InputError(
                f'{self}: needs the datasets library; install with: pip install -e ".[datasets]"'
            ) from None
        name = self.file.removeprefix(HUB)
        owner, _, last = name.rpartition("/")
        try:
            if Path(name).is_dir():
                found = datasets.load_from_disk(name)
            elif owner.count("/") or (owner and owner in CONFIGURED):
                found = datasets.load_dataset(owner, last)
            else:
                found = datasets.load_dataset(name)
        except Exception as error:  # the library raises many kinds: no network, no such name, damaged files
            raise InputError(f"{self}: cannot be loaded ({reason(error)})") from None
        if not isinstance(found, datasets.DatasetDict):
            return found
        if self.split not in found:
            raise MissingSplitError(f"{self}: expected a split of {', '.join(found)}")
        return found[self.split]


@dataclass(frozen=True)
class Table:
    """An open table. Raises InputError if two of its columns have the same name: a row has one value of a name.

    Args:
        name: of the file or data set, for messages.
        columns: the columns' names; of jsonl those of the first thousands of rows.
        rows: the number of each row (its first line in text files, otherwise counted from 1), and its values by column.
        by_line: whether the numbers are lines.
        schema: the columns' Arrow types; None of text files.
        format: how its fields are written.
    """

    name: str
    columns: tuple[str, ...]
    rows: Iterator[tuple[int, Row]]
    by_line: bool = True
    schema: Any = None
    format: Format = Format()

    def __post_init__(self) -> None:
        if twice := [column for column in self.columns if column and self.columns.count(column) > 1]:
            raise InputError(f"{self.name}: column {plain(twice[0])} is there twice; rename one of them")

    def place(self, number: int) -> str:
        """File and row, as messages begin."""
        return f"{self.name}:{number}" if self.by_line else f"{self.name}: row {number}"

    def warn(self, action: str, lack: str, numbers: Sequence[int]) -> None:
        """Log one warning that counts incomplete rows, if there are any, and names the first ones."""
        if numbers:
            rows, on = ("row", "line") if len(numbers) == 1 else ("rows", "lines")
            on = on if self.by_line else rows
            shown = listed(numbers[:5]) + (", ..." if len(numbers) > 5 else "")
            LOGGER.warning("%s: %s %d %s %s (%s %s)", self.name, action, len(numbers), rows, lack, on, shown)

    def require(self, columns: Sequence[str]) -> None:
        """Raise InputError unless the table has all of these columns."""
        if missing := [column for column in columns if column not in self.columns]:
            named = list(filter(None, self.columns))
            there = f"the columns are {listed(named)}" if named else "the header names no columns"
            if len(self.columns) == 1 and re.search("[,;|\t]", self.columns[0]):
                there = f"the only column is {quote(self.columns[0])}; set separator in the tasks file (--tasks-file)"
            raise InputError(f"{self.name}: no column {plain(missing[0])}; {there}")
