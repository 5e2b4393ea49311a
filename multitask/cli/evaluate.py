"""`multitask evaluate`: scores of a model on the tasks' labelled sets or on a suite of SentEval."""

from dataclasses import asdict, replace
from pathlib import Path

from minbert.errors import InputError
from minbert.files import write_json
from multitask.cli.commands import Evaluate
from multitask.data.contamination import TrainedOn
from multitask.data.labelled_data import LabelledData
from multitask.data.tables import Source
from multitask.evaluation.calibration_and_errors import write_details
from multitask.evaluation.embedding_cache import default_cache
from multitask.evaluation.embedding_suite_pages import suite_text, write_suite
from multitask.evaluation.embedding_suites import KnownEncoder, evaluate_suites
from multitask.evaluation.task_predictions import load_split, tokenised
from multitask.evaluation.task_scores import evaluate as evaluate_tasks
from multitask.evaluation.text_tables import metrics_table, overlap_table
from multitask.evaluation.training_overlap import any_seen
from multitask.models.multitask_model import MultitaskModel, load_model, tasks_to_score
from multitask.runs.artefact import is_run, locate_model
from multitask.runtime.device import start
from multitask.tasks.declarations import load_tasks
from multitask.tasks.read_examples import read_examples


def evaluate(options: Evaluate) -> int:
    """Score a model; print a table and the files written."""
    return _evaluate_tasks(options) if options.suite == "multitask" else _evaluate_suite(options)


def _evaluate_tasks(options: Evaluate) -> int:
    folder = locate_model(options.model, options.revision, options.best_on)
    assert options.precision != "int8", "refused above"
    runtime = start(options.device, options.precision)
    model = load_model(folder, load_tasks(options.tasks_file or options.data)).to(runtime.device)
    data = _labelled_data(options, model)
    model.tasks = tasks_to_score(model, folder)
    found = evaluate_tasks(model, data, TrainedOn.of_folder(folder, options.model), runtime)
    what = options.split if options.input is None else options.input.name.partition(".")[0]
    output = options.output or folder / f"evaluation-{what}.json"
    result = {"overall": found.scores.overall, "tasks": found.scores.metrics, "split": what, **runtime.describe()}
    parts = {name: asdict(task) for name, task in found.overlap.items()}
    write_json(output, {**result, "overlap": parts, "unknown": found.unknown})
    print(metrics_table(found.scores))
    if any_seen(found.overlap):
        print(overlap_table(found.overlap))
    for line in found.unknown:
        print(f"not known: {line}")
    if options.details is not None:
        for path in write_details(options.details, found.tasks, found.estimates, found.examples):
            print(path)
    print(output)
    return 0


def _labelled_data(options: Evaluate, model: "MultitaskModel") -> "dict[str, LabelledData]":
    """The rows to score: the tasks' own sets, or those of the file that is given."""
    names = options.task or tuple(model.tasks)
    if unknown := [name for name in names if name not in model.tasks]:
        raise InputError(f'the model has no task "{unknown[0]}"; it has {", ".join(model.tasks)}')
    if options.input is None:
        return load_split(model, options.tasks_file or options.data, options.split, names, labelled=True)
    if len(names) > 1:
        raise InputError(f"--input needs --task: the model has {', '.join(names)}")
    task = replace(model.tasks[names[0]], id=None, separator=options.separator)
    task = replace(task, text=options.text or task.text, label=options.label or task.label)
    return {task.name: tokenised(model, task.name, read_examples(task, Source(str(options.input)), labelled=True))}


def _evaluate_suite(options: Evaluate) -> int:
    assert options.suite != "multitask"
    name = options.model
    known = KnownEncoder.load(
        name, options.revision, options.best_on, options.pooling, options.device, options.precision
    )
    cache = default_cache() if options.cache else None
    result = evaluate_suites([options.suite], known, options.data, cache, seed=options.seed)[options.suite]
    if is_run(name):
        folder = locate_model(name, best_on=options.best_on)
    else:
        folder = Path(name) if Path(name).is_dir() else Path("evaluations", name.replace("/", "--"))
    print(suite_text(result))
    for path in write_suite(result, options.output or folder / f"evaluation-{options.suite}.json"):
        print(path)
    return 0
