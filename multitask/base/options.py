"""Where a run computes and what it leaves behind."""

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from minbert.settings import AtLeastZero, settings

Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["auto", "fp32", "bf16"]

MAX_THREADS = 1024


@settings
class Computing:
    """Where to compute."""

    device: Device = "auto"
    """Where to compute. `auto` uses CUDA if there is a GPU, otherwise the CPU; `mps` is the GPU of a Mac."""
    precision: Precision = "auto"
    """Autocast precision. `auto` uses bf16 where the processor multiplies in bf16 natively."""


@settings
class RunOptions(Computing):
    """Where a run computes and what it leaves behind. Only device, precision, threads and `fast` change the result."""

    runs: Path = Path("runs")
    """Folder of all runs."""
    name: str = "run"
    """A label in the run's folder name."""
    save_every: AtLeastZero = 120.0
    """Seconds between saved states: the most that a kill can cost."""
    tensorboard: bool = False
    """Also write TensorBoard event files."""
    threads: Annotated[int, Field(ge=1, le=MAX_THREADS)] | None = None
    """Threads of a new training on a processor. Another number rounds sums differently, so a run that goes on keeps its
    own. Default: OMP_NUM_THREADS, or one for each core, but a single one on a busy machine."""
    recompute: bool = False
    """Keep only the inputs of the encoder's layers for the gradient, and compute the layers again in the backward pass:
    a fraction of the memory for about a third more time, and the same result."""
    fast: bool = False
    """On a CUDA GPU, let sums have any order, and multiply in TF32 where the precision is fp32. Training again, or
    going on after a kill, then ends with slightly different weights. Elsewhere it changes nothing."""


def keep_few_kernels() -> None:
    """Bound oneDNN's cache of kernels; call this before it computes anything.

    Packed batches come in ever new shapes, and oneDNN keeps about 1 MB of code and scratch memory for each of 1024 by
    default. A quarter usually holds those of a training's linear layers (`minbert.model.ROWS_OF_PRODUCTS`).
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256")
