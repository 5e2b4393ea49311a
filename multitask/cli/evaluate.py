"""`multitask evaluate`: scores of a model on the tasks' labelled sets or on a suite of SentEval."""

from dataclasses import asdict, replace
from pathlib import Path

from minbert.errors import InputError
from minbert.files import write_json
from multitask.base.device import start
from multitask.base.runs import is_run, locate_model, refuse_file_of_run
from multitask.cli.commands import Evaluate
from multitask.data.contamination import TrainedOn
from multitask.data.examples import LabelledData
from multitask.data.tables import RowsFrom, suffixes
from multitask.evaluation.calibration_and_errors import class_table, write_details
from multitask.evaluation.suite_pages import suite_text, write_suite
from multitask.evaluation.suites import KnownEncoder, evaluate_suites
from multitask.evaluation.task_scores import evaluate as evaluate_tasks
from multitask.evaluation.text_tables import intervals_table, metrics_table, overlap_table
from multitask.evaluation.training_overlap import any_seen
from multitask.models.estimates import load_split, tokenised
from multitask.models.model_folder import has_heads
from multitask.models.multitask_model import MultitaskModel, load_model, tasks_for, tasks_to_score
from multitask.tasks.check import warn_of_gaps
from multitask.tasks.declarations import load_tasks, task_named
from multitask.tasks.read_examples import read_examples
from multitask.use.predict import ModelData, data_for, replaced_files_named


def evaluate(options: Evaluate) -> None:
    """Score a model; print a table and the files written."""
    _evaluate_tasks(options) if options.suite == "multitask" else _evaluate_suite(options)


def _evaluate_tasks(options: Evaluate) -> None:
    folder = locate_model(options.model, options.revision, options.best_on)
    runtime = start(options.device, options.precision)
    with_heads, own = has_heads(folder), ModelData(Path(), own=True)
    if options.input is None or not with_heads:
        own = data_for(options.model, options.tasks_file or options.data)
    model = load_model(folder, {} if with_heads else load_tasks(own.path)).to(runtime.device)
    rows = _rows(options, model, own.path)
    model.tasks = tasks_to_score(model, folder)
    found = evaluate_tasks(model, rows, TrainedOn.of_folder(folder, options.model), runtime)
    of = {"overall": found.scores.overall, "tasks": found.scores.metrics, "data": str(options.input or own.path)}
    parts = {name: asdict(task) for name, task in found.overlap.items()}
    scores = {**of, "split": options.split, **runtime.describe(), "overlap": parts, "unknown": found.unknown}
    output = options.output or _scores_folder(options) / f"evaluation-{_rows_name(options, own)}.json"
    print(metrics_table(found.scores.metrics, found.scores.overall))
    print(f"\n{intervals_table(found.answers)}")
    for table in map(class_table, found.tasks.values(), found.estimates.values(), found.examples.values()):
        print(end=f"\n{table}\n" if table else "")
    if any_seen(found.overlap):
        print("", overlap_table(found.overlap), sep="\n")
    for name, examples in found.examples.items():
        warn_of_gaps(found.tasks[name], examples)
    for line in found.unknown:
        print(f"not known: {line}")
    with replaced_files_named(output, *filter(None, [options.details])):
        write_json(output, scores)
        if options.details is not None:
            for path in write_details(options.details, found.tasks, found.estimates, found.examples):
                print(path)
    print(output)


def _rows_name(options: Evaluate, data: ModelData) -> str:
    """What was scored, as a part of a file's name."""
    if options.input is not None:
        return f"of-{options.input.name.partition('.')[0]}"
    return options.split if data.own else f"{options.split}-{data.path.resolve().stem}"


def _scores_folder(options: Evaluate) -> Path:
    """The model's folder, or one for a model that comes from elsewhere."""
    if is_run(options.model):
        return locate_model(options.model, best_on=options.best_on)
    return (
        Path(options.model) if Path(options.model).is_dir() else Path("evaluations", options.model.replace("/", "--"))
    )


def _rows(options: Evaluate, model: MultitaskModel, data: Path) -> dict[str, LabelledData]:
    """The rows to score: the tasks' own sets, or those of the file that is given."""
    names = tasks_for(model, None, options.task)
    if options.input is None:
        return load_split(model, data, options.split, names, labelled=True)
    if len(names) > 1:
        raise InputError(f"--input needs --task: the model has {', '.join(names)}")
    task = model.tasks[names[0]]
    task = task.reading(options.text) if options.text else task
    task = replace(task, files=replace(task.files, id=None, label=options.label or task.files.label))
    declared = task_named(options.tasks_file, task.name) if options.tasks_file else task
    file_format = declared.file_format.of_form(suffixes(options.input)[0])
    file_format = replace(file_format, separator=options.separator or file_format.separator)
    source = RowsFrom(str(options.input), format=file_format)
    return {task.name: tokenised(model, task.name, read_examples(task, source, labelled=True))}


def _evaluate_suite(options: Evaluate) -> None:
    assert options.suite != "multitask" and options.data is not None, "refused above"  # noqa: PT018
    name = options.model
    output = options.output or _scores_folder(options) / f"evaluation-{options.suite}.json"
    files = [output.with_suffix(suffix) for suffix in (".json", ".md", ".tex")]
    for path in files if options.output else ():
        refuse_file_of_run(path)
    known = KnownEncoder.load(
        name, options.revision, options.best_on, options.pooling, options.device, options.precision
    )
    found = evaluate_suites([options.suite], known, options.data, seed=options.seed, dimensions=options.dimensions)
    result = found[options.suite]
    print(suite_text(result))
    with replaced_files_named(*files):
        for path in write_suite(result, output):
            print(path)
