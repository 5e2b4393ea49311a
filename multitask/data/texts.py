"""Texts of a model's inputs: a column, or columns and fixed words, as in `{subject}. {body}` or `query: {text}`."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from minbert.errors import InputError
from multitask.data.problems import quote
from multitask.data.tables import Format, Row, Table, value_of

PART = re.compile(r"(?P<brace>\{\{|\}\})|\{(?P<column>[^{}]+)\}|(?P<words>[^{}]+)|(?P<wrong>.)", re.DOTALL)


@dataclass(frozen=True)
class Template:
    """How a text is made of columns.

    Args:
        columns: their names.
        words: what stands before, between and after the columns.
    """

    columns: tuple[str, ...]
    words: tuple[str, ...]

    def text(self, values: Sequence[str]) -> str:
        """The text of the columns' values; empty if all are. An empty one takes the space before it along."""
        if not any(values):
            return ""
        found = self.words[0]
        for value, words in zip(values, self.words[1:], strict=True):
            found = f"{found}{value}{words}" if value else f"{found.rstrip()}{words}"
        return found.strip()

    def text_of(self, row: Row, file_format: Format) -> str:
        """The text of a row. Raises ValueError if a value is no text; in a template, numbers are text, too."""
        values = []
        for column in self.columns:
            value = file_format.field(value_of(row, column))
            if isinstance(value, int | float) and any(self.words):
                value = str(value)
            if not isinstance(value, str | None):
                raise ValueError(f"{column} is {quote(value)}; expected text")
            values.append((value or "").strip())
        return self.text(values)

    def bare(self, text: str) -> str:
        """The value of the only column in a text; the text itself if there are several columns."""
        if len(self.columns) > 1:
            return text
        return text.removeprefix(self.words[0].lstrip()).removesuffix(self.words[1].rstrip()).strip()


@cache
def template(written: str) -> Template:
    """The template that a text describes: `{column}` is a column, {{ and }} are braces, all else are fixed words.

    A text without a column in braces is the name of a column. Raises InputError for a brace without a partner.
    """
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
    table: Table, rows: Iterable[tuple[int, Row]], templates: Sequence[Template]
) -> Iterator[tuple[str, ...]]:
    """The texts of some rows of a table. Raises InputError, which names the row, for a value that is no text."""
    for number, row in rows:
        try:
            yield tuple(made.text_of(row, table.format) for made in templates)
        except ValueError as error:
            raise InputError(f"{table.place(number)}: {error}") from None


def joined(texts: Sequence[str]) -> str:
    """One template of several columns or templates, with spaces between them."""
    parts = zip(texts, map(template, texts), strict=True)
    return " ".join(text if any(found.words) else f"{{{found.columns[0]}}}" for text, found in parts)


def in_column(written: str, column: str) -> str:
    """A template with another column, if it has a single one. What is a template itself stays as it is.

    Nothing tells which part of another column would stand in which of several columns.
    """
    own, other = template(written), template(column)
    if any(other.words) or not any(own.words) or len(own.columns) > 1:
        return column
    return PART.sub(lambda part: f"{{{other.columns[0]}}}" if part["column"] else part[0], written)


def prompted(prompt: str, texts: Iterable[str]) -> list[str]:
    """Texts in the words of a prompt, such as `query: {text}`. Raises InputError if the prompt has no {text}."""
    made = template(prompt)
    if made.columns != ("text",) or "{" not in prompt:
        raise InputError(f'prompt is {quote(prompt)}; expected {{text}} where the sentence stands: "query: {{text}}"')
    return [made.text([text.strip()]) for text in texts]
