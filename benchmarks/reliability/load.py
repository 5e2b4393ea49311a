"""Long load: a million sentences embedded, hundreds of runs in one process, and several processes at the same grid.

    python -m benchmarks.reliability.load --output FOLDER [--sentences 1000000] [--runs 200] [--processes 8]

Required: sentences are embedded at a stable rate, with memory that does not grow with the file; runs leave no files,
threads or memory behind; every stage of a grid that several processes start at once is computed once. 0 leaves a part
out.
"""

import argparse
import ctypes
import gc
import logging
import os
import random
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np

from benchmarks.machine import machine
from benchmarks.reliability.faults import quick_reports
from benchmarks.reliability.world import COMPUTED, call, copy, finetune, grid, make_world, write_encoder
from multitask.runs.artefact import Artefact

WORDS = ("time", "film", "board", "tea", "price", "rust", "women", "couple", "serving", "good", "band", "letter")
WIDTH = 32
HEADER = 128
"""Bytes of a NumPy file before the first embedding."""
SLOWEST = 0.75
"""The slowest part of the sentences may be embedded at this share of the median part's rate."""
BEYOND_MODEL = 1e9
"""Bytes that `embed` may need beyond what the process had before it."""
A_RUN = 30e3
"""Bytes that a run may leave behind: caches of compiled patterns and the like. A model of these runs is larger."""


@dataclass(frozen=True)
class Usage:
    """What a process holds.

    Args:
        memory: bytes of its own, mapped files excluded.
        files: open files.
        threads: of the process.
        seconds: of the processor so far.
    """

    memory: int
    files: int
    threads: int
    seconds: float

    @classmethod
    def of(cls, process: int | str = "self") -> "Usage":
        """Usage of a process now."""
        folder = Path(f"/proc/{process}")
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        times = (folder / "stat").read_text().rpartition(")")[2].split()[11:13]  # user's and system's
        seconds = sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
        memory = 1024 * int(status.get("RssAnon", "0 kB").split()[0])  # a process that has ended has none
        return cls(memory, len(list((folder / "fd").iterdir())), int(status["Threads"]), seconds)


def settled() -> Usage:
    """Usage of this process without garbage and without what its allocator keeps for later."""
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    return Usage.of()


def started(work: Callable[[], int]) -> int:
    """Do the work in a forked process, which prints nothing; its exit code is the work's. Returns the process."""
    if (process := os.fork()) != 0:
        return process
    code = 98
    try:
        code = work()
    finally:
        os._exit(code)


def embedding(folder: Path, sentences: int, part: int) -> tuple[list[float], int]:
    """Embed generated sentences of 4 to 24 words with a small encoder.

    Args:
        folder: to write to.
        sentences: how many, a multiple of `part`, at least two parts.
        part: the rate is measured over each so many.

    Returns:
        Sentences per second of the processor in each part but the first, which contains loading and counting, and the
        bytes that embedding added to the process.
    """
    folder.mkdir(parents=True)
    write_encoder(folder / "encoder", WORDS, WIDTH)
    draw = random.Random(0)
    with (folder / "sentences.txt").open("w") as file:
        file.writelines(f"{' '.join(draw.choices(WORDS, k=draw.randint(4, 24)))}\n" for _ in range(sentences))
    output = folder / "embeddings.npy"
    arguments = ["embed", folder / "sentences.txt", output, "--model", folder / "encoder", *COMPUTED]
    process = started(lambda: call(arguments)[0])
    before = Usage.of(process)
    peak, written, seconds = before.memory, [0.0], [before.seconds]
    while not (ended := os.wait4(process, os.WNOHANG))[0]:
        usage = Usage.of(process)
        peak = max(peak, usage.memory)
        size = max((path.stat().st_size for path in folder.glob(".embeddings.npy.*")), default=0)
        count = (size - HEADER) / (4 * WIDTH)
        if written[-1] < count < sentences:
            written.append(count)
            seconds.append(usage.seconds)
        time.sleep(0.02)
    if np.load(output, mmap_mode="r").shape != (sentences, WIDTH):
        raise SystemExit(f"{output}: not {sentences} embeddings of size {WIDTH}")
    ends = np.interp(
        np.arange(0, sentences + 1, part),
        [*written, sentences],
        [*seconds, ended[2].ru_utime + ended[2].ru_stime],
    )
    return list(part / np.maximum(np.diff(ends)[1:], 1e-9)), peak - before.memory


