"""What pruned models say of SparseCSE (arXiv 2311.03881): curves of score against sparsity, and the paper's claims."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from statistics import fmean

from markupsafe import Markup

from multitask.evaluation.statistics import Uncertain
from studies.engine.suite_tables import GROUPS, STS, TRANSFER
from studies.gradient_paradigm import figures
from studies.gradient_paradigm.simulation_claims import Claim, Verdict
from studies.report.analysis import TableAnalysis
from studies.report.format import score
from studies.report.illustrations import Illustration, Section
from studies.report.verdicts import SURE, SURE_OF_ANY, UNTESTED, Decide, Tables, each, family, higher, shown
from studies.sparse_cse.tables import sparsity_encoders, sparsity_scores
from studies.sparse_cse.tables.sparsity import RANDOM, SCORED, SHARES, WHOLE, label

SPARSE = "SparseCSE (arXiv 2311.03881)"
START, OWN, SCORES, OTHERS = "sparsity", "sparsity-own", "sparsity-scores", "sparsity-encoders"
Pair = tuple[str, str]
LOW = tuple(share for share in SHARES if share <= 0.2)
"""Where the paper finds its optimum: 1 to 20%."""
ENCODERS = {
    OWN: "An encoder that is trained here, pruned and rewound as in the paper",
    START: "The start weights, pruned as they are",
}


def _contrast(table: TableAnalysis, weights: Mapping[str, float], column: str) -> Uncertain | None:
    """Random draws differ more from each other than what a score leaves, and the more the more is removed."""
    return table.contrast(weights, column, alike=False)


def _rises(key: str, column: str) -> Decide:
    """Some low share has a higher score than the whole encoder, and no other share has the highest."""

    def decide(tables: Tables) -> Verdict:
        if key not in tables or not all((row, column) in tables[key].estimates for row in (WHOLE, *_scored())):
            return UNTESTED
        table = tables[key]
        found = family(
            {f"{share:.0%}": _contrast(table, {label(SCORED, share): 1, WHOLE: -1}, column) for share in LOW}
        )
        if found is None:
            return UNTESTED
        best = max(SHARES, key=lambda share: table.estimates[label(SCORED, share), column].mean)
        optima = ", ".join(_optima(table, column))
        evidence = f"less the whole: {shown(found)}; best mean at {best:.0%}; highest in single seeds at {optima}"
        return Verdict.of(best in LOW and any(map(higher, found.values())), evidence)

    return decide


def _optima(table: TableAnalysis, column: str) -> list[str]:
    """The share, 0 included, at which each seed that all rows have has its highest score."""
    tasks = table.table.tasks(column)
    rows = {"0%": WHOLE, **{f"{share:.0%}": label(SCORED, share) for share in SHARES}}
    runs = {row.label: {run.seed: run.evaluation["scores"] for run in row.scored(tasks)} for row in table.table.rows}
    scores = {name: {seed: fmean(of[t] for t in tasks) for seed, of in runs[row].items()} for name, row in rows.items()}
    seeds = sorted(set.intersection(*(set(of) for of in scores.values())))
    return [max(scores, key=lambda name: scores[name][seed]) for seed in seeds]


def _better_than_random(key: str) -> Decide:
    """At low shares together, what the score leaves is better than what a random draw leaves."""
    weights = {label(SCORED, share): 1 / len(LOW) for share in LOW}
    weights |= {label(RANDOM, share): -1 / len(LOW) for share in LOW}

    def decide(tables: Tables) -> Verdict:
        if key not in tables:
            return UNTESTED
        found = each({column: _contrast(tables[key], weights, column) for column in GROUPS})
        if found is None:
            return UNTESTED
        return Verdict.of(all(map(higher, found.values())), f"mean over {_range()}: {shown(found)}")

    return decide


def _range() -> str:
    return f"{LOW[0]:.0%} to {LOW[-1]:.0%}"


def _optimum_differs(key: str) -> Decide:
    """Two tasks each score higher at their own best share than at the other's. All similarity tasks count as one."""

    def decide(tables: Tables) -> Verdict:
        return _told_apart(tables[key]) if key in tables else UNTESTED

    return decide


