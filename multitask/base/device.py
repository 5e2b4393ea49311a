"""Where and how a run computes: device, precision, determinism."""

import contextlib
import ctypes
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from minbert.errors import InputError, refuse_unknown
from multitask.base import distributed
from multitask.base.options import Device, Precision, keep_few_kernels


@dataclass(frozen=True)
class Runtime:
    """A resolved device and autocast precision."""

    device: torch.device  # where to compute
    precision: Literal["fp32", "bf16"]  # of matrix products
    recompute: bool = False  # whether a training computes layers again in the backward pass instead of keeping them
    fast: bool = False  # whether a training on CUDA may sum in any order, and multiply fp32 in TF32

    def autocast(self) -> AbstractContextManager[object]:
        """Matrix products in bf16 when the precision says so; weights and sums stay in fp32."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")

    def describe(self) -> dict[str, str]:
        """What of this decides a result's bits, for the artefact's hash."""
        described = {"device": self.device.type, "precision": self.precision}
        if self.device.type == "cuda" and self.precision == "bf16":
            described["attention"] = "flash"  # other bits than before it was used
        if self.device.type == "cuda" and self.fast:
            described["kernels"] = "fast"
        ranks = distributed.ranks()  # each draws its own dropout
        return described if ranks == 1 else {**described, "ranks": str(ranks)}


PROCESSOR = Runtime(torch.device("cpu"), "fp32")


def resolve_runtime(device: Device, precision: Precision) -> Runtime:
    """Resolve `auto` settings.

    Raises InputError if CUDA or MPS was asked for and there is none, or the device or precision is not one of these.
    """
    refuse_unknown("device", device, get_args(Device))
    refuse_unknown("precision", precision, get_args(Precision))
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: torch sees no CUDA device here; use --device cpu or auto")
    if device == "mps" and not torch.backends.mps.is_available():
        reason = "torch sees no such GPU here" if torch.backends.mps.is_built() else "this torch is built without it"
        raise InputError(f"--device mps: {reason}; it needs a Mac with an Apple GPU; use --device cpu or auto")
    kind = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    native = {"cuda": _cuda_has_bf16, "cpu": _cpu_has_bf16}.get(kind, lambda: False)
    chosen = ("bf16" if native() else "fp32") if precision == "auto" else precision
    return Runtime(torch.device(kind), chosen)


def widest_dtype(device: torch.device) -> torch.dtype:
    """The dtype for sums over many numbers: float64, or fp32 on MPS, which has no other."""
    return torch.float32 if device.type == "mps" else torch.float64


def choose_threads(asked: int | None) -> int:
    """Threads of a new training on a processor: as asked, or one a core, but a single one on a busy machine.

    There, two threads on two cores took eight times as long as one: each operation waits for the slower one.
    """
    free = "OMP_NUM_THREADS" not in os.environ and busy() is not None
    return asked or (1 if free else torch.get_num_threads())


def busy() -> str | None:
    """What makes a machine busy, in words; None unless its programs want more cores than it has."""
    cores, load = os.cpu_count() or 1, os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    # A training that has just ended may have left a load of one a core.
    return f"this machine is busy (load {load:.1f}, {cores} cores)" if load >= 1.5 * cores else None


def prepare_training(runtime: Runtime) -> None:
    """Prepare this process for training: the same bits every time unless it is `fast`, and memory kept between steps.

    Settings of the whole process, which is why only training stages call it.
    """
    if runtime.device.type == "cuda":
        # cuBLAS needs a fixed workspace to sum in the same order every time; read when its first handle is made.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(not runtime.fast)
        torch.set_float32_matmul_precision("high" if runtime.fast else "highest")
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    else:
        keep_few_kernels()
        _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Let the C library keep freed memory; by default large blocks go back, and each step pays page faults for new."""
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        library = ctypes.CDLL("libc.so.6")
        library.mallopt(ctypes.c_int(-4), ctypes.c_int(0))  # M_MMAP_MAX: large blocks from the heap too
        library.mallopt(ctypes.c_int(-1), ctypes.c_int(2**31 - 1))  # M_TRIM_THRESHOLD


def generator_states(device: torch.device) -> dict[str, Tensor]:
    """States of torch's random generators that computing on a device draws from, by the kind of their device."""
    states = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        states[device.type] = torch.get_device_module(device).get_rng_state()
    return states


def restore_generators(states: Mapping[str, Tensor]) -> None:
    """Restore what `generator_states` gave."""
    for kind, state in states.items():
        torch.set_rng_state(state) if kind == "cpu" else torch.get_device_module(kind).set_rng_state(state)


def _cuda_has_bf16() -> bool:
    return torch.cuda.get_device_capability() >= (8, 0)


def _cpu_has_bf16() -> bool:
    capabilities = torch.cpu.get_capabilities()
    native = bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
    # ONEDNN_MAX_CPU_ISA can take the instructions away. Products in bf16 are then 30 times as slow as in fp32.
    return native and torch.ops.mkldnn._is_mkldnn_bf16_supported()
