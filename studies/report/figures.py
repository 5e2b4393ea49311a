"""Figures as SVG for the inside of a page: transparent, their text in the page's own colour, with alternative text."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

# Mid-tones with a contrast of at least 3 to both white and near-black, and a marker each for those who see no colours.
COLOURS = ("#3b82d6", "#d9731a", "#2f9e6e", "#9b6ad6", "#d6455d", "#7f8790")
MARKERS = ("o", "s", "^", "D", "v", "P")
GLYPHS = ("●", "■", "▲", "◆", "▼", "✚")

# matplotlib knows no currentColor: text and axes are drawn in a colour of their own, replaced in the SVG.
INK = "#010203"
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def learning_curve(
    title: str, curves: Mapping[int, Sequence[Sequence[float]]], description: str, legend: Sequence[str] = ()
) -> str:
    """Dev score after every epoch: the mean over seeds, with a band of one standard deviation.

    Args:
        title: of the panel.
        curves: a line's place, which decides its colour and mark -> for each seed its score after every epoch.
        description: alternative text.
        legend: a name for every place, for a large panel with a legend of its own.
    """

    def draw(axes: Axes) -> None:
        for place, seeds in curves.items():
            epochs = min(map(len, seeds))  # early stopping may end one seed before another
            scores = np.array([seed[:epochs] for seed in seeds])  # [seeds, epochs]
            x = np.arange(1, epochs + 1)
            colour = COLOURS[place % len(COLOURS)]
            marker, name = MARKERS[place % len(MARKERS)], legend[place] if legend else None
            axes.plot(x, scores.mean(axis=0), color=colour, marker=marker, markersize=4, label=name)
            if len(seeds) > 1:
                spread = scores.std(axis=0, ddof=1)
                axes.fill_between(
                    x, scores.mean(axis=0) - spread, scores.mean(axis=0) + spread, color=colour, alpha=0.2, linewidth=0
                )
        axes.set_title(title, fontsize=11)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y", alpha=0.15, color=INK)
        if legend:
            axes.set_ylabel("overall dev score")
            axes.legend(frameon=False)

    return _svg(draw, (5.6, 3.6) if legend else (3.2, 2.4), description)


def confusion_matrix(counts: Sequence[Sequence[int]], description: str) -> str:
    """Rows are gold classes, columns predicted ones; the deeper a cell, the larger its share of the row."""
    matrix = np.asarray(counts)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)

    def draw(axes: Axes) -> None:
        for (gold, predicted), count in np.ndenumerate(matrix):
            cell = Rectangle(
                (predicted - 0.5, gold - 0.5), 1, 1, facecolor=COLOURS[0], alpha=0.75 * float(shares[gold, predicted])
            )
            axes.add_patch(cell)
            axes.text(predicted, gold, str(count), ha="center", va="center")
        axes.set(xlim=(-0.5, len(matrix) - 0.5), ylim=(len(matrix) - 0.5, -0.5), aspect="equal")
        axes.set(xticks=range(len(matrix)), yticks=range(len(matrix)), xlabel="predicted", ylabel="gold")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)

    return _svg(draw, (3.4, 3.2), description)


def scatter(labels: NDArray[np.float32], predictions: NDArray[np.float32], description: str) -> str:
    """Predicted against gold values, and the line on which they would be equal."""

    def draw(axes: Axes) -> None:
        top = float(max(labels.max(), predictions.max()))
        axes.plot([0, top], [0, top], color=INK, alpha=0.4, linewidth=1, linestyle="--")
        axes.scatter(labels, predictions, s=10, color=COLOURS[0], alpha=0.6, linewidths=0)
        axes.set(xlabel="gold similarity", ylabel="predicted similarity")

    return _svg(draw, (3.4, 3.2), description)


def _svg(draw: Callable[[Axes], None], inches: tuple[float, float], description: str) -> str:
    return render(lambda figure: draw(figure.subplots()), inches, description)


def render(draw: Callable[[Figure], None], inches: tuple[float, float], description: str) -> str:
    """A figure of any number of panels as an <svg> element."""
    # The salt makes the ids of two figures on one page differ, and the same figure the same in every run.
    with mpl.rc_context({**STYLE, "svg.hashsalt": description}):
        figure = Figure(figsize=inches, layout="constrained")
        draw(figure)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return _inline(buffer.getvalue(), description)


def _inline(document: str, description: str) -> str:
    """The <svg> element alone: no prologue, metadata, namespaces or unused ids; ink as currentColor; scalable."""
    svg = document[document.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (xmlns(:xlink)?|version|width|height)="[^"]*"', "", svg[: svg.index(">")]) + svg[svg.index(">") :]
    svg = re.sub(r' id="[A-Za-z][\w.]*_\d+"', "", svg)
    svg = svg.replace(INK, "currentColor")
    text = escape(description)
    return svg.replace("<svg", f'<svg role="img" aria-label="{text}"', 1).replace(">", f"><title>{text}</title>", 1)
