"""Runs as text for a terminal: a list, one run on a page, several compared, and the best model of a grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from pathlib import Path

import pandas

from minbert.errors import InputError
from minbert.files import read_json
from minbert.settings import as_json
from multitask.base import logger
from multitask.base.options import RunOptions
from multitask.base.runs import DONE, Run, without_folders
from multitask.data.markup import aligned
from multitask.data.messages import plain
from multitask.evaluation.statistics import SampledScores, Uncertain, contrast
from multitask.evaluation.text_tables import intervals_table, scores_table, uncertain_table
from multitask.experiments.compare_rows import PresetResults, Samples
from multitask.experiments.grid_frames import RunFacts, RunResult
from multitask.experiments.table_definitions import OVERALL, PresetRecord, duration
from multitask.models.multitask_model import MultitaskModel
from multitask.models.predictions import added_values
from multitask.stages.registry import stages
from multitask.stages.run_stage import run_stage
from multitask.stages.settings_without_training import ON_DEV
from multitask.tasks.scores import LOWER_IS_BETTER, score_text
from multitask.use.model_data import data_for

TRIED = {
    "sentiment": ("A gem of a film, funny and never dull.",),
    "paraphrase": ("How do I learn to swim?", "What is the best way to learn swimming?"),
    "similarity": ("Two dogs run on the beach.", "Dogs are running by the sea."),
}
"""Sentences that neither the sample nor the published files have, for the course's tasks."""


def presented(results: PresetResults, best: RunResult) -> list[str]:
    """Lines about the best model: its row, what it says of sentences that no file has, and how to try it."""
    (label, _), folder = results.row_of(best), results.folder / best.model
    lines = [f"best model: {label}, {folder}"]
    if not best.keeps_model:
        return lines
    model = MultitaskModel.load(folder)
    predicted = []
    for name, texts in TRIED.items():
        if name in model.tasks and model.tasks[name].pair == (len(texts) > 1):
            [prediction] = model.predict(name, [texts if len(texts) > 1 else texts[0]])
            value, *probability = added_values(model.tasks[name], prediction)
            shown = value if isinstance(value, str) else f"{value:.2f}"
            predicted.append([name, " / ".join(texts), shown, *(f"{share:.2f}" for share in probability or ())])
    width = max(map(len, predicted), default=0)
    table = aligned([[*line, *[""] * (width - len(line))] for line in predicted], left=3)
    return [*lines, *table.splitlines(), f"try it: multitask explore --model {folder}"]


@dataclass(frozen=True)
class Entry:
    """A run as it lies in the folder."""

    artefact: Run
    needed_by: tuple[str, ...]  # the presets whose records name it

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.stat().st_size for file in self.artefact.folder.rglob("*") if file.is_file())

    @property
    def date(self) -> str:
        """When it ended, or when a file of an unfinished run came last."""
        path = self.artefact.folder / DONE if self.artefact.done else self.artefact.folder
        return f"{datetime.fromtimestamp(path.stat().st_mtime):%Y-%m-%d %H:%M}"

    def shown(self) -> list[str]:
        """State, the presets that need it, date and size."""
        state = "complete" if self.artefact.done else "unfinished"
        return [state, ", ".join(self.needed_by) or "-", self.date, megabytes(self.size)]


def entries(runs: Path) -> list[Entry]:
    """All runs by name, also a complete one that has lost its inputs.json. Raises InputError if a record is damaged."""
    needed = {record.preset: record.artefacts() for record in PresetRecord.read_all(runs)}
    folders = {path.parent for name in ("inputs.json", DONE) for path in runs.glob(f"*/{name}")}
    return [
        Entry(Run(folder), tuple(name for name in needed if folder.name in needed[name])) for folder in sorted(folders)
    ]


def find_entry(runs: Path, name: str) -> Entry:
    """The run of this path, name or key. Raises InputError if there is none."""
    if (path := Path(name)).parent != Path():
        runs, name = path.parent, path.name
    for entry in entries(runs):
        if name in (entry.artefact.folder.name, entry.artefact.folder.name.rpartition("-")[2]):
            return entry
    raise InputError(f"{runs}: no such run: {name}; `multitask experiments list` shows all")


def run_list(runs: Path) -> str:
    """All runs with state, size, date and what needs them, as text."""
    found = entries(runs)
    lines = [["run", "state", "needed by", "date", "size"]]
    shown = aligned(lines + [[entry.artefact.folder.name, *entry.shown()] for entry in found], left=4)
    return f"{shown}\n{len(found)} runs, {megabytes(sum(entry.size for entry in found))}"


def run_page(entry: Entry) -> str:
    """What a run was made from, its scores in training and on the dev sets, and its state, as text."""
    folder, parts = entry.artefact.folder, list[str]()
    if lines := _made_from(entry.artefact):
        note = "(settings that are not the default; all are in config.json and inputs.json)"
        parts.append(f"{aligned(lines, left=2)}\n{note}")
    if (folder / "metrics.jsonl").is_file() and (history := entry.artefact.history())[0]["scores"]:
        parts.append(scores_table(history))
    if evaluations := _evaluations(entry.artefact):
        latest, *others = evaluations
        note = f"\n(of {latest.evaluated}, the latest of {len(evaluations)} evaluations)" if others else ""
        parts.append(intervals_table(latest.answers) + note)
    state, needed_by, date, size = entry.shown()
    return "\n\n".join([*parts, f"{folder}: {state}, {date}, {size}, needed by: {needed_by}"])


