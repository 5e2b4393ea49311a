"""Grids of stages: tables of trainings on this machine or on a cluster, their results and reports."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multitask.experiments.results import Results

__all__ = ["Results"]


def __getattr__(name: str) -> Any:
    """Import on first use, so that a command line that only prints its help does not wait for numpy."""
    if name != "Results":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from multitask.experiments.results import Results

    return Results
