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
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache, partial
from itertools import product
from statistics import median

import torch
import torch.distributed as dist
import torch.multiprocessing

from benchmarks.finetune import PUBLISHED, SHAPES, work_per_token
from benchmarks.measure import machine, print_table, table
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


@cache
def parameters(shape: str) -> int:
    """Number of an encoder's parameters."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in BertModel(SHAPES[shape]).parameters())


def allreduce_seconds(size: float, ranks: int, gigabits: float) -> float:
    """Seconds of a ring allreduce of so many bytes."""
    return 2 * (ranks - 1) * (8 * size / ranks / (gigabits * 1e9) + LATENCY)


def allgather_seconds(own: float, ranks: int, gigabits: float) -> float:
    """Seconds until every rank has the bytes that each of the others has of its own."""
    return (ranks - 1) * (8 * own / (gigabits * 1e9) + LATENCY)


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


def allreduce_rows() -> Iterator[list[object]]:
    """Milliseconds of an allreduce of all gradients."""
    for shape, (name, size), ranks in product(PUBLISHED, (("fp32", FP32), ("bf16", BF16)), RANKS):
        total = size * parameters(shape)
        times = [f"{1000 * allreduce_seconds(total, ranks, link):,.1f}" for link in LINKS]
        yield [shape, name, f"{total / 1e6:,.0f}", f"{ranks:,}", *times]


def ways(shape: str, ranks: int) -> list[tuple[float, bool]]:
    """Seconds of an allreduce and whether it is overlapped: for each link as now, then with both knobs turned."""
    size = parameters(shape)
    return [
        (allreduce_seconds(width * size, ranks, link), overlapped)
        for link in LINKS
        for width, overlapped in ((FP32, False), (BF16, True))
    ]


def efficiency_rows() -> Iterator[list[object]]:
    """Efficiency at a fixed number of tokens of each GPU."""
    for shape, ranks in product(PUBLISHED, RANKS):
        computing = step_seconds(shape, TOKENS)
        shares = [f"{efficiency(computing, *way):.0%}" for way in ways(shape, ranks)]
        yield [shape, f"{1000 * computing:.1f}", f"{ranks:,}", *shares]


def tokens_rows() -> Iterator[list[object]]:
    """Thousands of tokens of each GPU that make the efficiency 90%."""
    for shape, ranks in product(PUBLISHED, RANKS):
        yield [shape, f"{ranks:,}", *(f"{tokens_for(GOAL, shape, *way) / 1000:,.0f}" for way in ways(shape, ranks))]


def negatives_rows() -> Iterator[list[object]]:
    """What gathered negatives cost each GPU in a contrastive step."""
    for shape, ranks in product(PUBLISHED, RANKS):
        own, batch = 2 * SENTENCES * SHAPES[shape].hidden_size * FP32, ranks * SENTENCES
        times = [f"{1000 * allgather_seconds(own, ranks, link):,.1f}" for link in LINKS]
        held = [f"{FP32 * batch * rows / 1e9:,.3f}" for rows in (batch, SENTENCES)]
        yield [shape, f"{ranks:,}", f"{batch:,}", f"{own * ranks / 1e6:,.0f}", *times, *held]


def tables() -> list[str]:
    """All tables; docs/scaling.md shows parts of them."""
    by_link = [f"{link} Gbit/s" for link in LINKS]
    by_way = [f"{link}{more}" for link in by_link for more in (", now", ", bf16 and overlap")]
    gathered = ["Batch", "gathered, MB", *(f"{link}, ms" for link in by_link)]
    found = [
        table(["Shape", "Gradients", "MB", "GPUs", *by_link], allreduce_rows(), texts=2),
        table(["Shape", "Computing, ms", "GPUs", *by_way], efficiency_rows()),
        table(["Shape", "GPUs", *by_way], tokens_rows()),
        table(["Shape", "GPUs", *gathered, "all similarities, GB", "own rows' similarities, GB"], negatives_rows()),
    ]
    return ["\n".join(lines) for lines in found]


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
        print_table(["Sent in each step", "best, ms", "median, ms"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gloo", action="store_true", help="measure an allreduce between two processes here")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    if not options.gloo:
        print("\n\n".join(tables()))
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    print(f"{machine()}, {len(os.sched_getaffinity(0))} cores, {options.rounds} rounds\n")
    torch.multiprocessing.spawn(measure_gloo, (port, options.rounds), nprocs=2)


if __name__ == "__main__":
    main()
