"""How stable SparseCSE's score is: agreement of the units' ranks over pairs, seeds, batch sizes and sets of data.

    reliability("all-minilm-l6-v2", Path("FOLDER"), PruneConfig(), RunOptions())
    found = stability("all-minilm-l6-v2", Path("FOLDER"), PruneConfig(), seeds=3, options=RunOptions())
    found.groupby(["differs", "units"], sort=False).mean()

If the ranks change with other pairs of the same kind, the score cannot show which units are harmful. Ranks are
compared by Spearman's correlation, of heads and of neurons separately.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas
import torch
from scipy.stats import spearmanr

from minbert.errors import InputError
from minbert.remove_heads_and_neurons import Units
from multitask.data.examples import LabelledData, Rows
from multitask.data.shuffle_and_batch import drawn_rows
from multitask.evaluation.statistics import Values
from multitask.runs.artefact import Weights
from multitask.runtime.options import RunOptions
from multitask.runtime.random_streams import generator
from multitask.stages.run_stage import prepare_process
from multitask.stages.settings.prune import STAGE, PruneConfig
from multitask.stages.training_run import Start
from multitask.tasks.declarations import task_named
from multitask.tasks.read_examples import load_rows
from multitask.training.importance_scores import AlignUniformSource, scored_batches, sensitivity

BATCH_SIZES = (16, 32, 128)
"""What batches of 64 are compared with."""
KINDS = ("heads", "neurons")
SHARE = 0.1
Scores = Callable[[Rows, int, int], Units]
"""From rows, a batch size and a seed of the batches to the units' scores."""


def stability(
    start: str,
    data: Path,
    config: PruneConfig,
    seeds: int,
    options: RunOptions,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    others: Sequence[Path] = (),
) -> pandas.DataFrame:
    """Score an encoder's units again and again, and compare the ranks, as `agreements` does.

    Each of the `seeds`, two or more, draws other batches. `batch_sizes` are compared with that of `config`, and the
    pairs of `others`, folders with similarity pairs of other kinds of text, with those of `data`.
    """
    if seeds < 2:
        raise InputError(f"--seeds {seeds}: expected at least 2")
    score, rows = _scorer(start, data, config, options)
    size = config.batch_size

    def scored(other: Path) -> Units:
        theirs, all_rows = _scorer(start, other, config, options)
        return theirs(all_rows, size, 0)

    whole = [score(rows, size, seed) for seed in range(seeds)]
    pairs = {
        "seeds of the batches": list(combinations(whole, 2)),
        **{f"batches of {size} and {other}": [(whole[0], score(rows, other, 0))] for other in batch_sizes},
        **{f"pairs of {data.name} and {other.name}": [(whole[0], scored(other))] for other in others},
    }
    return agreements(pairs)


def reliability(start: str, data: Path, config: PruneConfig, options: RunOptions) -> pandas.DataFrame:
    """How well two scorings on different pairs agree, by the number of pairs that each reads, as `by_pairs` says."""
    score, rows = _scorer(start, data, config, options)
    scored = [score(batch, len(batch), 0) for batch in scored_batches(rows, config.batch_size, config.seed)]
    return by_pairs({kind: np.stack([_ranked(units, kind) for units in scored]) for kind in KINDS}, config.batch_size)


def by_pairs(scores: Mapping[str, Values], batch_size: int, draws: int = 50) -> pandas.DataFrame:
    """Agreement of two means over different batches, from the scores of each batch by kind of units, [batches, units].

    Columns: `pairs`, `units` (heads or neurons), and over the draws of batches the `mean` of Spearman's correlation,
    and one standard deviation to each side (`low`, `high`).
    """
    found = []
    for kind, values in scores.items():
        half = len(values) // 2
        orders = [generator(seed, "two sets of batches").permutation(len(values)) for seed in range(draws)]
        for count in sorted({half, *(2**power for power in range(half.bit_length()))}):
            halves = [(values[order[:count]].mean(0), values[order[-count:]].mean(0)) for order in orders]
            agreed = np.array([spearmanr(first, second).statistic for first, second in halves])
            mean, deviation = agreed.mean(), agreed.std(ddof=1)
            found.append((count * batch_size, kind, mean, mean - deviation, mean + deviation))
    return pandas.DataFrame(found, columns=["pairs", "units", "mean", "low", "high"])


def _ranked(units: Units, kind: str) -> Values:
    """The scores of all heads or neurons, over all layers."""
    scores: Values = torch.cat(list(getattr(units, kind))).double().numpy()
    return scores


def _scorer(start: str, data: Path, config: PruneConfig, options: RunOptions) -> tuple[Scores, Rows]:
    """What scores the units as `multitask prune` does, and the rows that it scores them on."""
    runtime = prepare_process(STAGE, options)
    begin = Start.load(Weights(start), config.pooling, config.seed)
    examples = load_rows(task_named(data, "similarity"), "train")
    pairs = LabelledData.tokenised(examples, begin.tokenizer, config.max_length, joint=False)
    source = AlignUniformSource(pairs, config.uniformity_weight)
    encoder = begin.encoder.to(runtime.device).eval()
    factors = Units.full(encoder.config, 1.0)

    def score(rows: Rows, batch_size: int, seed: int) -> Units:
        batches = scored_batches(rows, batch_size, seed)
        return sensitivity(encoder, begin.pooling, source, batches, factors, config.signed, runtime)

    return score, drawn_rows(len(source), config.train_limit)


def agreements(pairs: dict[str, list[tuple[Units, Units]]]) -> pandas.DataFrame:
    """Agreement of pairs of rankings, by what differs between the two, over all layers.

    Columns: `differs`, `units` (heads or neurons), Spearman's `correlation`, and the share of the lowest tenth of one
    ranking that is in that of the other, too (`shared`).
    """
    found = []
    for what, of in pairs.items():
        for name in KINDS:
            for pair in of:
                first, second = (_ranked(units, name) for units in pair)
                found.append((what, name, spearmanr(first, second).statistic, _shared(first, second)))
    return pandas.DataFrame(found, columns=["differs", "units", "correlation", "shared"])


def _shared(first: Values, second: Values) -> float:
    """The share of the first's lowest tenth that is in the second's."""
    count = max(round(SHARE * len(first)), 1)
    lowest = [set(np.argsort(values, kind="stable")[:count].tolist()) for values in (first, second)]
    return len(lowest[0] & lowest[1]) / count
