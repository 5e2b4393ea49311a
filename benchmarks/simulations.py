"""Time of the gradient study's simulations beside a plain loop over cells and batches, and how far the values differ.

    python -m benchmarks.simulations [--cells 10] [--batches 1000]

The loop does what the paper describes (arXiv 2402.18281, section 3.1) as its script does: for each loss and each cell
it draws every batch anew, and computes one batch after the other in NumPy, in float64. Both sides on one thread, in
seconds of processor time, so that other programs on the machine count little. The loop's time for the paper's grid is
that of the cells measured, scaled: all cells cost the same. Values are compared on the same draws, where the loop
reads the angles instead of drawing them.
"""

import argparse
import math
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

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
    """Mean dissipation of every cell  # [grid, grid]."""
    cells = [
        np.mean([LOSSES[loss](positive, negatives) for positive, negatives in sample(positive_mean, negative_mean)])
        for positive_mean in np.linspace(*POSITIVE_MEANS, grid)
        for negative_mean in np.linspace(*NEGATIVE_MEANS, grid)
    ]
    return np.reshape(cells, (grid, grid))


def loop_weights(grid: int, sample: Sampler) -> NDArray[np.float64]:
    """Mean weight of the hardest negative  # [temperatures, grid]."""
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


def processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=10, help="means on each axis that the loop computes, at least 10")
    parser.add_argument("--batches", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = SimulationConfig(grid=options.cells, batches=options.batches)
    simulations = run_simulations(config)
    print(f"{processor()}, one thread, numpy {np.__version__}, torch {torch.__version__}")
    print(f"loop: {config.grid} x {config.grid} cells, {config.batches} batches of {config.batch_size}\n")
    print("| | loop, measured | loop, paper's grid | largest difference, same draws |\n|---|---:|---:|---:|")
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
    print(
        f"\nall of it on the paper's grid: loop {total / 60:.0f} min, `run_simulations` {ours:.2f} s measured", end=""
    )
    print(f" ({total / ours:,.0f} times faster)")


if __name__ == "__main__":
    main()
