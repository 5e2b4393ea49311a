"""What pruned models say of SparseCSE: verdicts follow from the scores, and figures show them."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from multitask.experiments.table_results import PresetResults, TableResults
from multitask.experiments.tables import Row
from studies.engine.recipes import GROUPS
from studies.sparse_cse import figures
from studies.sparse_cse.figures import OWN, scores_section
from studies.sparse_cse.study import STUDY
from studies.sparse_cse.tables import SCORES, WHOLE, pruned
from tests.studies.results_in_memory import Trained, results_of
from tests.studies.synthetic import TABLES, Quality, without_rows, write_store


def as_claimed(key: str, row: Row, task: str) -> float:
    """An optimum at a low share by score, at another for TREC; nothing of the kind at random."""
    best = pruned(0.2 if task == "TREC" else 0.05, "score")
    return 0.95 if row.key == best else 0.7 if row.key == WHOLE else 0.72 if row.point["criterion"] == "score" else 0.5


def better_than_random_only(key: str, row: Row, task: str) -> float:
    """Pruning harms, at random more."""
    return 0.9 if row.key == WHOLE else 0.8 if row.point["criterion"] == "score" else 0.6


def results(runs: Path, quality: Quality, key: str = OWN, seeds: int = 4) -> PresetResults:
    return PresetResults.read(write_store(runs, [key], quality, seeds=seeds), "sample")


@pytest.fixture(scope="module")
def claimed(tmp_path_factory: pytest.TempPathFactory) -> PresetResults:
    return results(tmp_path_factory.mktemp("claimed"), as_claimed)


def with_table(of: PresetResults, table: TableResults) -> PresetResults:
    return replace(of, tables=(table,))


def verdicts(of: PresetResults, kind: str = "claim") -> dict[str, tuple[str, str]]:
    """Status and evidence of the paper's claims by key; those on the other encoder have no results."""
    judged = STUDY.judge(of)
    assert set(judged.status[judged.kind != kind]) == {"not tested here"}
    return {one.key: (one.status, one.evidence) for one in judged[judged.kind == kind].itertuples()}


def test_a_score_that_only_beats_chance_does_not_tell_what_is_harmful(tmp_path):
    status, evidence = verdicts(results(tmp_path, better_than_random_only))["better-than-random"]
    assert status == "equivalent or opposite"
    assert "less the whole −0.1" in evidence


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_a_missing_row_leaves_claims_untested(share, claimed):
    less = without_rows(claimed.tables[0], pruned(share, "score"))
    found = {key: status for key, (status, _) in verdicts(with_table(claimed, less)).items()}
    assert {found["similarity-rises"], found["transfer-rises"]} == {"not tested here"}
    assert found["better-than-random"] == ("not tested here" if share == 0.05 else "shown")


def test_what_is_left_is_compared_with_random_draws(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "intervals", lambda panels, *_: drawn.append(panels))
    key, draws = "sparsity-scores", np.random.default_rng(0)

    def trained(row: Row, seed: int) -> Trained:
        quality = 0.9 if row.point.get("criterion") == "highest" else 0.6
        return Trained({task: quality + 0.002 * draws.normal() for task in TABLES[key].columns})

    table = results_of(tmp_path, key, trained, seeds=5)
    section = scores_section(SimpleNamespace(finished_tables={key: table}))  # type: ignore[arg-type]
    assert section is not None
    assert len(section.pictures) == len(drawn) == 2  # shares
    good, other = SCORES["highest"][0], SCORES["signed"][0]
    for panels in drawn:
        assert list(panels) == list(GROUPS)
        for of in panels.values():
            assert (of[good].hollow, of[good].low > 0, of[other].hollow) == (False, True, True)
