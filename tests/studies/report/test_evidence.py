"""Statements are shown, refuted or left open at the levels that are said, and their power is that of the textbook."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multitask.evaluation.statistics import Uncertain
from studies.report.claims import decided, early
from studies.report.evidence import Bound, Combined, Statement, deciding

Above, Below = Bound, partial(Bound, above=False)
Every, Some = partial(Combined, every=True), partial(Combined, every=False)


@dataclass(frozen=True)
class Known:
    """A number whose interval is wider at lower levels: ± width · (1 − log10 level)."""

    value: float
    width: float

    def interval(self, level: float) -> tuple[float, float]:
        half = self.width * (1 - np.log10(level))
        return self.value - half, self.value + half

    def detectable(self, bound: float, level: float) -> float:
        return bound + 2 * self.width * (1 - np.log10(level))


def test_a_number_is_above_below_or_open() -> None:
    assert [status(Above("a", Known(value, 0.1))) for value in (1, 0, -1)] == [
        "reproduced", "undecided", "not reproduced"
    ]  # fmt: skip
    assert [status(Below("a", Known(value, 0.1))) for value in (-1, 0, 1)] == [
        "reproduced", "undecided", "not reproduced"
    ]  # fmt: skip


def status(statement: Statement) -> str:
    return decided(statement)[0]


def test_better_by_less_than_the_margin_is_not_better() -> None:
    equal = Known(0.001, 0.002)  # ± 0.0046
    assert status(Above("a", equal)) == "undecided"
    assert status(Above("a", equal, margin=0.01)) == "not reproduced"
    assert status(Below("a", equal, margin=0.01)) == "not reproduced"
    surely_a_little_better = Known(0.005, 0.001)
    assert status(Above("a", surely_a_little_better, margin=0.01)) == "reproduced"
    parts = [Above("a", surely_a_little_better, margin=0.01), Above("b", Known(0.005, 0.01), margin=0.01)]
    assert status(Every(parts)) == "undecided"


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=6), st.floats(0.01, 1), st.sampled_from([0.05, 0.01]))
def test_the_opposite_of_every_is_some(values: list[float], width: float, level: float) -> None:
    parts = [Above("a", Known(value, width)) for value in values]
    opposites = [Below("a", Known(value, width)) for value in values]
    assert Every(parts).refuted(level) == Some(opposites).shown(level)
    assert Every(parts).shown(level) == Some(opposites).refuted(level)
    assert Every(parts).shown(level) == all(part.shown(level) for part in parts)
    assert Some(parts).shown(level) == any(part.shown(level / len(parts)) for part in parts)
    assert not (Every(parts).shown(level) and Every(parts).refuted(level))


def test_what_results_lack_keeps_them_from_one_answer_only() -> None:
    yes, no = Above("a", Known(1, 0.1)), Above("a", Known(-1, 0.1))
    assert [status(Every([of], can="show")) for of in (yes, no)] == ["reproduced", "undecided"]
    assert [status(Every([of], can="refute")) for of in (yes, no)] == ["undecided", "not reproduced"]
    assert "too short" in decided(Every([no], note="too short", can="show"))[1]


def test_an_opposite_of_its_own_refutes() -> None:
    open_, shown = Above("a", Known(0, 1)), Above("b", Known(9, 1))
    assert [status(Every([a], opposite=b)) for a, b in ((shown, open_), (open_, shown), (open_, open_))] == [
        "reproduced", "not reproduced", "undecided"
    ]  # fmt: skip
    assert status(Some([], opposite=open_)) == "undecided"


def test_an_open_claim_tells_what_it_could_have_shown() -> None:
    evidence = decided(Above("A less B", Known(0.0, 0.1)))[1]
    found, power = evidence.split("; ")
    assert found == "A less B 0.000 [−0.230, +0.230]"
    assert power == "the smallest effect that these results could show with 80% power: A less B +0.460"
    both = Every([Above("a", Known(0, 0.1)), Above("b", Known(0, 0.2))])
    assert both.least()[1] == "b +0.920"  # the harder one
    assert Every([*both.parts, Above("c", Known(9, 0.8))]).least()[1] == "b +0.920"  # not the one that is shown
    equal = [Above(name, Known(0, 0.1)) for name in "ba"]
    assert (Every(equal).least()[1], Some(equal).least()[1]) == ("b +0.460", "b +0.520")  # the first, whatever its name
    assert Some(both.parts).least()[1] == "a +0.520"  # the easier one, at half the level
    many = [Above(f"n{place}", Known(place, 0.1)) for place in range(5)]
    assert [of.text for of in (Every(many), Some(many))] == [
        "least sure of 5: n0 0.000 [−0.230, +0.230]", "most sure of 5: n4 +4.000 [+3.770, +4.230]"
    ]  # fmt: skip
    assert Below("a", Known(0, 0.1), bound=0.5).least()[1] == "a +0.040"


def test_the_number_that_decides_fits_the_verdict() -> None:
    refuted, open_ = Above("refuted", Known(0, 0.001), margin=0.01), Above("open", Known(-0.01, 0.01), margin=0.01)
    shown, surer = Above("shown", Known(1, 0.1)), Above("surer", Known(2, 0.1))
    a_little = Above("a little", Known(0.005, 0.001), margin=0.01)  # shown, below the margin
    found = [
        (status(of), deciding(of).partition(" ")[0])
        for of in (
            Every([surer, shown]),
            Some([shown, surer]),
            Some([refuted, open_]),
            Every([a_little, refuted, open_]),
        )
    ]
    assert found == [
        ("reproduced", "shown"), ("reproduced", "surer"), ("undecided", "open"), ("not reproduced", "refuted")
    ]  # fmt: skip
    assert deciding(Some([refuted, open_], opposite=refuted)).startswith("refuted")  # the surest one


def test_equal_methods_are_refuted_as_often_as_one_sided_tests_say() -> None:
    """Of methods that differ by exactly the margin, at most 2.5% are called no better."""
    draws = np.random.default_rng(0)
    wrong = 0
    for _ in range(2000):
        found = 0.01 + 0.003 * draws.normal()
        wrong += Above("a", Uncertain(found, found + 0.003 * draws.normal(size=500)), margin=0.01).refuted()
    assert wrong / 2000 < 0.04


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ([0.7, 0.795, 0.8, 0.6], True),
        ([0.7, 0.78, 0.8, 0.6], False),
        ([np.nan, 0.8, 0.7, 0.6], True),
        ([np.nan, 0.7, 0.8, 0.6], False),
        ([np.nan] * 4, False),
    ],
)
def test_a_training_is_long_enough_if_its_best_scores_begin_in_its_first_half(curve, expected):
    assert early(np.array([8, 16, 24, 32]), np.array(curve)) is expected
