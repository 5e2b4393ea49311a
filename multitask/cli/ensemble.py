"""`multitask ensemble`: several fine-tuned models combined into one."""

from minbert.files import read_json
from multitask.cli.commands import Ensemble
from multitask.evaluation.text_tables import ensemble_table
from multitask.inference.data_of_run import data_for
from multitask.stages import ensemble as combining


def ensemble(options: Ensemble) -> None:
    """Combine models; print their scores, the prediction files and the run's folder."""
    data = data_for(next(iter(options.model), ""), options.tasks_file or options.data).path
    artefact = combining.ensemble(options.model, data, options.config, options.options)
    print(ensemble_table(read_json(artefact.folder / "evaluation.json")))
    for path in sorted((artefact.folder / "predictions").iterdir()):
        print(path)
    print(artefact.folder)
