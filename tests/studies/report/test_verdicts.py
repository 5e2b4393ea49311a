"""A claim has one verdict, that of its interval; corrections are those of Holm, and power is that of the textbook."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from multitask.evaluation.statistics import LEVEL, holm
from studies.report.claims import decided, measured
from studies.report.verdicts import Bound, Combined, Levels, Statement, Verdict, levels, verdict

Above, Below = Bound, partial(Bound, above=False)
Every, Some = partial(Combined, every=True), partial(Combined, every=False)
SHOWN, SMALLER = "shown", "shown, perhaps smaller than the margin"
NOT, OPEN = "equivalent or opposite", "open"


@dataclass(frozen=True)
class Number:
    """A number whose interval depends on the level."""

    value: float
    half: Callable[[float], float]  # of the interval at a level

    def interval(self, level: float) -> tuple[float, float]:
        return self.value - self.half(level), self.value + self.half(level)

    def detectable(self, bound: float, level: float) -> float:
        return bound + 2 * self.half(level)


def between(low: float, high: float) -> Number:
    """The same interval at every level."""
    return Number((low + high) / 2, lambda level: (high - low) / 2)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.011, 0.05, SHOWN),
        (0.002, 0.05, SMALLER),
        (0.002, 0.008, SMALLER),
        (-0.004, 0.006, NOT),  # equivalent
        (-0.05, -0.002, NOT),  # opposite
        (-0.008, -0.002, NOT),  # both
        (-0.004, 0.012, OPEN),
        (-0.02, 0.005, NOT),  # one of both
        (-0.02, 0.02, OPEN),
    ],
)
def test_the_verdict_on_a_number_is_that_of_its_interval(low, high, expected):
    """The margin is 0.01; the same of a number that must be below a bound, and of one with another bound."""
    assert verdict(Above("a", between(low, high), margin=0.01)) == expected
    assert verdict(Below("a", between(-high, -low), margin=0.01)) == expected
    assert verdict(Above("a", between(low + 3, high + 3), 3, margin=0.01)) == expected


@pytest.mark.parametrize(("low", "high", "expected"), [(0.001, 1, SHOWN), (-0.001, 1, OPEN), (-1, -0.001, NOT)])
def test_without_a_margin_nothing_is_small_or_equivalent(low, high, expected):
    assert verdict(Above("a", between(low, high))) == expected


def one_step_holm(p_values: list[float]) -> list[bool]:
    """As in Holm 1979."""
    return [p <= LEVEL for p in holm(p_values)]


def decided_at(value: float, p: float) -> Number:
    """An interval that excludes 0 from a level on: ± half of the value's size at lower levels."""
    return Number(value, lambda level: abs(value) * (2 if level < p else 0.5))


@given(st.lists(st.floats(1e-4, 0.1), min_size=1, max_size=12), st.sampled_from([1.0, -1.0]))
@example([0.049, 0.024, 0.016, 0.012], 1.0)  # each is shown once the smaller ones are
@example([0.049, 0.024, 0.016, 0.012], -1.0)
def test_claims_are_corrected_as_holm_says(p_values, sign):
    claims = [Above(str(p), decided_at(sign, p)) for p in p_values]
    at = levels(claims)
    wanted = SHOWN if sign > 0 else NOT
    assert [verdict(claim, at) == wanted for claim in claims] == one_step_holm(p_values)
    count = sum(one_step_holm(p_values))
    expected = LEVEL / max(len(claims) - count, 1)
    assert (at.show if sign > 0 else at.refute) == pytest.approx(expected)
    assert (at.refute if sign > 0 else at.show) == pytest.approx(LEVEL / len(claims))


def test_a_claim_below_the_margin_stays_in_the_count():
    """It could still be shown wrongly to be above the margin."""
    small, other = Above("a", decided_at(0.001, 0.001), margin=0.01), Above("b", decided_at(1, 0.04))
    at = levels([small, other])
    assert at == Levels(LEVEL / 2, LEVEL / 2)
    assert [verdict(of, at) for of in (small, other)] == [SMALLER, OPEN]
    large = Above("a", decided_at(1, 0.001), margin=0.01)
    assert [verdict(of, levels([large, other])) for of in (large, other)] == [SHOWN, SHOWN]


def test_claims_that_results_could_not_decide_and_earlier_readings_count():
    claims = [Above("a", decided_at(1, 0.02))]
    assert levels(claims, tests=4) == Levels(LEVEL / 4, LEVEL / 4)
    assert levels(claims, level=LEVEL / 5) == Levels(LEVEL / 5, LEVEL / 5)


def known(value: float, width: float) -> Number:
    """An interval that is wider at lower levels: ± width · (1 − log10 level)."""
    return Number(value, lambda level: width * (1 - np.log10(level)))


def status(statement: Statement) -> Verdict:
    return decided(statement, Levels())[0]


