"""Synthetic results of any table, as good as a test says: stores of finished runs, and in memory without any store."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from multitask.base.options import RunOptions
from multitask.base.runs import Run
from multitask.evaluation.statistics import SAMPLES, Values
from multitask.experiments.compare_rows import DevSet, Samples, TableResults
from multitask.experiments.grid_frames import RunResult
from multitask.experiments.table_definitions import OVERALL, PresetRecord, RecordedRun, Row, StudyTable
from multitask.stages.settings_of_pretraining import HELD_OUT
from multitask.tasks.scores import classification_metrics, correlation_metrics
from studies.engine.presets import PRESETS
from studies.engine.recipes import GROUPS, RETRIEVAL, STS
from studies.gradient_paradigm.simulations import simulate
from studies.gradient_paradigm.stages import SimulationConfig
from studies.study import all_experiments

TABLES = {experiment.table.key: experiment.table for experiment in all_experiments(PRESETS["sample"])}
SEEDS = {key: 3 if key in ("gradient", "decoupled") else 1 for key in TABLES}  # measures of training need three
SIMULATION = SimulationConfig(grid=10, batches=20, batch_size=16, trials=20)
EXAMPLES = 150
LABELS = np.linspace(0, 5, EXAMPLES, dtype=np.float32)
NOISE = np.random.default_rng(0).normal(size=EXAMPLES)  # what all models get wrong alike
SUITE_EXAMPLES = 30
CLASSES = {"sentiment": 5}

Quality = Callable[[str, Row, str], float]  # a table's key, a row and a task -> how good its models are, 0 to 1
Falls = Callable[[Row, int], float]  # a row and a seed -> by how much its score falls towards the end of training
Probe = Callable[[Row], Mapping[str, float]]  # a row -> what the gradient probe sees at the end of training


def fair(key: str, row: Row, task: str) -> float:
    """All models are equally good."""
    return 0.8


def flat(row: Row, seed: int) -> float:
    """No score falls."""
    return 0.0


def blind(row: Row) -> Mapping[str, float]:
    """Nothing was probed."""
    return {}


@cache
def answers(name: str, seed: int, task: str, quality: float) -> tuple[str, Any, Any, dict[str, Any]]:
    """A task's measure, labels, the predictions of a model of this name and seed, and their metrics."""
    generator = np.random.default_rng([seed, *f"{name}{task}".encode()])
    if task == "similarity":
        noise = (NOISE + 0.1 * generator.normal(size=EXAMPLES)) * LABELS.std()
        predictions = (quality * LABELS + np.sqrt(1 - quality**2) * noise).astype(np.float32)
        return "pearson", LABELS, predictions, correlation_metrics(predictions, LABELS, unit=1)
    if task in GROUPS[STS]:
        labels = np.linspace(0, 5, SUITE_EXAMPLES)
        noise = np.random.default_rng(3).permutation(labels) + 0.2 * generator.normal(size=SUITE_EXAMPLES)
        predictions = quality * labels + (1 - quality) * noise
        return "spearman", labels, predictions, correlation_metrics(predictions, labels, unit=1)
    if task in GROUPS[RETRIEVAL]:
        values = np.clip(quality + 0.05 * generator.normal(size=SUITE_EXAMPLES), 0, 1)
        return "ndcg", np.ones(SUITE_EXAMPLES), values, {"ndcg": float(values.mean()), "mrr": float(values.max()) / 2}
    classes = CLASSES.get(task, 2)
    labels = np.arange(SUITE_EXAMPLES) % classes
    wrong = generator.permutation(SUITE_EXAMPLES) >= round(quality * SUITE_EXAMPLES)
    predictions = np.where(wrong, (labels + 1) % classes, labels)
    return "accuracy", labels, predictions, classification_metrics(predictions, labels, classes)


