"""Verdicts on claims about trained models follow from the results: they turn when the results do."""

import re
from pathlib import Path

import numpy as np
import pytest

from studies.engine.table import Row
from studies.gradient_paradigm.tables_of_losses import MODIFIED
from studies.gradient_paradigm.training_claims import DECISIONS, ON_SUITES, PUSH, TRAINED_CLAIMS, WITHOUT_DISSIPATION
from studies.report.preset_results import PresetResults
from studies.report.table_results import TableResults
from studies.report.verdicts import Judged, judge
from tests.studies.gradient_paradigm.published import as_published, contrary, falls_as_published, probed_as_published
from tests.studies.synthetic import Falls, Probe, Quality, write_store

REPAIR = "With dissipation, weight and ratio, non-contrastive losses become effective."


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
    repair = found[REPAIR].verdict
    assert repair.status == "not tested here"
    assert repair.evidence.startswith("dev set: comparable to InfoNCE without components: MHE less InfoNCE +0.")


@pytest.mark.parametrize(
    ("modified", "status"), [(0.9, "reproduced"), (0.3, "not reproduced"), (0.6, "not reproduced")]
)
def test_only_losses_that_are_ineffective_must_become_effective(modified: float, status: str, tmp_path: Path) -> None:
    """MHS is as good as InfoNCE, and worse with components. At 0.6 the others are better, but not comparable."""

    def quality(key: str, row: Row, task: str) -> float:
        if row.key in ("mhs", MODIFIED["mhs"]):
            return 0.9 if row.key == "mhs" else 0.5
        return modified if row.key in MODIFIED.values() else as_published(key, row, task)

    verdict = judged(tmp_path, "objectives", quality=quality)[REPAIR].verdict
    assert verdict.status == status
    left_out = verdict.evidence.split("; comparable to InfoNCE without components: ")[1]
    assert left_out.startswith("MHS less InfoNCE ")
    assert "; MHS, modified less MHS −0." in left_out


def test_a_loss_that_may_be_effective_already_does_not_refute_its_repair(tmp_path: Path) -> None:
    """MHS is lower than InfoNCE by about the margin of comparable losses, and worse with components."""

    def quality(key: str, row: Row, task: str) -> float:
        return {"mhs": 0.885, MODIFIED["mhs"]: 0.5}.get(row.key, as_published(key, row, task))

    verdict = judged(tmp_path, "objectives", quality=quality)[REPAIR].verdict
    assert verdict.status == "undecided"
    assert "it is not known whether the plain loss is comparable already" in verdict.evidence


def test_scored_similarity_tasks_overrule_the_dev_set(tmp_path: Path) -> None:
    def quality(key: str, row: Row, task: str) -> float:
        return 0.8 if key == "objectives-suites" else as_published(key, row, task)

    verdict = judged(tmp_path, "objectives", "objectives-suites", quality=quality)[REPAIR].verdict
    assert verdict.status == "not tested here"  # on these tasks all losses are equally good
    assert verdict.evidence.startswith("mean of the STS tasks: comparable to InfoNCE without components: ")


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_measure_of_training_needs_three_seeds(seeds: int, tmp_path: Path) -> None:
    found = judged(tmp_path, "decoupled", seeds=seeds)
    assert found["Training with decoupled losses is prone to overfitting."].verdict.status == "not tested here"
    assert found["Overfitting does not occur with the contrastive loss."].verdict.status == "not tested here"


def test_longer_trainings_overrule_shorter_ones(tmp_path: Path) -> None:
    runs = write_store(tmp_path, ["decoupled", "decoupled-long"], falls=falls_as_published)
    tables = PresetResults.read(runs, "sample").finished_tables
    claim = "Training with decoupled losses is prone to overfitting."
    short = {key: found for key, found in tables.items() if key == "decoupled"}
    assert of(short)[claim].verdict.evidence.startswith("3 epochs: ")
    for trained in tables["decoupled"].runs.values():
        for run in trained:
            for line in run.history:
                line["dev"]["similarity"]["pearson"] = 0.5
    assert of(short)[claim].verdict.status == "not reproduced"
    assert of(tables)[claim].verdict.status == "reproduced"
    assert of(tables)[claim].verdict.evidence.startswith("10 epochs: ")
    metrics = of(tables)["The alignment and uniformity metrics do not reflect that decoupled losses perform worse."]
    assert metrics.verdict.evidence.startswith("10 epochs: ")


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


def test_gaps_are_in_degrees_and_shares_stay_below_one(tmp_path: Path) -> None:
    found = judged(tmp_path, "gradient", probe=lambda row: {**probed_as_published(row), PUSH: 0.99})
    gap = found["Conjecture 1 in training: with dissipation the gap between negatives and positives remains smaller."]
    assert f" +{np.degrees(0.9 - 0.5):.1f}° [" in gap.verdict.evidence
    push = found["Conjecture 2 in training: the hardest negative has a dominant position."].verdict.evidence
    assert re.fullmatch(r"0\.99\d \[0\.9\d\d, (0\.99\d|1\.000)\]", push)
