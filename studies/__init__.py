"""Studies: clients of the library that reproduce papers. `Results` reads the scores that a report has."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from studies.results import Results

__all__ = ["Results"]


def __getattr__(name: str) -> Any:
    """Import on first use, so that a command line that only prints its help does not wait for numpy."""
    if name != "Results":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from studies.results import Results

    return Results
