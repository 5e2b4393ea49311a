"""Pairs that a score reads are left out, and differences are those of the same seeds."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from multitask.evaluation.suite_sets import SETS
from scripts.unread_pairs import SHARES, differences, scores, unread
from studies.sparse_cse.tables import WHOLE, pruned

PAIRS = 12


@pytest.fixture
def senteval(tmp_path: Path) -> Path:
    """Files of the similarity tasks with twelve pairs each, which name their file."""
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


def test_training_pairs_are_left_out_in_either_order_and_single_sentences_stay(senteval: Path, tmp_path: Path) -> None:
    whole = {of.name: of.read(of.paths(senteval)) for of in SETS["sts"]}
    first, second = whole["STS14"].scored_columns
    pairs = [(first[3], second[3]), (second[5], first[5]), (first[7], "another"), ("another", second[8])]
    lines = ["\tid\tsentence1\tsentence2\tsimilarity", *(f"{n}\t{n}\t{a}\t{b}\t4.0" for n, (a, b) in enumerate(pairs))]
    (tmp_path / "sts-train.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = unread(tmp_path, senteval)
    assert found.keys() == whole.keys()
    assert np.flatnonzero(~found["STS14"]).tolist() == [3, 5]
    assert all(kept.all() for name, kept in found.items() if name != "STS14")


def test_differences_are_of_the_same_seeds_on_the_pairs_that_are_kept() -> None:
    random, labels, kept = np.random.default_rng(0), np.arange(8.0), np.arange(8) < 5
    keys = [WHOLE, *(pruned(share, criterion) for share in SHARES for criterion in ("score", "random"))]
    answers = {
        (key, seed): SimpleNamespace(labels=labels, predictions=random.random(8)) for key in keys for seed in (0, 1)
    }
    rows = {key: [SimpleNamespace(seed=seed, answers={"STS12": answers[key, seed]}) for seed in (1, 0)] for key in keys}
    rows[WHOLE].append(SimpleNamespace(seed=2, answers={}))  # the others have not got so far
    found = dict(differences(scores(SimpleNamespace(runs=rows), {"STS12": kept})))

    def score(key: str, seed: int) -> float:
        return stats.spearmanr(labels[:5], answers[key, seed].predictions[:5]).statistic

    half = [score(pruned(0.5, "score"), seed) - score(WHOLE, seed) for seed in (0, 1)]
    assert found["50% by score less nothing removed"] == pytest.approx(half)
    low = [
        np.mean([score(pruned(s, "score"), seed) - score(pruned(s, "random"), seed) for s in (0.01, 0.05, 0.1, 0.2)])
        for seed in (0, 1)
    ]
    assert found["1% to 20% by score less at random"] == pytest.approx(low)
