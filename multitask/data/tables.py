"""What a table of rows is, where it comes from, and how it is written. `read_tables` opens tables."""

import codecs
import gzip
import io
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, time, timedelta
from decimal import Decimal
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeGuard
from unicodedata import normalize

from pydantic import Field

from minbert.errors import InputError, did_you_mean, install_with
from minbert.files import MOST_NAMES, refuse_expansion
from multitask.base import logger
from multitask.base.keys import hash_of_file
from multitask.data.messages import listed, plain, quote, read_or_refuse, reason, repeated, setting, spelled

if TYPE_CHECKING:
    import pandas  # takes 0.3 s; whoever has a data frame has imported it

HUB = "hf:"
FRAME = "the data frame"
SEPARATORS = {".csv": ",", ".tsv": "\t"}
TYPED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((".jsonl", ".jsonlines", ".txt"), ("encoding",)),
    ".parquet": (),
    ".xlsx": ("sheet", "skip_rows"),
}
"""Formats other than delimited text, and what may be set of them, besides `LABEL_SETTINGS`."""
LABEL_SETTINGS = ("decimal", "missing")
CONFIGURED = ("glue", "super_glue", "tweet_eval", "xtreme", "clue")
"""Data sets of the hub without an owner in their name whose last part is a configuration: `glue/mrpc`."""
MOST_COLUMNS = 100_000
EXCHANGED = str.maketrans(",.", ".,")

FileRow = dict[str, Any]


