"""What the benchmarks share: timings in turns, memory of a process of its own, the machine, and tables."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import torch

from multitask.base.keys import machine_name

MIB = 2**20

START = os.environ.get("BENCHMARK_START", "all-minilm-l6-v2")
"""Whose tokenizer the benchmarks use: a folder, on a machine without the package of all-MiniLM-L6-v2."""


def hide_gpus() -> None:
    """Let all be computed and measured on the processor, as if the machine had no GPU."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def alternate(sides: Mapping[str, Callable[[int], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each side in every round, on a GPU until it is done.

    The sides take turns, so that a busy machine slows all alike. Each is called with the number of the round; a first
    round does not count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in sides.items():
            begin = time.perf_counter()
            side(number)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            seconds[name].append(time.perf_counter() - begin)
    return {name: taken[1:] for name, taken in seconds.items()}


def peak_memory() -> float:
    """The peak of this process so far in MiB: of torch's allocations on a GPU, of the resident set elsewhere."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / MIB
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / (MIB if sys.platform == "darwin" else 1024)


def added_memory(work: Callable[[], object]) -> float:
    """MiB that the work adds to the peak of this process, which should be a new one."""
    before = peak_memory()
    work()
    return peak_memory() - before


def in_new_process(module: str, *arguments: object) -> Any:
    """What `python -m MODULE ARGUMENTS` prints, which is JSON."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def matrix_rate(dtype: torch.dtype, device: torch.device, seconds: float = 5) -> float:
    """Operations per second in products of large square matrices: the best within a time."""
    size = 8192 if device.type == "cuda" else 2048  # a GPU takes as long to start a small product
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        [taken] = alternate({"": lambda _: left @ right}, 1)[""]
        best = min(best, taken)
    return 2 * size**3 / best


def machine() -> str:
    """The GPU if there is one, otherwise the processor; threads and torch's version."""
    name = machine_name("cuda" if torch.cuda.is_available() else "cpu")
    return f"{name}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]], texts: int = 1) -> None:
    """Print a Markdown table, each line as soon as it is measured. Its first columns are texts, the others numbers."""
    marks = ["---"] * texts + ["---:"] * (len(header) - texts)
    for row in chain((header, marks), rows):
        print(f"| {' | '.join(map(str, row))} |", flush=True)
