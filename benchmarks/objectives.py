"""Memory and time of every objective, forward and backward, on the CPU, as a Markdown table.

    python -m benchmarks.objectives [--pairs 4096] [--false-negatives]

Memory is the increase of a process's peak resident set by one pass at `--pairs`; each objective has its own process.
For comparison, an fp32 matrix [pairs, pairs] takes 64 MiB at 4096 pairs. Time is the median step at 128 pairs on one
thread.
"""

import argparse
import resource
import subprocess
import sys
import time
from statistics import median

import torch
from torch import Tensor

from multitask.objectives import OBJECTIVES, Objective
from multitask.objectives.config import ObjectiveConfig

DIM = 768
MIB = 2**20
COMPONENTS = {"dissipation": 0.30, "weight": 0.05, "ratio": 1.5, "uniformity_weight": 1.0}
HARD = "infonce, a hard negative for each pair"
FORMS = {
    **{name: ObjectiveConfig(name) for name in sorted(OBJECTIVES)},
    HARD: ObjectiveConfig.of("infonce", hard_negative_weight=1.0),
    **{
        f"{name}, three components": ObjectiveConfig.of(name, **COMPONENTS)
        for name in ("mhe", "mhs", "barlow_twins", "vicreg")
    },
    "quora_pairs, literal": ObjectiveConfig.of("quora_pairs", form="literal"),
}


def step(objective: Objective, inputs: list[Tensor], mask: Tensor | None) -> None:
    anchors, positives, *hard = inputs
    pairs = len(anchors)
    labels = None if objective.takes_labels == "none" else torch.arange(pairs) % 2
    objective(anchors, positives, *hard, labels=labels, false_negatives=mask).backward()
    for x in inputs:
        x.grad = None


def make(label: str, pairs: int, masked: bool) -> tuple[Objective, list[Tensor], Tensor | None]:
    anchors = torch.randn(pairs, DIM) + 1  # so similar that gates and hinges are open
    inputs = [anchors, anchors + torch.randn(pairs, DIM), *([torch.randn(pairs, DIM)] if label == HARD else [])]
    mask = torch.rand(pairs, pairs) < 0.01 if masked else None
    return FORMS[label].build(), [x.requires_grad_() for x in inputs], mask


def peak() -> int:
    """The peak resident set of this process in bytes. (Linux reports KiB, macOS bytes.)"""
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024


def added_memory(label: str, pairs: int, masked: bool) -> float:
    """MiB that one pass adds to the peak. Call this in a new process."""
    step(*make(label, 64, masked))
    batch = make(label, pairs, masked)
    before = peak()
    step(*batch)
    return (peak() - before) / MIB


def milliseconds(label: str, masked: bool) -> float:
    torch.set_num_threads(1)
    batch = make(label, 128, masked)
    times = []
    for _ in range(60):
        start = time.perf_counter()
        step(*batch)
        times.append(time.perf_counter() - start)
    return median(times[10:]) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=4096, help="pairs of the memory measurement")
    parser.add_argument("--false-negatives", action="store_true", help="with a mask of 1%% false negatives")
    parser.add_argument("--only", choices=FORMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.only:
        print(
            f"| {options.only} | {added_memory(options.only, options.pairs, options.false_negatives):.0f} "
            f"| {milliseconds(options.only, options.false_negatives):.2f} |"
        )
        return
    print(f"dim {DIM}, fp32, {torch.get_num_threads()} threads, torch {torch.__version__}\n")
    print(f"| objective | MiB added at {options.pairs} pairs | ms per step at 128 pairs |\n|---|---:|---:|")
    for label in FORMS:
        subprocess.run([sys.executable, "-m", "benchmarks.objectives", *sys.argv[1:], "--only", label], check=True)


if __name__ == "__main__":
    main()