def add_run(
    runs: Path, table: StudyTable, row: Row, seed: int, quality: Quality, falls: Falls = flat, probe: Probe = blind
) -> RecordedRun:
    """A training with three evaluations, and its scores."""
    name = re.sub(r"\W+", "-", f"{table.key}-{row.key}")
    model, evaluation = f"pretrain-{name}-{seed}", f"evaluate-{name}-{seed}"
    metrics, scores, measures, arrays = {}, {}, {}, {}
    for task in table.columns:
        how = quality(table.key, row, task)
        measures[task], labels, predictions, metrics[task] = answers(name, seed, task, how)
        scores[task] = metrics[task][measures[task]]
        arrays |= {f"{task}_labels": labels, f"{task}_predictions": predictions}
    overall = float(np.mean(list(scores.values())))
    history = []
    for number, share in enumerate((1.0, 0.9, 0.0), start=1):
        less = 0.1 - (0.1 + falls(row, seed)) * share if number < 3 else 0.0
        falling = {task: {measures[task], "spearman"} & of.keys() for task, of in metrics.items()}
        dev = {task: {**of, **{name: of[name] - less for name in falling[task]}} for task, of in metrics.items()}
        passed = (number - 1) / 2
        seen = {
            f"{source} {statistic}": (1 - passed) * (statistic != "dissipated anchors") + passed * value + 0.005 * seed
            for source in ("unlabelled", HELD_OUT)
            for statistic, value in probe(row).items()
        }
        line = {"step": 8 * number, "epoch": 1, "training": {"unlabelled": 1.0, **seen}, "dev": dev}
        history.append({**line, "scores": {"overall": overall}, "tokens": 100 * number, "seconds": 1.0 * number})
    for folder in (model, evaluation):
        (runs / folder).mkdir(parents=True)
        (runs / folder / "inputs.json").write_text('{"machine": "A processor"}')
    (runs / model / "config.json").write_text(json.dumps({"seed": seed, "sources": ["unlabelled"]}))
    (runs / model / "best.json").write_text("{}")
    (runs / model / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in history))
    (runs / evaluation / "config.json").write_text("{}")
    found = {"overall": overall, "scores": scores, "measures": measures, "metrics": metrics}
    (runs / evaluation / "evaluation.json").write_text(json.dumps(found))
    np.savez(runs / evaluation / "predictions.npz", **arrays)
    for folder in (model, evaluation):
        Run(runs / folder).finish(1.0)
    return RecordedRun(table.key, row.key, seed, (model, evaluation))


def write_store(
    runs: Path,
    keys: Sequence[str],
    quality: Quality = fair,
    falls: Falls = flat,
    probe: Probe = blind,
    seeds: Mapping[str, int] | int = 3,
) -> Path:
    """A record of some tables and all artefacts behind it.

    Args:
        runs: folder to write to.
        keys: of the tables.
        quality: how good models are.
        falls: how far their scores fall.
        probe: what was seen in training.
        seeds: how many, of all tables or by key.
    """
    runs.mkdir(parents=True, exist_ok=True)
    found: list[RecordedRun] = []
    for table in (TABLES[key] for key in TABLES if key in keys):
        count = seeds if isinstance(seeds, int) else seeds[table.key]
        if table.kind == "simulations":
            artefact = simulate(SIMULATION, RunOptions(runs=runs)).folder.name
            found += [RecordedRun(table.key, table.rows[0].key, seed, (artefact,)) for seed in range(2)]
            continue
        rows = [row for row in table.rows if row.key != "ensemble-test"]
        found += [add_run(runs, table, row, s, quality, falls, probe) for row in rows for s in range(count)]
    tables = tuple(TABLES[key] for key in TABLES if key in keys)
    PresetRecord("sample", "some-weights", "data", ("Beware.",), tables, tuple(found)).write(runs)
    return runs


def without_rows(results: TableResults, *keys: str) -> TableResults:
    """The same results as if some rows had not been run."""
    return replace(results, runs={key: runs for key, runs in results.runs.items() if key not in keys})


# Results of tables without any store: scores, dev curves and probed statistics of every row and seed.


IN_MEMORY = 0.001  # standard deviation of a score over other examples


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
                OVERALL: {"mean": score},
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
        return run.scores[task] + IN_MEMORY * noise


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
