"""SparseCSE's claims, and what scores of pruned models must show.

Every claim is decided for two encoders. Claims about the start weights are beyond the paper, which prunes and rewinds
encoders that it trained.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, permutations, product

from studies.engine.recipes import GROUPS, STS, TRANSFER
from studies.report.claims import MARGIN, Claim, ClaimKind, ClaimPlace, ClaimResults, UntestedError, every, some
from studies.report.verdicts import Bound, Combined, Statement
from studies.sparse_cse.tables import SHARES, WHOLE, pruned

LOW, LARGER = SHARES[:4], SHARES[4:]
TABLE_ENCODERS = {
    "sparsity-own": "Encoder trained here, pruned and rewound as in the paper",
    "sparsity": "Start weights, pruned as they are",
}


def _of_table(results: ClaimResults, shares: Sequence[float]) -> Sequence[float]:
    """The shares that a table has rows of. Raises UntestedError if it has none."""
    rows = {row.key for row in results.table.table.rows}
    found = [share for share in shares if pruned(share, "score") in rows]
    if not found:
        raise UntestedError
    return found


def rises(results: ClaimResults) -> Statement:
    """With some low share removed the score is above that of the whole encoder, and no larger share is better."""
    low_shares, larger_shares = _of_table(results, LOW), _of_table(results, LARGER)

    def best(low: float) -> Statement:
        row = pruned(low, "score")
        larger = [results.above(row, pruned(share, "score"), bound=-MARGIN) for share in larger_shares]
        return every([results.above(row, WHOLE, margin=MARGIN), *larger])

    return some(map(best, low_shares))


def finds_harmful_units(results: ClaimResults) -> Statement:
    """Over the low shares, scores are above those of random removal and of the whole encoder, on all tasks."""
    shares = _of_table(results, LOW)
    rows = [pruned(share, "score") for share in shares]
    together = f"mean over {', '.join(f'{share:.0%}' for share in shares)}"
    called_rows = together if len(shares) > 1 else results.label(rows[0])

    def above(column: str, called: str, others: list[str]) -> Bound:
        weights = dict.fromkeys(rows, 1 / len(rows)) | dict.fromkeys(others, -1 / len(others))
        number = replace(results, column=column).contrast(weights)
        return Bound(f"{column}, {called_rows}, less {called}", number, margin=MARGIN)

    controls = {"at random": [pruned(share, "random") for share in shares], "the whole": [WHOLE]}
    return every(above(column, *control) for column in (STS, TRANSFER) for control in controls.items())


def optima_differ(results: ClaimResults) -> Statement:
    """Two columns each score higher at their own best share than at the other's.

    The opposite is that a single share is as good as any other for every column.
    """
    rows = [pruned(share, "score") for share in _of_table(results, SHARES)]
    tasks = [task for task in (STS, *GROUPS[TRANSFER]) if all((row, task) in results.table.scores for row in rows)]
    if min(len(rows), len(tasks)) < 2:
        raise UntestedError
    by_task = {task: replace(results, column=task) for task in tasks}
    best = {task: max(rows, key=lambda row: results.table.mean(row, task)) for task in tasks}
    gains = {
        (task, row, less): by_task[task].above(row, less, bound=MARGIN, above=False)
        for task, (row, less) in product(tasks, permutations(rows, 2))
    }

    def own(task: str, other: str) -> Bound:
        found = by_task[task].above(best[task], best[other])
        return replace(found, name=f"{task}, {found.name}")

    differ = [every([own(a, b), own(b, a)]) for a, b in combinations(tasks, 2) if best[a] != best[b]]
    for_all = (every(gain for (_, _, less), gain in gains.items() if less == row) for row in rows)
    return Combined(differ, every=False, opposite=some(for_all))


def _claims() -> Iterator[Claim]:
    """Each claim for both encoders."""
    similarity, transfer = (
        f"Scores on the {kind} tasks rise when a small share of the parameters is removed, with an optimum at 1 to 20%."
        for kind in ("similarity", "transfer")
    )
    shares = "Shares are those that the table has."
    higher = (
        "with some share of 1% to 20% removed, the mean score is higher than that of the whole encoder (margin 0.01), "
        f"and no larger share scores 0.01 or more above it. {shares}"
    )
    harmful = (
        "over the shares of 1% to 20%, mean scores on similarity and on transfer are higher after pruning by the score "
        "than after pruning at random, and higher than those of the whole encoder (margin 0.01). The score reads "
        "training pairs of the STS Benchmark, random draws do not; the table in the report shows how many of these "
        f"pairs are scored. {shares}"
    )
    differ = (
        "two tasks each score higher at their own best share than at the other's. The similarity tasks count as one. "
        "The best shares are chosen by the same scores, which favours a difference. It fails if one share is less than "
        f"0.01 below any other for every task. {shares}"
    )
    figure, results, abstract = "Figure 1 and results", "results", "abstract"
    for key, section, text, criterion, says, column in (
        ("similarity-rises", figure, similarity, higher, rises, STS),
        ("transfer-rises", figure, transfer, higher, rises, TRANSFER),
        ("better-than-random", abstract, "Alignment and uniformity tell which parameters are harmful.", harmful,
         finds_harmful_units, STS),
        ("optima-differ", results, "Different tasks have different optimal sparsities.", differ, optima_differ, STS),
    ):  # fmt: skip
        claim = partial(Claim, key, "sparse", section, text)
        for table, encoder in TABLE_ENCODERS.items():
            kind: ClaimKind = "claim" if table == "sparsity-own" else "beyond the paper"
            yield claim(f"{encoder}: {criterion}", says, (ClaimPlace(table, column),), kind)


CLAIMS = tuple(_claims())
