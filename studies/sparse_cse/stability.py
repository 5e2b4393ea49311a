"""How stable SparseCSE's score is: agreement of the units' ranks over seeds, halves of the data and batch sizes.

    found = stability("all-minilm-l6-v2", Path("FOLDER"), PruneConfig(), seeds=3, options=RunOptions())
    found.groupby(["differs", "units"], sort=False).mean()

If the ranks change with other pairs of the same kind, the score cannot show which units are harmful. Ranks are
compared by Spearman's correlation, of heads and of neurons separately. The table also has the share of the lowest tenth
that both rankings have; chance alone gives a tenth.
"""

from collections.abc import Callable, Sequence
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

    Each of the `seeds`, two or more, draws other batches and other halves of the rows. `batch_sizes` are compared with
    that of `config`, and the pairs of `others`, folders with similarity pairs of other kinds of text, with those of
    `data`.
    """
    if seeds < 2:
        raise InputError(f"--seeds {seeds}: expected at least 2")
    score, rows = _scorer(start, data, config, options)
    size = config.batch_size

    def scored(other: Path) -> Units:
        theirs, all_rows = _scorer(start, other, config, options)
        return theirs(all_rows, size, 0)

    whole = [score(rows, size, seed) for seed in range(seeds)]
    halves = [np.array_split(generator(seed, "halves of the rows").permutation(rows), 2) for seed in range(seeds)]
    pairs = {
        "seeds of the batches": list(combinations(whole, 2)),
        "halves of the data": [(score(first, size, 0), score(second, size, 0)) for first, second in halves],
        **{f"batches of {size} and {other}": [(whole[0], score(rows, other, 0))] for other in batch_sizes},
        **{f"pairs of {data.name} and {other.name}": [(whole[0], scored(other))] for other in others},
    }
    return agreements(pairs)


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
        for name in ("heads", "neurons"):
            for pair in of:
                first, second = (torch.cat(list(getattr(units, name))).double().numpy() for units in pair)
                found.append((what, name, spearmanr(first, second).statistic, _shared(first, second)))
    return pandas.DataFrame(found, columns=["differs", "units", "correlation", "shared"])


def _shared(first: Values, second: Values) -> float:
    """The share of the first's lowest tenth that is in the second's."""
    count = max(round(SHARE * len(first)), 1)
    lowest = [set(np.argsort(values, kind="stable")[:count].tolist()) for values in (first, second)]
    return len(lowest[0] & lowest[1]) / count
