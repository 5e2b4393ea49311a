"""SparseCSE's claims (arXiv 2311.03881), decided by the scores of pruned models."""

from collections.abc import Mapping
from functools import partial
from itertools import combinations
from statistics import fmean

from multitask.evaluation.statistics import Uncertain
from studies.engine.experiments import GROUPS, STS, TRANSFER
from studies.report.table_results import TableResults
from studies.report.verdicts import Claim, Decide, Tables, Verdict, each, family, higher, on_table, read_claims, shown
from studies.sparse_cse import SPARSE_CSE
from studies.sparse_cse.tables import SHARES, WHOLE, pruned

START, OWN = "sparsity", "sparsity-own"
ENCODERS = {
    OWN: "Encoder trained here, pruned and rewound as in the paper",
    START: "Start weights, pruned as they are",
}
SCORED = {share: pruned(share, "score") for share in SHARES}
"""Keys of the rows that are pruned by the paper's score."""
LOW = tuple(share for share in SHARES if share <= 0.2)
"""The shares among which the paper finds its optimum: 1 to 20%."""
RANGE = f"{LOW[0]:.0%} to {LOW[-1]:.0%}"


def contrast(results: TableResults, weights: Mapping[str, float], column: str) -> Uncertain | None:
    """A contrast in which every row has its own variance over seeds.

    Random draws vary more than the score, and both vary more the more is removed.
    """
    return results.contrast(weights, column, alike=False)


def _rises(column: str, results: TableResults) -> Verdict | None:
    """Whether some low share scores higher than the whole encoder, and no other share has the highest mean."""
    if not all((row, column) in results.estimates for row in (WHOLE, *SCORED.values())):
        return None
    found = family({f"{share:.0%}": contrast(results, {SCORED[share]: 1, WHOLE: -1}, column) for share in LOW})
    if found is None:
        return None
    best = max(SHARES, key=lambda share: results.estimates[SCORED[share], column].mean)
    optima = ", ".join(f"{share:.0%}" for share in _optima(results, column))
    evidence = f"less the whole: {shown(found)}; best mean at {best:.0%}; highest in single seeds at {optima}"
    return Verdict.of(best in LOW and any(map(higher, found.values())), evidence)


def _optima(results: TableResults, column: str) -> list[float]:
    """For each seed that all rows have, the share with the highest score; 0 is the whole encoder."""
    tasks = results.table.tasks(column)
    scores = {
        share: {run.seed: fmean(run.evaluation["scores"][task] for task in tasks) for run in results.scored(row, tasks)}
        for share, row in {0.0: WHOLE, **SCORED}.items()
    }
    seeds = sorted(set.intersection(*(set(of) for of in scores.values())))
    return [max(scores, key=lambda share: scores[share][seed]) for seed in seeds]


def _better_than_random(results: TableResults) -> Verdict | None:
    """Whether pruning by the score is better than at random, on the mean of the low shares."""
    weights = {SCORED[share]: 1 / len(LOW) for share in LOW}
    weights |= {pruned(share, "random"): -1 / len(LOW) for share in LOW}
    found = each({column: contrast(results, weights, column) for column in GROUPS})
    if found is None:
        return None
    return Verdict.of(all(map(higher, found.values())), f"mean over {RANGE}: {shown(found)}")


def _optimum_differs(results: TableResults) -> Verdict | None:
    """Whether two tasks each score higher at their own best share than at the other's. STS counts as one task."""
    tasks = [task for task in (STS, *GROUPS[TRANSFER]) if all((row, task) in results.scores for row in SCORED.values())]
    if len(tasks) < 2:
        return None
    best = {task: max(SHARES, key=lambda share: results.estimates[SCORED[share], task].mean) for task in tasks}
    pairs = [(a, b) for a, b in combinations(tasks, 2) if best[a] != best[b]]
    both_ways = [*pairs, *((b, a) for a, b in pairs)]
    found = family({f"{a} {b}": contrast(results, {SCORED[best[a]]: 1, SCORED[best[b]]: -1}, a) for a, b in both_ways})
    if found is None:
        return None
    both = [(a, b) for a, b in pairs if higher(found[f"{a} {b}"]) and higher(found[f"{b} {a}"])]
    at = ", ".join(f"{task} {share:.0%}" for task, share in best.items())
    told = ", ".join(" and ".join(pair) for pair in both) or "none"
    return Verdict.of(bool(both), f"highest means at {at}; pairs of tasks told apart: {told}")


def _claims(key: str, encoder: str) -> tuple[Claim[Tables], ...]:
    """The paper's claims, decided by one table's encoder."""
    decisions: dict[str, Decide] = {
        "similarity-rises": on_table(key, partial(_rises, STS)),
        "transfer-rises": on_table(key, partial(_rises, TRANSFER)),
        "better-than-random": on_table(key, _better_than_random),
        "optima-differ": on_table(key, _optimum_differs),
    }
    return read_claims(__file__, "pruned", [SPARSE_CSE], decisions, {"ENCODER": encoder, "RANGE": RANGE})


CLAIMS = tuple(claim for key, encoder in ENCODERS.items() for claim in _claims(key, encoder))
