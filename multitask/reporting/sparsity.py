"""What pruned models say of SparseCSE (arXiv 2311.03881): curves of score against sparsity, and the paper's claims."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from markupsafe import Markup

from multitask.experiments.suites import GROUPS, STS, TRANSFER
from multitask.experiments.tables.sparsity import RANDOM, SCORED, SHARES, WHOLE, label
from multitask.reporting import study_figures as figures
from multitask.reporting.analysis import Comparison, TableAnalysis, compared
from multitask.reporting.format import interval, score, signed, verdict
from multitask.reporting.illustrations import Illustration, Section
from multitask.reporting.trained_claims import UNTESTED, Decide, Tables
from multitask.statistics import LEVEL, Uncertain
from multitask.study.claims import Claim, Verdict

SPARSE = "SparseCSE (arXiv 2311.03881)"
START, OWN = "sparsity", "sparsity-own"
LOW = tuple(share for share in SHARES if share <= 0.2)
"""Where the paper finds its optimum: 1 to 20%."""


def _differences(
    table: TableAnalysis, weights: Mapping[str, Mapping[str, float]], column: str
) -> dict[str, Comparison] | None:
    """Contrasts of rows by name, p adjusted for their number; None where a row is missing."""
    found: dict[str, Uncertain] = {}
    for name, of in weights.items():
        if (difference := table.contrast(of, column)) is None:
            return None
        found[name] = difference
    return dict(zip(found, compared(list(found.values())), strict=True))


def _shown(differences: Mapping[str, Comparison]) -> str:
    return "; ".join(f"{name} {signed(d.difference)} {interval(d)}, {verdict(d)}" for name, d in differences.items())


def _higher(comparison: Comparison) -> bool:
    return comparison.significant and comparison.difference > 0


def _rises(column: str) -> Decide:
    """Some low share has a higher score than the whole encoder."""

    def decide(tables: Tables) -> Verdict:
        if OWN not in tables:
            return UNTESTED
        table = tables[OWN]
        found = _differences(table, {f"{share:.0%}": {label(SCORED, share): 1, WHOLE: -1} for share in LOW}, column)
        if found is None:
            return UNTESTED
        optima = ", ".join(_optima(table, column))
        evidence = f"less the whole: {_shown(found)}; highest in single seeds at {optima}"
        return Verdict.of(any(map(_higher, found.values())), evidence)

    return decide


def _optima(table: TableAnalysis, column: str) -> list[str]:
    """The share, 0 included, at which each seed has its highest score."""
    rows = {"0%": WHOLE, **{f"{share:.0%}": label(SCORED, share) for share in SHARES}}
    scores = {name: table.scores[row, column].observed for name, row in rows.items() if (row, column) in table.scores}
    seeds = min(map(len, scores.values()))
    return [max(scores, key=lambda name: scores[name][seed]) for seed in range(seeds)]


def _better_than_random(columns: Sequence[str], key: str = OWN) -> Decide:
    """At low shares together, what the score leaves is better than what a random draw leaves."""
    weights = {label(SCORED, share): 1 / len(LOW) for share in LOW}
    weights |= {label(RANDOM, share): -1 / len(LOW) for share in LOW}

    def decide(tables: Tables) -> Verdict:
        if key not in tables:
            return UNTESTED
        means = {column: _differences(tables[key], {column: weights}, column) for column in columns}
        if None in means.values():
            return UNTESTED
        found = {column: mean[column] for column, mean in means.items() if mean}
        return Verdict.of(all(map(_higher, found.values())), f"mean over {_range()}: {_shown(found)}")

    return decide


def _range() -> str:
    return f"{LOW[0]:.0%} to {LOW[-1]:.0%}"


def _optimum_differs(tables: Tables) -> Verdict:
    """Two tasks each score higher at their own best share than at the other's."""
    if OWN not in tables:
        return UNTESTED
    table = tables[OWN]
    tasks = [task for task in table.table.recorded.columns if all((row, task) in table.scores for row in _scored())]
    if len(tasks) < 2:
        return UNTESTED
    best = {task: max(_scored(), key=lambda row: table.estimates[row, task].mean) for task in tasks}
    pairs = [(a, b) for a, b in combinations(tasks, 2) if best[a] != best[b]]
    differences = []
    for first, second in pairs:
        for task, other in ((first, second), (second, first)):
            found = table.contrast({best[task]: 1, best[other]: -1}, task)
            assert found is not None, "rows of one task have the same examples"
            differences.append(found)
    tests = compared(differences)
    both = [pair for pair, *two in zip(pairs, tests[::2], tests[1::2], strict=True) if all(map(_higher, two))]
    at = ", ".join(f"{task} {row.partition(' ')[0]}" for task, row in best.items())
    told = ", ".join(" and ".join(pair) for pair in both) or "none"
    return Verdict.of(bool(both), f"highest means at {at}; pairs of tasks told apart: {told}")


