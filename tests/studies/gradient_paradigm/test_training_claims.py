"""Verdicts on claims about trained models follow from the results: they turn when the results do."""

from pathlib import Path

import pytest

from studies.engine.table import Row
from studies.gradient_paradigm.tables_of_losses import MODIFIED, NON_CONTRASTIVE
from studies.gradient_paradigm.training_claims import DECISIONS, ON_SUITES, TRAINED_CLAIMS, WITHOUT_DISSIPATION
from studies.report.preset_results import PresetResults
from studies.report.table_results import TableResults
from studies.report.verdicts import Judged, judge
from tests.studies.gradient_paradigm.published import as_published, contrary, falls_as_published, probed_as_published
from tests.studies.synthetic import Falls, Probe, Quality, write_store


def judged(
    runs: Path,
    *keys: str,
    quality: Quality = as_published,
    falls: Falls = falls_as_published,
    probe: Probe = probed_as_published,
    seeds: int = 3,
) -> dict[str, Judged]:
    """Claims with their verdicts by their text, from a store of these tables."""
    return of(PresetResults.read(write_store(runs, keys, quality, falls, probe, seeds), "sample").finished_tables)


def of(tables: dict[str, TableResults]) -> dict[str, Judged]:
    return {one.claim.text: one for one in judge(TRAINED_CLAIMS, tables)}


def test_verdicts_are_those_of_the_papers_where_the_results_are(tmp_path: Path) -> None:
    found = judged(tmp_path, "objectives", "gradient", "decoupled")
    assert (
        found.pop("The modified losses keep their performance on transfer tasks.").verdict.status == "not tested here"
    )
    assert {one.verdict.status for one in found.values()} == {"reproduced"}


def test_every_decision_is_that_of_a_claim() -> None:
    assert len(TRAINED_CLAIMS) == len(DECISIONS)


def test_verdicts_turn_when_the_results_do(tmp_path: Path) -> None:
    found = judged(tmp_path, "objectives", "gradient", "decoupled", quality=contrary)
    of_scores = ["plain", "modified-as-good", "margin", "temperature", "ratio", "decoupled", "imitations-as-good"]
    statuses = {one.claim.key: one.verdict.status for one in found.values()}
    assert {statuses[key] for key in of_scores} == {"not reproduced"}
    assert statuses["modified-over-plain"] == "not tested here"  # the plain losses are effective already


@pytest.mark.parametrize("repaired", [True, False])
def test_only_losses_that_are_ineffective_must_become_effective(repaired: bool, tmp_path: Path) -> None:
    """MHS is as good as InfoNCE, and no better with components."""

    def quality(key: str, row: Row, task: str) -> float:
        if row.key in ("mhs", MODIFIED["mhs"]):
            return 0.9
        ineffective = 0.4 if row.key in NON_CONTRASTIVE else 0.3 if row.key in MODIFIED.values() else 0.9
        return as_published(key, row, task) if repaired else ineffective

    found = judged(tmp_path, "objectives", quality=quality)
    verdict = found["With dissipation, weight and ratio, non-contrastive losses become effective."].verdict
    assert verdict.status == ("reproduced" if repaired else "not reproduced")
    assert verdict.evidence.endswith("; left out, because surely not 0.01 below InfoNCE: MHS")
    assert "MHS, modified less" not in verdict.evidence


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_measure_of_training_needs_three_seeds(seeds: int, tmp_path: Path) -> None:
    found = judged(tmp_path, "decoupled", seeds=seeds)
    assert found["Training with decoupled losses is prone to overfitting."].verdict.status == "not tested here"
    assert found["Overfitting does not occur with the contrastive loss."].verdict.status == "not tested here"


def test_rows_whose_measures_vary_do_not_hide_one_that_does_not(tmp_path: Path) -> None:
    falls: Falls = lambda row, seed: 0.1 * seed if row.key in WITHOUT_DISSIPATION else 0.001 * seed  # noqa: E731
    found = judged(tmp_path, "decoupled", falls=falls)
    assert found["Overfitting does not occur with the contrastive loss."].verdict.status == "reproduced"
    assert found["Training with decoupled losses is prone to overfitting."].verdict.status == "undecided"


def test_trainings_that_still_rise_do_not_show_that_nothing_overfits(tmp_path: Path) -> None:
    tables = PresetResults.read(write_store(tmp_path, ["decoupled"]), "sample").finished_tables
    long = of(tables)
    for runs in tables["decoupled"].runs.values():
        for run in runs:
            first, second, last = (line["dev"]["similarity"] for line in run.history)
            first["pearson"], second["pearson"] = last["pearson"] - 0.1, last["pearson"] - 0.05
    short = of(tables)
    for text, settled in (
        ("Training with decoupled losses is prone to overfitting.", "not reproduced"),
        ("Overfitting does not occur with the contrastive loss.", "reproduced"),
    ):
        assert long[text].verdict.status == settled
        assert short[text].verdict.status == "undecided"
        assert "trained too briefly to overfit: " in short[text].verdict.evidence
    [alleviated] = [one for text, one in short.items() if "alleviate" in text]
    assert alleviated.verdict.status == "not tested here"


@pytest.mark.parametrize(
    ("statistic", "value", "claim", "evidence"),
    [
        ("dissipated anchors", 0.0, "Conjecture 1 in training", "the gate stops with the defaults: 0.5% at most"),
        ("closer to positive", 0.99, "Conjecture 3 in training", "nearly all anchors come closer with either ratio"),
    ],
)
def test_what_could_not_show_is_not_tested(
    statistic: str, value: float, claim: str, evidence: str, tmp_path: Path
) -> None:
    store = write_store(
        tmp_path, ["gradient"], as_published, probe=lambda row: {**probed_as_published(row), statistic: value}
    )
    found = judge(TRAINED_CLAIMS, PresetResults.read(store, "sample").finished_tables)
    both = [one.verdict for one in found if claim in one.claim.text]
    assert len(both) == 2  # on held-out sentences and in batches
    assert {verdict.status for verdict in both} == {"not tested here"}
    assert all(evidence in verdict.evidence for verdict in both)


@pytest.mark.parametrize(
    ("quality", "alignment", "status"),
    [(0.5, 0.9, "not reproduced"), (0.9, 0.2, "not tested here")],
    ids=["the metric is worse too", "no score is lower"],
)
def test_metrics_hide_what_decoupled_losses_lose(quality: float, alignment: float, status: str, tmp_path: Path) -> None:
    found = judged(
        tmp_path,
        "decoupled",
        quality=lambda key, row, task: quality if row.key in WITHOUT_DISSIPATION else 0.9,
        probe=lambda row: {
            **probed_as_published(row),
            "alignment": alignment if row.key in WITHOUT_DISSIPATION else 0.5,
        },
    )
    [verdict] = [one.verdict for text, one in found.items() if "alignment and uniformity metrics" in text]
    assert verdict.status == status


@pytest.mark.parametrize(("modified", "status"), [(0.8, "reproduced"), (0.6, "not reproduced")])
def test_modified_losses_keep_their_transfer_if_it_is_as_high(modified: float, status: str, tmp_path: Path) -> None:
    found = judged(
        tmp_path,
        ON_SUITES,
        quality=lambda key, row, task: modified if "modified" in row.key else 0.75,
    )
    [verdict] = [one.verdict for text, one in found.items() if "transfer" in text]
    assert verdict.status == status
    assert "VICReg, modified less VICReg " in verdict.evidence
