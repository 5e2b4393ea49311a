"""Verdicts on the gradient papers' claims follow from results: what decides, what is left out, what is not tested."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from multitask.experiments.table_results import PresetResults, TableResults
from multitask.experiments.tables import Row
from studies.gradient_paradigm import simulated_numbers
from studies.gradient_paradigm.simulated_numbers import fall
from studies.gradient_paradigm.study import STUDY
from studies.gradient_paradigm.tables_of_losses import MODIFIED
from studies.report.claims import judge
from tests.studies.gradient_paradigm.published import (
    WITHOUT_DISSIPATION,
    as_published,
    falls_as_published,
    probed_as_published,
)
from tests.studies.synthetic import write_store

CLAIMS = STUDY.claims
Verdicts = Mapping[str, tuple[str, str]]
"""Status and evidence by the claims' keys."""


def verdicts(tables: Mapping[str, TableResults]) -> Verdicts:
    found = judge(CLAIMS, tables, None)
    return {one.key: (one.status, one.evidence) for one in found.itertuples()}


def trained(runs: Path, *keys: str, seeds: int = 3, **how: Any) -> Verdicts:
    """From a store of these tables."""
    usual = {"quality": as_published, "falls": falls_as_published, "probe": probed_as_published}
    store = write_store(runs, keys, **{**usual, **how}, seeds=seeds)
    return verdicts(PresetResults.read(store, "sample").finished_tables)


@pytest.mark.parametrize(
    ("modified", "status"), [(0.9, "shown"), (0.3, "equivalent or opposite"), (0.6, "equivalent or opposite")]
)
def test_only_losses_that_are_ineffective_must_become_effective(modified: float, status: str, tmp_path: Path) -> None:
    """MHS is as good as InfoNCE, and worse with components. At 0.6 the others are better, but not comparable."""

    def quality(key: str, row: Row, task: str) -> float:
        if row.key in ("mhs", MODIFIED["mhs"]):
            return 0.9 if row.key == "mhs" else 0.5
        return modified if row.key in MODIFIED.values() else as_published(key, row, task)

    found, evidence = trained(tmp_path, "objectives-long", seeds=8, quality=quality)["modified-over-plain"]
    assert found == status
    assert "; left out: MHS less InfoNCE " in evidence


def test_a_loss_that_may_be_effective_already_does_not_refute_its_repair(tmp_path: Path) -> None:
    """MHS is lower than InfoNCE by about the margin of comparable losses, and worse with components."""

    def quality(key: str, row: Row, task: str) -> float:
        return {"mhs": 0.885, MODIFIED["mhs"]: 0.5}.get(row.key, as_published(key, row, task))

    found, evidence = trained(tmp_path, "objectives-long", quality=quality)["modified-over-plain"]
    assert (found, "not known whether it is needed" in evidence) == ("open", True)


def test_scored_similarity_tasks_overrule_the_dev_set(tmp_path: Path) -> None:
    def quality(key: str, row: Row, task: str) -> float:
        if key == "objectives-suites":
            return 0.5 if row.key == "infonce" else 0.8
        return as_published(key, row, task)

    status, evidence = trained(tmp_path, "objectives", "objectives-suites", quality=quality)["plain"]
    assert status == "equivalent or opposite"
    assert evidence.startswith("mean of the STS tasks: ")


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_measure_of_training_needs_three_seeds(seeds: int, tmp_path: Path) -> None:
    found = trained(tmp_path, "decoupled", seeds=seeds)
    assert {found[key][0] for key in ("overfits", "does-not-overfit", "not-reflected")} == {"not tested here"}
    assert found["decoupled"][1].endswith("(one seed: intervals do not cover other seeds)") == (seeds == 1)


def test_trainings_shorter_than_the_authors_do_not_show_that_nothing_overfits(tmp_path: Path) -> None:
    tables = PresetResults.read(write_store(tmp_path, ["decoupled"]), "sample").finished_tables
    short = verdicts(tables)
    for run in (run for of in tables["decoupled"].runs.values() for run in of):
        for line in run.history:
            line["step"] *= 400
    long = verdicts(tables)
    for key, settled in (("overfits", "equivalent or opposite"), ("does-not-overfit", "shown")):
        assert (long[key][0], short[key][0]) == (settled, "open")
        assert "; trained for 24 steps, the authors for 7,800" in short[key][1]
    assert short["imitations-do-not-overfit"][0] == "not tested here"


@pytest.mark.parametrize(
    ("statistic", "value", "claim", "told"),
    [
        ("dissipated anchors", 0.0, "smaller-gap", "share of anchors that the gate stops: m 0.30, τ 0.05, r 1 0.5%"),
        ("closer to positive", 0.99, "nearer-more-often", "nearly all anchors come closer with either ratio"),
    ],
)
def test_what_could_not_show_is_not_tested(statistic: str, value: float, claim: str, told: str, tmp_path: Path) -> None:
    found = trained(tmp_path, "gradient", probe=lambda row: {**probed_as_published(row), statistic: value})
    for key in (claim, f"{claim}-in-batches"):
        assert found[key][0] == "not tested here"
        assert told in found[key][1]


@pytest.mark.parametrize(
    ("quality", "alignment", "status"),
    [(0.5, 0.9, "equivalent or opposite"), (0.9, 0.2, "not tested here")],
    ids=["the metric is worse too", "no score is lower"],
)
def test_metrics_hide_what_decoupled_losses_lose(quality: float, alignment: float, status: str, tmp_path: Path) -> None:
    def probe(row: Row) -> dict[str, float]:
        return {**probed_as_published(row), "alignment": alignment if row.key in WITHOUT_DISSIPATION else 0.5}

    def score(key: str, row: Row, task: str) -> float:
        return quality if row.key in WITHOUT_DISSIPATION else 0.9

    assert trained(tmp_path, "decoupled", quality=score, probe=probe)["not-reflected"][0] == status


def test_where_dissipation_falls_is_interpolated_between_columns() -> None:
    where = {"positive_means": np.radians([5.0, 0.0]), "negative_means": np.radians([0, 10, 20, 30])}
    falls = fall(np.array([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]), SimpleNamespace(**where), 0.25)
    assert np.degrees(falls[0]) == pytest.approx(17.5 - 5)
    assert np.isinf(falls[1])


def test_the_width_of_a_fall_is_bounded_as_if_both_of_its_ends_erred_apart() -> None:
    """A fall along a straight line from 1 to 0 over one radian: an error moves either end by as much."""
    means = np.linspace(0, 1, 101)
    simulations = SimpleNamespace(
        dissipation={"infonce": 1 - means[None]},
        dissipation_error={"infonce": np.full((1, 101), 0.01)},
        positive_means=np.zeros(1),
        negative_means=means,
    )
    [width] = simulated_numbers.gaps_of_the_fall(simulations).values()  # type: ignore[arg-type]
    assert width.value == pytest.approx(0.8)
    assert width.interval() == pytest.approx((0.8 - 2 * 0.0196, 0.8 + 2 * 0.0196), abs=1e-5)
