"""How stable SparseCSE's score is: agreement of the units' ranks over pairs, kinds of text, seeds and batch sizes.

    reliability("all-minilm-l6-v2", Path("FOLDER"), PruneConfig(), RunOptions())
    kinds_of_text("all-minilm-l6-v2", [Path("captions"), Path("headlines")], PruneConfig(), RunOptions())
    found = stability("all-minilm-l6-v2", Path("FOLDER"), PruneConfig(), seeds=3, options=RunOptions())
    found.groupby(["differs", "units"], sort=False).mean()

If the ranks change with other pairs of the same kind, the score cannot show which units are harmful. Ranks are
compared by Spearman's correlation, of heads and of neurons separately.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, combinations_with_replacement
from pathlib import Path

import numpy as np
import pandas
import torch
from scipy.stats import spearmanr

from minbert.errors import InputError
from minbert.remove_heads_and_neurons import Units
from multitask.base.options import RunOptions
from multitask.base.random_streams import generator
from multitask.base.runs import Weights
from multitask.data.examples import RowNumbers, drawn_rows
from multitask.evaluation.statistics import Values
from multitask.stages.prune import AlignUniformSource, scored_batches, sensitivity
from multitask.stages.run_stage import prepare_process
from multitask.stages.settings_without_training import PRUNE, PruneConfig
from multitask.stages.training_run import StartModel
from multitask.tasks.declarations import similarity_task
from multitask.tasks.read_examples import load_rows

BATCH_SIZES = (16, 32, 128)  # what batches of 64 are compared with
UNIT_KINDS = ("heads", "neurons")
SHARE = 0.1
DRAWS = 50
UnitScores = Callable[[RowNumbers, int, int], Units]
"""From rows, a batch size and a seed of the batches to the units' scores."""
ByBatch = Mapping[str, Values]  # the scores that each batch gives, by kind of units: [batches, units]


def stability(
    start: str,
    data: Path,
    config: PruneConfig,
    seeds: int,
    options: RunOptions,
    batch_sizes: Sequence[int] = BATCH_SIZES,
) -> pandas.DataFrame:
    """Score an encoder's units again and again, and compare the ranks, as `agreements` does.

    Each of the `seeds`, two or more, draws other batches. `batch_sizes` are compared with that of `config`.
    """
    if seeds < 2:
        raise InputError(f"seeds is {seeds}; expected at least 2")
    score, rows = _scorer(start, data, config, options)
    size = config.batch_size
    whole = [score(rows, size, seed) for seed in range(seeds)]
    pairs = {
        "seeds of the batches": list(combinations(whole, 2)),
        **{f"batches of {size} and {other}": [(whole[0], score(rows, other, 0))] for other in batch_sizes},
    }
    return agreements(pairs)


def reliability(start: str, data: Path, config: PruneConfig, options: RunOptions) -> pandas.DataFrame:
    """How well two scorings on different pairs agree, by the number of pairs that each reads, as `by_pairs` says."""
    return by_pairs(_by_batch(start, data, config, options), config.batch_size)


def by_pairs(scores: ByBatch, batch_size: int, draws: int = DRAWS) -> pandas.DataFrame:
    """Agreement of two means over different batches. Columns: `pairs` of each mean, and those of `agreement`."""
    half = len(next(iter(scores.values()))) // 2
    counts = sorted({half, *(2**power for power in range(half.bit_length()))})
    found = [agreement(scores, scores, count, draws).assign(pairs=count * batch_size) for count in counts]
    return pandas.concat(found).sort_values("units", kind="stable")[["pairs", "units", "mean", "low", "high"]]


