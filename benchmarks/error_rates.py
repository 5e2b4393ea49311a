"""How often a table's tests find a difference where there is none, and one of the size that a report calls detectable.

    python -m benchmarks.error_rates [--repetitions 4000] [--seeds 3 5 12]

Rows differ by chance alone. Each has a score for each seed: an effect of the seed that all rows share, and the row's
own deviation. Pairing removes the former, so that results without it are the same. Other examples move all seeds of a
row alike, and move different rows partly together. What is tested is `contrast` and `holm` themselves. Shares have
Monte Carlo standard errors. docs/concepts/intervals-and-tests.md has the numbers.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import sqrt

import numpy as np
from numpy.random import Generator

from multitask.evaluation.statistics import LEVEL, POWER, SampledScores, Uncertain, contrast, holm

ROWS = 6
OWN = 0.01
"""Standard deviation of a row's scores over seeds, without what its seeds share with other rows."""
NOISY = 6.0
"""How many times as much the noisy row varies."""
SHARED = 0.73
"""Correlation of two rows over seeds."""
EXAMPLES, AGREE = 1101, 0.8
"""Dev examples, and the correlation of two rows over other examples."""
SAMPLES = 2000
"""Draws of examples."""


@dataclass(frozen=True)
class Case:
    """How rows vary."""

    seeds: int
    noisy: str = "none"
    """`none`, a `row`, or the `reference`."""
    examples: bool = True
    """Whether the dev set is a draw of examples; otherwise it is as good as infinite."""

    def table(self, draws: Generator, rows: int = ROWS) -> list[SampledScores]:
        """Equally good rows, the reference first."""
        scale = np.full(rows, OWN)
        scale[{"reference": 0, "row": 1}.get(self.noisy, ())] *= NOISY
        observed = scale[:, None] * draws.normal(size=(rows, self.seeds))
        observed += OWN * sqrt(SHARED / (1 - SHARED)) * draws.normal(size=self.seeds)
        spread = self.examples * sqrt(0.25 / EXAMPLES)  # of an accuracy around one half
        common, own = draws.normal(size=(SAMPLES + 1, 1)), draws.normal(size=(SAMPLES + 1, rows))
        dev = spread * (sqrt(AGREE) * common + sqrt(1 - AGREE) * own)  # the first one is the dev set that was seen
        observed += dev[0, :, None]
        drawn = observed + dev[1:, :, None]
        return [SampledScores(range(self.seeds), observed[row], drawn[:, row]) for row in range(rows)]


def less_reference(rows: Sequence[SampledScores]) -> list[Uncertain]:
    """Each row less the first one."""
    return [contrast([(1.0, row), (-1.0, rows[0])]) for row in rows[1:]]


def family_wise_error(case: Case, repetitions: int) -> float:
    """The share of tables with any significant difference."""
    draws = np.random.default_rng(0)
    tables = (less_reference(case.table(draws)) for _ in range(repetitions))
    return float(np.mean([min(holm([of.p_value() for of in table])) < LEVEL for table in tables]))


def power(case: Case, repetitions: int) -> float:
    """The share of experiments that show a difference of the size that an experiment before them calls detectable."""
    draws, shown = np.random.default_rng(0), 0
    for _ in range(repetitions):
        (before,), (again,) = (less_reference(case.table(draws, rows=2)) for _ in range(2))
        shown += again.interval()[0] + before.detectable() > 0
    return shown / repetitions


def told(share: float, repetitions: int) -> str:
    """A share with its standard error."""
    return f"{share:.3f} ± {sqrt(share * (1 - share) / repetitions):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=4000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 5, 12])
    options = parser.parse_args()
    counts, repetitions = options.seeds, options.repetitions
    print(f"| Noisy | Examples | {' | '.join(f'{count} seeds' for count in counts)} |")
    print("|---|---|" + "---|" * len(counts))
    for noisy, examples in product(("none", "row", "reference"), (True, False)):
        cases = [Case(count, noisy, examples) for count in counts]
        found = [told(family_wise_error(case, repetitions), repetitions) for case in cases]
        print(f"| {noisy} | {EXAMPLES if examples else '∞'} | {' | '.join(found)} |", flush=True)
    for examples in (True, False):
        found = [told(power(Case(count, examples=examples), repetitions), repetitions) for count in counts]
        print(f"| power, {POWER} stated | {EXAMPLES if examples else '∞'} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
