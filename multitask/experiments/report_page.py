"""The report of a preset: pages, LaTeX tables, pictures and data, from two frames alone."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markupsafe import Markup

from minbert.errors import InputError
from minbert.files import read_text, write_text
from multitask.data.markup import markdown_code, markdown_table, markdown_text, text_rows
from multitask.evaluation.statistics import SAMPLES
from multitask.evaluation.text_tables import SEEN, capitalized
from multitask.experiments.compare_rows import TABLE_MEASURES, PresetResults, TableResults
from multitask.experiments.figures import (
    Interval,
    Picture,
    as_interval,
    intervals,
    lines,
    over_seeds,
    standalone,
    table_pictures,
)
from multitask.experiments.grid_frames import ANSWERS, SCORES, TRAINING, GridFrames, RunResult
from multitask.experiments.results_file import STEPS, Results, TableScores, scores_as_data
from multitask.experiments.score_tables import (
    difference,
    difference_table,
    format_score,
    latex_float,
    score_table,
    signed,
)
from multitask.experiments.table_definitions import OVERALL
from multitask.models.estimates import written
from multitask.tasks.declarations import load_tasks
from multitask.tasks.labels import Labelled
from multitask.tasks.read_examples import load_rows, load_training_rows


@dataclass(frozen=True)
class Section:
    """A part of a page: its key in the names of files, heading, text, figures, and a table of text below them."""

    key: str
    title: str
    text: str
    pictures: tuple[Picture, ...]
    table: pandas.DataFrame | None = None


def learning_curves(results: TableResults) -> Picture | None:
    """The dev scores over training, a panel for each column that training measured. None without curves.

    A table that is shown as curves has one large panel of the overall score, as the report's Figure 2.
    """
    large = results.table.kind == "curves"
    panels = {
        results.heading(column): {
            row.label: over_seeds(curves) for row in results.table.rows if (curves := results.curves(row.key, column))
        }
        for column in ((OVERALL,) if large else results.table.score_columns)
    }
    panels = {heading: curves for heading, curves in panels.items() if curves}
    if not panels:
        return None
    title, size = f"{results.table.numbered_title}, over training", (5.6, 3.2) if large else (2.8, 2.1)
    xlabel = "step (bands: one standard deviation over seeds)"
    return Picture(lines(panels, xlabel, title, ylabel="dev score", size=size), title)


def conflicts(results: PresetResults) -> Section | None:
    """A panel for each row that measured the cosine between the gradients of every two tasks; means over seeds."""
    panels: dict[tuple[str, ...], tuple[str, list[RunResult]]] = {}
    for row, finished in (line for table in results.tables for line in table.rows):
        if runs := [run for run in finished if any(map(_cosines, run.history))]:
            # Rows of several tables can have the same runs.
            panels.setdefault(tuple(run.model for run in runs), (row.label, runs))
    drawn = {}
    for number, (label, runs) in enumerate(panels.values()):
        pairs = dict.fromkeys(pair for run in runs for line in run.history for pair in _cosines(line))
        drawn[label if label not in drawn else f"{label} ({number})"] = {
            pair: over_seeds(
                [[(n, _cosines(line).get(pair, np.nan)) for n, line in enumerate(run.history, 1)] for run in runs]
            )
            for pair in pairs
        }
    title = "Cosine between the gradients of two tasks"
    text = (
        "Of their losses over the shared parameters, averaged over the measured steps since the last evaluation. "
        "Below 0, a step that helps one task harms the other."
    )
    picture = Picture(lines(drawn, "evaluation", title, level=0.0), title) if drawn else None
    return Section("conflicts", title, text, (picture,)) if picture else None


def _cosines(line: Mapping[str, Any]) -> dict[str, float]:
    """The cosines at an evaluation by pair of tasks; their measures are called `cosine TASK/TASK`."""
    seen = line["numbers"].get(TRAINING, {}).items()
    return {name.removeprefix("cosine "): value for name, value in seen if name.startswith("cosine ")}


INTERVAL = re.compile(r'(<td style="text-align:right">[^\[]*?) (\[[^<]*)</td>')
"""In a cell of numbers: the interval and what follows stand below the number."""
FIGURE = re.compile(r"\]\(((?:figures|study)/[\w.-]+\.svg)\)")  # of a page in Markdown
WIDTH = re.compile(r"max-width: ([\d.]+)in")  # the width of a picture
TEMPLATES = Path(__file__).parent


@cache  # with it the compiled templates
def _templates(folder: Path) -> Environment:
    made = Environment(
        loader=FileSystemLoader(folder),
        autoescape=lambda name: name == "page.html.jinja",
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals |= {"text": markdown_text, "code": markdown_code, "anchor": anchor, "folded": folded}
    made.globals |= {"section_markdown": section_markdown}
    return made


def markdown_page(template: Path, **values: Any) -> str:
    """A page in Markdown, with at most one empty line in a row."""
    text = _templates(template.parent).get_template(template.name).render(**values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def folded(note: str) -> str:
    """A note of which only the first sentence is seen at first."""
    first, _, rest = note.partition(". ")
    seen, hidden = markdown_text(first), markdown_text(rest)
    return f"<details><summary>{seen}.</summary>\n\n{hidden}\n\n</details>" if rest else markdown_text(note)


def pictures_of(sections: Sequence[Section], folder: str) -> dict[str, Picture]:
    """The figures of sections by their paths."""
    return {
        f"{folder}/{section.key}-{number}.svg": picture
        for section in sections
        for number, picture in enumerate(section.pictures, start=1)
    }


def section_markdown(section: Section, folder: str) -> str:
    """A section's heading, text, figures with captions, and table."""
    parts = [f"## {section.title}", section.text]
    for path, picture in pictures_of([section], folder).items():
        parts += [f"![{markdown_text(picture.title)}]({path})", markdown_text(picture.caption)]
    if section.table is not None:
        parts.append(markdown_table(text_rows(section.table.map(markdown_text)), len(section.table.columns)))
    return "\n\n".join(filter(None, parts))


