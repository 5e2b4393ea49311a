"""Plain-text tables for the terminal."""

from collections.abc import Mapping, Sequence
from math import isfinite
from statistics import fmean, pstdev
from typing import Any

from multitask.data.problems import aligned
from multitask.evaluation.score_intervals import Answers, scores_with_intervals
from multitask.evaluation.training_overlap import ScoresWithOverlap, overlap_rows


def capitalized(name: str) -> str:
    """The name with a capital first letter."""
    return name[:1].upper() + name[1:]


def number(score: float) -> str:
    """A score with four digits."""
    return f"{score:.4f}" if isfinite(score) else "undefined"


def scores_table(history: Sequence[Mapping[str, Any]]) -> str:
    """Dev scores of each epoch, from the lines of metrics.jsonl; `*` marks the best of a column."""
    names = list(history[0]["scores"])
    best = {name: max((s for line in history if isfinite(s := line["scores"][name])), default=None) for name in names}
    rows = [["epoch", *names]]
    for line in history:
        cells = [f"{number(line['scores'][n])}{'*' if line['scores'][n] == best[n] else ' '}" for n in names]
        rows.append([str(line["epoch"]), *cells])
    return aligned(rows)


def metrics_table(metrics: Mapping[str, Mapping[str, Any]], overall: float) -> str:
    """All scalar metrics of every task, and the overall score."""
    rows = [["task", "metric", "value"]]
    for task, found in metrics.items():
        rows += [[task, name, number(value)] for name, value in found.items() if isinstance(value, float)]
    rows.append(["overall", "mean", number(overall)])
    return aligned(rows, left=2)


def intervals_table(answers: Mapping[str, Answers]) -> str:
    """A line for each score with its interval."""
    found = scores_with_intervals(answers).items()
    lines = [[name, number(score), f"{number(low)} to {number(high)}"] for name, (score, low, high) in found]
    return aligned([["task", "score", "95% interval over rows"], *lines])


def overlap_table(tasks: Mapping[str, ScoresWithOverlap]) -> str:
    """How much of each task the model was trained on, and its scores with and without these rows."""

    def scalars(scores: Mapping[str, Any]) -> dict[str, float]:
        return {name: value for name, value in scores.items() if isinstance(value, float)}

    return aligned(overlap_rows(tasks, scalars, lambda value: "-" if value is None else number(value)))


def probe_table(batches: Sequence[Mapping[str, float]]) -> str:
    """Mean and standard deviation over batches of the numbers of `GradientComponents.summary`."""
    rows = [["in the gradient of anchors", "mean", "deviation"]]
    for name in batches[0]:
        values = [summary[name] for summary in batches if isfinite(summary[name])]
        rows.append([name, f"{fmean(values):.4f}", f"{pstdev(values):.4f}"] if values else [name, "-", "-"])
    why = "-: a mean over anchors that are not dissipated, of which there are none with a value"
    return aligned(rows) + (f"\n{why}" if any(row[1] == "-" for row in rows) else "")


def ensemble_table(evaluation: Mapping[str, Any]) -> str:
    """Dev scores of an ensemble and its members, as in its evaluation.json, and each member's weight on each task."""
    members, method, tasks = evaluation["members"], evaluation["method"], list(evaluation["scores"])
    rows = [["dev score", "overall", *tasks]]
    for label, found in (*members.items(), (method, evaluation)):
        scores = found["scores"]
        overall = number(found["overall"]) if len(scores) == len(tasks) else "-"
        rows.append([label, overall, *(number(scores[name]) if name in scores else "-" for name in tasks)])
    rows.append([f"weight in {method}", "", *tasks])
    for label in members:
        weights = [evaluation["weights"][name].get(label, 0) for name in tasks]
        rows.append([label, "", *(f"{weight:.2f}" if weight else "-" for weight in weights)])
    warning = "members were chosen by these dev scores, so the ensemble's dev scores are optimistic"
    return aligned(rows) + (f"\n{warning}" if evaluation["selected_on_dev"] else "")


def pruning_table(pruning: Mapping[str, Any]) -> str:
    """Remaining heads and neurons of each layer in pruning.json, and the encoder's size before and after pruning."""
    rows = [["layer", "heads", "neurons"]]
    for number, layer in enumerate(pruning["layers"]):
        rows.append([str(number), *("{1} of {0}".format(*layer[kind]) for kind in ("heads", "neurons"))])
    before, after = pruning["parameters"]
    sizes = " to ".join(f"{size / 1e6:,.1f} MB" for size in pruning["bytes"])
    return f"{aligned(rows)}\nparameters: {before:,} to {after:,} ({after / before - 1:+.1%}); weights: {sizes}"
