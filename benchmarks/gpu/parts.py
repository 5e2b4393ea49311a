"""The parts of `python -m benchmarks.gpu`, in the order in which they run. Each yields rows of its table."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal, Self
from unittest.mock import patch
from xml.etree import ElementTree

import torch
from transformers.utils import logging

from benchmarks.finetune import COMPILED, LOOPS, PUBLISHED, measure, work_per_token
from benchmarks.gpu.contrastive import contrastive_speeds
from benchmarks.gpu.equality import equality
from benchmarks.gpu.same_bits import same_bits
from benchmarks.machine import matrix_rate
from benchmarks.memory import MEASURED, in_own_process
from minbert import attention

Row = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """What to measure.

    Args:
        device: where ours computes.
        shapes: of the encoders.
        batch_sizes: examples of each task in a fine-tuning step.
        sentences: in a contrastive step.
        steps: measured steps of each loop.
        data: texts.
        tables: data of preset `small`.
    """

    device: Literal["cuda", "cpu"]
    shapes: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    sentences: int
    steps: int
    data: Path
    tables: Path | None

    @classmethod
    def of(cls, device: Literal["cuda", "cpu"], small: bool, data: Path, tables: Path | None) -> Self:
        """The sizes of the published numbers, or small ones that only try the program."""
        if small:
            return cls(device, ("tiny",), (4,), 8, 2, data, tables)
        return cls(device, PUBLISHED, (16, 64), 128, 30, data, tables)


@dataclass(frozen=True)
class Part:
    """A part.

    Args:
        measure: yields the rows.
        minutes: that it may take at most.
        needs_tables: whether it needs the data of preset `small`.
    """

    measure: Callable[[Sizes], Iterator[Row]]
    minutes: float
    needs_tables: bool = False


def tests(sizes: Sizes) -> Iterator[Row]:
    """The tests marked `gpu`; without one, a file of other tests."""
    chosen = ["-m", "gpu"] if sizes.device == "cuda" else ["tests/minbert/test_dropout.py"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-p", "no:cacheprovider", "--continue-on-collection-errors", f"--junitxml={report}"]
        subprocess.run([sys.executable, "-m", "pytest", *chosen, *options], check=False, stdout=sys.stderr)
        suite = ElementTree.parse(report).getroot()[0]
    bad = [case.get("name", "") for case in suite.iter("testcase") if case.find("failure") is not None]
    counts = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    ran = counts["tests"] - counts["skipped"]
    yield {**counts, "failed": "; ".join(bad), "ok": ran > 0 and not counts["failures"] and not counts["errors"]}


def fine_tuning(sizes: Sizes) -> Iterator[Row]:
    """Speeds of fine-tuning on three tasks.

    Two more rows are other ways of ours: attention in grids instead of FlashAttention, and compiled layers.
    """
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    rate = rate_of(sizes)
    for shape in sizes.shapes:
        for batch_size in sizes.batch_sizes:
            arguments = shape, batch_size, sizes.data, sizes.steps, "bf16"
            row: Row = {"shape": shape, "batch": batch_size}
            speeds = measure(*arguments, LOOPS)
            yield {**row, "way": "ours", **compared(speeds, "ours", shape, rate)}
            with patch.object(attention, "flash_computes", lambda *_: False):
                speeds = measure(*arguments, ("tuned", "ours"))
            yield {**row, "way": "ours, in grids", **compared(speeds, "ours", shape, rate)}
            if sizes.device == "cuda":
                yield compiled(row, partial(measure, *arguments, ("tuned", COMPILED)), shape, rate)


def contrastive(sizes: Sizes) -> Iterator[Row]:
    """Speeds of contrastive training: two views of sentences of at most 32 tokens."""
    rate = rate_of(sizes)
    for shape in sizes.shapes:
        arguments = shape, sizes.data, sizes.sentences, sizes.steps, sizes.device
        row: Row = {"shape": shape, "sentences": sizes.sentences}
        yield {**row, "way": "ours", **compared(contrastive_speeds(*arguments), "ours", shape, rate)}
        if sizes.device == "cuda":
            yield compiled(row, partial(contrastive_speeds, *arguments, COMPILED), shape, rate)


def compiled(row: Row, measure_speeds: Callable[[], dict[str, list[float]]], shape: str, rate: float) -> Row:
    """The row of compiled layers. Its failure is noted, and the other rows follow.

    Only on CUDA: on a processor, compiling takes longer than everything else.
    """
    # After too many shapes, torch would go on without the compiler.
    limits = torch._dynamo.config.patch(recompile_limit=64, fail_on_recompile_limit_hit=True)
    try:
        with limits:
            return {**row, "way": COMPILED, **compared(measure_speeds(), COMPILED, shape, rate)}
    except Exception as error:
        return {**row, "way": COMPILED, "note": f"{type(error).__name__}: {error}"[:200]}


def compared(speeds: dict[str, list[float]], ours: str, shape: str, rate: float) -> Row:
    """Medians of real tokens a second, ratios, and the share of the matrix rate that ours uses."""
    medians = {name: median(values) for name, values in speeds.items()}
    ratios = {f"/ {name}": round(medians[ours] / value, 2) for name, value in medians.items() if name != ours}
    named = {("ours" if name == ours else name): round(value) for name, value in medians.items()}
    return {**named, **ratios, "utilisation": round(medians[ours] * work_per_token(shape) / rate, 3)}


def rate_of(sizes: Sizes) -> float:
    """Floating-point operations a second in products of bf16 matrices."""
    seconds = 5 if sizes.device == "cuda" else 0.2
    return matrix_rate(torch.bfloat16, torch.device(sizes.device), seconds=seconds)


def memory(sizes: Sizes) -> Iterator[Row]:
    """MiB that fine-tuning adds: on CUDA the peak of allocated memory."""
    for shape in sizes.shapes:
        for batch_size in sizes.batch_sizes:
            added = {name: in_own_process(shape, batch_size, sizes.data, 4, name) for name in MEASURED}
            yield {"shape": shape, "batch": batch_size, **added}


def repeated(sizes: Sizes) -> Iterator[Row]:
    """Whether the same training gives the same bits again, also if it is killed and resumed."""
    for precision in ("bf16", "fp32"):
        yield from same_bits(sizes.shapes[0], sizes.data, sizes.device, precision)


def tables(sizes: Sizes) -> Iterator[Row]:
    """The ten tables of preset `small` with three seeds."""
    assert sizes.tables is not None
    keys = ",".join(map(str, range(1, 11)))
    with tempfile.TemporaryDirectory() as folder:
        places = [word for name in ("runs", "report", "predictions") for word in (f"--{name}", f"{folder}/{name}")]
        chosen = ["small", "--tables", keys, "--seeds", "3", "--data", str(sizes.tables), "--device", sizes.device]
        began = time.monotonic()
        command = [sys.executable, "-m", "multitask", "experiments", "run", *chosen, *places]
        ended = subprocess.run(command, check=False, stdout=sys.stderr)
        yield {"tables": keys, "seeds": 3, "minutes": (time.monotonic() - began) / 60, "ok": ended.returncode == 0}


PARTS = {
    "tests": Part(tests, 6),
    "equality": Part(equality, 4),
    "contrastive": Part(contrastive, 5),
    "fine-tuning": Part(fine_tuning, 10),
    "same-bits": Part(repeated, 5),
    "tables": Part(tables, 20, needs_tables=True),
    "memory": Part(memory, 6),
}