def anchor(title: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


class _Renderer(RendererHTML):
    """HTML whose pictures stand within the page, whose tables scroll, and whose headings have anchors."""

    def image(self, tokens: Any, place: int, options: Any, env: Any) -> str:
        # On a narrow screen a figure scrolls: smaller than three quarters of its size, its text could not be read.
        svg = str(env[tokens[place].attrs["src"]].svg)
        svg = WIDTH.sub(lambda size: f"min-width: {0.75 * float(size[1]):.1f}in; {size[0]}", svg, 1)
        return f'<figure tabindex="0">{svg}</figure>'

    def heading_open(self, tokens: Any, place: int, options: Any, env: Any) -> str:
        title = "".join(token.content for token in tokens[place + 1].children if token.type in ("text", "text_special"))
        return f'<{tokens[place].tag} id="{escape(anchor(title))}">'

    def table_open(self, tokens: Any, place: int, options: Any, env: Any) -> str:
        return '<div class="scroll" tabindex="0"><table>'

    def table_close(self, tokens: Any, place: int, options: Any, env: Any) -> str:
        return "</table></div>"


def html_page(markdown: str, pictures: Mapping[str, Picture]) -> str:
    """A page's Markdown as HTML. `pictures` are by the paths under which the Markdown has them."""
    body = MarkdownIt("commonmark", renderer_cls=_Renderer).enable("table").render(markdown, dict(pictures))
    body = body.replace('<p><figure tabindex="0">', '<figure tabindex="0">').replace("</figure></p>", "</figure>")
    body = INTERVAL.sub(r"\1<small>\2</small></td>", body)
    title = markdown.partition("\n")[0].removeprefix("# ")
    return _templates(TEMPLATES).get_template("page.html.jinja").render(title=title, body=Markup(body))


LETTERS_SHOWN = 120  # letters of an example's text


def overview(tables: Sequence[TableScores]) -> Picture | None:
    """The overall scores of all rows of all tables in one panel. None of a single table, whose own picture has them."""
    rows: dict[str, Interval] = {}
    for table in tables:
        for place in table.pictured:
            if table.description.columns[place].task == OVERALL:
                cells, name = table.column(place), table.description.title.partition(":")[0]
                rows |= {f"{name}: {table.rows.label[row]}": as_interval(cells.loc[row]) for row in cells.index}
    title = "Overall dev score of every row"
    return Picture(intervals({title: rows}, title), title) if len(tables) > 1 and rows else None


def _best_model(results: PresetResults) -> SimpleNamespace | None:
    """The best model that is kept, its scores with an example each, and a better row. None if none has all tasks."""
    best, top = (results.best_run(results.record.tasks, kept=kept) for kept in (True, False))
    if best is None or top is None:
        return None
    tasks, better = "", (*results.row_of(top), top.overall) if top.overall > best.overall else None
    for task, value in best.scores.items():
        measure, example = best.measures[task], _first_example(best, task, Path(results.record.data))
        line = f"- **{capitalized(task)}**, {TABLE_MEASURES.get(measure, measure)} {value:.3f}. {example}"
        tasks += f"{line.rstrip()}\n"
    return SimpleNamespace(row=results.row_of(best), overall=best.overall, tasks=tasks, better=better)


def _first_example(run: RunResult, task: str, data: Path) -> str:
    """Text, label and prediction; empty without answers, or their dev set, or if the metric needs probabilities."""
    if task not in run.answers:
        return ""
    labels, predictions, *_ = run.answers[task]
    try:
        declared, _ = load_training_rows(load_tasks(data)[task])  # which may decide the classes
        examples = load_rows(declared, "dev")
    except (InputError, KeyError):
        return ""
    has_classes = isinstance(declared, Labelled)
    same = examples.labels is not None and np.array_equal(examples.labels, labels)
    if not same or (has_classes and predictions.dtype.kind == "f"):
        return ""
    texts = (column[0] for column in examples.sentences)
    shown = " / ".join(text if len(text) <= LETTERS_SHOWN else f"{text[:LETTERS_SHOWN]}…" for text in texts)
    first = [written(declared, values[:1])[0] for values in (labels, predictions)]
    gold, predicted = (f"{value:.2f}" if isinstance(value, float) else value for value in first)
    return markdown_text(f"Its first dev example: “{shown}” Label {gold}, prediction {predicted}.")


def results_in(runs: Path, preset: str, output: Path) -> PresetResults:
    """A preset's results, from frames that this writes into the report's folder.

    Raises InputError if the preset was never run, or a run is damaged.
    """
    GridFrames.of_runs(runs, preset).save(output)
    return PresetResults.of(GridFrames.load(output / SCORES, output / ANSWERS), runs)


def report_of(
    results: PresetResults,
    output: Path,
    studies: Mapping[str, str] | None = None,
    papers: str = "",
    study: bool = False,
) -> Path:
    """Write index.html, report.md, results.parquet, and tables in LaTeX and as pictures. Returns the page.

    Args:
        results: all that the report shows.
        output: the report's folder.
        studies: the study of each table, by the table's key.
        papers: where published scores are from.
        study: whether a page `study` stands beside the report.
    """
    drawn, data = dict[str, Picture](), scores_as_data(results, studies)
    earlier = set[str]()
    with suppress(InputError):  # there is none, or one of another version
        earlier |= {table.description.name for table in Results.load(output / "results.parquet").tables}
    data.save(output / "results.parquet")
    scores = {table.description.table: table for table in data.tables}
    tables = [_table(found, scores.get(found.table.key)) for found in results.tables]
    for table in tables:
        drawn |= table.pictures | ({table.curves_file: table.curves} if table.curves else {})
    in_latex = [scores[each.key] for each in results.record.tables if each.kind == "table" and each.key in scores]
    for found in in_latex:
        text = latex_float(found, results.record.subject)
        write_text(output / "tables" / f"{found.description.name}.tex", text)
    for unwritten in earlier - {found.description.name for found in in_latex}:
        (output / "tables" / f"{unwritten}.tex").unlink(missing_ok=True)
    if over := overview(in_latex):
        drawn["figures/overview.svg"] = over
    sections = [section] if (section := conflicts(results)) else []
    drawn |= pictures_of(sections, "figures")
    shown = {
        "papers": papers,
        "single_seed": all(found.single_seed for found in results.tables if any(found.runs.values())),
        "tables": tables,
        "record": results.record,
        "best": _best_model(results),
        "overview": over,
        "warnings": warnings_of(results),
        "sections": sections,
        "study": study,
        "samples": SAMPLES,
        "seen": SEEN,
    }
    write_pages(output, TEMPLATES / "report.md.jinja", "index", shown, drawn)
    return output / "index.html"


def write_pages(output: Path, template: Path, html: str, shown: dict[str, Any], drawn: dict[str, Picture]) -> None:
    """A page in Markdown, named as its template, and in HTML, named `html`, with its figures."""
    name = template.name.partition(".")[0]
    earlier = _figures_of(output / f"{name}.md")
    for path, picture in drawn.items():
        write_text(output / path, standalone(picture))
    write_text(output / f"{name}.md", markdown_page(template, **shown, suffix="md"))
    page = markdown_page(template, **shown, suffix="html").replace("](report.html)", "](index.html)")
    write_text(output / f"{html}.html", html_page(page, drawn))
    for path in earlier - drawn.keys():
        (output / path).unlink(missing_ok=True)


def remove_page(output: Path, name: str) -> None:
    """Remove a page that an earlier report had, with its figures."""
    for path in (*_figures_of(output / f"{name}.md"), f"{name}.md", f"{name}.html"):
        (output / path).unlink(missing_ok=True)


def _figures_of(page: Path) -> set[str]:
    return set(FIGURE.findall(read_text(page))) if page.is_file() else set()


def _table(found: TableResults, scores: TableScores | None) -> SimpleNamespace:
    """What the page shows of a table."""
    table = found.table
    shown = scores if table.kind == "table" else None
    return SimpleNamespace(
        name=table.name,
        title=table.numbered_title,
        note=table.note if scores is not None else f"{table.note} No run has finished.",
        pictures=table_pictures(shown) if shown else {},
        curves=learning_curves(found),
        curves_file=f"figures/{table.name}-curves.svg",
        single_seed=found.single_seed,
        steps=shown is not None and any(column.metric == STEPS for column in shown.description.columns),
        scores=score_table(shown, range(len(shown.description.columns))) if shown else "",
        reference=table.label(table.reference) if table.reference else "",
        differences=difference_table(shown) if shown else "",
        chosen=", ".join(row.label for row in found.chosen_on_dev),
        overlaps=_overlaps(found),
        orderings=_orderings(found),
        minutes=", ".join(
            f"{minutes:,.1f} ({machine or 'unknown machine'})" for machine, minutes in found.minutes.items()
        ),
    )


def _overlaps(found: TableResults) -> str:
    """How many of the scored examples the rows were trained on."""
    lines = [["Row", "Task", "Trained on", "Score", "On the other examples"]]
    for (row, task), overlap in found.overlaps.iterrows():
        count = (
            f"{f'{overlap.seen:,.1f}'.removesuffix('.0')} of {overlap.rows:,.0f} ({overlap.seen / overlap.rows:.1%})"
        )
        names = (found.table.label(row), capitalized(task))
        lines.append([*map(markdown_text, names), count, format_score(overlap.score), format_score(overlap.clean)])
    return markdown_table(lines, 2) if len(lines) > 1 else ""


def _orderings(found: TableResults) -> str:
    """Every pair of rows with different published scores."""
    lines = [["Better as published", "Worse", "Column", "Published", "Ours", "Same order"]]
    for (column, better, worse), ordering in found.orderings.iterrows():
        names = (found.table.label(better), found.table.label(worse), capitalized(column))
        shown = (signed(ordering.published), difference(ordering), "✓" if ordering.agrees else "✗")
        lines.append([*map(markdown_text, names), *shown])
    return markdown_table(lines, 3) if len(lines) > 1 else ""


def warnings_of(results: PresetResults) -> list[str]:
    """What a reader must know of the results: the preset's notes, and what the runs say."""
    seeds = [{frozenset(run.seed for run in runs) for runs in table.runs.values() if runs} for table in results.tables]
    single = {len(row_seeds) for row_seeds in chain(*seeds)} == {1}
    found = ["One seed: intervals and tests do not cover other seeds."] if single else []
    if any(len(table_seeds) > 1 for table_seeds in seeds):
        compared = "Rows that share two or more are compared on these, others as independent."
        found.append(f"Some rows of a table have other seeds than others. {compared}")
    for table in results.tables:
        alone = [table.table.label(row) for row, runs in table.runs.items() if len(runs) == 1]
        if alone and not table.single_seed:
            named = f"{table.table.numbered_title}: {', '.join(map(markdown_text, alone))}"
            found.append(f"{named}: one seed, so without an interval, and not compared with other rows.")
    unknown = {line for run in results.runs for line in run.unknown}
    if unknown:
        found.append(f"Not all sentences that the models were trained on are known. {'; '.join(sorted(unknown))}.")
    return [*results.record.notes, *found]
