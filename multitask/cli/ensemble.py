"""`multitask ensemble`: several fine-tuned models combined into one."""

from dataclasses import field
from pathlib import Path

from minbert.settings import settings
from multitask.cli.command import Command
from multitask.runtime.options import RunOptions
from multitask.stages.ensemble import STAGE, EnsembleConfig, Kept


@settings
class Ensemble:
    """Combine fine-tuned models into one that predicts better.

    Prints the dev scores. The run's folder has the course's prediction files.
    """

    model: tuple[Path, ...]
    """The models: runs or model folders. Those named first win ties."""
    kept: Kept = "leading"
    """Take each run's `leading` model, or `all` that it keeps (best overall and best on each task)."""
    data: Path = Path("data/sample")
    """Folder with the tasks' files."""
    tasks_file: Path | None = None
    """Tasks file, which declares tasks of your own."""
    config: EnsembleConfig = field(default_factory=EnsembleConfig)
    options: RunOptions = field(default_factory=RunOptions)


def ensemble(options: Ensemble) -> int:
    """Combine models; print their scores, the prediction files and the run's folder."""
    from minbert.files import read_json
    from multitask.evaluation.text_tables import ensemble_table
    from multitask.stages.ensemble.combining import ensemble

    data = options.tasks_file or options.data
    artefact = ensemble(options.model, data, options.config, options.options, options.kept)
    print(ensemble_table(read_json(artefact.folder / "evaluation.json")))
    for path in sorted((artefact.folder / "predictions").iterdir()):
        print(path)
    print(artefact.folder)
    return 0


COMMAND = Command(
    "ensemble",
    Ensemble,
    ensemble,
    common=("model", "kept", "data", "tasks_file", "method", "rounds", "runs", "device"),
    stage=STAGE,
)
