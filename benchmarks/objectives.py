"""Memory and time of every objective, forward and backward, on the CPU, as a Markdown table.

    python -m benchmarks.objectives [--pairs 4096] [--false-negatives]

Memory is what one pass at `--pairs` adds to the peak of a process of its own. For comparison, an fp32 matrix
[pairs, pairs] takes 64 MiB at 4096 pairs. Time is the median step at 128 pairs on one thread.
"""

import argparse
import json
from collections.abc import Iterator
from statistics import median

import torch
from torch import Tensor

from benchmarks.measure import added_memory, alternate, in_new_process, machine, print_table
from multitask.objectives import OBJECTIVES, Objective
from multitask.training.objective_config import ObjectiveConfig

DIM = 768
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


def make(label: str, pairs: int, masked: bool = False) -> tuple[Objective, list[Tensor], Tensor | None]:
    anchors = torch.randn(pairs, DIM) + 1  # so similar that gates and hinges are open
    inputs = [anchors, anchors + torch.randn(pairs, DIM), *([torch.randn(pairs, DIM)] if label == HARD else [])]
    mask = torch.rand(pairs, pairs) < 0.01 if masked else None
    return FORMS[label].build(), [x.requires_grad_() for x in inputs], mask


def measured(label: str, pairs: int, masked: bool) -> tuple[float, float]:
    """MiB that one pass adds, and milliseconds of a step at 128 pairs. Call this in a new process."""
    torch.manual_seed(0)
    step(*make(label, 64, masked))
    batch = make(label, pairs, masked)
    added = added_memory(lambda: step(*batch))
    torch.set_num_threads(1)
    small = make(label, 128, masked)
    return added, 1000 * median(alternate({"": lambda _: step(*small)}, 50)[""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=4096, help="pairs of the memory measurement")
    parser.add_argument("--false-negatives", action="store_true", help="with a mask of 1%% false negatives")
    parser.add_argument("--only", choices=FORMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measured(options.only, options.pairs, options.false_negatives)))
        return

    def rows() -> Iterator[list[str]]:
        more = ["--false-negatives"] if options.false_negatives else []
        for label in FORMS:
            added, took = in_new_process("benchmarks.objectives", "--pairs", options.pairs, *more, "--only", label)
            yield [label, f"{added:.0f}", f"{took:.2f}"]

    print(f"{machine()}, dim {DIM}, fp32\n")
    print_table(["objective", f"MiB added at {options.pairs} pairs", "ms a step at 128 pairs"], rows())


if __name__ == "__main__":
    main()
