"""Draw the figures of docs/concepts/: `python -m scripts.draw_concept_figures`."""

import csv
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from minbert import load_tokenizer
from multitask import SentenceEncoder
from multitask.evaluation.gradient_probe import GradientComponents, probe
from multitask.evaluation.statistics import SampledScores, Spread, contrast
from multitask.objectives import build_objective

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "concepts" / "figures"
MESSAGES = ROOT / "data" / "own" / "messages.csv"
BLUE, GREY, RED = "#3b6ea8", "#cccccc", "#b5483a"
PAIRS, DIM = 64, 256
POSITIVE = 0.5  # radians between an anchor and its positive
ANGLES = np.linspace(0.3, 1.5, 40)  # between an anchor and its negatives, radians
LOSSES = {"infonce": "InfoNCE, τ 0.05", "mpt": "MPT", "mhe": "MHE", "vicreg": "VICReg"}


def main() -> None:
    plt.rcParams.update({
        "svg.hashsalt": "figures", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False,
        "legend.frameon": False, "svg.fonttype": "path",
    })  # fmt: skip
    mpl.use("svg")
    FIGURES.mkdir(parents=True, exist_ok=True)
    draw_packing()
    draw_intervals()
    draw_gradients()
    draw_weights()


def draw_packing() -> None:
    """The tokens of 16 messages in a padded grid, and end to end in rows of the grid's width."""
    with MESSAGES.open(encoding="utf-8", newline="") as file:
        texts = [row["message"] for row, _ in zip(csv.DictReader(file), range(16), strict=False)]
    tokenizer = load_tokenizer("all-minilm-l6-v2")
    lengths = tokenizer.pack(texts).offsets.diff().tolist()
    width, total = max(lengths), sum(lengths)
    _, (left, right) = plt.subplots(1, 2, figsize=(8, 3), sharey=True)
    for row, length in enumerate(lengths):
        left.barh(row, width, color=GREY, height=0.8)
        left.barh(row, length, color=BLUE, height=0.8, alpha=1 if row % 2 else 0.7)
        start = sum(lengths[:row])
        while length:  # a sentence may go on in the next row
            line, column = divmod(start, width)
            part = min(length, width - column)
            right.barh(line, part, left=column, color=BLUE, height=0.8, alpha=1 if row % 2 else 0.7)
            start, length = start + part, length - part
    left.invert_yaxis()
    left.set_title(f"padded: {width * len(lengths)} tokens, {1 - total / width / len(lengths):.0%} are padding")
    right.set_title(f"packed: {total} tokens")
    for axes in (left, right):
        axes.set_xlim(0, width)
        axes.set_axis_off()
    save("packing")


def draw_intervals() -> None:
    """95% intervals of two models' accuracies on the same examples, and of their difference."""
    random = np.random.default_rng(1)
    examples, samples = 300, 10_000
    model_a = np.arange(examples) < round(0.77 * examples)
    model_b = np.arange(examples) < round(0.81 * examples)  # right wherever A is, and on twelve examples more
    drawn = random.multinomial(examples, np.full(examples, 1 / examples), samples) / examples  # [samples, examples]
    scores = [SampledScores(np.array([of.mean()]), (drawn @ of)[:, None]) for of in (model_a, model_b)]
    spread = Spread(0.0, 0)
    alone = [contrast([(1.0, of)], spread) for of in scores]
    difference = contrast([(1.0, scores[1]), (-1.0, scores[0])], spread)
    _, (left, right) = plt.subplots(1, 2, figsize=(8, 2), gridspec_kw={"wspace": 0.35})
    for place, of in enumerate(alone):
        draw_interval(left, place, of.value, of.interval(), BLUE)
    left.set_yticks([0, 1], ["model A", "model B"])
    left.set_xlabel("accuracy, 95% interval")
    draw_interval(right, 0, difference.value, difference.interval(), RED)
    right.axvline(0, color="black", linewidth=0.8)
    right.set_yticks([0], ["B − A"])
    right.set_xlabel("difference of accuracies, 95% interval")
    for axes in (left, right):
        axes.set_ylim(-0.7, 1.7 if axes is left else 0.7)
    save("intervals")


def draw_interval(axes: Axes, place: int, value: float, interval: tuple[float, float], colour: str) -> None:
    axes.plot(interval, [place, place], color=colour, linewidth=3)
    axes.plot([value], [place], "o", color=colour)


def draw_gradients() -> None:
    """Dissipation and ratio of four losses on simulated embeddings, as functions of the angles."""
    gaps = np.degrees(ANGLES - POSITIVE)
    found = {name: [components(name, angle) for angle in ANGLES] for name in LOSSES}
    for component, label in (("dissipation", "dissipation"), ("ratio", "ratio of pull to push")):
        _, axes = plt.subplots(figsize=(6, 3))
        for name, title in LOSSES.items():
            style = "--" if name == "vicreg" else "-"  # its dissipation covers that of MHE
            axes.plot(gaps, [mean(getattr(of, component)) for of in found[name]], style, label=title)
        axes.set_xlabel("negatives' angle minus positive's angle, degrees")
        axes.set_ylabel(label)
        if component == "ratio":
            axes.set_yscale("log")
        axes.legend()
        save(component)


def draw_weights() -> None:
    """The hardest negative's share of InfoNCE's push, for real embeddings."""
    texts = (ROOT / "data" / "sample" / "sentences.txt").read_text(encoding="utf-8").splitlines()[:PAIRS]
    embeddings = SentenceEncoder.load("all-minilm-l6-v2").encode(texts, convert_to_tensor=True)  # [PAIRS, 384]
    temperatures = np.geomspace(0.01, 1, 30)
    probed = [probe(build_objective("infonce", temperature=t), embeddings, embeddings) for t in temperatures]
    _, axes = plt.subplots(figsize=(6, 3))
    axes.semilogx(temperatures, [mean(of.hardest_weight) for of in probed])
    axes.axhline(1 / (PAIRS - 1), color=GREY, linestyle="--")
    axes.text(0.011, 1 / (PAIRS - 1) + 0.03, "all negatives alike")
    axes.set_xlabel("temperature τ of InfoNCE")
    axes.set_ylabel("hardest negative's weight")
    save("weights")


def components(objective: str, angle: float) -> GradientComponents:
    """Probe a loss on unit embeddings whose anchors are about `angle` apart and `POSITIVE` from their positives."""
    random = torch.Generator().manual_seed(0)
    own = torch.linalg.qr(torch.randn(DIM, DIM, generator=random, dtype=torch.float64)).Q
    common, own, aside = own[0], own[1 : PAIRS + 1], own[PAIRS + 1 : 2 * PAIRS + 1]
    share = np.sqrt(max(np.cos(angle), 0.0))  # of the common direction: the cosine of two anchors is its square
    share = (share * (1 + 0.05 * torch.randn(PAIRS, 1, generator=random, dtype=torch.float64))).clamp(0, 0.999)
    anchors = share * common + (1 - share**2).sqrt() * own
    positives = np.cos(POSITIVE) * anchors + np.sin(POSITIVE) * aside
    return probe(build_objective(objective), anchors, positives)


def mean(values: torch.Tensor) -> float:
    return float(values.nanmean())


def save(name: str) -> None:
    plt.savefig(FIGURES / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})
    plt.close()


if __name__ == "__main__":
    main()
