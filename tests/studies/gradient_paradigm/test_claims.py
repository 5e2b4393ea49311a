"""Verdicts on the gradient papers' claims follow from results; theorems hold; what trainings measured is drawn."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from multitask.base.runs import Run
from multitask.experiments.compare_rows import PresetResults, TableResults
from multitask.experiments.figures import CurvePoints
from multitask.experiments.grid_frames import RunResult
from multitask.experiments.table_definitions import Row
from multitask.objectives import unit
from multitask.objectives.closed_form_components import RATIOS, Negatives
from multitask.stages.settings_of_pretraining import HELD_OUT as IN_LOG
from studies.gradient_paradigm import simulated_claims, training_figures
from studies.gradient_paradigm.simulated_claims import angle_of_fall
from studies.gradient_paradigm.study import STUDY
from studies.gradient_paradigm.tables import MODIFIED, NON_CONTRASTIVE
from studies.gradient_paradigm.training_figures import (
    HELD_OUT_SENTENCES,
    component_sweeps,
    decoupling_section,
    effect,
    effects_of_components,
    factorial_section,
    subsets,
)
from studies.report.claims import judge
from tests.conftest import slow_after
from tests.studies.gradient_paradigm.published import (
    WITHOUT_DISSIPATION,
    as_published,
    falls_as_published,
    probed_as_published,
)
from tests.studies.synthetic import without_rows, write_store

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
    ("modified", "status"),
    slow_after(2, [(0.9, "shown"), (0.3, "equivalent or opposite"), (0.6, "equivalent or opposite")]),
)
def test_only_losses_that_are_ineffective_must_become_effective(modified, status, tmp_path):
    """MHS is as good as InfoNCE, and worse with components. At 0.6 the others are better, but not comparable."""

    def quality(key: str, row: Row, task: str) -> float:
        if row.key in ("mhs", MODIFIED["mhs"]):
            return 0.9 if row.key == "mhs" else 0.5
        return modified if row.key in MODIFIED.values() else as_published(key, row, task)

    found, evidence = trained(tmp_path, "objectives-long", seeds=8, quality=quality)["modified-over-plain"]
    assert found == status
    assert "; left out: MHS less InfoNCE " in evidence


def test_a_loss_that_may_be_effective_already_does_not_refute_its_repair(tmp_path):
    """MHS is lower than InfoNCE by about the margin of comparable losses, and worse with components."""

    def quality(key: str, row: Row, task: str) -> float:
        return {"mhs": 0.885, MODIFIED["mhs"]: 0.5}.get(row.key, as_published(key, row, task))

    found, evidence = trained(tmp_path, "objectives-long", quality=quality)["modified-over-plain"]
    assert (found, "not known whether it is needed" in evidence) == ("open", True)


def test_scored_similarity_tasks_overrule_the_dev_set(tmp_path):
    def quality(key: str, row: Row, task: str) -> float:
        if key == "objectives-suites":
            return 0.5 if row.key == "infonce" else 0.8
        return as_published(key, row, task)

    status, evidence = trained(tmp_path, "objectives", "objectives-suites", quality=quality)["plain"]
    assert status == "equivalent or opposite"
    assert evidence.startswith("mean of the STS tasks: ")


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_measure_of_training_needs_three_seeds(seeds, tmp_path):
    found = trained(tmp_path, "decoupled", seeds=seeds)
    assert {found[key][0] for key in ("overfits", "does-not-overfit", "not-reflected")} == {"not tested here"}
    assert found["decoupled"][1].endswith("(one seed: intervals do not cover other seeds)") == (seeds == 1)


def test_trainings_shorter_than_the_authors_do_not_show_that_nothing_overfits(tmp_path):
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
def test_what_could_not_show_is_not_tested(statistic, value, claim, told, tmp_path):
    found = trained(tmp_path, "gradient", probe=lambda row: {**probed_as_published(row), statistic: value})
    for key in (claim, f"{claim}-in-batches"):
        assert found[key][0] == "not tested here"
        assert told in found[key][1]


@pytest.mark.parametrize(
    ("quality", "alignment", "status"),
    [(0.5, 0.9, "equivalent or opposite"), (0.9, 0.2, "not tested here")],
    ids=["the metric is worse too", "no score is lower"],
)
def test_metrics_hide_what_decoupled_losses_lose(quality, alignment, status, tmp_path):
    def probe(row: Row) -> dict[str, float]:
        return {**probed_as_published(row), "alignment": alignment if row.key in WITHOUT_DISSIPATION else 0.5}

    def score(key: str, row: Row, task: str) -> float:
        return quality if row.key in WITHOUT_DISSIPATION else 0.9

    assert trained(tmp_path, "decoupled", quality=score, probe=probe)["not-reflected"][0] == status


def test_where_dissipation_falls_is_interpolated_between_columns():
    where = {"positive_means": np.radians([5.0, 0.0]), "negative_means": np.radians([0, 10, 20, 30])}
    falls = angle_of_fall(np.array([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]), SimpleNamespace(**where), 0.25)
    assert np.degrees(falls[0]) == pytest.approx(17.5 - 5)
    assert np.isinf(falls[1])


def test_the_width_of_a_fall_is_bounded_as_if_both_of_its_ends_erred_apart():
    """A fall along a straight line from 1 to 0 over one radian: an error moves either end by as much."""
    means = np.linspace(0, 1, 101)
    simulations = SimpleNamespace(
        dissipation={"infonce": 1 - means[None]},
        dissipation_error={"infonce": np.full((1, 101), 0.01)},
        positive_means=np.zeros(1),
        negative_means=means,
    )
    [width] = simulated_claims.gaps_of_the_fall(simulations).values()  # type: ignore[arg-type]
    assert width.value == pytest.approx(0.8)
    assert width.interval() == pytest.approx((0.8 - 2 * 0.0196, 0.8 + 2 * 0.0196), abs=1e-5)


# The statements that are labelled theorems hold for whatever hypothesis draws; results do not vote on them.


SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.integers(2, 200), st.floats(0.003, 1), st.floats(1.01, 10))
def lower_temperature(seed: int, negatives: int, temperature: float, factor: float) -> None:
    """The derivative of log(1 / weight) = log Σ_j e^{(s_j − s_max)/τ} in 1/τ is a mean of s_j − s_max, at most 0."""
    drawn = torch.from_numpy(np.random.default_rng(seed).standard_normal(negatives))
    cosines = Negatives.of_cosines(unit(drawn))
    low, high = cosines.hardest_weight(temperature), cosines.hardest_weight(factor * temperature)
    assert low > high or 1 - high < 1e-12  # fp64 cannot tell weights so near to 1 from each other


@given(st.floats(0.001, math.pi), st.floats(0.001, math.pi))
def ratio_of_met(first: float, second: float) -> None:
    """d_hardest / d_positive, and distances on the sphere rise with angles."""
    assume(abs(first - second) > 1e-6)
    positive, negative = sorted((first, second))
    angles = torch.tensor([positive, negative], dtype=torch.float64)
    assert RATIOS["met"](angles[0], angles[1]) > 1


CHECKS: dict[str, Callable[[], None]] = {"lower-temperature": lower_temperature, "ratio-met": ratio_of_met}


@pytest.mark.parametrize("key", [claim.key for claim in STUDY.claims if claim.kind == "theorem"])
def test_a_theorem_holds(key):
    CHECKS[key]()


# Effects against a least-squares fit, and by hand.


FACTORS = ("a", "b", "c")


@pytest.mark.parametrize("factors", [FACTORS, FACTORS[:2], FACTORS[:1]], ids=len)
def test_effects_are_twice_the_coefficients_of_a_least_squares_fit(factors):
    cells = [frozenset(subset) for subset in subsets(factors)]
    values = np.random.default_rng(0).normal(size=(len(cells), 3))  # [cells, seeds]
    coded = {f: np.array([1 if f in cell else -1 for cell in cells]) for f in factors}
    design = np.stack(
        [np.prod([coded[f] for f in subset] or [np.ones(len(cells))], axis=0) for subset in subsets(factors)]
    )
    fitted = np.linalg.lstsq(np.repeat(design.T, 3, axis=0), values.ravel(), rcond=None)[0]
    means = dict(zip(cells, values.mean(axis=1), strict=True))
    for subset, coefficient in zip(subsets(factors)[1:], fitted[1:], strict=True):
        found = sum(weight * means[cell] for cell, weight in effect(factors, subset).items())
        assert found == pytest.approx(2 * coefficient)


def test_effects_are_contrasts_of_the_means_and_cover_what_the_models_were_made_with(tmp_path):
    [table] = PresetResults.read(write_store(tmp_path, ["components"], as_published), "sample").tables
    found = effects_of_components(table)
    losses = found.index.get_level_values(0)
    assert dict(losses.value_counts()) == {loss: 3 if loss == "mhs" else 7 for loss in NON_CONTRASTIVE}
    points = {row.key: row.point for row in table.table.rows if row.point["loss"] == "vicreg"}
    on, off = (
        [table.mean(key, "similarity") for key, point in points.items() if ("weight" in point["components"]) == is_on]
        for is_on in (True, False)
    )
    weight = found.loc["vicreg", "weight"]
    assert weight.difference == pytest.approx(np.mean(on) - np.mean(off))
    assert weight.low < weight.difference < weight.high
    assert weight.significant
    section = factorial_section(table)
    assert len(section.table) == len(found)
    less = without_rows(table, "loss=vicreg,components=none")
    assert "vicreg" not in effects_of_components(less).index.get_level_values(0)
    one = replace(table, runs={key: runs[:1] for key, runs in table.runs.items()})
    assert not any("×" in name for _, name in effects_of_components(one).index)  # interactions need three seeds


# What trainings measured, drawn over their steps.


Drawn = list[dict[str, CurvePoints]]


@pytest.fixture
def drawn(monkeypatch) -> Drawn:
    """The lines of each figure, in place of drawing it."""
    found: Drawn = []
    monkeypatch.setattr(training_figures, "lines", lambda panels, *_, **__: found.append(panels[""]))
    return found


def test_statistics_of_the_components_are_those_of_held_out_sentences(tmp_path, drawn, monkeypatch):
    runs = write_store(tmp_path, ["gradient"], probe=probed_as_published, seeds=1)
    [table] = PresetResults.read(runs, "sample").tables
    probed, asked = RunResult.probed, []
    monkeypatch.setattr(RunResult, "probed", lambda run, **what: asked.append(what["place"]) or probed(run, **what))
    assert component_sweeps(table) is not None
    assert set(asked) == {HELD_OUT_SENTENCES}
    assert [len(of) for of in drawn] == 3 * [7, 8, 7]  # values of margin, temperature, ratio


def test_decoupled_losses_have_curves_norms_metrics_and_the_gap_to_sts(tmp_path, drawn):
    key = "decoupled"
    runs = write_store(tmp_path, [key], probe=probed_as_published, seeds=3)
    parts = ["dev score", "the alignment part", "the uniformity part", "alignment of two", "uniformity of two"]

    def captions() -> list[str]:
        section = decoupling_section(*PresetResults.read(runs, "sample").tables)
        assert section is not None
        return [picture.caption for picture in section.pictures]

    assert all(part in caption for part, caption in zip(parts, captions(), strict=True))
    for seed, aligned in enumerate((0.5, 0.6, 0.8)):
        measure_dev_set(runs / f"pretrain-{key}-infonce-{seed}", aligned)
    parts += ["alignment of the STS dev set", "uniformity of the STS dev set"]
    assert all(part in caption for part, caption in zip(parts, captions(), strict=True))
    gap = drawn[-2]
    assert list(gap) == ["InfoNCE"]
    assert [value for _, value, *_ in gap["InfoNCE"]] == pytest.approx([1 / 3, 31 / 30, 52 / 30])


def measure_dev_set(folder: Path, aligned: float) -> None:
    """Adds the dev set's alignment and uniformity, and alignment of held-out sentences, to a training's history."""
    path = folder / "metrics.jsonl"
    history = [json.loads(line) for line in path.read_text().splitlines()]
    for number, line in enumerate(history):
        line["dev"]["similarity"] |= {"alignment": aligned + number, "uniformity": -2.0 - number / 4}
        line["training"][f"{IN_LOG} alignment"] = 0.3 * (number + 1)
    path.write_text("".join(json.dumps(line) + "\n" for line in history))
    Run(folder).finish()
