"""Compare pruned encoders on test pairs that no score has read: `python -m scripts.unread_pairs`.

    python -m scripts.unread_pairs RUNS DATA SENTEVAL > docs/studies/results/unread-pairs.csv

The score that ranks heads and neurons reads the training pairs of DATA, among which are test pairs of SENTEVAL. RUNS
has the tables `sparsity-own` and `sparsity` of the preset `small`, e.g. those of results/runs/sparse-cse.tar.xz.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas
from scipy import stats

from multitask.data.contamination import TrainedOn, hash_sentences
from multitask.evaluation.score_intervals import Answers
from multitask.evaluation.statistics import Values
from multitask.evaluation.suite_data import Mask
from multitask.evaluation.suite_sets import SETS
from multitask.tasks.declarations import task_named
from multitask.tasks.read_examples import load_rows
from studies.engine.presets import SMALL
from studies.report.preset_results import PresetResults
from studies.report.table_results import TableResults
from studies.sparse_cse.tables import SHARES, WHOLE, pruned

LOW = SHARES[:4]


def unread(data: Path, senteval: Path) -> dict[str, Mask]:
    """For each similarity task, its scored pairs that are no training pair of the data."""
    read = TrainedOn.of_rows(
        [hash_sentences(of) for of in load_rows(task_named(data, "similarity"), "train").sentences]
    )
    assert SMALL.suites.limit is not None, "the preset scores samples"
    sampled = {of.name: of.read(of.paths(senteval)).sampled(SMALL.suites.limit) for of in SETS["sts"]}
    return {name: ~read.pairs_seen(*rows.scored_columns) for name, rows in sampled.items()}


def scores(table: TableResults, rows: Mapping[str, Mask]) -> dict[str, Values]:
    """Mean of Spearman's correlation over the tasks, on some of their pairs, by row: [seeds]."""

    def score(answers: Mapping[str, Answers], task: str, kept: Mask) -> float:
        of = answers[task]
        return float(stats.spearmanr(of.labels[kept], of.predictions[kept]).statistic)

    seeds = set.intersection(*({run.seed for run in runs} for runs in table.runs.values()))
    return {
        row: np.array(
            [
                np.mean([score(run.answers, task, kept) for task, kept in rows.items()])
                for run in sorted(runs, key=lambda run: run.seed)
                if run.seed in seeds
            ]
        )
        for row, runs in table.runs.items()
    }


def differences(found: Mapping[str, Values]) -> Iterator[tuple[str, Values]]:
    """Of scores after pruning by score: less those at random, and less those of the whole encoder, by seed."""
    groups = {"1% to 20%": LOW, **{f"{share:.0%}": (share,) for share in SHARES}}
    for name, shares in groups.items():
        by_score, at_random = (
            np.mean([found[pruned(share, criterion)] for share in shares], axis=0) for criterion in ("score", "random")
        )
        yield f"{name} by score less at random", by_score - at_random
        yield f"{name} by score less nothing removed", by_score - found[WHOLE]


def compare(runs: Path, data: Path, senteval: Path) -> pandas.DataFrame:
    """The differences on all pairs and on those unread, with 95% intervals over seeds, paired by seed."""
    tables, new = PresetResults.read(runs, "small").finished_tables, unread(data, senteval)
    pairs = {"all": {name: np.ones_like(kept) for name, kept in new.items()}, "unread": new}
    lines = []
    for key in ("sparsity-own", "sparsity"):
        for which, rows in pairs.items():
            for name, values in differences(scores(tables[key], rows)):
                interval = stats.ttest_1samp(values, 0).confidence_interval()
                count = sum(int(kept.sum()) for kept in rows.values())
                lines.append((key, which, count, name, len(values), values.mean(), interval.low, interval.high))
    return pandas.DataFrame(
        lines, columns=["table", "pairs", "count", "difference", "seeds", "mean", "low", "high"]
    ).round(4)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("runs", "data", "senteval"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    compare(options.runs, options.data, options.senteval).to_csv(sys.stdout, index=False, lineterminator="\n")
