"""`multitask predict`: predictions for the rows of any file, or the course's prediction files."""

from dataclasses import field
from pathlib import Path
from typing import Literal

from minbert.errors import InputError
from minbert.settings import settings
from multitask.cli.command import Command
from multitask.runtime.options import Computing


@settings
class Predict:
    """Predict the rows of a file: its columns are kept, and columns with predictions are added.

    Without --input, write the prediction files of the tasks' dev and test sets, in the order of the rows and in the
    course's format.
    """

    model: Path
    """The model: a run or a model folder."""
    task: tuple[str, ...] = ()
    """Tasks to predict. Default: all tasks of the model."""
    input: Path | None = None
    """File to predict: csv, tsv, jsonl, parquet, or txt with a sentence a line (of a pair: two with a tab between
    them). `-` reads standard input."""
    output: Path | None = None
    """File to write, in the format of its name. `-` writes to standard output. Default: standard output; without
    --input, the folder predictions."""
    text: tuple[str, ...] = ()
    """Column of the sentences, or the two columns of pairs. Default: the columns that the task's declaration names."""
    probabilities: bool = False
    """Also add a column with the probability of each class."""
    prefix: str = ""
    """Text in front of the names of the added columns."""
    input_format: Literal["txt", "csv", "tsv", "jsonl"] = "txt"
    """Format of standard input."""
    separator: str | None = None
    """What separates the fields. Default: a comma in .csv and a tab in .tsv."""
    quotes: bool = True
    """Whether fields may stand in quotes; if not, quotes are ordinary characters."""
    line_breaks: bool = False
    """Let quoted fields contain line breaks."""
    data: Path = Path("data/sample")
    """Folder with the course's files. Only without --input."""
    tasks_file: Path | None = None
    """Tasks file, which declares tasks of your own. Only without --input."""
    best_on: str | None = None
    """Which of a run's kept models: the best on this task or on `overall`. Default: the run's leading model."""
    computing: Computing = field(default_factory=Computing)


def predict(options: Predict) -> int:
    """Predict; print the files written."""
    return _predict_sets(options) if options.input is None else _predict_input(options, options.input)


def _predict_input(options: Predict, source: Path) -> int:
    from multitask.data.tables import Dialect
    from multitask.inference.predict_file import Reading, predict_file
    from multitask.models.multitask_model import MultitaskModel
    from multitask.runs.artefact import locate_model

    output, computing = options.output or Path("-"), options.computing
    folder = locate_model(options.model, best_on=options.best_on)
    model = MultitaskModel.load(folder, computing.device, computing.precision)
    dialect = Dialect(options.separator, options.quotes, options.line_breaks)
    reading = Reading(options.text, f".{options.input_format}", dialect)
    predict_file(model, options.task, source, output, model.runtime, reading, options.probabilities, options.prefix)
    if output != Path("-"):
        print(output)
    return 0


def _predict_sets(options: Predict) -> int:
    from multitask.inference.prediction_files import write_prediction_files

    if options.task or options.text or options.probabilities:
        raise InputError(
            "--task, --text and --probabilities need --input; without it all dev and test sets are predicted"
        )
    for path in write_prediction_files(
        options.model,
        options.tasks_file or options.data,
        options.output or Path("predictions"),
        options.best_on,
        options.computing.device,
        options.computing.precision,
    ):
        print(path)
    return 0


COMMAND = Command(
    "predict",
    Predict,
    predict,
    common=("model", "task", "input", "output", "text", "probabilities", "data", "tasks_file", "best_on", "device"),
)
