"""What `multitask experiments` does. What is slow to import is imported by the action that needs it."""

import sys
from functools import singledispatch
from typing import TYPE_CHECKING

from studies.engine.command_options import CollectGarbage, ListArtefacts, PlanTables, RunTables, ShowArtefact, Tables

if TYPE_CHECKING:
    from studies.engine.presets import Preset


@singledispatch
def run_action(action: object) -> int:
    """Carry out an action; returns the exit code."""
    raise NotImplementedError(type(action).__name__)


@run_action.register
def _(command: RunTables) -> int:
    from multitask.runtime.options import RunOptions
    from studies.engine.local_engine import local_engine
    from studies.engine.ray_engine import Ray
    from studies.engine.run import run_preset, write_best_predictions
    from studies.report.report import write_report

    preset = _preset(command)
    options = RunOptions(command.device, command.precision, command.runs, save_every=command.save_every)
    engine = Ray(options) if command.engine == "ray" else local_engine(command.workers, command.device)
    record = run_preset(preset, command.seeds, options, engine)
    page = write_report(command.runs, command.preset, command.report)
    for path in write_best_predictions(preset, record, options, command.predictions):
        print(path)
    print(f"report: {page.resolve()}")
    for (label, seed), failed in {(label, failed.seed): failed for label, failed in record.failures}.items():
        print(f"error: {label}, seed {seed}: {failed.error} ({command.runs / (failed.log or '')})", file=sys.stderr)
    return 1 if record.failures else 0


@run_action.register
def _(command: PlanTables) -> int:
    from multitask.evaluation.text_tables import aligned
    from multitask.runtime.options import RunOptions
    from studies.engine.plan import make_plan, rows_of
    from studies.engine.record import duration

    plan = make_plan(_preset(command), command.seeds, RunOptions(command.device, command.precision, command.runs))
    print(aligned(rows_of(plan), left=2))
    print(f"to do: {sum(s.missing for s in plan.stages)} of {sum(s.seeds for s in plan.stages)} stages", end="")
    print(f", about {duration(plan.seconds_left)} one after the other")
    if plan.shared is not None:
        print(f"shared stages save {plan.shared:.0%} of the time that rows would take apart")
    return 0


def _preset(command: Tables) -> "Preset":
    from studies.engine.presets import load_preset

    keys = None if command.tables is None else command.tables.split(",")
    return load_preset(command.preset, command.start, command.data, keys, command.suites_data)


@run_action.register
def _(command: ListArtefacts) -> int:
    from multitask.evaluation.text_tables import aligned
    from studies.engine.store import entries, megabytes

    found = entries(command.runs)
    lines = [["artefact", "state", "used by", "size"]]
    for entry in found:
        used = ", ".join(entry.recorded) or "-"
        lines.append([entry.artefact.folder.name, entry.state, used, megabytes(entry.size)])
    print(aligned(lines, left=3))
    print(f"{len(found)} artefacts, {megabytes(sum(entry.size for entry in found))}")
    return 0


@run_action.register
def _(command: ShowArtefact) -> int:
    import json

    from minbert.files import read_json
    from multitask.evaluation.text_tables import scores_table
    from studies.engine.store import find_entry, megabytes

    entry = find_entry(command.runs, command.artefact)
    folder = entry.artefact.folder
    for path in (folder / name for name in ("config.json", "inputs.json", "evaluation.json")):
        if path.is_file():
            print(f"{path.name}: {json.dumps(read_json(path), indent=2, ensure_ascii=False)}")
    if (folder / "metrics.jsonl").is_file() and (history := entry.artefact.history())[0]["scores"]:
        print(scores_table(history))
    print(f"{folder}: {entry.state}, {megabytes(entry.size)}, used by {', '.join(entry.recorded) or 'no preset'}")
    return 0


@run_action.register
def _(command: CollectGarbage) -> int:
    from studies.engine.store import garbage, megabytes, remove, size_of

    sizes = {path: size_of(path) for path in garbage(command.runs)}
    for path, size in sizes.items():
        print(f"{megabytes(size):>12}  {path}")
    if command.delete:
        remove(command.runs, list(sizes))
    done = "removed" if command.delete else "would be removed with --delete"
    print(f"{len(sizes)} files and folders, {megabytes(sum(sizes.values()))}: {done}")
    return 0
