"""Data-parallel training on many GPUs on paper, and the measured cost of sending gradients between two processes.

    python -m benchmarks.scaling                     # the tables of docs/scaling.md
    python -m benchmarks.scaling --gloo [--rounds 10]    # allreduce between two processes of this machine

Each GPU has a link of its own. A ring allreduce of S bytes between n GPUs takes 2 (n - 1) times S / n bytes over the
link and the latency of a hop (Patarasu and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
workstations"). A training step takes 6 floating-point operations for each token and each parameter outside the
embeddings.
"""

import argparse
import os
import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from statistics import median

import torch
import torch.distributed as dist
import torch.multiprocessing

from benchmarks.finetune import PUBLISHED, SHAPES, work_per_token
from benchmarks.machine import machine
from minbert import BertModel
from multitask.runtime import distributed

RANKS = (8, 64, 256, 1024)
LINKS = (10, 100, 400)  # Gbit/s
LATENCY = 5e-6  # seconds of a hop
RATE = 800e12  # floating-point operations a second in bf16 matrix products: about an H100
UTILISATION = 0.4  # share of it that a step reaches
TOKENS = 8192  # of a GPU in a step: 128 sentences of 32 tokens in two views
SENTENCES = 128  # of a GPU in a contrastive step
BACKWARD = 2 / 3  # share of a step in which gradients can be sent while others are computed
GOAL = 0.9
FP32, BF16 = 4, 2  # bytes


def parameters(shape: str) -> int:
    """Number of an encoder's parameters."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in BertModel(SHAPES[shape]).parameters())


def bandwidth(gigabits: float) -> float:
    """Bytes a second."""
    return gigabits * 1e9 / 8


def allreduce_seconds(size: float, ranks: int, gigabits: float) -> float:
    """Seconds of a ring allreduce of so many bytes."""
    return 2 * (ranks - 1) * (size / ranks / bandwidth(gigabits) + LATENCY)


def allgather_seconds(own: float, ranks: int, gigabits: float) -> float:
    """Seconds until every rank has the bytes that each of the others has of its own."""
    return (ranks - 1) * (own / bandwidth(gigabits) + LATENCY)


def step_seconds(shape: str, tokens: float) -> float:
    """Seconds that a GPU computes for a step on so many tokens."""
    return work_per_token(shape) * tokens / (RATE * UTILISATION)


def efficiency(computing: float, sending: float, overlapped: bool) -> float:
    """Share of a step in which a GPU computes: 1 if sending cost nothing."""
    hidden = BACKWARD * computing if overlapped else 0.0
    return computing / (computing + max(0.0, sending - hidden))


def tokens_for(goal: float, shape: str, sending: float, overlapped: bool) -> float:
    """Tokens of a GPU in a step with which the efficiency reaches the goal."""
    computing = sending / (1 / goal - 1 + (BACKWARD if overlapped else 0.0))
    return computing / step_seconds(shape, 1)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> str:
    """A Markdown table, whose first columns are texts and the others numbers."""
    marks = ["---"] * texts + ["---:"] * (len(header) - texts)
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, marks, *rows))


def allreduce_table() -> str:
    """Milliseconds of an allreduce of all gradients."""
    rows = []
    for shape in PUBLISHED:
        for name, size in (("fp32", FP32), ("bf16", BF16)):
            total = size * parameters(shape)
            for ranks in RANKS:
                times = [f"{1000 * allreduce_seconds(total, ranks, link):,.1f}" for link in LINKS]
                rows.append([shape, name, f"{total / 1e6:,.0f}", f"{ranks:,}", *times])
    return table(["Shape", "Gradients", "MB", "GPUs", *(f"{link} Gbit/s" for link in LINKS)], rows, texts=2)


def ways(shape: str, ranks: int) -> list[tuple[float, bool]]:
    """Seconds of an allreduce and whether it is overlapped: for each link as now, then with both knobs turned."""
    size = parameters(shape)
    return [
        (allreduce_seconds(width * size, ranks, link), overlapped)
        for link in LINKS
        for width, overlapped in ((FP32, False), (BF16, True))
    ]


COLUMNS = [f"{link} Gbit/s{more}" for link in LINKS for more in (", now", ", bf16 and overlap")]


def efficiency_table() -> str:
    """Efficiency at a fixed number of tokens of each GPU."""
    rows = []
    for shape in PUBLISHED:
        computing = step_seconds(shape, TOKENS)
        for ranks in RANKS:
            shares = [f"{efficiency(computing, *way):.0%}" for way in ways(shape, ranks)]
            rows.append([shape, f"{1000 * computing:.1f}", f"{ranks:,}", *shares])
    return table(["Shape", "Computing, ms", "GPUs", *COLUMNS], rows)


def tokens_table() -> str:
    """Thousands of tokens of each GPU that make the efficiency 90%."""
    rows = [
        [shape, f"{ranks:,}", *(f"{tokens_for(GOAL, shape, *way) / 1000:,.0f}" for way in ways(shape, ranks))]
        for shape in PUBLISHED
        for ranks in RANKS
    ]
    return table(["Shape", "GPUs", *COLUMNS], rows)


def negatives_table() -> str:
    """What gathered negatives cost each GPU in a contrastive step."""
    rows = []
    for shape in PUBLISHED:
        own = 2 * SENTENCES * SHAPES[shape].hidden_size * FP32
        for ranks in RANKS:
            batch = ranks * SENTENCES
            rows.append(
                [
                    shape,
                    f"{ranks:,}",
                    f"{batch:,}",
                    f"{own * ranks / 1e6:,.0f}",
                    *(f"{1000 * allgather_seconds(own, ranks, link):,.1f}" for link in LINKS),
                    f"{FP32 * batch**2 / 1e9:,.3f}",
                    f"{FP32 * batch * SENTENCES / 1e9:,.3f}",
                ]
            )
    gathered = ["gathered, MB", *(f"{link} Gbit/s, ms" for link in LINKS)]
    return table(["Shape", "GPUs", "Batch", *gathered, "all similarities, GB", "own rows' similarities, GB"], rows)


TABLES = (allreduce_table, efficiency_table, tokens_table, negatives_table)


def measure_gloo(rank: int, port: int, rounds: int) -> None:
    """One of two processes. Rank 0 prints the table of measured times."""
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2, timeout=timedelta(minutes=5))
    torch.set_num_threads(1)
    gradients = {shape: torch.ones(parameters(shape)) for shape in PUBLISHED}
    sent: dict[str, Callable[[], object]] = {
        f"gradients of {shape}, {FP32 * whole.numel() / 1e6:,.0f} MB": partial(distributed.average, [whole])
        for shape, whole in gradients.items()
    }
    sent["whether a rank got a signal"] = partial(distributed.all_of, (0, False))
    rows = []
    for name, send in sent.items():
        times = []
        for _ in range(rounds + 1):
            dist.barrier()
            begin = time.perf_counter()
            send()
            times.append(1000 * (time.perf_counter() - begin))
        rows.append([name, f"{min(times[1:]):,.1f}", f"{median(times[1:]):,.1f}"])
    dist.destroy_process_group()
    if rank == 0:
        print(table(["Sent in each step", "best, ms", "median, ms"], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gloo", action="store_true", help="measure an allreduce between two processes here")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    if not options.gloo:
        print("\n\n".join(make() for make in TABLES))
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    print(f"{machine()}, {len(os.sched_getaffinity(0))} cores, torch {torch.__version__}, {options.rounds} rounds\n")
    torch.multiprocessing.spawn(measure_gloo, (port, options.rounds), nprocs=2)


if __name__ == "__main__":
    main()
