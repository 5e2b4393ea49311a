"""Score against a parameter that the rows of a table vary: lines with bands, from the rows' points."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from studies.report.figures import COLOURS, Bounded, bands
from studies.report.forest_plot import Picture
from studies.report.format import score
from studies.results import RowScores, TableScores

LEAST = 3
"""Values that a parameter needs for a line."""

NAMES = {
    "rate": "learning rate",
    "share": "share removed",
    "limit": "sentences",
    "pretraining": "batch size of pre-training",
    "finetuning": "batch size of fine-tuning",
}
"""Of parameters, for readers. Others are called as in the rows' points."""

Lines = Mapping[str, Mapping[float, RowScores]]
"""Rows by the parameter's value, by what their other parameters are."""


def sweeps(table: TableScores) -> dict[str, Picture]:
    """A picture for each parameter that has at least three numbers as values, by the parameter's name.

    Rows whose points differ in other parameters, too, are lines of their own. No picture has more lines than colours.
    """
    names = dict.fromkeys(name for row in table.rows for name, value in row.point.items() if _is_number(value))
    found = {name: _lines(table.rows, name) for name in names}
    return {name: _picture(table, name, lines) for name, lines in found.items() if 0 < len(lines) <= len(COLOURS)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _lines(rows: Sequence[RowScores], name: str) -> Lines:
    """The lines with enough values."""
    lines: defaultdict[str, dict[float, RowScores]] = defaultdict(dict)
    for row in rows:
        if _is_number(value := row.point.get(name)):
            others = ", ".join(f"{_name(key)} {of}" for key, of in row.point.items() if key != name)
            lines[others or _name(name)][float(value)] = row  # type: ignore[arg-type]  # it is a number
    found = {others: values for others, values in lines.items() if len(values) >= LEAST}
    labels = {shared: values for values in found.values() if (shared := _shared_label(list(values.values())))}
    return labels if len(labels) == len(found) else found


def _name(parameter: str) -> str:
    return NAMES.get(parameter, parameter.replace("_", " "))


def _varied_word(rows: Sequence[RowScores]) -> int | None:
    """The place of the word by which the rows' labels differ. None if they differ by more than one word."""
    labels = [row.label.split() for row in rows]
    if len({len(words) for words in labels}) > 1:
        return None
    varied = [place for place, words in enumerate(zip(*labels, strict=True)) if len(set(words)) > 1]
    return varied[0] if len(varied) == 1 else None


def _shared_label(rows: Sequence[RowScores]) -> str | None:
    """What the rows' labels share, without the word for the value. None if they differ by more than one word."""
    place = _varied_word(rows)
    words = rows[0].label.split()
    return None if place is None else " ".join([*words[:place], *words[place + 1 :]]).strip(",:")


def _places(lines: Lines, values: Sequence[float]) -> list[str]:
    """The values as the rows' labels have them, if these differ by this word only in every line; otherwise numbers."""
    words: defaultdict[float, set[str]] = defaultdict(set)
    for line in lines.values():
        place = _varied_word(list(line.values()))
        for value, row in line.items():
            words[value].add(f"{value:g}" if place is None else row.label.split()[place].strip(",:"))
    agree = all(len(of) == 1 for of in words.values())
    return [words[value].pop() if agree else f"{value:g}" for value in values]


def _picture(table: TableScores, name: str, lines: Lines) -> Picture:
    values = sorted({value for line in lines.values() for value in line})
    places = _places(lines, values)

    def points(line: Mapping[float, RowScores], column: int) -> list[Bounded | None]:
        return [_bounded(line.get(value), column) for value in values]

    panels = {
        table.description.columns[column].heading: {which: points(line, column) for which, line in lines.items()}
        for column in table.pictured
    }
    first = next(iter(panels.values()))
    described = "; ".join(
        f"{which}: {', '.join(f'{at} {score(of and of[0])}' for at, of in zip(places, line, strict=True))}"
        for which, line in first.items()
    )
    axis = _name(name)
    description = f"{table.description.title}. {next(iter(panels))} against {axis}, means with 95% bands: {described}"
    return Picture(bands(panels, places, axis, description), 2.8 * min(len(panels), 3), description)


def _bounded(row: RowScores | None, column: int) -> Bounded | None:
    cell = row.cells[column] if row else None
    if cell is None or not cell.values:
        return None
    if cell.low is None or cell.high is None:  # a measure without an interval is a line without a band
        return cell.mean, cell.mean, cell.mean
    return cell.mean, cell.low, cell.high
