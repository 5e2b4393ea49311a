"""SparseCSE's claims (arXiv 2311.03881), decided by the scores of pruned models."""

from dataclasses import replace
from functools import partial
from itertools import combinations, permutations
from statistics import fmean

from studies.engine.experiments import GROUPS, STS, TRANSFER
from studies.report.evidence import Above, Below, Every, Opposed, Some, Statement
from studies.report.table_results import TableResults
from studies.report.verdicts import (
    EQUAL,
    Claim,
    Decide,
    Tables,
    Verdict,
    complete,
    difference,
    on_table,
    read_claims,
)
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


def _rises(column: str, results: TableResults) -> Verdict | None:
    """Some low share scores higher than the whole encoder, and no larger share much higher than the best low one."""
    if not all((row, column) in results.estimates for row in (WHOLE, *SCORED.values())):
        return None
    best, best_low = (max(shares, key=lambda s: results.estimates[SCORED[s], column].mean) for shares in (SHARES, LOW))
    gains = complete({share: difference(results, {SCORED[share]: 1, WHOLE: -1}, column) for share in LOW})
    larger = {share: {SCORED[best_low]: 1, SCORED[share]: -1} for share in SHARES if share > LOW[-1]}
    beyond = complete({share: difference(results, weights, column) for share, weights in larger.items()})
    if gains is None or beyond is None:
        return None
    rises = Some([Above(f"{share:.0%}", gain, margin=EQUAL) for share, gain in gains.items()])
    is_best = [Above(f"{best_low:.0%} less {share:.0%}", found, -EQUAL) for share, found in beyond.items()]
    optima = ", ".join(f"{share:.0%}" for share in _optima(results, column))
    evidence = (
        f"less the whole: {rises.text}; {Every(is_best).text}; of the pruned, the best mean is at {best:.0%}; "
        f"the highest of each seed at {optima}"
    )
    return Verdict.of(Every([rises, *is_best]), evidence)


def _optima(results: TableResults, column: str) -> list[float]:
    """For each seed that all rows have, the share with the highest score; 0 is the whole encoder."""
    tasks = results.table.tasks(column)
    scores = {
        share: {run.seed: fmean(run.evaluation["scores"][task] for task in tasks) for run in results.scored(row, tasks)}
        for share, row in {0.0: WHOLE, **SCORED}.items()
    }
    seeds = sorted(set.intersection(*(set(of) for of in scores.values())))
    return [max(scores, key=lambda share: scores[share][seed]) for seed in seeds]


def _better_than_random(results: TableResults) -> Statement | None:
    """Pruning by the score is better than at random and than no pruning, on the mean of the low shares."""
    by_score = {SCORED[share]: 1 / len(LOW) for share in LOW}
    others = {
        "at random": {pruned(share, "random"): -1 / len(LOW) for share in LOW},
        "the whole": {WHOLE: -1.0},
    }
    found = complete(
        {
            f"{column}, mean over {RANGE}, less {name}": difference(results, by_score | weights, column)
            for column in (STS, TRANSFER)
            for name, weights in others.items()
        }
    )
    return None if found is None else Every([Above(name, gain, margin=EQUAL) for name, gain in found.items()])


def _optimum_differs(results: TableResults) -> Verdict | None:
    """Two tasks each score higher at their own best share than at the other's. STS counts as one task.

    The opposite is that a single share is as good as any other for every task.
    """
    tasks = [task for task in (STS, *GROUPS[TRANSFER]) if all((row, task) in results.scores for row in SCORED.values())]
    if len(tasks) < 2:
        return None
    gains = complete(
        {
            (task, share, other): difference(results, {SCORED[share]: 1, SCORED[other]: -1}, task)
            for task in tasks
            for share, other in permutations(SHARES, 2)
        }
    )
    if gains is None:
        return None
    best = {task: max(SHARES, key=lambda share: results.estimates[SCORED[share], task].mean) for task in tasks}
    pairs = [(a, b) for a, b in combinations(tasks, 2) if best[a] != best[b]]
    own = {(a, b): Above(a, gains[a, best[a], best[b]]) for a, b in permutations(tasks, 2) if best[a] != best[b]}
    differ = Some([Every([own[a, b], own[b, a]]) for a, b in pairs])
    losses = {
        share: [Below(task, gain, EQUAL) for (task, _, less), gain in gains.items() if less == share]
        for share in SHARES
    }
    one_for_all = Some([Every(of) for of in losses.values()])
    both = [pair for pair, sure in zip(pairs, differ.each_shown(), strict=True) if sure]
    at = ", ".join(f"{task} {share:.0%}" for task, share in best.items())
    told = ", ".join(" and ".join(pair) for pair in both) or "none"
    return Verdict.of(
        Opposed(differ, one_for_all), f"of the pruned, highest means at {at}; pairs of tasks told apart: {told}"
    )


def _claims(key: str, encoder: str) -> tuple[Claim[Tables], ...]:
    """The paper's claims, decided by one table's encoder. The paper trains what it prunes, and rewinds it."""
    decisions: dict[str, Decide] = {
        "similarity-rises": on_table(key, partial(_rises, STS)),
        "transfer-rises": on_table(key, partial(_rises, TRANSFER)),
        "better-than-random": on_table(key, _better_than_random),
        "optima-differ": on_table(key, _optimum_differs),
    }
    claims = read_claims(__file__, "pruned", [SPARSE_CSE], decisions, {"ENCODER": encoder, "RANGE": RANGE})
    return claims if key == OWN else tuple(replace(claim, kind="beyond the paper") for claim in claims)


CLAIMS = tuple(claim for key, encoder in ENCODERS.items() for claim in _claims(key, encoder))