def megabytes(size: int) -> str:
    """`12.3 MB`."""
    return f"{size / 1e6:,.1f} MB"


def _made_from(run: Run) -> list[list[str]]:
    """What the run was made from, and its settings that are not the default, as rows of names and values."""
    if not all((run.folder / name).is_file() for name in ("config.json", "inputs.json")):
        return []
    config, stage = read_json(run.folder / "config.json", dict), stages().get(run.stage)
    default = as_json(stage.config()) if stage else {}
    defaults, given = (pandas.json_normalize(settings).to_dict("records")[0] for settings in (default, config))
    changed = {name: value for name, value in given.items() if value != defaults.get(name)}
    shown = run.labels | changed
    return [[str(name), plain(str(value))] for name, value in shown.items()]


def _evaluations(run: Run) -> list[RunResult]:
    """The dev answers of a run, its own or those of its evaluations that lie next to it, the latest first."""
    parents, folders = [run.folder.name.rpartition("-")[2]], [run.folder]
    for path in run.folder.parent.glob("evaluate-*/inputs.json"):
        folders += [path.parent] if read_json(path, dict).get("parents") == parents else []
    ended = [one for one in map(Run, folders) if one.done and (one.folder / "evaluation.json").is_file()]
    ended.sort(key=lambda one: (one.folder / DONE).stat().st_mtime_ns, reverse=True)
    facts = (RunFacts("", "", 0, run.folder.name, one.folder.name) for one in ended)
    return [RunResult.read(run.folder.parent, of_one) for of_one in facts]


def _evaluated_now(run: Run) -> list[RunResult]:
    """The same, with an evaluation that is made now where there is none; empty if that cannot be, with a warning."""
    if (found := _evaluations(run)) or not run.done:
        return found
    try:
        run_stage(ON_DEV, run.folder, data_for(run.folder, None).path, None, RunOptions(runs=run.folder.parent))
    except InputError as error:
        logger.warning("no differences of %s: %s", run.folder, error)
    return _evaluations(run)


def _differences(runs: Sequence[Run]) -> str:
    """A line for each score of each run minus that of the first, with its interval over the rows of their dev set.

    Of several evaluations of a run, the one that shares most dev sets with the first run's, or the latest of these.
    """
    first_evaluations, *others = scored = [_evaluated_now(run) for run in runs]
    samples = Samples([result for evaluations in scored for result in evaluations])

    def shared(pair: tuple[RunResult, RunResult]) -> list[str]:
        dev_sets = [{task: samples.dev_set(result, task) for task in result.answers} for result in pair]
        return [task for task in dev_sets[0] if dev_sets[0][task] == dev_sets[1].get(task)]

    found: dict[tuple[str, str], Uncertain] = {}
    for place, evaluations in enumerate(others, start=2):
        pairs_of_evaluations = [*product(first_evaluations, evaluations)]
        if not pairs_of_evaluations:
            continue
        first, other = best = max(pairs_of_evaluations, key=lambda pair: len(shared(pair)))
        same = shared(best)
        pairs = {task: [samples.scores([run], task) for run in (first, other)] for task in same}
        higher = [pairs[task] for task in same if first.answers[task].metric not in LOWER_IS_BETTER]
        mean = OVERALL if len(same) == len(first.answers) == len(other.answers) else "mean of the shared tasks"
        overall = {mean: [SampledScores.mean_of(scores) for scores in zip(*higher, strict=True)]} if higher else {}
        for name, (ours, theirs) in (overall | pairs).items():
            found[name, f"{place} - 1"] = contrast([(1, theirs), (-1, ours)])
    header = ["task", "runs", "difference", "95% interval over dev rows"]
    return uncertain_table(header, found.items(), "+z.4f") if found else ""


def comparison(runs: Sequence[Run]) -> str:
    """Settings that differ between runs, best scores, times, and differences to the first one, as text."""
    made_from = [read_json(run.folder / "config.json", dict) | run.labels for run in runs]
    settings = pandas.DataFrame([pandas.json_normalize(config).map(str).iloc[0] for config in made_from]).fillna("-")
    for name in settings.columns[settings.nunique() > 1]:
        if (short := settings[name].map(without_folders)).nunique() == settings[name].nunique():
            settings[name] = short
    scores = pandas.DataFrame([_best_scores(run) for run in runs]).fillna("-")
    shown = settings.loc[:, settings.nunique() > 1].reset_index(drop=True).join(scores)
    shown["time"] = [duration(run.seconds) if run.done else "unfinished" for run in runs]
    rows = [["", *map(str, range(1, len(runs) + 1))], *([str(name), *cells] for name, cells in shown.items())]
    named = [f"{place}  {run.folder}" for place, run in enumerate(runs, start=1)]
    differences = _differences(runs)
    return "\n".join([*named, "", aligned(rows), *(["", differences] if differences else [])])


def _best_scores(run: Run) -> dict[str, str]:
    """The best of each dev score; none without any."""
    lines = run.history() if (run.folder / "metrics.jsonl").is_file() else []
    best = pandas.DataFrame([line["scores"] for line in lines]).max()
    return {f"best {name}": score_text(score) for name, score in best.items()}
