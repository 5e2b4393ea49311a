"""Results of single runs, read from their artefacts without torch, and their scores on resampled examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from minbert.files import read_arrays, read_json
from multitask.base.runs import Artefact
from multitask.evaluation.statistics import Answers, SampledScores, Values, draws_of, resampled_scores
from multitask.stages.settings import HELD_OUT
from studies.engine.table import OVERALL

DevSet = tuple[str, str, bytes]  # task, metric, labels in file order
Place = Literal["training batches", "held-out sentences"]
"""Where the gradient probe looks: at projected embeddings of training batches, or at plain ones of other sentences."""


@dataclass(frozen=True)
class RunResult:
    """One finished run."""

    folder: Path
    """Of the final model: a training or an ensemble."""
    evaluation_folder: Path
    """Of its scores and predictions."""
    seed: int
    chain: tuple[Artefact, ...]
    """All its runs, parents first."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Of tasks that are scored by another metric than their own."""

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, one for each evaluation; none for an ensemble, which trains nothing."""
        return Artefact(self.folder).history() if (self.folder / "metrics.jsonl").is_file() else []

    @cached_property
    def evaluation(self) -> dict[str, Any]:
        """Overall score, scores and metrics of the best model."""
        found = Artefact(self.evaluation_folder).evaluation()
        for task in self.metrics.keys() & found["scores"].keys():
            found["measures"][task] = self.metrics[task]
            found["scores"][task] = found["metrics"][task][self.metrics[task]]
        return found

    @property
    def chosen_on_dev(self) -> bool:
        """Whether it is an ensemble that selected a task's model among several by their dev scores."""
        members = self.evaluation.get("members", {}).values()
        tasks = [task for member in members for task in member["scores"]]
        return self.evaluation.get("selected_on_dev", False) and len(set(tasks)) < len(tasks)

    def answering(self, task: str) -> str:
        """The run whose model answers a task: the one member that an ensemble asks, otherwise this run."""
        asked = list(self.evaluation.get("weights", {}).get(task, ()))
        return Path(asked[0]).parent.parent.name if len(asked) == 1 else self.folder.name  # RUN/checkpoints/MODEL

    @cached_property
    def answers(self) -> dict[str, Answers]:
        """The answers to the dev set of each scored task."""
        found = {}
        names = [f"{task}_{kind}" for task in self.evaluation["scores"] for kind in ("labels", "predictions")]
        arrays = read_arrays(self.evaluation_folder / "predictions.npz", *names)
        for task, score in self.evaluation["scores"].items():
            measure = self.evaluation["measures"][task]
            classes = len(self.evaluation["metrics"][task].get("confusion", ())) or None
            found[task] = Answers(arrays[f"{task}_labels"], arrays[f"{task}_predictions"], measure, classes, score)
        return found

    @cached_property
    def majorities(self) -> dict[str, float]:
        """Of each task that is scored by accuracy, that of always answering the most frequent label of the dev set."""
        labels = {task: of.labels for task, of in self.answers.items() if of.metric == "accuracy"}
        return {
            task: float(np.unique(of, axis=0, return_counts=True)[1].max() / len(of)) for task, of in labels.items()
        }

    def curve(self, column: str) -> list[float]:
        """The dev score at every evaluation in training; empty if training did not measure it."""
        measure = self.evaluation["measures"].get(column)
        scores = [
            line["scores"].get(OVERALL) if column == OVERALL else line["dev"].get(column, {}).get(measure)
            for line in self.history
        ]
        return [] if None in scores else scores

    @cached_property
    def sources(self) -> Sequence[str]:
        """The names of what a pre-training reads; none of other stages."""
        sources: Sequence[str] = read_json(self.folder / "config.json").get("sources", ())
        return sources

    def probed(self, statistic: str, place: Place = "training batches") -> list[tuple[int, float]]:
        """A statistic of the gradient probe: the step of each evaluation, the mean since the previous evaluation.

        metrics.jsonl calls it `SOURCE STATISTIC`; the sources are those of the run's configuration, or held-out
        sentences.
        """
        sources = (HELD_OUT,) if place == "held-out sentences" else self.sources
        names = [f"{source} {statistic}" for source in sources]
        return [(line["step"], line["training"][n]) for line in self.history for n in names if n in line["training"]]


class Samples:
    """Scores of all runs, with different evaluations, on resampled examples. Each dev set is resampled once for all."""

    def __init__(self, runs: Sequence[RunResult]) -> None:
        self.runs = runs
        self.computed: dict[DevSet, dict[str, Values]] = {}

    @cached_property
    def _runs(self) -> dict[DevSet, dict[str, RunResult]]:
        """The runs that were scored on a dev set, by the names of their evaluations."""
        found: dict[DevSet, dict[str, RunResult]] = {}
        for run in self.runs:
            for task in run.answers:
                found.setdefault(self.dev_set(run, task), {})[run.evaluation_folder.name] = run
        return found

    def dev_set(self, run: RunResult, task: str) -> DevSet:
        """The dev set on which a run was scored, and how."""
        answers = run.answers[task]
        return task, answers.metric, answers.labels.tobytes()

    def scores(self, runs: Sequence[RunResult], task: str) -> SampledScores:
        """The scores of a row's runs, one for each seed."""
        observed = np.array([run.evaluation["scores"][task] for run in runs])
        resampled = np.stack([self.resampled(run, task) for run in runs], axis=1)
        return SampledScores([run.seed for run in runs], observed, resampled)

    def resampled(self, run: RunResult, task: str) -> Values:
        """The run's scores on resampled dev examples of a task, [samples]."""
        dev_set, name = self.dev_set(run, task), run.evaluation_folder.name
        if dev_set not in self.computed:
            runs = self._runs[dev_set]
            predictions = np.stack([other.answers[task].predictions for other in runs.values()])
            labels, _, measure, classes, _ = run.answers[task]
            scores = resampled_scores(labels, predictions, measure, draws_of(task), classes=classes)
            self.computed[dev_set] = dict(zip(runs, scores.T.copy(), strict=True))
        return self.computed[dev_set][name]
