"""Write the figures and tables of docs/studies/ from files of results: `python -m scripts.refresh_study_pages`.

A page says where the tables of a file go:

    <!-- results: NAME TABLE ... -->
    <!-- end of results -->

Whatever stands between these lines is replaced by the figures and tables of docs/studies/results/NAME.parquet,
It stays as it is while there is no such file. `multitask report` writes such a file as
report/results.parquet.
"""

import re
from functools import partial
from html import unescape
from itertools import count, takewhile
from pathlib import Path

from minbert.errors import InputError
from minbert.files import read_text, write_text
from multitask.evaluation.markup import markdown_text
from studies.report.figures import Picture, standalone
from studies.report.pictures import table_pictures
from studies.report.scores_as_data import FURTHER
from studies.report.sections import CURVES
from studies.report.text import score_table
from studies.results import Results, TableScores

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "studies"
BEGIN = re.compile(r"<!-- results: *(?P<name>[\w-]+) +(?P<tables>[\w -]+?) *-->")
PLACE = re.compile(rf"(?P<begin>{BEGIN.pattern})\n(?P<content>.*?)(?P<end><!-- end of results -->)", re.DOTALL)
TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)
CAPTION = re.compile(r"<desc>(.*?)</desc>", re.DOTALL)
STUDY = "-study"
"""Follows a table's name in the files of the figures of its section of study.md."""

Figures = dict[str, Picture]
"""Pictures by their files in the folder of the pages."""


def refresh(pages: Path) -> list[Path]:
    """Write every place of the pages in a folder whose file of results is there.

    Returns:
        The pages written.

    Raises:
        InputError: a file of results lacks a table or is damaged, or a place has no end.
    """
    written = []
    for page in sorted(pages.glob("*.md")):
        text = read_text(page)
        if len(BEGIN.findall(text)) != len(PLACE.findall(text)):
            raise InputError(f"{page}: a place for results has no end; expected <!-- end of results --> after each")
        figures: Figures = {}
        filled = PLACE.sub(partial(_filled, pages=pages, figures=figures), text)
        for file, picture in figures.items():
            write_text(pages / file, standalone(picture))
        if filled != text:
            write_text(page, filled)
            written.append(page)
    return written


def _filled(place: re.Match[str], pages: Path, figures: Figures) -> str:
    """A place with its content, whose figures are added to those of the page."""
    path = pages / "results" / f"{place['name']}.parquet"
    if not path.is_file():
        return place[0]
    results = Results.load(path)
    try:
        tables = [results.table(key) for key in place["tables"].split()]
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    parts = [_section(table, place["name"], pages, figures) for table in tables]
    return f"{place['begin']}\n\n{''.join(parts)}{place['end']}"


def _section(table: TableScores, name: str, pages: Path, figures: Figures) -> str:
    """A table's heading, figures and numbers."""
    about, pictures = table.description, table_pictures(table, f"figures/{name}-")
    figures |= pictures
    drawn = "".join(f"![{markdown_text(picture.title)}]({file})\n\n" for file, picture in pictures.items())
    folder, of_table = pages / "figures", f"{name}-{about.name}"
    curves = _brought(folder / f"{of_table}{CURVES}.svg")
    images = "".join([curves, drawn, *map(_brought, numbered(folder, f"{of_table}{STUDY}"))])
    measures = [place for place, column in enumerate(about.columns) if column.metric in FURTHER]
    numbers = score_table(table, list(dict.fromkeys([*table.pictured, *measures])))
    note = markdown_text(about.note)
    return f"### {about.title}\n\n{note}\n\n{images}{numbers}\n{_origin(table, name)}\n"


def numbered(folder: Path, name: str) -> list[Path]:
    """NAME-1.svg, NAME-2.svg and so on, as many as the folder has."""
    return list(takewhile(Path.is_file, (folder / f"{name}-{number}.svg" for number in count(1))))


def _brought(figure: Path) -> str:
    """A figure that is not drawn from results, with its caption. `publish_results` may have brought it."""
    if not figure.is_file():
        return ""
    text = read_text(figure)
    found = (pattern.search(text) for pattern in (TITLE, CAPTION))
    title, caption = (markdown_text(unescape(match[1])) if match else "" for match in found)
    return f"![{title}](figures/{figure.name})\n\n" + (f"{caption}\n\n" if caption else "")


def _origin(table: TableScores, name: str) -> str:
    """What the numbers are means of."""
    test = r" \*: p < 0.05 against the reference row, corrected for all tests of the table."
    return (
        "Means ± standard deviations over seeds, with 95% intervals. **Bold**: the best mean."
        f"{test if table.description.reference else ''} Start weights: {markdown_text(table.start)}. "
        f"[Every score as data](results/{name}.parquet).\n"
    )


if __name__ == "__main__":
    for page in refresh(PAGES):
        print(page.relative_to(ROOT))
