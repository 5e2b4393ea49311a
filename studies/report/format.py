"""Numbers as text."""

from collections.abc import Mapping
from math import isnan

from multitask.evaluation.markup import MINUS, SEEN
from studies.report.comparisons import Agreement, Comparison
from studies.report.table_results import Estimate


def score(value: float | None) -> str:
    """Three decimals; a dash for None, a word for NaN."""
    if value is None:
        return "–"
    return "undefined" if isnan(value) else f"{value:.3f}".replace("-", MINUS)


def share(part: float, whole: int) -> str:
    """`951 of 1,379 (69.0%)`."""
    return f"{part:,.0f} of {whole:,} ({part / whole:.1%})"


def signed(value: float, decimals: int = 3) -> str:
    """Decimals with a sign, zero without a sign."""
    text = f"{value:+.{decimals}f}".replace("-", MINUS)
    return text if float(f"{value:.{decimals}f}") else text[1:]


def mean_and_deviation(estimate: Estimate | None) -> str:
    """`0.783`; with several seeds `0.783 ± 0.004` (sample standard deviation over seeds); a dash for None.

    A score is marked if the model was trained on some of the scored examples.
    """
    if estimate is None:
        return "–"
    deviation = "" if estimate.deviation is None else f" ± {estimate.deviation:.3f}"
    return f"{score(estimate.mean)}{deviation}{SEEN if estimate.seen else ''}"


def interval(value: Estimate | Comparison) -> str:
    """`[0.770, 0.791]`, with signs for a difference; empty for an undefined score."""
    if isnan(value.low):
        return ""
    shown = signed if isinstance(value, Comparison) else score
    return f"[{shown(value.low)}, {shown(value.high)}]"


def verdict(comparison: Comparison, what: str = "difference") -> str:
    """The result of a test."""
    if not comparison.significant:
        return f"no significant {what}"
    return "p < 0.001" if comparison.p < 0.001 else f"p = {comparison.p:.3f}"


def described_tests(tests: Mapping[str, Comparison]) -> str:
    """Each difference with its interval and its test's result."""
    return "; ".join(
        f"{name} {signed(test.difference)} {interval(test)}, {verdict(test)}" for name, test in tests.items()
    )


def agreement(counts: Agreement) -> str:
    """`4 of 6`, or a dash if no published scores differ."""
    return f"{counts.agree} of {counts.total}" if counts.total else "–"


def significance(counts: Agreement) -> str:
    """How many of the agreeing and of the contrary orderings are significant."""
    contrary = f", {counts.contrary} significantly contrary" if counts.contrary else ""
    return f"{counts.significant or 'none'} significant{contrary}" if counts.total else ""


def counted(stages: Mapping[str, int]) -> str:
    """`2 × finetune, ensemble`."""
    return ", ".join(f"{count} × {name}" if count > 1 else name for name, count in stages.items())