def _scored() -> list[str]:
    return [label(SCORED, share) for share in SHARES]


_SURE = f"at the {LEVEL:.0%} level, corrected for the number of tests"

SPARSITY_CLAIMS: tuple[Claim[Tables], ...] = (
    *(
        Claim(
            f"Scores on {name} rise when a small share of the parameters is removed, with an optimum at 1 to 20%.",
            f"{SPARSE}, Figure 1 and results",
            f"An encoder pruned by the score by some share of {_range()} and rewound has a higher mean score than the "
            f"whole one, {_SURE}.",
            _rises(column),
        )
        for column, name in ((STS, "the similarity tasks"), (TRANSFER, "the transfer tasks"))
    ),
    Claim(
        "Alignment and uniformity tell which parameters are harmful.",
        f"{SPARSE}, abstract",
        f"Over the shares of {_range()} what the score leaves has higher mean scores, on similarity and on transfer, "
        f"than what random draws leave, {_SURE}.",
        _better_than_random((STS, TRANSFER)),
    ),
    Claim(
        "Different tasks have different optimal sparsities.",
        f"{SPARSE}, results",
        f"There are two tasks each of which scores higher at its own best share than at the other's, {_SURE}.",
        _optimum_differs,
    ),
)


def _curves(key: str) -> Callable[[Tables], Section | None]:
    """Score against sparsity of a table's encoder, by score and at random."""

    def section(tables: Tables) -> Section | None:
        if key not in tables or not tables[key].estimates:
            return None
        table = tables[key]
        panels = {column: _lines(table, column) for column in (*GROUPS, *GROUPS[TRANSFER], *GROUPS[STS])}
        panels = {column: lines for column, lines in panels.items() if any(map(any, lines.values()))}
        described = "; ".join(
            f"{column}: " + ", ".join(f"{place} {score(point and point[0])}" for place, point in _named(lines))
            for column, lines in panels.items()
        )
        svg = figures.bands(panels, ["0%", *(f"{share:.0%}" for share in SHARES)], "share removed", described)
        drawn = Illustration(
            Markup(svg),
            "Mean scores and their 95% intervals, over seeds and examples: pruned by the gradient of alignment and "
            "uniformity, and at random. STS and Transfer are the means of the seven tasks.",
        )
        return Section(key, table.table.title, table.table.recorded.note, (drawn,), wide=True)

    return section


def _lines(table: TableAnalysis, column: str) -> dict[str, list[figures.Bounded | None]]:
    """Value and bounds at each place, of each criterion; both begin with the whole encoder."""

    def point(row: str) -> figures.Bounded | None:
        estimate = table.estimates.get((row, column))
        return None if estimate is None else (estimate.mean, estimate.low, estimate.high)

    return {
        criterion: [point(WHOLE), *(point(label(criterion, share)) for share in SHARES)]
        for criterion in (SCORED, RANDOM)
    }


def _named(lines: Mapping[str, Sequence[figures.Bounded | None]]) -> list[tuple[str, figures.Bounded | None]]:
    places = ["whole", *(f"{share:.0%}" for share in SHARES)]
    return [
        (f"{place} {name}", point)
        for name, points in lines.items()
        for place, point in zip(places, points, strict=True)
    ]


SPARSITY_SECTIONS = (_curves(START), _curves(OWN))
