"""Texts of a model's inputs: a column, or columns and fixed words, as in `{subject}. {body}` or `query: {text}`."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

from minbert.errors import InputError
from minbert.files import NO_TEXT
from multitask.data.messages import INVISIBLE, quote
from multitask.data.tables import FileRow, Format, OpenTable, as_text, is_frame, value_of

T = TypeVar("T")
BLANK = re.compile(rf"[\s{INVISIBLE}]*")
PART = re.compile(r"(?P<brace>\{\{|\}\})|\{(?P<column>[^{}]+)\}|(?P<words>[^{}]+)|(?P<wrong>.)", re.DOTALL)


def visible_text(text: str) -> str:
    """A text without the white space around it; empty if nobody sees anything of it, as of a zero-width space."""
    return "" if BLANK.fullmatch(text) else text.strip()


def in_order(given: Iterable[T]) -> list[T]:
    """Texts or rows as a list. Raises InputError for what has names or no order: its elements are not these rows."""
    if isinstance(given, Mapping | set | frozenset) or is_frame(given):
        raise InputError(f"expected a list of texts, found a {type(given).__name__}; pass its texts, in a list")
    return list(given)


@dataclass(frozen=True)
class Template:
    """How a text is made of columns."""

    columns: tuple[str, ...]  # their names
    words: tuple[str, ...]  # what stands before, between and after the columns

    def text(self, values: Sequence[str]) -> str:
        """The text of the columns' values; empty if all are. An empty one takes the space before it along."""
        if not any(values):
            return ""
        found = self.words[0]
        for value, words in zip(values, self.words[1:], strict=True):
            found = f"{found}{value}{words}" if value else f"{found.rstrip()}{words}"
        return found.strip()

    def text_of(self, row: FileRow, file_format: Format) -> str:
        """The text of a row. Raises ValueError for a value that is no text; among several columns, numbers are text."""
        values = []
        for column in self.columns:
            value = file_format.field(value_of(row, column))
            if isinstance(value, int | float) and len(self.columns) > 1:  # whole ones as csv has them
                value = as_text(value)
            if not isinstance(value, str | None):
                raise ValueError(f"{column} is {quote(value)}; expected text")
            if NO_TEXT.search(value or ""):
                raise ValueError(f"{column} contains a NUL character or half of a surrogate pair")
            values.append(visible_text(value or ""))
        return self.text(values)

    @property
    def content(self) -> "Template":
        """What identifies a text: the value of the only column without the words around it, or the text itself."""
        return replace(self, words=("", "")) if len(self.columns) == 1 else self

    @property
    def around(self) -> "Template":
        """What makes the text of its content, which is the column `text`."""
        return Template(("text",), self.words if len(self.columns) == 1 else ("", ""))


@cache
def template(written: str) -> Template:
    """The template that a text describes: `{column}` is a column, {{ and }} are braces, all else are fixed words.

    A text without a column in braces is the name of a column. Raises InputError for a brace without a partner, and for
    an empty text.
    """
    if not written:
        raise InputError('text is ""; expected the name of a column, or columns and fixed words: "{title}. {text}"')
    columns, words = [], [""]
    for part in PART.finditer(written):
        if part["wrong"]:
            raise InputError(f"text is {quote(written)}; expected {{COLUMN}}, and {{{{ or }}}} for a brace itself")
        if part["column"]:
            columns.append(part["column"].strip())
            words.append("")
        words[-1] += part["words"] or (part["brace"] or "")[:1]
    return Template(tuple(columns), tuple(words)) if columns else Template((words[0],), ("", ""))


def texts_of_rows(
    table: OpenTable, rows: Iterable[tuple[int, FileRow]], templates: Sequence[Template]
) -> Iterator[tuple[str, ...]]:
    """The texts of some rows of a table. Raises InputError, which names the row, for a value that is no text."""
    for number, row in rows:
        try:
            yield tuple(made.text_of(row, table.format) for made in templates)
        except ValueError as error:
            raise InputError(f"{table.place(number)}: {error}") from None


def joined(texts: Sequence[str]) -> str:
    """One template of several columns or templates, with spaces between them."""
    made = zip(texts, map(template, texts), strict=True)
    return " ".join(f"{{{found.columns[0]}}}" if found.words == ("", "") else text for text, found in made)


def with_content(written: str, content: str) -> str:
    """A template in which a column or another template takes the place of the only column.

    It takes the place of a whole template of several columns: nothing tells which part of it would be which column.
    """
    if not any(template(written).around.words):
        return content
    return PART.sub(lambda part: joined([content]) if part["column"] else part[0], written)


def in_words(words: Sequence[Template], contents: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """Columns of contents as columns of texts, given what makes the texts of each; see `Template.around`."""
    if not any(any(made.words) for made in words):
        return contents
    return [[made.text([text]) for text in column] for made, column in zip(words, contents, strict=True)]


def prompted(prompt: str, texts: Iterable[str]) -> list[str]:
    """Texts in the words of a prompt, such as `query: {text}`. Raises InputError if the prompt has no {text}."""
    made = template(prompt)
    if made.columns != ("text",) or "{" not in prompt:
        raise InputError(f'prompt is {quote(prompt)}; expected {{text}} where the sentence stands: "query: {{text}}"')
    return [made.text([visible_text(text)]) for text in texts]


def prompt_of(written: str | None) -> str | None:
    """The prompt of texts that a template makes: of words around the columns no further ones; None: the model's own."""
    words = template("text" if written is None else written).words
    return "{text}" if words[0] or words[-1] else None
