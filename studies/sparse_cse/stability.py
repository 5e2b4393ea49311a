"""How stable SparseCSE's score is: agreement of the units' ranks over seeds, halves of the data and batch sizes.

    python -m studies.sparse_cse.stability --data FOLDER [--start all-minilm-l6-v2] [--seeds 5] [--train-limit 250]

A score that ranks the units otherwise on other pairs of the same kind cannot tell which units are harmful. Ranks are
compared by Spearman's correlation, of heads and of neurons by themselves. The table also has the share of the lowest
tenth that both rankings have; chance alone gives a tenth.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from minbert.errors import InputError
from minbert.remove_heads_and_neurons import Units
from multitask.data.examples import Rows
from multitask.data.labelled_data import LabelledData
from multitask.data.shuffle_and_batch import drawn_rows
from multitask.evaluation.statistics import Values
from multitask.evaluation.text_tables import aligned
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


@dataclass(frozen=True)
class Agreement:
    """Agreement of pairs of rankings of the same units.

    Args:
        what: differs between the two rankings of a pair.
        units: heads or neurons.
        correlations: Spearman's, [pairs].
        shared: share of the lowest tenth of one ranking that is in that of the other, too, [pairs].
    """

    what: str
    units: str
    correlations: Values
    shared: Values


def stability(
    start: str,
    data: Path,
    config: PruneConfig,
    seeds: int,
    options: RunOptions,
    batch_sizes: Sequence[int] = BATCH_SIZES,
) -> list[Agreement]:
    """Score an encoder's units again and again, and compare the ranks.

    Args:
        start: the encoder.
        data: folder with the similarity task's training pairs.
        config: λ, rows, batch size and lengths of the score.
        seeds: number of seeds, two or more. Each draws other batches, and other halves of the rows.
        options: device.
        batch_sizes: compared with the batch size of `config`.

    Raises:
        InputError: a bad checkpoint or file, or less than two seeds.
    """
    if seeds < 2:
        raise InputError(f"--seeds {seeds}: expected at least 2")
    score, rows = _scorer(start, data, config, options)
    size = config.batch_size
    whole = [score(rows, size, seed) for seed in range(seeds)]
    halves = [np.array_split(generator(seed, "halves of the rows").permutation(rows), 2) for seed in range(seeds)]
    pairs = {
        "seeds of the batches": list(combinations(whole, 2)),
        "halves of the data": [(score(first, size, 0), score(second, size, 0)) for first, second in halves],
        **{f"batches of {size} and {other}": [(whole[0], score(rows, other, 0))] for other in batch_sizes},
    }
    return [agreement for what, of in pairs.items() for agreement in agreements(what, of)]


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


def agreements(what: str, pairs: Sequence[tuple[Units, Units]]) -> list[Agreement]:
    """The agreement of the heads' ranks and of the neurons' ranks, each over all layers."""
    found = []
    for name in ("heads", "neurons"):
        values = [tuple(_flat(getattr(units, name)) for units in pair) for pair in pairs]
        correlations = np.array([spearmanr(a, b).statistic for a, b in values])
        shared = np.array([_shared(a, b) for a, b in values])
        found.append(Agreement(what, name, correlations, shared))
    return found


def _flat(layers: Sequence[Tensor]) -> Values:
    return torch.cat(list(layers)).double().numpy()


def _shared(first: Values, second: Values) -> float:
    """The share of the first's lowest tenth that is in the second's."""
    count = max(round(SHARE * len(first)), 1)
    lowest = [set(np.argsort(values, kind="stable")[:count].tolist()) for values in (first, second)]
    return len(lowest[0] & lowest[1]) / count


def table(found: Sequence[Agreement]) -> str:
    """The agreements as aligned text: mean and lowest of each."""
    lines = [["differs", "units", "pairs", "rank correlation", "lowest", "lowest tenth in common", "lowest"]]
    for one in found:
        numbers = [f"{value:.3f}" for of in (one.correlations, one.shared) for value in (of.mean(), of.min())]
        lines.append([one.what, one.units, str(len(one.correlations)), *numbers])
    return aligned(lines, left=2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table. Returns the exit code."""
    parser = argparse.ArgumentParser("python -m studies.sparse_cse.stability", description=__doc__)
    parser.add_argument("--start", default="all-minilm-l6-v2", help="the encoder: a folder, a run or a hub id")
    parser.add_argument("--data", type=Path, default=Path("data/sample"), help="folder with the similarity pairs")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--train-limit", type=int, default=250, help="score on this many pairs")
    given = parser.parse_args(arguments)
    try:
        config = PruneConfig(train_limit=given.train_limit)
        print(table(stability(given.start, given.data, config, given.seeds, RunOptions())))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
