"""Memory that fine-tuning adds to a process: ours, ours with recomputed layers, a tuned transformers loop, a plain one.

    python -m benchmarks.memory [--shapes minilm bert-base] [--batch-sizes 16 64] [--data data/sample] [--steps 4]

The loops are those of `benchmarks.finetune`. Each measurement has a process of its own. It is the increase of the peak
resident set (on a GPU: the peak of allocated memory) by some steps, gradients and the optimizer's state included; the
first step takes the longest sentences.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import torch
from transformers.utils import logging

from benchmarks.finetune import LOOPS, PUBLISHED, SHAPES, build_loop, build_problem, tokens_of
from benchmarks.machine import machine
from benchmarks.objectives import MIB, peak

RECOMPUTED = "ours, --recompute"
MEASURED = (*LOOPS, RECOMPUTED)


def added_memory(shape: str, batch_size: int, data: Path, steps: int, loop: str) -> float:
    """MiB that the steps of a loop add to the peak. Call this in a new process."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    problem = build_problem(shape, batch_size, data, "auto", recompute=loop == RECOMPUTED)
    steppable = build_loop("ours" if loop == RECOMPUTED else loop, problem)
    updates = sorted(problem.plan(0), key=lambda update: -tokens_of(problem, update))[:steps]
    before = 0.0 if torch.cuda.is_available() else peak()
    for update in updates:
        steppable.step(update)
    after = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else peak()
    return (after - before) / MIB


def in_own_process(shape: str, batch_size: int, data: Path, steps: int, loop: str) -> int:
    """MiB that the steps of a loop add to the peak of a new process."""
    settings = ("--shapes", shape, "--batch-sizes", str(batch_size), "--data", str(data), "--steps", str(steps))
    command = [sys.executable, "-m", "benchmarks.memory", *settings, "--only", loop]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=PUBLISHED)
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[16, 64])
    parser.add_argument("--data", type=Path, default=Path("data/sample"))
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--only", choices=MEASURED, help="one loop in this process")
    options = parser.parse_args()
    if options.only:
        (shape,), (batch_size,) = options.shapes, options.batch_sizes
        print(round(added_memory(shape, batch_size, options.data, options.steps, options.only)))
        return
    print(f"{machine()}, torch {torch.__version__}, {options.data}; MiB added by {options.steps} steps\n")
    print(f"| shape | batch | {' | '.join(MEASURED)} |\n|---|---:|{'---:|' * len(MEASURED)}")
    for shape in options.shapes:
        for batch_size in options.batch_sizes:
            added = [in_own_process(shape, batch_size, options.data, options.steps, loop) for loop in MEASURED]
            print(f"| {shape} | {batch_size} | {' | '.join(f'{mib:,}' for mib in added)} |", flush=True)


if __name__ == "__main__":
    main()
