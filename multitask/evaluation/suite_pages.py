"""A suite's scores next to published ones: as text for the terminal, as Markdown and LaTeX pages, and as JSON."""

from collections.abc import Iterator, Mapping
from itertools import chain
from math import isfinite
from pathlib import Path

from minbert.files import write_json, write_text
from multitask.data.markup import TableCells, aligned, latex, latex_table, markdown_table, markdown_text
from multitask.evaluation.suite_sets import PUBLISHED
from multitask.evaluation.suites import SUITES, SuiteResult
from multitask.evaluation.text_tables import SEEN
from multitask.evaluation.training_overlap import Scores, ScoresWithOverlap, any_seen, overlap_rows

NONE, PARTIAL = "–", "‡"
GEOMETRY = ("alignment", "uniformity", "mean_cosine", "top_eigenvalue_share", "effective_rank")


def suite_text(result: SuiteResult) -> str:
    """Text for the terminal: settings, scores, notes."""
    seconds = f"embedding {result.seconds['embedding']:.1f} s, scoring {result.seconds['scoring']:.1f} s"
    work = f"{result.sentences:,} different sentences ({seconds})"
    parts = [_heading(result), work, aligned(_main_table(result)), *_notes(result)]
    return "\n".join([*parts, "", aligned(_overlap(result))] if any_seen(result.tasks) else parts)


def write_suite(result: SuiteResult, path: Path) -> list[Path]:
    """Write the result as JSON, and Markdown and LaTeX into files of the same name; returns the files."""
    sections = [
        f"# {markdown_text(_heading(result))}",
        _markdown(_main_table(result)),
        *(f"- {markdown_text(note)}" for note in _notes(result)),
        "## Overlap with the training data",
        _markdown(_overlap(result)),
        "## All measures",
        _markdown(_details(result)),
    ]
    write_json(path, result.as_json())
    write_text(path.with_suffix(".md"), "\n\n".join(sections) + "\n")
    write_text(path.with_suffix(".tex"), _latex_table(result))
    return [path, path.with_suffix(".md"), path.with_suffix(".tex")]


def _markdown(rows: TableCells) -> str:
    return markdown_table([[*map(markdown_text, row)] for row in rows]).rstrip()


def _heading(result: SuiteResult) -> str:
    settings = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in result.settings.items())
    return f"{result.suite}, {result.model} ({settings})"


def _points(value: float | None) -> str:
    return _number(None if value is None else 100 * value, digits=2)


def _number(value: float | None, digits: int = 3) -> str:
    return NONE if value is None else f"{value:.{digits}f}" if isfinite(value) else "undefined"


def _marked(text: str, task: ScoresWithOverlap) -> str:
    return text + (SEEN if task.sentences_seen else "")


def _main_table(result: SuiteResult) -> list[list[str]]:
    """The table as in papers, with a row for each model and size. A suite without a main score has rows of tasks."""
    suite = SUITES[result.suite]
    sizes = {"": result} | {f", {size} dimensions": part for size, part in result.dimensions.items()}
    if suite.main is None:
        rows = [["Task", *(name.replace("_", " ") for name in GEOMETRY)]]
        for size, part in sizes.items():
            for name, task in part.tasks.items():
                rows.append([_marked(name, task) + size, *(_number(task.scores[measure]) for measure in GEOMETRY)])
        return rows
    columns = {entry.name: entry.column for entry in suite.sets}
    published = PUBLISHED.get(result.suite, ())
    if not result.tasks.keys() & columns:  # a set of one's own
        columns, published = {name: name for name in result.tasks}, ()
    rows = [["Model", *columns.values(), "Avg."]]
    for row in published:
        rows.append([row["label"], *(f"{score:.2f}" for score in (*row["scores"], row["average"]))])
    partial = PARTIAL if result.missing else ""
    for size, part in sizes.items():
        tasks = [part.tasks.get(name) for name in columns]
        own = [NONE if task is None else _marked(_points(part.main(task.scores)), task) for task in tasks]
        rows.append([result.model + size, *own, _points(part.average()) + partial])
        if any_seen(part.tasks):
            clean = [_points(None if task is None else part.main(task.clean)) for task in tasks]
            average = _points(part.average(clean=True)) + partial
            rows.append([f"{result.model}{size}, rows not trained on", *clean, average])
    return rows


def _notes(result: SuiteResult) -> list[str]:
    notes = []
    if any_seen(result.tasks):
        notes.append(f"{SEEN} the model was trained on some of these sentences; see the overlap")
    if result.missing:
        lacking = ", ".join(f"{name} (no {path})" for name, path in result.missing.items())
        notes.append(f"{PARTIAL} average without {lacking}; do not compare it with averages of all tasks")
    return [*notes, *(f"not known: {line}" for line in result.unknown)]


def _overlap(result: SuiteResult) -> list[list[str]]:
    unit, _ = SUITES[result.suite].main or (NONE, None)
    return overlap_rows(result.tasks, lambda scores: {unit: result.main(scores)}, _points)


def _details(result: SuiteResult) -> list[list[str]]:
    """All measures of each task, but not of its sub-sets."""
    measured = {name: dict(_flat(task.scores)) for name, task in result.tasks.items()}
    names = list(dict.fromkeys(chain(*measured.values())))
    shown = _number if SUITES[result.suite].main is None else _points
    rows = [["Task", "rows", *(name.replace("_", " ") for name in names)]]
    for task, found in measured.items():
        rows.append([task, f"{result.tasks[task].rows:,}", *(shown(found.get(name)) for name in names)])
    return rows


def _flat(scores: Scores) -> Iterator[tuple[str, float | None]]:
    for name, value in scores.items():
        if not isinstance(value, Mapping):
            yield name, value
        elif name != "subsets":
            yield from ((f"{name} {measure}", score) for measure, score in value.items())


def _latex_table(result: SuiteResult) -> str:
    comments = [
        rf"% Needs \usepackage{{booktabs}}. Written by `multitask evaluate --suite {result.suite}`.",
        *(f"% {row['label']}: {row['source']}" for row in PUBLISHED.get(result.suite, ())),
        *(f"% {latex(note)}" for note in _notes(result)),
    ]
    return "\n".join([*comments, latex_table([[*map(latex, row)] for row in _main_table(result)])])
