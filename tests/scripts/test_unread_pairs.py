"""Pairs that a score reads are left out, and differences are those of the same seeds."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from minbert.errors import InputError
from multitask.evaluation.suite_sets import SETS
from scripts.unread_pairs import SHARES, differences, pairs_of_tasks, scores
from studies.engine.presets import SMALL
from studies.sparse_cse.tables import WHOLE, pruned

PAIRS = 40


@pytest.fixture
def senteval(tmp_path: Path) -> Path:
    """Files of the similarity tasks with forty pairs each, which name their file."""
    folder = tmp_path / "senteval"
    for data in SETS["sts"]:
        for path in data.paths(folder):
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = range(PAIRS)
            if "input" in path.name:
                lines = [f"{path.parent.name} {path.stem} {row}\tother {row}" for row in rows]
            elif ".gs." in path.name:
                lines = [f"{row % 6}" for row in rows]
            elif "SICK" in path.name:
                part = {"SICK_train": "TRAIN", "SICK_trial": "TRIAL"}.get(path.stem, "TEST")
                header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
                lines = [header, *(f"{row}\tsick {part} {row}\tother {row}\t{1 + row % 5}\tNEUTRAL" for row in rows)]
            else:
                lines = [f"main\tset\t2012\t{row:04}\t{row % 6}\tstsb {path.stem} {row}\tother {row}" for row in rows]
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_pairs_are_read_or_unread_in_sub_sets_with_read_ones(
    senteval: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.unread_pairs.FEWEST", 2)
    monkeypatch.setattr("scripts.unread_pairs.SMALL", replace(SMALL, suites=replace(SMALL.suites, limit=100)))
    whole = {of.name: of.read(of.paths(senteval)).sampled(100) for of in SETS["sts"]}
    first, second = whole["STS14"].scored_columns
    assert len(first) == 100  # of 240
    other = whole["STS15"].scored_columns
    pairs = [(first[3], second[3]), (second[5], first[5]), (first[7], "another"), (other[0][0], other[1][0])]
    lines = ["\tid\tsentence1\tsentence2\tsimilarity", *(f"{n}\t{n}\t{a}\t{b}\t4.0" for n, (a, b) in enumerate(pairs))]
    (tmp_path / "sts-train.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = pairs_of_tasks(tmp_path, senteval)
    assert found.keys() == {"STS14"}  # one pair of STS15 is not enough
    of = found["STS14"]
    assert np.flatnonzero(of.read).tolist() == [3, 5]
    parts, touched = {text.split()[1] for text in (first[3], first[5])}, {second[3], second[5], other[1][0]}
    unread = [
        row
        for row in range(100)
        if first[row].split()[1] in parts and first[row] != first[7] and second[row] not in touched
    ]
    assert np.flatnonzero(of.unread).tolist() == unread != []
    np.testing.assert_array_equal(of.labels, whole["STS14"].labels)


def test_differences_are_of_the_same_seeds_on_the_pairs_that_are_kept() -> None:
    random, labels, kept = np.random.default_rng(0), np.arange(8.0), np.arange(8) < 5
    keys = [WHOLE, *(pruned(share, criterion) for share in SHARES for criterion in ("score", "random"))]
    answers = {
        (key, seed): SimpleNamespace(labels=labels, predictions=random.random(8)) for key in keys for seed in (0, 1)
    }
    rows = {key: [SimpleNamespace(seed=seed, answers={"STS12": answers[key, seed]}) for seed in (1, 0)] for key in keys}
    rows[WHOLE].append(SimpleNamespace(seed=2, answers={}))  # the others have not got so far
    table = SimpleNamespace(runs=rows)
    found = dict(differences(scores(table, {"STS12": labels}, {"STS12": kept})))

    def score(key: str, seed: int) -> float:
        return stats.spearmanr(labels[:5], answers[key, seed].predictions[:5]).statistic

    half = [score(pruned(0.5, "score"), seed) - score(pruned(0.5, "random"), seed) for seed in (0, 1)]
    assert found["50% by score less at random"] == pytest.approx(half)
    low = [
        np.mean([score(pruned(s, "score"), seed) - score(pruned(s, "random"), seed) for s in (0.01, 0.05, 0.1, 0.2)])
        for seed in (0, 1)
    ]
    assert found["1% to 20% by score less at random"] == pytest.approx(low)
    with pytest.raises(InputError, match="STS12: other labels than the runs have"):
        scores(table, {"STS12": labels + 1}, {"STS12": kept})
