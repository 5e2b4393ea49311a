"""SparseCSE's figures: score against sparsity, and pruning by scores compared with pruning at random."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product

from studies.engine.experiments import GROUPS, STS, TRANSFER
from studies.engine.table import key_of
from studies.report import figures
from studies.report.comparisons import compared
from studies.report.format import described_tests, score
from studies.report.preset_results import PresetResults
from studies.report.sections import Illustration, Section, table_section
from studies.report.table_results import TableResults
from studies.report.verdicts import difference
from studies.sparse_cse.claims import OWN, START
from studies.sparse_cse.tables import CRITERIA, ENCODER_SHARES, ENCODERS, SCORE_SHARES, SCORES, SHARES, WHOLE, pruned

Points = Sequence[figures.Bounded | None]
PLACES = ["0%", *(f"{share:.0%}" for share in SHARES)]


def curves_section(key: str, results: PresetResults) -> Section | None:
    """Score against sparsity of a table's encoder, pruned by score and at random."""
    found = results.finished_tables.get(key)
    if found is None or not found.estimates:
        return None
    panels = {column: _lines(found, column) for column in (*GROUPS, *GROUPS[TRANSFER], *GROUPS[STS])}
    panels = {column: lines for column, lines in panels.items() if any(map(any, lines.values()))}
    described = "; ".join(f"{column}: {_described(lines)}" for column, lines in panels.items())
    drawn = Illustration(
        figures.bands(panels, PLACES, "share removed", described),
        "Mean scores and their 95% intervals, over seeds and examples: pruned by the gradient of alignment and "
        "uniformity, and at random. STS and Transfer are the means of the seven tasks.",
    )
    return table_section(found, [drawn], wide=True)


def _lines(found: TableResults, column: str) -> dict[str, Points]:
    """Value and bounds of each criterion at each share. Both begin with the whole encoder."""

    def point(row: str) -> figures.Bounded | None:
        estimate = found.estimates.get((row, column))
        return None if estimate is None else (estimate.mean, estimate.low, estimate.high)

    return {
        name: [point(WHOLE), *(point(pruned(share, criterion)) for share in SHARES)]
        for criterion, name in CRITERIA.items()
    }


def _described(lines: Mapping[str, Points]) -> str:
    return ", ".join(
        f"{place} {name} {score(point and point[0])}"
        for name, points in lines.items()
        for place, point in zip(["whole", *PLACES[1:]], points, strict=True)
    )


def scores_section(results: PresetResults) -> Section | None:
    """The start weights pruned by each score, less pruned at random."""
    pairs = {
        share: {
            name: (pruned(share, criterion), pruned(share, "random"))
            for criterion, (name, _) in SCORES.items()
            if criterion != "random"
        }
        for share in SCORE_SHARES
    }
    return _against_random("sparsity-scores", pairs, results)


def encoders_section(results: PresetResults) -> Section | None:
    """Each encoder pruned by the score, less pruned at random."""

    def left(encoder: str, share: float, criterion: str) -> str:
        return key_of({"encoder": encoder, "share": share, "criterion": criterion})

    pairs = {
        share: {
            encoder.name: (left(key, share, "score"), left(key, share, "random")) for key, encoder in ENCODERS.items()
        }
        for share in ENCODER_SHARES
    }
    return _against_random("sparsity-encoders", pairs, results)


def _against_random(
    key: str, pairs: Mapping[float, Mapping[str, tuple[str, str]]], results: PresetResults
) -> Section | None:
    """A forest of differences for each column and share. All of them are one family of tests.

    Args:
        key: of the table.
        pairs: for each share, a name for readers -> keys of the rows pruned by a score and at random.
        results: of the preset.
    """
    if key not in results.finished_tables:
        return None
    found = results.finished_tables[key]
    differences = {
        (column, share, name): gain
        for column, share in product(found.table.groups, pairs)
        for name, (row, other) in pairs[share].items()
        if (gain := difference(found, {row: 1, other: -1}, column)) is not None
    }
    tests, panels = compared(differences), []
    for column, share in dict.fromkeys((column, share) for column, share, _ in tests):
        panel = {name: test for (*of, name), test in tests.items() if of == [column, share]}
        bounds = {name: (test.difference, test.low, test.high) for name, test in panel.items()}
        removed = f"{share:.0%} removed"
        described = f"{column}, {removed}, less at random: {described_tests(panel)}"
        sure = [name for name, test in panel.items() if test.significant]
        caption = (
            f"{column}, {removed}: differences of means, with uncorrected 95% intervals. Significant after correction "
            f"for the {len(tests)} differences of these figures: {', '.join(sure) or 'none'}."
        )
        panels.append(Illustration(figures.forest(bounds, f"{column}, less at random", described, removed), caption))
    return table_section(found, panels)


SECTIONS = (partial(curves_section, START), partial(curves_section, OWN), scores_section, encoders_section)
