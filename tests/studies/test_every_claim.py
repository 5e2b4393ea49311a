"""Every claim of every paper comes out each way: results that show it, its opposite, or neither turn the verdict.

A claim that cannot come out all three ways is no claim. It is either a theorem, or its rule is wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import pytest

from studies.engine.experiments import GROUPS, STS
from studies.engine.table import Row
from studies.gradient_paradigm import training_claims as training
from studies.gradient_paradigm.simulation_claims import CONJECTURE_CLAIMS, SIMULATION_CLAIMS
from studies.gradient_paradigm.simulation_outcomes import NAMES, RATIO_MAPS, TEMPERATURES, Simulations
from studies.gradient_paradigm.tables_of_losses import MODIFIED, NON_CONTRASTIVE
from studies.report import verdicts as verdicts_module
from studies.report.preset_results import PresetResults
from studies.report.table_results import TableResults
from studies.report.verdicts import Claim, Status, judge
from studies.sparse_cse.claims import CLAIMS as PRUNED_CLAIMS
from studies.sparse_cse.claims import OWN, START
from studies.sparse_cse.tables import WHOLE, pruned
from studies.study import all_studies
from tests.studies import results_in_memory
from tests.studies.gradient_paradigm.published import ENDS, all_estimates, probed_as_published
from tests.studies.results_in_memory import Trained, results_of
from tests.studies.synthetic import TABLES, write_store

Shown = Literal["the claim", "its opposite", "neither"]
STATUSES: dict[Shown, Status] = {
    "the claim": "reproduced",
    "its opposite": "not reproduced",
    "neither": "undecided",
}
QUIET, LOUD = 0.0005, 0.4
"""Standard deviations over seeds: of results that tell something, and of results that do not."""
GROUPS_OF_CLAIMS: dict[str, Sequence[Claim]] = {
    "simulated": SIMULATION_CLAIMS,
    "conjectured": CONJECTURE_CLAIMS,
    "trained": training.TRAINED_CLAIMS,
    "pruned": PRUNED_CLAIMS,
}


@dataclass(frozen=True)
class Results:
    """Results that show all claims, the opposite of all, or neither."""

    shown: Shown

    def noise(self, seed: int) -> float:
        """The deviation of one of three seeds, which is large if the results show neither."""
        return (seed - 1) * (LOUD if self.shown == "neither" else QUIET)

    def simulated(self) -> Simulations:
        """Dissipation that falls at a gap of 20°, weights above half, and ratios above 1; or nothing of it."""
        holds, unknown = self.shown != "its opposite", self.shown == "neither"
        positive, negative = np.linspace(0.2, 1.5, 20), np.linspace(0.2, 3.1, 60)
        gap = np.degrees(negative - positive[:, None])
        fallen = np.clip(1 - (gap - 15) / 10, 0, 1) if holds else np.ones_like(gap)
        error = np.full_like(gap, 1.0 if unknown else 1e-4)
        weights = np.full((len(TEMPERATURES), len(negative)), 0.7 if holds else 0.3)
        ratio = np.full_like(gap, 2.0 if holds else 0.5)
        ratio[:, :: 2 if unknown else 1] *= 0.1 if unknown else 1
        return Simulations(
            positive,
            negative,
            np.array(TEMPERATURES),
            dict.fromkeys(NAMES, fallen),
            dict.fromkeys(NAMES, error),
            weights,
            np.full_like(weights, 1.0 if unknown else 1e-4),
            np.ones_like(weights),
            weights,
            dict.fromkeys(RATIO_MAPS, ratio),
            dict.fromkeys(RATIO_MAPS, np.zeros(gap.shape, bool)),
        )

    def score(self, key: str, row: Row, task: str) -> float:
        """A row's score on a task, without noise."""
        holds = self.shown != "its opposite"
        if key == training.ON_SUITES and task not in GROUPS[STS]:  # transfer
            return 0.75 if holds or row.key not in MODIFIED.values() else 0.6
        if key in (training.ON_SUITES, training.OBJECTIVES):
            if holds:
                return 0.4 if row.key in NON_CONTRASTIVE else 0.9
            effective, *_ = NON_CONTRASTIVE  # plain: the others leave something to repair
            return {effective: 0.9, "infonce": 0.6}.get(row.key, 0.3 if row.key in MODIFIED.values() else 0.5)
        if key == training.GRADIENT:
            return 0.9 if (row.key in ENDS) != holds else 0.4
        if key == training.DECOUPLED:
            good = row.key not in training.WITHOUT_DISSIPATION
            return (0.9 if good else 0.5) if holds else 0.9 if not good else 0.6 if row.key == "infonce" else 0.3
        share = row.point.get("share", 0.0)
        assert isinstance(share, float)
        if not holds:  # the more is removed the worse, whatever decides what
            return 0.8 - 0.4 * share
        best = pruned(0.2 if task == "TREC" else 0.05, "score")
        left = 0.72 if row.point.get("criterion") == "score" else 0.5
        return 0.95 if row.key == best else 0.7 if row.key == WHOLE else left

    def fall(self, row: Row, seed: int) -> float:
        """By how much the dev score falls from its highest."""
        decoupled = row.key in training.WITHOUT_DISSIPATION
        if self.shown == "its opposite":  # all overfit
            return 0.2 if row.key == "infonce" else 0.1
        return 0.2 if decoupled else abs(self.noise(seed))

    def probed(self, row: Row, seed: int) -> dict[str, float]:
        """Statistics at the end of training."""
        decoupled, published = row.key in training.WITHOUT_DISSIPATION, probed_as_published(row)
        if self.shown == "its opposite":
            same = dict.fromkeys((training.GAP, training.PUSH, training.CLOSER), 0.4)
            norms = dict.fromkeys((training.ALIGNMENT, training.UNIFORMITY), 0.5)
            return {**published, **same, **norms, "alignment": 0.9 if decoupled else 0.5}
        noisy = {name: value + self.noise(seed) for name, value in published.items()}
        for norm in (training.ALIGNMENT, training.UNIFORMITY):
            noisy[norm] = published[norm] * np.exp(10 * self.noise(seed))
        return {**noisy, training.DISSIPATED: published[training.DISSIPATED]}

    def table(self, folder: Path, key: str) -> TableResults:
        """Results of a table of trained models."""

        def trained(row: Row, seed: int) -> Trained:
            tasks = TABLES[key].columns
            scores = {task: self.score(key, row, task) + self.noise(seed) for task in tasks}
            last = 0.5 if row.key in training.WITHOUT_DISSIPATION else 0.7
            curve = (last + self.fall(row, seed), last, last)
            first = dict.fromkeys(probed_as_published(row), 1.0)
            return Trained(scores, curve, first, self.probed(row, seed))

        return results_of(folder, key, trained)