def as_text(value: object) -> str:
    """A value as csv has it: whole numbers have no decimal point."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


class MissingSplitError(InputError):
    """A file or data set that is there, but has no rows of a split."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """How a file is written. Each setting concerns the files that have what it is about."""

    separator: str | None = None
    """What separates the fields. Default: a comma in .csv and a tab in .tsv."""
    quotes: bool = True
    """Fields of delimited text may stand in quotes; otherwise quotes are ordinary characters."""
    line_breaks: bool = False
    """A field in quotes may contain line breaks."""
    encoding: str = "utf-8"
    """Of the text, as Python names it: cp1252 of many spreadsheets, utf-16."""
    decimal: Literal[".", ","] = "."
    """The decimal mark of labels that are numbers."""
    missing: tuple[str, ...] = ()
    """Fields that count as empty, such as n/a."""
    sheet: str | None = None
    """Sheet of a workbook. Default: the first one that is not hidden."""
    skip_rows: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Lines of delimited text, or rows of a sheet, above the columns' names."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing", tuple(map(str.strip, self.missing)))  # as fields are compared
        if self.separator is not None and (len(self.separator) != 1 or self.separator in '"\r\n'):
            raise InputError(f"separator is {quote(self.separator)}; expected one character")
        try:
            "\n".encode(codecs.lookup(self.encoding).name)
        except (LookupError, ValueError):
            raise InputError(f"encoding is {quote(self.encoding)}; expected one such as utf-8 or cp1252") from None

    def field(self, value: Any) -> Any:
        """A field of a row; None if it counts as empty, as NaN does. What JSON does not have is the text of csv."""
        if isinstance(value, date | time | timedelta | Decimal):
            value = str(value)
        missing = isinstance(value, str | int | float) and as_text(value).strip() in self.missing
        return None if missing or value != value else value

    def label_field(self, value: Any) -> Any:
        """A label's field, with a decimal point if it is a number with this decimal mark."""
        found = self.field(value)  # `missing` may be written with either mark
        if self.decimal == "," and found and isinstance(value, str) and re.fullmatch(r"[\d.,eE+-]+", value.strip()):
            return self.field(value.translate(EXCHANGED))  # 1.000 is a thousand there, and no number here
        return found

    def of_form(self, form: str, own: str = "") -> "Format":
        """What holds for another file too, given its format as a suffix, and the `own` one, empty of delimited text.

        The encoding holds only for files of the same format.
        """
        read = form if form in TYPED else ""
        found = self if read == own else replace(self, encoding="utf-8")
        if read:
            return Format(**{name: getattr(found, name) for name in settings_of(read)})
        return replace(found, sheet=None, separator=None if form == ".tsv" else self.separator)

    def form_read(self, form: str) -> str:
        """How a file of this suffix is read: a text file with a separator is delimited, as one of no known suffix."""
        return "" if form == ".txt" and self.separator else form

    def without_effect(self, form: str) -> list[str]:
        """What is set, but means nothing to files of a format, given as a suffix."""
        return [name for name in self.changed() if name not in settings_of(self.form_read(form))]

    def meant_for(self, form: str) -> "Format":
        """What means something to files of a format, given as a suffix."""
        own = settings_of(self.form_read(form))
        return Format(**{name: value for name, value in self.changed().items() if name in own})

    def changed(self) -> dict[str, Any]:
        """What differs from the default."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}


def settings_of(form: str) -> tuple[str, ...]:
    """What may be set of files of a format, given as the suffix of `TYPED`; otherwise of delimited text."""
    if form in TYPED:
        return (*LABEL_SETTINGS, *TYPED[form])
    return tuple(field.name for field in fields(Format) if field.name != "sheet")


@dataclass(frozen=True)
class RowsFrom:
    """Where rows come from."""

    # a file, or `hf:` and a data set of the hub (`hf:OWNER/NAME`, `hf:OWNER/NAME/CONFIGURATION`, `hf:glue/mrpc`) or the
    # folder of one that was saved to disk
    file: Annotated[str, Field(pattern=r"^\P{C}+$")]  # no control characters
    # of a data set, the split; of a file, the rows whose column `split` has this value. None: all rows.
    split: str | None = None
    format: Format | None = None  # how the file is written, if it has its own table in the tasks file

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
            return read_or_refuse(self.path, hash_of_file)
        return sha256(self.data_set()._fingerprint.encode()).hexdigest()

    def data_set(self) -> Any:
        """The split of a data set that was saved to disk, or of the hub."""
        try:
            import datasets
        except ImportError:
            raise InputError(f"{self}: needs the datasets library; {install_with('datasets')}") from None
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
class OpenTable:
    """An open table. Raises InputError for too many columns, and for two of one name: a row has one value of a name."""

    name: str  # of the file or data set, for messages
    columns: tuple[str, ...]  # the columns' names; of jsonl those of the first thousands of rows
    # the number of each row (its first line in text files, otherwise counted from 1), and its values by column
    rows: Iterator[tuple[int, FileRow]]
    by_line: bool = True  # whether the numbers are lines
    schema: Any = None  # the columns' Arrow types; None of text files
    format: Format = Format()  # how its fields are written
    # rows that show what is in objects, which have names with dots: `ticket.subject`
    examples: Sequence[FileRow] = ()

    def __post_init__(self) -> None:
        if len(self.columns) > MOST_COLUMNS:
            raise InputError(f"{self.name}: {len(self.columns):,} columns; expected at most {MOST_COLUMNS:,}")
        if twice := repeated(filter(None, self.columns)):
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
            logger.warning("%s: %s %d %s %s (%s %s)", self.name, action, len(numbers), rows, lack, on, shown)

    def has(self, column: str) -> bool:
        """Whether it has a column, or a name with dots."""
        return column in self.columns or any(value_of(row, column, missing=...) is not ... for row in self.examples)

    def require(self, columns: Sequence[str]) -> None:
        """Raise InputError unless the table has all of these columns."""
        for name in [column for column in columns if not self.has(column)]:
            nested = islice(chain.from_iterable(map(_names_in, self.examples)), MOST_NAMES)
            known = list(dict.fromkeys(chain(filter(None, self.columns), nested)))
            there = f"the columns are {listed(known)}" if known else "the header names no columns"
            same = [other for other in known if normalize("NFC", other) == normalize("NFC", name)]
            hint = f"; did you mean {spelled(same[0])}?" if same else did_you_mean(name, known)
            if len(self.columns) == 1 and re.search("[,;|\t]", self.columns[0]):
                there = f"the only column is {quote(self.columns[0])}"
                hint = f"; {setting('separator', '--separator')}"
            wanted = spelled(name) if same else plain(name) or quote(name)
            raise InputError(f"{self.name}: no column {wanted}; {there}{hint}")


def value_of(row: FileRow, name: str, missing: Any = None) -> Any:
    """A row's value of a column, or of a name with dots the value in its objects; `missing` if it lacks it."""
    if name in row or "." not in name:
        return row.get(name, missing)
    value: Any = row
    for part in name.split("."):
        value = value.get(part, missing) if isinstance(value, dict) else missing
    return value


def _names_in(row: FileRow) -> Iterator[str]:
    """Names with dots of what the objects of a row have."""
    for name, value in row.items():
        if isinstance(value, dict):
            yield from (f"{name}.{inner}" for inner in chain(value, _names_in(value)))


def is_frame(rows: Any) -> TypeGuard["pandas.DataFrame"]:
    """Whether rows are a pandas data frame."""
    return "pandas" in sys.modules and isinstance(rows, sys.modules["pandas"].DataFrame)


