"""The machine that a benchmark ran on: its name, and how fast it multiplies matrices."""

import time

import torch

from multitask.runs.machine import machine_name


def machine() -> str:
    """The GPU if there is one, otherwise the processor."""
    return machine_name("cuda" if torch.cuda.is_available() else "cpu")


def matrix_rate(dtype: torch.dtype, device: torch.device, size: int | None = None, seconds: float = 5) -> float:
    """Operations per second in products of square matrices, of real numbers or int8: the best within some seconds."""
    size = size or (8192 if device.type == "cuda" else 2048)  # a GPU takes as long to start a small product
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    multiply = torch._int_mm if dtype == torch.int8 else torch.matmul
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        multiply(left, right)
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begin)
    return 2 * size**3 / best