def _told_apart(table: TableAnalysis) -> Verdict:
    tasks = [task for task in (STS, *GROUPS[TRANSFER]) if all((row, task) in table.scores for row in _scored())]
    if len(tasks) < 2:
        return UNTESTED
    best = {task: max(_scored(), key=lambda row: table.estimates[row, task].mean) for task in tasks}
    pairs = [(a, b) for a, b in combinations(tasks, 2) if best[a] != best[b]]
    both_ways = [*pairs, *((b, a) for a, b in pairs)]
    found = family({f"{a} {b}": _contrast(table, {best[a]: 1, best[b]: -1}, a) for a, b in both_ways})
    if found is None:
        return UNTESTED
    both = [(a, b) for a, b in pairs if higher(found[f"{a} {b}"]) and higher(found[f"{b} {a}"])]
    at = ", ".join(f"{task} {row.partition(' ')[0]}" for task, row in best.items())
    told = ", ".join(" and ".join(pair) for pair in both) or "none"
    return Verdict.of(bool(both), f"highest means at {at}; pairs of tasks told apart: {told}")


def _scored() -> list[str]:
    return [label(SCORED, share) for share in SHARES]


def _claims(key: str) -> tuple[Claim[Tables], ...]:
    """The paper's, of one table's encoder."""
    return (
        *(
            Claim(
                f"Scores on {name} rise when a small share of the parameters is removed, with an optimum at 1 to 20%.",
                f"{SPARSE}, Figure 1 and results",
                f"{ENCODERS[key]}: without some share of {_range()} its mean score is higher than whole, "
                f"{SURE_OF_ANY}, and a larger share does not give the best.",
                _rises(key, column),
            )
            for column, name in ((STS, "the similarity tasks"), (TRANSFER, "the transfer tasks"))
        ),
        Claim(
            "Alignment and uniformity tell which parameters are harmful.",
            f"{SPARSE}, abstract",
            f"{ENCODERS[key]}: over the shares of {_range()} what the score leaves has higher mean scores, on "
            f"similarity and on transfer, than what random draws leave, {SURE}. The score reads training pairs of the "
            "STS Benchmark, random draws do not; the table says how many of them are scored.",
            _better_than_random(key),
        ),
        Claim(
            "Different tasks have different optimal sparsities.",
            f"{SPARSE}, results",
            f"{ENCODERS[key]}: there are two tasks each of which scores higher at its own best share than at the "
            f"other's, the similarity tasks as one, {SURE_OF_ANY}. The best shares are those of the same scores, which "
            "favours a difference.",
            _optimum_differs(key),
        ),
    )


SPARSITY_CLAIMS = tuple(claim for key in ENCODERS for claim in _claims(key))


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


def _of_scores(share: float) -> dict[str, Pair]:
    rows = {name: sparsity_scores.label(share, name) for name in sparsity_scores.NAMES}
    return {name: (row, rows[RANDOM]) for name, row in rows.items() if name != RANDOM}


def _of_encoders(share: float) -> dict[str, Pair]:
    names = sparsity_encoders.ENCODERS
    return {name: (_left(name, SCORED, share), _left(name, RANDOM, share)) for name in names}


def _left(encoder: str, criterion: str, share: float) -> str:
    return sparsity_encoders.row(encoder, label(criterion, share))


def against_random(
    key: str, shares: Sequence[float], rows: Callable[[float], Mapping[str, Pair]]
) -> Callable[[Tables], Section | None]:
    """What is left by a score, less what random draws leave, at each share; `rows` are both rows by a name."""

    def section(tables: Tables) -> Section | None:
        if key not in tables:
            return None
        table, panels = tables[key], []
        for column, share in product(table.table.recorded.groups, shares):
            found = {name: _contrast(table, {row: 1, other: -1}, column) for name, (row, other) in rows(share).items()}
            known = {name: difference for name, difference in found.items() if difference is not None}
            if known:
                bounds = {name: (d.value, *d.interval()) for name, d in known.items()}
                described = f"{column}, {share:.0%} removed, less at random: {shown(family(known) or {})}"
                svg = figures.forest(bounds, f"{column}, less at random", described, f"{share:.0%} removed", zero=True)
                panels.append(Illustration(Markup(svg), "Differences of means and their 95% intervals, uncorrected."))
        return Section(key, table.table.title, table.table.recorded.note, tuple(panels)) if panels else None

    return section


SPARSITY_SECTIONS = (
    _curves(START),
    _curves(OWN),
    against_random(SCORES, sparsity_scores.SHARES, _of_scores),
    against_random(OTHERS, sparsity_encoders.SHARES, _of_encoders),
)