def table_of(frame: "pandas.DataFrame") -> OpenTable:
    """The rows of a pandas data frame; missing values are None."""
    columns = tuple(map(str, frame.columns))
    cells = [_own_digits(frame.iloc[:, i]) for i in range(len(columns))]
    values = (column.astype(object).where(column.notna(), None) for column in cells)
    rows = (dict(zip(columns, map(_of_python, row), strict=True)) for row in zip(*values, strict=True))
    first = [*islice(rows, ROWS_PER_BATCH)]
    return OpenTable(FRAME, columns, enumerate(chain(first, rows), start=1), by_line=False, examples=first)


def _own_digits(column: "pandas.Series") -> "pandas.Series":
    """A column, in which fractions of 32 bits keep their digits, as in files: 0.1 would be 0.10000000149011612."""
    if str(column.dtype) not in ("float32", "Float32", "float[pyarrow]"):
        return column
    numbers = column.astype("float32")
    exact = numbers.astype(float)
    return exact.where(exact == exact.round(), numbers.astype(str).astype(float))


def _of_python(value: Any) -> Any:
    """A cell without numpy's types: pandas reads lists of parquet files as arrays, also within objects and lists."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, dict):
        return {name: _of_python(part) for name, part in value.items()}
    return [*map(_of_python, value)] if isinstance(value, list) else value


MAX_LINE = 1 << 24
"""Bytes. A longer line is taken for a file that is not text by lines."""
ROWS_PER_BATCH = 8192
GZIP = ".gz"
UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
AS_UTF_8 = f"save the file as UTF-8, or {setting('encoding', '--encoding')}"
UNSUSPECTED_BYTES = 1 << 21
"""Decompressed bytes from which on the file's own size counts: more blank lines would take many seconds."""


def suffixes(path: Path) -> tuple[str, str]:
    """The suffixes of a file's format and compression: `.csv` and `.gz` for `train.csv.gz`."""
    compression = GZIP if path.suffix.lower() == GZIP else ""
    return (path.with_suffix("") if compression else path).suffix.lower(), compression


RETURN = "a carriage return within a line; end lines with LF or CRLF"


def text_lines(path: Path, encoding: str = "utf-8", returns: bool = False) -> Iterator[str]:
    """The lines of a file, each with its line end; a byte order mark is removed.

    `returns` allows carriage returns that do not end a line, as quoted fields may have. Raises InputError if the file
    is missing or no regular file, a damaged compressed file, one that holds far more bytes than it has, or of another
    encoding, and if a line contains NUL, a carriage return that does not end it (without `returns`), or more than
    16 MiB. The message names the line.
    """
    wide = "\n".encode(encoding) != b"\n"  # as in UTF-16, in which a byte does not tell where a line ends
    compressed = bool(suffixes(path)[1])
    opened: Any = read_or_refuse(path, gzip.open if compressed else lambda path: path.open("rb"))
    with opened as file:
        decoded = io.TextIOWrapper(file, encoding, newline="\n") if wide else None
        number = size = 0
        while True:
            try:
                raw = file.readline(MAX_LINE + 1) if decoded is None else decoded.readline(MAX_LINE + 1).encode()
            except UnicodeError as error:
                raise InputError(
                    f"{path}: not {encoding} ({reason(error)}); {setting('another encoding', '--encoding')}"
                ) from None
            except (OSError, EOFError, zlib.error) as error:
                raise InputError(f"{path}: damaged or not a compressed file ({reason(error)})") from None
            if not raw:
                return
            number += 1
            size += len(raw)
            if size > UNSUSPECTED_BYTES and compressed:
                refuse_expansion(path, size, file.fileobj.tell(), UNSUSPECTED_BYTES)
            text = _decode(raw, place := f"{path}:{number}", "utf-8" if wide else encoding, first=number == 1)
            if not returns and "\r" in text.removesuffix("\n").removesuffix("\r"):
                raise InputError(f"{place}: {RETURN}")
            yield text


def _decode(raw: bytes, place: str, encoding: str, first: bool) -> str:
    if len(raw) > MAX_LINE:
        raise InputError(f"{place}: the line has more than {MAX_LINE:,} bytes; expected text in lines")
    body = raw.removeprefix(codecs.BOM_UTF8) if first else raw
    if body is not raw and codecs.lookup(encoding).name not in ("utf-8", "utf-8-sig"):
        raise InputError(f"{place}: begins with the mark of UTF-8, not {encoding}; {setting('encoding', '--encoding')}")
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{place}: byte 0x{body[error.start]:02x} at position {error.start + 1} of the line is not "
            f"{encoding.upper()}{' but UTF-16' if first and raw[:2] in UTF_16_MARKS else ''}; {AS_UTF_8}"
        ) from None
    if "\0" in text:
        raise InputError(f"{place}: contains a NUL byte; {AS_UTF_8}")
    return text
