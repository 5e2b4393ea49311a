"""`multitask predict`: the course's prediction files."""

from dataclasses import dataclass, field
from pathlib import Path

from multitask.cli.command import Command
from multitask.runtime.options import Computing


@dataclass(frozen=True)
class Predict:
    """Write the course's prediction files for the dev and test sets, in the order of the rows."""

    model: Path
    """The model: a run or a model folder."""
    data: Path = Path("data/sample")
    """Folder with the tasks' files."""
    output: Path = Path("predictions")
    """Folder to write."""
    best_on: str | None = None
    """Which of a run's kept models: the best on this task or on `overall`. Default: the run's leading model."""
    computing: Computing = field(default_factory=Computing)


def predict(options: Predict) -> int:
    """Predict; print the files written."""
    from multitask.inference.prediction_files import write_prediction_files

    for path in write_prediction_files(
        options.model,
        options.data,
        options.output,
        options.best_on,
        options.computing.device,
        options.computing.precision,
    ):
        print(path)
    return 0


COMMAND = Command("predict", Predict, predict)
