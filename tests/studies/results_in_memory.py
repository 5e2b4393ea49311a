"""Results of tables without any store: scores, dev curves and probed statistics of every row and seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from multitask.evaluation.statistics import SAMPLES, Values
from multitask.experiments.frames import RunResult
from multitask.experiments.table_results import DevSet, Samples, TableResults
from multitask.experiments.tables import Row
from multitask.stages.settings import HELD_OUT
from tests.studies.synthetic import TABLES

EXAMPLES = 0.001  # standard deviation of a score over other examples


@dataclass(frozen=True)
class Trained:
    """What is known of a row's training with a seed."""

    scores: Mapping[str, float]  # of each task
    curve: Sequence[float] = ()  # dev scores at the evaluations
    # statistics of the probe, on training batches and on held-out sentences, at the first and at the last evaluation
    first: Mapping[str, float] | None = None
    end: Mapping[str, float] | None = None


def history(trained: Trained) -> list[dict[str, Any]]:
    """What was measured at each evaluation."""
    seen = {0: trained.first or {}, len(trained.curve) - 1: trained.end or {}}
    return [
        {
            "step": 4000 * (place + 1),
            "numbers": {
                "similarity": {"pearson": score},
                "training": {
                    f"{source} {name}": value
                    for source in ("unlabelled", HELD_OUT)
                    for name, value in seen.get(place, {}).items()
                },
            },
        }
        for place, score in enumerate(trained.curve)
    ]


class OtherExamples(Samples):
    """Scores on resampled examples that are a little higher or lower for all runs alike."""

    def dev_set(self, run: RunResult, task: str) -> DevSet:
        """Every run is scored on the same examples."""
        return task, "", b""

    def resampled(self, run: RunResult, task: str) -> Values:
        """[samples], the same deviations for every run, and a few of its own."""
        shared, own = (np.random.default_rng([*text.encode()]) for text in (task, f"{task} {run.model}"))
        noise = shared.normal(size=SAMPLES) + 0.1 * own.normal(size=SAMPLES)
        return run.scores[task] + EXAMPLES * noise


def results_of(folder: Path, key: str, trained: Callable[[Row, int], Trained], seeds: int = 3) -> TableResults:
    """Results of a table whose rows were all trained with so many seeds; `folder` would have the runs."""

    def run(row: Row, seed: int) -> RunResult:
        known = trained(row, seed)
        how = {"sources": ("unlabelled",), "measures": dict.fromkeys(known.scores, "pearson")}
        numbers = {task: {"pearson": score} for task, score in known.scores.items()}
        name = folder.name
        return RunResult(key, row.key, seed, name, name, **how, numbers=numbers, history=history(known))

    runs = {row.key: tuple(run(row, seed) for seed in range(seeds)) for row in TABLES[key].rows}
    return TableResults(TABLES[key], runs, OtherExamples(()))
