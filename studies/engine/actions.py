"""What the commands of `multitask experiments` do."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

import pandas

from minbert.errors import InputError
from minbert.files import read_json
from multitask.data.problems import aligned, plain
from multitask.evaluation.score_intervals import Answers
from multitask.evaluation.text_tables import intervals_table, number, scores_table
from multitask.runs.artefact import Artefact, last_run, without_folders
from multitask.runtime.options import RunOptions
from multitask.stages.registry import stages
from studies.engine.commands import CollectGarbage, ListArtefacts, PlanTables, RunTables, ShowArtefact, VerifyArtefacts
from studies.engine.engines import Ray, local_engine
from studies.engine.garbage import Entry, collect, entries, find_entry, megabytes
from studies.engine.grid import Grid, plan
from studies.engine.record import duration
from studies.engine.run import check_preset, run_preset, write_best_predictions
from studies.report.report import write_report
from studies.report.run_results import RunResult


def run_tables(options: RunTables) -> int:
    """Compute tables; print the report's path and the failures. Returns 1 if a row failed."""
    preset, where = options.load(), options.computing
    running = RunOptions(
        where.device, where.precision, options.runs, save_every=options.save_every, threads=options.threads
    )
    engine = Ray(running) if options.engine == "ray" else local_engine(options.workers, where.device, options.threads)
    record = run_preset(preset, options.seeds, running, engine)
    page = write_report(options.runs, preset.name, options.report)
    predictions = options.predictions or options.report / "predictions"  # `predict` writes into ./predictions
    for path in write_best_predictions(preset, record, running, predictions):
        print(path)
    print(f"report: {page.resolve()}")
    if best := record.best_model(options.runs, record.tasks, keeping=True):
        print(f"try its best model: multitask explore --model {options.runs / best}")
    if preset.name == "sample":
        print("on real data: multitask data fetch, then multitask experiments run small")
    for (label, seed), failed in {(label, failed.seed): failed for label, failed in record.failures}.items():
        print(f"error: {label}, seed {seed}: {failed.error} ({options.runs / (failed.log or '')})", file=sys.stderr)
    return 1 if record.failures else 0


def plan_tables(options: PlanTables) -> int:
    """Print the plan."""
    computing, preset = options.computing, options.load()
    running = RunOptions(computing.device, computing.precision, options.runs, threads=options.threads)
    check_preset(preset)
    *stages, [total] = plan(Grid(preset.experiments, options.seeds, running))
    print(aligned(stages, left=2))
    print(total)
    return 0


def list_artefacts(options: ListArtefacts) -> int:
    """Print the list."""
    found = entries(options.runs)
    lines = [["run", "state", "needed by", "size"]]
    lines += [[e.artefact.folder.name, e.state, _needed_by(e), megabytes(e.size)] for e in found]
    print(aligned(lines, left=3))
    print(f"{len(found)} runs, {megabytes(sum(entry.size for entry in found))}")
    return 0


def _needed_by(entry: "Entry") -> str:
    people = ["made by hand"] if entry.by_hand else []
    return ", ".join([*entry.needed_by, *people]) or "-"


def verify_artefacts(options: VerifyArtefacts) -> int:
    """Print what is damaged. Returns 1 if anything is."""
    complete = [entry.artefact for entry in entries(options.runs) if entry.artefact.done]
    damaged = 0
    for artefact in complete:
        try:
            artefact.check(whole=True)
        except InputError as error:
            print(error)
            damaged += 1
    print(f"{len(complete)} complete runs, {damaged} damaged")
    return 1 if damaged else 0


def show_artefact(options: ShowArtefact) -> int:
    """Print the run's records and scores, or compare runs."""
    found = [find_entry(options.runs, last_run(options.runs).name if n == "last" else n) for n in options.named]
    if len(found) > 1:
        print(_comparison([entry.artefact for entry in found]))
        return 0
    [entry] = found
    folder = entry.artefact.folder
    if lines := _made_from(entry.artefact):
        print(aligned(lines, left=2))
        print("(settings that are not the default; all are in config.json and inputs.json)\n")
    if (folder / "metrics.jsonl").is_file() and (history := entry.artefact.history())[0]["scores"]:
        print(f"{scores_table(history)}\n")
    if answers := _answers(entry.artefact):
        print(f"{intervals_table(answers)}\n")
    print(f"{folder}: {entry.state}, {megabytes(entry.size)}, needed by: {_needed_by(entry)}")
    return 0


def _made_from(run: Artefact) -> list[list[str]]:
    """What the run was made from, and its settings that are not the default, as rows of names and values."""
    if not all((run.folder / name).is_file() for name in ("config.json", "inputs.json")):
        return []
    config, stage = read_json(run.folder / "config.json", dict), stages().get(run.stage)
    default = json.loads(json.dumps(asdict(stage.config()), default=str)) if stage else {}
    defaults, given = (pandas.json_normalize(of).to_dict("records")[0] for of in (default, config))
    changed = {name: value for name, value in given.items() if value != defaults.get(name)}
    shown = read_json(run.folder / "inputs.json", dict)["labels"] | changed
    return [[str(name), plain(str(value))] for name, value in shown.items()]


def _answers(run: Artefact) -> dict[str, Answers]:
    """The dev answers of a run: of its evaluation, its own or one that lies next to it; none without."""
    parents, folders = [run.folder.name.rpartition("-")[2]], [run.folder]
    for path in sorted(run.folder.parent.glob("evaluate-*/inputs.json")):
        folders += [path.parent] if read_json(path, dict).get("parents") == parents else []
    for folder in folders:
        if (folder / "evaluation.json").is_file():
            return RunResult(folder, folder, 0, ()).answers
    return {}


def _comparison(runs: Sequence[Artefact]) -> str:
    """Settings that differ between runs, best scores and times, with a column for each run."""
    made_from = [
        read_json(run.folder / "config.json") | read_json(run.folder / "inputs.json")["labels"] for run in runs
    ]
    settings = pandas.DataFrame(
        [pandas.json_normalize(of).map(lambda value: without_folders(str(value))).iloc[0] for of in made_from]
    ).fillna("-")
    scores = pandas.DataFrame([_best_scores(run) for run in runs]).fillna("-")
    shown = settings.loc[:, settings.nunique() > 1].reset_index(drop=True).join(scores)
    shown["time"] = [duration(run.seconds) if run.done else "unfinished" for run in runs]
    rows = [["", *map(str, range(1, len(runs) + 1))], *([str(name), *of] for name, of in shown.items())]
    return "\n".join([*(f"{place}  {run.folder}" for place, run in enumerate(runs, start=1)), "", aligned(rows)])


def _best_scores(run: Artefact) -> dict[str, str]:
    """The best of each dev score; none without any."""
    lines = run.history() if (run.folder / "metrics.jsonl").is_file() else []
    best = pandas.DataFrame([line["scores"] for line in lines]).max()
    return {f"best {name}": number(score) for name, score in best.items()}


def collect_garbage(options: CollectGarbage) -> int:
    """List or remove what is not needed."""
    sizes = collect(options.runs, options.named, options.delete)
    for path, size in sizes.items():
        print(f"{megabytes(size):>12}  {path}")
    done = "removed" if options.delete else "would be removed with --delete"
    print(f"{len(sizes)} files and folders, {megabytes(sum(sizes.values()))}: {done}")
    return 0
