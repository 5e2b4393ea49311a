"""What a terminal shows of scores: tables of text."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from statistics import fmean, pstdev
from typing import Any

from multitask.data.markup import aligned
from multitask.evaluation.statistics import DevAnswers, Uncertain, scores_with_intervals
from multitask.evaluation.training_overlap import ScoresWithOverlap, overlap_rows
from multitask.tasks.scores import score_text

SEEN = "†"  # marks a score on rows that the model was partly trained on


def capitalized(name: str) -> str:
    """The name with a capital first letter."""
    return name[:1].upper() + name[1:]


def scores_table(history: Sequence[Mapping[str, Any]]) -> str:
    """Dev scores from the lines of metrics.jsonl, by epoch, or by step if an epoch has several; `*` marks the best."""
    names = list(history[0]["scores"])
    place = "epoch" if len({line["epoch"] for line in history}) == len(history) else "step"
    best = {name: max((s for line in history if isfinite(s := line["scores"][name])), default=None) for name in names}
    rows = [[place, *names]]
    for line in history:
        cells = [f"{score_text(line['scores'][n])}{'*' if line['scores'][n] == best[n] else ' '}" for n in names]
        rows.append([str(line[place]), *cells])
    return aligned(rows)


def metrics_table(metrics: Mapping[str, Mapping[str, Any]], overall: float | None = None) -> str:
    """All scalar metrics of every task, and the overall score if there is one."""
    rows = [["task", "metric", "value"]]
    for task, found in metrics.items():
        rows += [[task, name, score_text(value)] for name, value in found.items() if isinstance(value, float)]
    if overall is not None:
        rows.append(["overall", "mean", score_text(overall)])
    return aligned(rows, left=2)


def intervals_table(answers: Mapping[str, DevAnswers]) -> str:
    """A line for each score with its interval."""
    scores = [((name,), score) for name, score in scores_with_intervals(answers).items()]
    return uncertain_table(["task", "score", "95% interval over rows"], scores)


def uncertain_table(
    header: Sequence[str], numbers: Iterable[tuple[Sequence[str], Uncertain]], form: str = "z.4f"
) -> str:
    """A line for each number with its name's parts and its interval, and on how many resamples it is undefined."""
    lines, left_out = [[*header]], []
    for name, number in numbers:
        low, high = number.interval()
        known = isfinite(low)
        lines.append([*name, score_text(number.value, form), f"{low:{form}} to {high:{form}}" if known else "-"])
        if known and number.undefined:
            counts = f"{number.undefined:,} of {len(number.examples):,}"
            left_out.append(f"{', '.join(name)} is undefined on {counts} resamples: left out")
    return "\n".join([aligned(lines, left=len(header) - 2), *left_out])


def overlap_table(tasks: Mapping[str, ScoresWithOverlap]) -> str:
    """How much of each task the model was trained on, and its scores with and without these rows."""

    def scalars(scores: Mapping[str, Any]) -> dict[str, float]:
        return {name: value for name, value in scores.items() if isinstance(value, float)}

    return aligned(overlap_rows(tasks, scalars, lambda value: "-" if value is None else score_text(value)))


def probe_table(batches: Sequence[Mapping[str, float]]) -> str:
    """Mean and standard deviation over batches of the numbers of `GradientComponents.summary`."""
    rows, lacking = [["in the gradient of anchors", "mean", "deviation"]], []
    for name in batches[0]:
        values = [summary[name] for summary in batches if isfinite(summary[name])]
        rows.append([name, f"{fmean(values):z.4f}", f"{pstdev(values):.4f}"] if values else [name, "-", "-"])
        if len(values) < len(batches):
            lacking.append(f"{name} (in {len(batches) - len(values)} of {len(batches)} batches)")
    why = "undefined, and left out, where nothing is pushed or no anchor that is not dissipated has a value: "
    return aligned(rows) + (f"\n{why}{', '.join(lacking)}" if lacking else "")


def chosen_on_dev(evaluation: Mapping[str, Any]) -> bool:
    """Whether evaluation.json is of an ensemble that selected a task's members among several by their dev scores."""
    answered = [task for member in evaluation.get("members", {}).values() for task in member["scores"]]
    return evaluation.get("selected_on_dev", False) and len(set(answered)) < len(answered)


def ensemble_table(evaluation: Mapping[str, Any]) -> str:
    """Dev scores of an ensemble and its members, as in its evaluation.json, and each member's weight on each task."""
    members, method, tasks = evaluation["members"], evaluation["method"], list(evaluation["scores"])
    rows = [["dev score", "overall", *tasks]]
    for label, found in (*members.items(), (method, evaluation)):
        scores = found["scores"]
        overall = score_text(found["overall"]) if len(scores) == len(tasks) else "-"
        rows.append([label, overall, *(score_text(scores[name]) if name in scores else "-" for name in tasks)])
    rows.append([f"weight in {method}", "", *tasks])
    for label in members:
        weights = [evaluation["weights"][name].get(label, 0) for name in tasks]
        rows.append([label, "", *(f"{weight:.2f}" if weight else "-" for weight in weights)])
    warning = "members were chosen by these dev scores, so the ensemble's dev scores are optimistic"
    return aligned(rows) + (f"\n{warning}" if chosen_on_dev(evaluation) else "")


def pruning_table(pruning: Mapping[str, Any]) -> str:
    """Remaining heads and neurons of each layer in pruning.json, and the encoder's size before and after pruning."""
    rows = [["layer", "heads", "neurons"]]
    for number, layer in enumerate(pruning["layers"]):
        rows.append([str(number), *("{1} of {0}".format(*layer[kind]) for kind in ("heads", "neurons"))])
    before, after = pruning["parameters"]
    sizes = " to ".join(f"{size / 1e6:,.1f} MB" for size in pruning["bytes"])
    return f"{aligned(rows)}\nparameters: {before:,} to {after:,} ({after / before - 1:+.1%}); weights: {sizes}"
