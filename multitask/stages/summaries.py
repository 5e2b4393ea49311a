"""What commands print of a finished run."""

from minbert.files import read_json
from multitask.evaluation.text_tables import pruning_table, scores_table
from multitask.runs.artefact import Artefact


def of_training(run: Artefact) -> str:
    """Dev scores after each epoch."""
    return scores_table(run.history())


def of_pruning(run: Artefact) -> str:
    """What is left of each layer."""
    return pruning_table(read_json(run.folder / "pruning.json"))
