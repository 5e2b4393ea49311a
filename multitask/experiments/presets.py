"""Presets: which tables, from which start weights, on which data. Imports nothing heavy."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from multitask.config import FinetuneConfig, HeadsConfig, OptimizerConfig
from multitask.experiments.tables import Table, heads_table, reviews_table, tasks_table

PresetName = Literal["sample", "paper"]


@dataclass(frozen=True)
class Preset:
    """A set of tables.

    Args:
        name: how the command line calls it.
        start: start weights.
        data: folder of the tasks' files.
        tables: what to run.
    """

    name: PresetName
    start: str
    data: Path
    tables: tuple[Table, ...]


# Suited to all-MiniLM-L6-v2 and a thousand rows a task; epochs are small, so that all rows take minutes on two cores.
SAMPLE = FinetuneConfig(
    epochs=3,
    epoch_size=480,
    heads=HeadsConfig(sharing="separate", pairs="features"),  # a thousand pairs are too few for a bilinear form
    optimizer=OptimizerConfig(learning_rate=2e-4, head_learning_rate=2e-3, schedule="linear", warmup=0.1),
    keep_task_bests=False,
    encoder_dropout=0.0,
)
# The report's: learning rate 1e-5, batch 16, 10 epochs, heads of 768, dropout 0.3 (section 5.3).
PAPER = FinetuneConfig(pooling="cls", heads=HeadsConfig(hidden_size=768))

PRESETS: dict[PresetName, Preset] = {
    "sample": Preset(
        "sample",
        "all-minilm-l6-v2",
        Path("data/sample"),
        (heads_table(SAMPLE), tasks_table(SAMPLE), reviews_table(SAMPLE)),
    ),
    "paper": Preset(
        "paper",
        "bert-base-uncased",
        Path("data/real"),
        (heads_table(PAPER), tasks_table(PAPER), reviews_table(PAPER)),
    ),
}

# What a reader of scores must know about start weights and data, by the names they are called by.
NOTES = {
    "all-minilm-l6-v2": "The start weights, all-MiniLM-L6-v2, are already tuned contrastively on over a billion "
    "sentence pairs, Quora questions and NLI among them. Scores from them must not be compared with scores from plain "
    "BERT.",
    "data/sample": "The data is the bundled sample: short texts composed by a script. It is not a benchmark; the "
    "scores say that everything works and that a model learns, nothing more.",
}