def short_runs(world: Path, runs: int, first: int, work: Callable[[list[str]], int]) -> tuple[Usage, Usage]:
    """Short trainings in this process, each with a seed of its own.

    Args:
        world: the current folder of the trainings.
        runs: how many.
        first: how many before the first look, fewer than `runs`.
        work: takes a command's arguments and returns its exit code.

    Returns:
        What the process holds after the first ones and after all.
    """
    os.chdir(world)
    for seed in range(runs):
        if seed == first:
            before = settled()
        if code := work(finetune("--seed", str(seed + 1), "--epochs", "1", "--epoch-size", "32")):
            raise SystemExit(f"a training ended with {code}")
    return before, settled()


def left_behind(before: Usage, after: Usage, runs: int) -> list[str]:
    """What the runs between two looks left in the process that they should not."""
    found = [
        f"{name}: {was} -> {is_}"
        for name, was, is_ in (("files", before.files, after.files), ("threads", before.threads, after.threads))
        if is_ > was
    ]
    kept = (after.memory - before.memory) / runs
    return found + ([f"memory: {kept / 1e3:.0f} kB a run"] if kept > A_RUN else [])


def at_once(world: Path, processes: int) -> tuple[Counter[str], Counter[str], list[int]]:
    """Start the same grid in several processes at once.

    Args:
        world: without the grid's runs.
        processes: how many.

    Returns:
        How often each run was computed, as the processes saw it; how often each training logged its first epoch; and
        the processes' exit codes.
    """
    finished = world.parent / "finished.txt"
    begin = time.monotonic() + 1

    def work() -> int:
        os.chdir(world)
        logging.getLogger().setLevel(logging.INFO)  # logs of jobs tell every epoch
        finish = Artefact.finish

        def recorded(artefact: Artefact) -> None:
            with finished.open("a") as file:
                file.write(f"{artefact.folder.name}\n")
            finish(artefact)

        with patch.object(Artefact, "finish", recorded):
            time.sleep(max(begin - time.monotonic(), 0))
            return call(grid())[0]

    children = [started(work) for _ in range(processes)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    logs = {path.name: path.read_text() for path in (world / "runs" / "logs").glob("finetune-*.log")}
    trained = Counter({name: len(re.findall("epoch 1, step", text)) for name, text in logs.items()})
    return Counter(finished.read_text().splitlines()), trained, codes


def try_embedding(folder: Path, sentences: int, part: int) -> list[str]:
    """Embed; tell rates and memory. Returns problems."""
    rates, memory = embedding(folder, sentences, part)
    median = float(np.median(rates))
    print(f"embed: {sentences:,} sentences, {median:,.0f} a second of the processor (median of {len(rates)} parts of")
    print(f"  {part:,}; {min(rates):,.0f} to {max(rates):,.0f}); {memory / 1e6:,.0f} MB beyond the process before")
    slow = [f"embed: a part at {min(rates):,.0f} a second"] if min(rates) < SLOWEST * median else []
    return slow + ([f"embed: {memory / 1e6:,.0f} MB"] if memory > BEYOND_MODEL else [])


def try_short_runs(world: Path, runs: int, first: int) -> list[str]:
    """Train; tell what the process held. Returns problems."""
    before, after = short_runs(world, runs, first, lambda arguments: call(arguments)[0])
    for count, usage in ((first, before), (runs, after)):
        print(f"after {count} runs: {usage.memory / 1e6:.1f} MB, {usage.files} files, {usage.threads} threads")
    return left_behind(before, after, runs - first)


def try_at_once(world: Path, processes: int) -> list[str]:
    """Start the processes; tell counts. Returns problems."""
    computed, trained, codes = at_once(world, processes)
    print(f"{processes} processes: {len(computed)} runs computed {computed.total()} times, of them {len(trained)}")
    print(f"  trainings {trained.total()} times; exit codes {sorted(set(codes))}")
    twice = [f"{name}: computed {count} times" for name, count in (computed + trained).items() if count != 1]
    return twice + ([f"exit codes {codes}"] if any(codes) else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=1_000_000)
    parser.add_argument("--part", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=20)
    parser.add_argument("--processes", type=int, default=8)
    options = parser.parse_args()
    folder = options.output.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    os.environ |= {"MULTITASK_CACHE": str(folder / "cache"), "TOKENIZERS_PARALLELISM": "false"}
    make_world(folder / "world", with_grid=False)
    problems = []
    if options.sentences:
        problems += try_embedding(folder / "embed", options.sentences, options.part)
    if options.processes:
        with quick_reports():
            problems += try_at_once(copy(folder / "world", folder / "at once"), options.processes)
    if options.runs:
        problems += try_short_runs(copy(folder / "world", folder / "runs"), options.runs, options.first)
    print(machine())
    print("\n".join(problems) or "no problems")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
