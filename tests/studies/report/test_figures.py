"""Lines of one figure can be told apart, and bands say no more than they know."""

from collections.abc import Sequence
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from studies.report import figures
from tests.studies.report.rendered_figures import figures_of

SEEDS = [[(1, 0.1), (2, 0.2)], [(1, 0.2), (2, 0.3)]]
BOUNDED = [(0.2, 0.1, 0.3), (0.3, 0.2, 0.4)]
NAMES = tuple("abcdefg")


def trajectories(graded: bool) -> Any:
    return figures.trajectories(dict.fromkeys(NAMES, SEEDS), "value", "described", graded)


DRAWINGS = {
    "trajectories": lambda: trajectories(graded=False),
    "graded trajectories": lambda: trajectories(graded=True),
    "learning curve": lambda: figures.learning_curve(
        "title", {place: [[0.1, 0.2]] for place in range(len(NAMES))}, "described"
    ),
    "sweep": lambda: figures.sweep(
        {name: [(0.1, 0.01), (0.2, 0.01)] for name in NAMES}, ("x", "y"), "x", "y", "described", ordered=True
    ),
    "bands": lambda: figures.bands({"panel": dict.fromkeys(NAMES, BOUNDED)}, ("x", "y"), "x", "described"),
}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are rendered in a test."""
    return figures_of(figures, monkeypatch)


@pytest.mark.parametrize("drawing", DRAWINGS)
def test_seven_lines_look_different(drawing: str, drawn: list[Figure]) -> None:
    DRAWINGS[drawing]()
    (axes,) = drawn[0].axes
    looks = looks_of(axes.lines)
    assert len(looks) == len(NAMES)
    assert len(set(looks)) == len(NAMES)


def looks_of(lines: Sequence[Line2D]) -> list[tuple[Any, Any]]:
    """Colour and mark of each curve; the caps of error bars have colours, but are no curves."""
    return [(line.get_color(), line.get_marker()) for line in lines if line.get_marker() not in ("_", "None")]


def test_lines_differ_without_colours_until_their_marks_are_used_up() -> None:
    assert len(figures.MARKERS) == len(figures.GLYPHS) == len(set(figures.MARKERS)) == len(set(figures.GLYPHS))
    styles = [tuple(figures.line_style(place).values()) for place in range(56)]
    assert len(set(styles)) == 56
    assert len({mark for _, mark in styles[:8]}) == 8


def test_a_logarithmic_axis_has_no_band_that_reaches_below_zero(drawn: list[Figure]) -> None:
    seeds = [[(1, 1.0), (2, 1.0), (3, 1.0)], [(1, 1.1), (2, 1.1), (3, 90.0)]]  # 45.5 ± 62.9 at the end
    ends = []
    for logarithmic in (False, True):
        figures.trajectories({"a": seeds}, "norm", "described", logarithmic=logarithmic)
        (axes,) = drawn[-1].axes
        assert axes.get_yscale() == ("log" if logarithmic else "linear")
        (band,) = axes.collections
        ends.append(max(x for path in band.get_paths() for x in path.vertices[:, 0]))
    assert ends == [3, 2]