def test_parts_decide_together():
    shown, small = Above("a", between(1, 2), margin=0.01), Above("b", between(0.002, 1), margin=0.01)
    fails, unsure = Above("c", between(-0.001, 0.001), margin=0.01), Above("d", between(-1, 1), margin=0.01)
    assert [status(Every(of)) for of in ([shown], [shown, small], [shown, small, unsure], [shown, unsure, fails])] == [
        SHOWN, SMALLER, OPEN, NOT
    ]  # fmt: skip
    assert [status(Some(of)) for of in ([fails, shown], [fails, small], [fails, unsure], [fails, fails])] == [
        SHOWN, SMALLER, OPEN, NOT
    ]  # fmt: skip


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=6), st.floats(0.01, 1), st.sampled_from([0.05, 0.01]))
def test_the_opposite_of_every_is_some(values, width, level):
    parts = [Above("a", known(value, width)) for value in values]
    opposites = [Below("a", known(value, width)) for value in values]
    assert (Every(parts).fails_by(level) > 0) == (Some(opposites).holds_by(level) > 0)
    assert (Every(parts).holds_by(level) > 0) == (Some(opposites).fails_by(level) > 0)
    assert (Every(parts).holds_by(level) > 0) == all(part.holds_by(level) > 0 for part in parts)
    assert (Some(parts).holds_by(level) > 0) == any(part.holds_by(level / len(parts)) > 0 for part in parts)
    assert not (Every(parts).holds_by(level) > 0 and Every(parts).fails_by(level) > 0)


def test_what_results_lack_keeps_them_from_one_answer_only():
    yes, no = Above("a", known(1, 0.1)), Above("a", known(-1, 0.1))
    assert [status(Every([of], can="show")) for of in (yes, no)] == [SHOWN, OPEN]
    assert [status(Every([of], can="refute")) for of in (yes, no)] == [OPEN, NOT]
    assert "too short" in decided(Every([no], note="too short", can="show"), Levels())[1]


def test_an_opposite_of_its_own_refutes():
    open_, shown = Above("a", known(0, 1)), Above("b", known(9, 1))
    assert [status(Every([a], opposite=b)) for a, b in ((shown, open_), (open_, shown), (open_, open_))] == [
        SHOWN, NOT, OPEN
    ]  # fmt: skip
    assert status(Some([], opposite=open_)) == OPEN


def test_an_open_claim_tells_what_it_could_have_shown():
    evidence = decided(Above("A less B", known(0.0, 0.1)), Levels())[1]
    found, power = evidence.split("; ")
    assert found == "A less B 0.000 [−0.230, +0.230]"
    assert power == "the smallest effect that these results could show with 80% power: A less B +0.460"
    both = Every([Above("a", known(0, 0.1)), Above("b", known(0, 0.2))])
    assert both.least(LEVEL)[1] == "b +0.920"  # the harder one
    assert Every([*both.parts, Above("c", known(9, 0.8))]).least(LEVEL)[1] == "b +0.920"  # not the one that is shown
    equal = [Above(name, known(0, 0.1)) for name in "ba"]
    assert (Every(equal).least(LEVEL)[1], Some(equal).least(LEVEL)[1]) == (
        "b +0.460",
        "b +0.520",
    )  # the first, whatever its name
    assert Some(both.parts).least(LEVEL)[1] == "a +0.520"  # the easier one, at half the level
    many = [Above(f"n{place}", known(place, 0.1)) for place in range(5)]
    assert [of.text() for of in (Every(many), Some(many))] == [
        "least sure of 5: n0 0.000 [−0.230, +0.230]", "most sure of 5: n4 +4.000 [+3.770, +4.230]"
    ]  # fmt: skip
    assert Below("a", known(0, 0.1), bound=0.5).least(LEVEL)[1] == "a +0.040"


def test_the_number_that_decides_fits_the_verdict():
    fails, open_ = Above("fails", known(0, 0.001), margin=0.01), Above("open", known(-0.01, 0.01), margin=0.01)
    shown, surer = Above("shown", known(1, 0.1)), Above("surer", known(2, 0.1))
    a_little = Above("a little", known(0.005, 0.001), margin=0.01)

    def found(of: Combined) -> tuple[Verdict, str]:
        decider = of.deciding(LEVEL, status(of))
        assert decider is not None
        return status(of), decider[0].name

    assert [found(of) for of in (
        Every([surer, shown]), Some([shown, surer]), Some([fails, open_]), Every([a_little, fails, open_]),
        Every([surer, a_little]), Every([surer, open_]),
    )] == [
        (SHOWN, "shown"), (SHOWN, "surer"), (OPEN, "open"), (NOT, "fails"), (SMALLER, "a little"), (OPEN, "open"),
    ]  # fmt: skip
    assert found(Some([fails, open_], opposite=surer)) == (NOT, "fails")  # the surest one
    assert Some([]).deciding(LEVEL, "open") is None


def test_the_number_that_decides_has_the_level_that_decides():
    parts = [Above(name, known(0, 1)) for name in "abc"]
    stricter = [of.deciding(0.03, "open")[1] for of in (Every(parts), Some(parts))]  # type: ignore[index]
    assert stricter == pytest.approx([0.01, 0.01])  # neither shown nor refuted
    shown = Some([Above("a", known(9, 1)), Above("b", known(0, 1))])
    assert shown.deciding(0.03, "shown")[1] == pytest.approx(0.015)  # type: ignore[index]
    assert Every(parts).deciding(0.03, NOT)[1] == pytest.approx(0.01)  # type: ignore[index]


def test_a_measure_that_is_undefined_for_a_seed_decides_nothing():
    assert measured([(1.0, {0: 0.1, 1: 0.3, 2: 0.2})]) is not None
    assert measured([(1.0, {0: 0.1, 1: float("nan"), 2: 0.2})]) is None
