"""The gradient study's simulations compared with a plain loop over cells and batches: time and largest difference.

    python -m benchmarks.simulations [--cells 10] [--batches 1000]

The loop computes what the paper describes (arXiv 2402.18281, section 3.1), in the way of the paper's script: for each
loss and cell it draws new batches and computes one after the other in NumPy, in float64. Both sides use one thread.
Times are processor time, so that other programs have little effect. The loop's time for the paper's grid is
extrapolated from the measured cells, since all cells cost the same. To compare values, the loop reads the angles that
ours has drawn.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from multitask.runs.machine import processor
from studies.gradient_paradigm.simulate import SimulationConfig
from studies.gradient_paradigm.simulation_outcomes import TEMPERATURES
from studies.gradient_paradigm.simulations import (
    NEGATIVE_MEANS,
    POSITIVE_MEANS,
    WEIGHT_POSITIVE_MEAN,
    run_simulations,
    standard_normals,
)

PAPER = SimulationConfig()
Batches = Iterator[tuple[float, NDArray[np.float64]]]
Sampler = Callable[[float, float], Batches]


def infonce(positive: float, negatives: NDArray[np.float64], angle: float = 0.0) -> float:
    return 1 / (1 + math.exp(math.cos(positive + angle) / 0.05) / np.exp(np.cos(negatives) / 0.05).sum())


def mpt(positive: float, negatives: NDArray[np.float64]) -> float:
    return 1.0 if math.cos(positive) - np.cos(negatives).max() < 0.23 else 0.0


def met(positive: float, negatives: NDArray[np.float64]) -> float:
    nearest = np.sqrt(2 - 2 * np.cos(negatives)).min()
    return 1.0 if nearest - math.sqrt(2 - 2 * math.cos(positive)) < 0.45 else 0.0


LOSSES: dict[str, Callable[[float, NDArray[np.float64]], float]] = {
    "infonce": infonce,
    "arccon": lambda positive, negatives: infonce(positive, negatives, math.radians(10)),
    "mpt": mpt,
    "met": met,
}


def loop_dissipation(loss: str, grid: int, sample: Sampler) -> NDArray[np.float64]:
    """The mean dissipation of every cell, [grid, grid]."""
    cells = [
        np.mean([LOSSES[loss](positive, negatives) for positive, negatives in sample(positive_mean, negative_mean)])
        for positive_mean in np.linspace(*POSITIVE_MEANS, grid)
        for negative_mean in np.linspace(*NEGATIVE_MEANS, grid)
    ]
    return np.reshape(cells, (grid, grid))


def loop_weights(grid: int, sample: Sampler) -> NDArray[np.float64]:
    """The mean weight of the hardest negative, [temperatures, grid]."""
    columns = []
    for negative_mean in np.linspace(*NEGATIVE_MEANS, grid):
        batches = list(sample(WEIGHT_POSITIVE_MEAN, negative_mean))
        column = []
        for temperature in TEMPERATURES:
            shares = []
            for _, negatives in batches:
                terms = np.exp(np.cos(negatives) / temperature)
                shares.append(terms.max() / terms.sum())
            column.append(np.mean(shares))
        columns.append(column)
    return np.transpose(columns)


def drawn(config: SimulationConfig) -> Sampler:
    random = np.random.default_rng(config.seed)

    def sample(positive_mean: float, negative_mean: float) -> Batches:
        for _ in range(config.batches):
            positive = random.normal(positive_mean, config.positive_deviation)
            yield positive, random.normal(negative_mean, config.negative_deviation, config.batch_size - 1)

    return sample


def replayed(config: SimulationConfig) -> Sampler:
    positives, negatives = (x.double().numpy() for x in standard_normals(config))

    def sample(positive_mean: float, negative_mean: float) -> Batches:
        for positive, row in zip(positives, negatives, strict=True):
            yield positive_mean + config.positive_deviation * positive, negative_mean + config.negative_deviation * row

    return sample


def seconds(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=10, help="means per axis that the loop computes, at least 10")
    parser.add_argument("--batches", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = SimulationConfig(grid=options.cells, batches=options.batches)
    simulations = run_simulations(config)
    print(f"{processor()}, one thread, numpy {np.__version__}, torch {torch.__version__}")
    print(f"loop: {config.grid} x {config.grid} cells, {config.batches} batches of {config.batch_size}\n")
    print("| | loop, measured | loop, paper's grid | largest difference on the same draws |\n|---|---:|---:|---:|")
    batches = PAPER.batches / config.batches
    total = 0.0
    for loss, values in simulations.dissipation.items():
        measured = seconds(lambda loss=loss: loop_dissipation(loss, config.grid, drawn(config)))
        whole = measured * batches * (PAPER.grid / config.grid) ** 2
        difference = np.abs(loop_dissipation(loss, config.grid, replayed(config)) - values).max()
        print(f"| dissipation of {loss} | {measured:.2f} s | {whole / 60:.1f} min | {difference:.1e} |")
        total += whole
    measured = seconds(lambda: loop_weights(config.grid, drawn(config)))
    whole = measured * batches * PAPER.grid / config.grid
    difference = np.abs(loop_weights(config.grid, replayed(config)) - simulations.weights).max()
    print(f"| weights | {measured:.2f} s | {whole / 60:.1f} min | {difference:.1e} |")
    total += whole
    ours = min(seconds(lambda: run_simulations(PAPER)) for _ in range(3))
    print(f"\ntotal for the paper's grid: loop {total / 60:.0f} min (extrapolated), `run_simulations` {ours:.2f} s")
    print(f"({total / ours:,.0f} times faster)")


if __name__ == "__main__":
    main()