def kinds_of_text(start: str, folders: Sequence[Path], config: PruneConfig, options: RunOptions) -> pandas.DataFrame:
    """How well two scorings agree that read pairs of one kind of text, or of two.

    Each reads half of the similarity pairs of a folder; two of one kind read different ones. Columns: the kinds `first`
    and `second` by their folders' names, `pairs` of each scoring, and those of `agreement`.
    """
    scored = {folder.name: _by_batch(start, folder, config, options) for folder in folders}
    half = min(len(values) for scores in scored.values() for values in scores.values()) // 2
    found = [
        agreement(scored[one], scored[other], half).assign(first=one, second=other, pairs=half * config.batch_size)
        for one, other in combinations_with_replacement(scored, 2)
    ]
    return pandas.concat(found)[["first", "second", "pairs", "units", "mean", "low", "high"]]


def agreement(first: ByBatch, second: ByBatch, count: int, draws: int = DRAWS) -> pandas.DataFrame:
    """Agreement of two means of scores, each over `count` batches, which are different ones if `first` is `second`.

    Columns: `units` (heads or neurons), and over the draws of batches the `mean` of Spearman's correlation, and one
    standard deviation to each side (`low`, `high`).
    """
    found = []
    for kind, values in first.items():
        agreed = []
        for seed in range(draws):
            one, other = (
                generator(seed, "two sets of batches").permutation(len(scores)) for scores in (values, second[kind])
            )
            means = values[one[:count]].mean(0), second[kind][other[-count:]].mean(0)
            agreed.append(spearmanr(*means).statistic)
        mean, deviation = np.mean(agreed), np.std(agreed, ddof=1)
        found.append((kind, mean, mean - deviation, mean + deviation))
    return pandas.DataFrame(found, columns=["units", "mean", "low", "high"])


def _by_batch(start: str, data: Path, config: PruneConfig, options: RunOptions) -> ByBatch:
    score, rows = _scorer(start, data, config, options)
    scored = [score(batch, len(batch), 0) for batch in scored_batches(rows, config.batch_size, config.seed)]
    return {kind: np.stack([_ranked(units, kind) for units in scored]) for kind in UNIT_KINDS}


def _ranked(units: Units, kind: str) -> Values:
    """The scores of all heads or neurons, over all layers."""
    scores: Values = torch.cat(list(getattr(units, kind))).double().numpy()
    return scores


def _scorer(start: str, data: Path, config: PruneConfig, options: RunOptions) -> tuple[UnitScores, RowNumbers]:
    """What scores the units as `multitask prune` does, and the rows that it scores them on."""
    encoder = StartModel.load(Weights(start), config, prepare_process(PRUNE, options)).encoder
    task = similarity_task(data)
    examples = load_rows(task, "train")
    positive = task.mean_the_same(examples.gold)
    source = AlignUniformSource(encoder.tokenised(examples), positive, config.uniformity_weight)
    factors = Units.full(encoder.bert.config, 1.0)

    def score(rows: RowNumbers, batch_size: int, seed: int) -> Units:
        batches = scored_batches(rows, batch_size, seed)
        return sensitivity(encoder, source, batches, factors, config.signed)

    return score, drawn_rows(len(source), config.train_limit)


def agreements(pairs: dict[str, list[tuple[Units, Units]]]) -> pandas.DataFrame:
    """Agreement of pairs of rankings, by what differs between the two, over all layers.

    Columns: `differs`, `units` (heads or neurons), Spearman's `correlation`, and the share of the lowest tenth of one
    ranking that is in that of the other, too (`shared`).
    """
    found = []
    for what, unit_pairs in pairs.items():
        for name in UNIT_KINDS:
            for pair in unit_pairs:
                first, second = (_ranked(units, name) for units in pair)
                found.append((what, name, spearmanr(first, second).statistic, _shared(first, second)))
    return pandas.DataFrame(found, columns=["differs", "units", "correlation", "shared"])


def _shared(first: Values, second: Values) -> float:
    """The share of the first's lowest tenth that is in the second's."""
    count = max(round(SHARE * len(first)), 1)
    lowest = [set(np.argsort(values, kind="stable")[:count].tolist()) for values in (first, second)]
    return len(lowest[0] & lowest[1]) / count
