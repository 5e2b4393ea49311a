"""How much reading test pairs helps a pruned encoder: `python -m scripts.unread_pairs`.

    python -m scripts.unread_pairs RUNS DATA SENTEVAL > docs/studies/results/unread-pairs.csv

The score that ranks heads and neurons reads the training pairs of DATA, among which are test pairs of SENTEVAL.
Sub-sets of a test that have read pairs have unread ones, too, whose sentences no training pair has. Differences are
compared between the two. RUNS has the tables `sparsity-own` and `sparsity` of the preset `small`, e.g. those of
docs/studies/results/runs/sparse-cse.parquet.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas
from numpy.typing import NDArray
from scipy import stats

from minbert.errors import InputError
from multitask.cli.main import exit_code
from multitask.data.contamination import TrainedOn, hash_sentences
from multitask.evaluation.retrieval import Mask
from multitask.evaluation.statistics import DevAnswers, Values
from multitask.evaluation.suite_data import LabelledRows
from multitask.evaluation.suite_sets import SETS
from multitask.experiments.compare_rows import PresetResults, TableResults
from multitask.tasks.declarations import task_named
from multitask.tasks.read_examples import load_rows
from studies.engine.presets import SMALL
from studies.sparse_cse.tables import SHARES, pruned

TABLES = ("sparsity-own", "sparsity")
LOW = "1% to 20%"
SHARES_OF = {LOW: tuple(share for share in SHARES if share <= 0.2), **{f"{share:.0%}": (share,) for share in SHARES}}
FEWEST = 20  # pairs of a task, read and unread each, that are enough for a correlation


@dataclass(frozen=True)
class ScoredPairs:
    """The scored pairs of a task."""

    labels: NDArray[np.float64]  # [pairs] gold similarities
    read: Mask  # [pairs] training pairs, too
    unread: Mask  # [pairs] of the same sub-sets, with two sentences that no training pair has

    @classmethod
    def of(cls, rows: LabelledRows, training: TrainedOn) -> "ScoredPairs":
        """The pairs of a task's rows."""
        columns, scored = rows.scored_columns, rows.scored
        read = training.pairs_seen(*columns)
        touched = np.any([training.sentences_seen(column) for column in columns], axis=0)
        parts = rows.parts[scored]
        return cls(rows.labels[scored], read, ~touched & np.isin(parts, parts[read]))


def pairs_of_tasks(data: Path, senteval: Path) -> dict[str, ScoredPairs]:
    """Of the similarity tasks, those with enough read and unread pairs."""
    sentences = load_rows(task_named(data, "similarity"), "train").sentences
    training = TrainedOn.of_rows([hash_sentences(column) for column in sentences])
    assert SMALL.suites.limit is not None, "the preset scores samples"
    rows = {entry.name: entry.read(entry.paths(senteval)).sampled(SMALL.suites.limit) for entry in SETS["sts"]}
    found = {name: ScoredPairs.of(rows_of_task, training) for name, rows_of_task in rows.items()}
    return {name: pairs for name, pairs in found.items() if min(pairs.read.sum(), pairs.unread.sum()) >= FEWEST}


def scores(table: TableResults, labels: Mapping[str, Values], kept: Mapping[str, Mask]) -> dict[str, Values]:
    """Mean of Spearman's correlation over tasks, on some of their pairs, by row: [seeds], those that all rows have.

    Raises InputError if the runs were scored on pairs with other labels.
    """

    def score(answers: DevAnswers, task: str) -> float:
        if not np.array_equal(answers.labels, labels[task]):
            raise InputError(
                f"{task}: other labels than the runs have; pass SentEval's folder that they were scored on"
            )
        return float(stats.spearmanr(answers.labels[kept[task]], answers.predictions[kept[task]]).statistic)

    seeds = sorted(set.intersection(*({run.seed for run in runs} for runs in table.runs.values())))
    found = {}
    for row, runs in table.runs.items():
        of_seed = {run.seed: run.answers for run in runs if run.seed in seeds}
        found[row] = np.array([np.mean([score(of_seed[seed][task], task) for task in kept]) for seed in seeds])
    return found


def differences(found: Mapping[str, Values]) -> Iterator[tuple[str, Values]]:
    """Scores after pruning by score less those at random, by seed. The whole encoder is no control for hard pairs."""
    for name, shares in SHARES_OF.items():
        by_score, at_random = (
            np.mean([found[pruned(share, criterion)] for share in shares], axis=0) for criterion in ("score", "random")
        )
        yield f"{name} by score less at random", by_score - at_random


def compare(runs: Path, data: Path, senteval: Path) -> pandas.DataFrame:
    """The differences on read and on unread pairs, and between the two, with 95% intervals over seeds, paired by seed.

    Raises InputError for a missing or malformed file, or runs of other data.
    """
    tables = PresetResults.read(runs, "small").finished_tables
    if missing := [key for key in TABLES if key not in tables]:
        raise InputError(f"{runs}: the preset small has no finished table {', '.join(missing)}; run it first")
    pairs = pairs_of_tasks(data, senteval)
    labels = {name: scored.labels for name, scored in pairs.items()}
    lines = []
    for key in TABLES:
        read, unread = (
            dict(differences(scores(tables[key], labels, {name: getattr(pairs[name], part) for name in pairs})))
            for part in ("read", "unread")
        )
        for name in read:
            of_pairs = {"read": read[name], "unread": unread[name], "read less unread": read[name] - unread[name]}
            for which, values in of_pairs.items():
                interval = stats.ttest_1samp(values, 0).confidence_interval()
                lines.append((key, name, which, len(values), values.mean(), interval.low, interval.high))
    columns = ["table", "difference", "pairs", "seeds", "mean", "low", "high"]
    return pandas.DataFrame(lines, columns=columns).round(4)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("runs", "data", "senteval"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    compare(options.runs, options.data, options.senteval).to_csv(sys.stdout, index=False, lineterminator="\n")


if __name__ == "__main__":
    sys.exit(exit_code(main))
