"""`multitask predict`: predictions for the rows of any file, or the course's prediction files."""

from dataclasses import replace
from pathlib import Path

from multitask.base.runs import locate_model
from multitask.cli.commands import Predict
from multitask.data.tables import suffixes
from multitask.models.multitask_model import MultitaskModel, tasks_for
from multitask.tasks.declarations import chosen_tasks
from multitask.use.predict import (
    common_format,
    data_for,
    predict_file,
    replaced_files_named,
    run_of,
    write_prediction_files,
)


def predict(options: Predict) -> None:
    """Predict; print the files written."""
    _predict_sets(options) if options.input is None else _predict_input(options, options.input)


def _predict_input(options: Predict, source: Path) -> None:
    output = options.output or Path("-")
    folder = locate_model(options.model, best_on=options.best_on)
    model = MultitaskModel.load(folder, options.device, options.precision)
    form = f".{options.input_format}"
    named = tasks_for(model, None, options.task)
    declared = chosen_tasks(options.tasks_file, tuple(named)) if options.tasks_file else model.tasks
    file_format = common_format([declared[n] for n in named], form if str(source) == "-" else suffixes(source)[0])
    file_format = replace(file_format, separator=options.separator or file_format.separator)
    read = options.text, file_format, form
    with replaced_files_named(output):
        predict_file(model, options.task, source, output, model.runtime, *read, options.probabilities, options.prefix)
    if output != Path("-"):
        print(output)


def _predict_sets(options: Predict) -> None:
    locate_model(options.model, best_on=options.best_on)  # says what is wrong with the model before the data's path
    data = data_for(options.model, options.tasks_file or options.data).path
    of = (run_of(options.model.resolve()).name, options.model.resolve().name, options.best_on)
    output = options.output or Path("predictions", "-".join(dict.fromkeys(filter(None, of))))
    with replaced_files_named(output):
        paths = write_prediction_files(options.model, data, output, options.best_on, options.device, options.precision)
    for path in paths:
        print(path)