@cache
def verdicts(group: str, shown: Shown) -> list[Status]:
    """The verdicts on a group's claims."""
    results, claims = Results(shown), GROUPS_OF_CLAIMS[group]
    if group == "simulated":
        found = judge(claims, results.simulated())
    elif group == "conjectured":
        rate, trials = {"the claim": (1.0, 1000), "its opposite": (0.4, 1000), "neither": (1.0, 1)}[shown]
        found = judge(claims, all_estimates(rate, trials))
    else:
        keys = (OWN, START) if group == "pruned" else (training.ON_SUITES, training.GRADIENT, training.DECOUPLED)
        with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            for module in (results_in_memory, verdicts_module):
                patch.setattr(module, "SAMPLES", 2000)  # enough for results that are as clear as these
            found = judge(claims, {key: results.table(Path(folder), key) for key in keys})
    return [one.verdict.status for one in found]


CASES = [
    pytest.param(group, place, shown, id=f"{group}-{place}-{claim.key}-{shown}")
    for group, claims in GROUPS_OF_CLAIMS.items()
    for place, claim in enumerate(claims)
    for shown in STATUSES
]


@pytest.mark.parametrize(("group", "place", "shown"), CASES)
def test_a_verdict_is_what_the_results_show(group: str, place: int, shown: Shown) -> None:
    theorem = GROUPS_OF_CLAIMS[group][place].kind == "theorem"
    assert verdicts(group, shown)[place] == ("theorem" if theorem else STATUSES[shown])


def test_no_study_has_other_claims(tmp_path: Path) -> None:
    nothing = PresetResults.read(write_store(tmp_path, []), "sample")
    keys = [one.claim.key for study in all_studies() for one in study.judge(nothing)]
    assert sorted(keys) == sorted(claim.key for claims in GROUPS_OF_CLAIMS.values() for claim in claims)
