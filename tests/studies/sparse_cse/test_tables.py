"""SparseCSE's tables: what is rewound, scored and removed; verdicts follow from the scores; how stable a score is."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy import stats

from minbert.files import write_json
from minbert.remove_heads_and_neurons import Units
from multitask.base.options import RunOptions
from multitask.experiments.compare_rows import PresetResults, TableResults
from multitask.experiments.grid_frames import RunResult
from multitask.experiments.table_definitions import Row
from multitask.stages.prune import prune
from multitask.stages.settings_without_training import PruneConfig
from studies.engine.recipes import GROUPS
from studies.sparse_cse import figures
from studies.sparse_cse.figures import OWN_PRUNED, scores_section
from studies.sparse_cse.stability import agreement, agreements, by_pairs, kinds_of_text, reliability, stability
from studies.sparse_cse.study import STUDY
from studies.sparse_cse.tables import (
    PRUNING_CHANGES,
    WHOLE,
    pruned,
    sparsity_encoders,
    sparsity_lambda,
    sparsity_moments,
    sparsity_own,
    sparsity_rewinding,
    sparsity_scores,
)
from tests.studies.synthetic import TABLES, Quality, Trained, results_of, without_rows, write_store


def test_encoders_are_rewound_and_trained_again_as_they_were(recipes):
    experiment = sparsity_encoders(recipes)
    points = {row.key: row.point for row in experiment.table.rows}
    wholes = {point["encoder"]: experiment.models[key] for key, point in points.items() if "share" not in point}
    assert len(points) == len(wholes) * (1 + 2 * 2)
    for key, point in points.items():
        model, whole = experiment.models[key], wholes[point["encoder"]]
        if model != whole:
            [left] = model.needs
            assert (left.stage, left.parents, left.config.share) == ("prune", (whole, *whole.parents), point["share"])
            assert model.config == whole.config


def test_rewound_and_kept_weights_are_those_of_the_tables_words(recipes):
    models, whole = sparsity_rewinding(recipes).models, recipes.pretrain(recipes.untuned, recipes.recovery)
    rewound, trained, kept = (models[f"share=0.5,after={after}"] for after in ("rewound", "trained", "kept"))
    assert rewound == sparsity_own(recipes).models[pruned(0.5, "score")]  # computed once for both tables
    assert kept.parents == (whole,)
    assert trained == recipes.pretrain(kept, recipes.recovery)
    assert models["whole-again"] == recipes.pretrain(whole, recipes.recovery)


def test_moments_are_shorter_trainings_and_lambda_alone_varies(recipes):
    models = sparsity_moments(recipes).models
    whole = models["whole"]
    for epochs in (0, 1, 2):
        [left] = models[f"share=0.1,epochs={epochs}"].needs
        shorter = replace(whole, config=replace(whole.config, epochs=epochs)) if epochs else recipes.untuned
        assert left.parents == (whole, shorter)
    assert (whole.config.epochs, models["share=0.1,epochs=2"].config) == (3, whole.config)
    of_lambda = sparsity_lambda(recipes).models
    assert of_lambda["share=0.1,lambda=0.5"] == sparsity_own(recipes).models[pruned(0.1, "score")]
    [left] = of_lambda["share=0.1,lambda=0.25"].needs
    assert left.config.uniformity_weight == 0.25


def test_a_fine_tuned_head_scores_what_is_then_rewound(recipes):
    models = sparsity_scores(recipes).models
    for share in (0.1, 0.3):
        [by_sentiment], [by_similarity] = (models[pruned(share, task)].needs for task in ("sentiment", "similarity"))
        assert by_sentiment.parents == (recipes.finetune(recipes.start), recipes.start)
        assert (by_sentiment.config.score, by_sentiment.config.task) == ("task", "sentiment")
        assert by_similarity.parents == (recipes.start,)
        assert (by_similarity.config.score, by_similarity.config.task) == ("task", None)  # the first cosine: similarity
        [highest] = models[pruned(share, "highest")].needs
        assert (highest.config.order, highest.config.share) == ("highest", share)  # the break test


def pruned_run(folder: Path, heads: list[list[int]]) -> RunResult:
    """Heads of each layer before and after; of two neurons, one is left."""
    folder.mkdir()
    write_json(folder / "pruning.json", {"layers": [{"heads": of, "neurons": [2, 1]} for of in heads]})
    return RunResult("t", "r", 0, folder.name, folder.name, chain=(folder.name,))


def test_the_heat_map_shows_percents_by_share_and_layer(tmp_path, monkeypatch):
    """A row of numbers for each share with runs, means over seeds; some heads were missing before."""
    of_shares = {0.1: ([[2, 2], [1, 1]], [[2, 1], [0, 0]]), 0.5: ([[2, 1], [2, 1]],)}
    runs = {
        pruned(share, "score"): [pruned_run(tmp_path / f"prune-{share}-{n}", heads) for n, heads in enumerate(seeds)]
        for share, seeds in of_shares.items()
    }
    drawn: list[tuple[Any, ...]] = []
    monkeypatch.setattr(figures, "matrices", lambda *given: drawn.append(given))
    results: Any = SimpleNamespace(finished_tables={figures.OWN_PRUNED: SimpleNamespace(runs=runs)}, folder=tmp_path)
    section = figures.pruned_section(figures.OWN_PRUNED, results)
    assert section is not None
    [(panels, texts, rows, columns, labels, title)] = drawn
    assert {name: of.tolist() for name, of in panels.items()} == {
        "heads": [[0.25, 0.0], [0.5, 0.5]],
        "neurons": [[0.5, 0.5], [0.5, 0.5]],
    }
    assert {name: of.tolist() for name, of in texts.items()} == {
        "heads": [["25", "0"], ["50", "50"]],
        "neurons": [["50", "50"], ["50", "50"]],
    }
    assert (rows, columns, labels) == (["10%", "50%"], ["0", "1"], ("layer", "share removed of all"))
    assert title == section.title
    assert figures.pruned_section(figures.START_PRUNED, results) is None


def test_a_heat_map_has_colours_and_texts_in_their_cells(monkeypatch):
    drawn: list[Figure] = []
    monkeypatch.setattr(figures, "render", lambda draw, *_: draw(drawn.append(Figure()) or drawn[-1]))
    panels = {"left": np.array([[0.0, 0.4, 1.0], [0.8, 0.2, 0.6]]), "right": np.zeros((2, 3))}
    texts = {heading: np.char.mod(f"{heading} %.1f", matrix) for heading, matrix in panels.items()}
    figures.matrices(panels, texts, ["up", "down"], ["a", "b", "c"], ("layer", "share"), "Title")
    for axes, (heading, matrix) in zip(drawn[0].axes, panels.items(), strict=True):
        assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == (heading, "layer", "share")
        found = {tuple(np.add(patch.get_xy(), 0.5)): patch.get_alpha() for patch in axes.patches}
        assert found == pytest.approx({(x, y): 0.75 * matrix[y, x] for y in range(2) for x in range(3)})
        shown = {text.get_position(): text.get_text() for text in axes.texts}
        assert shown == {(x, y): texts[heading][y, x] for y in range(2) for x in range(3)}
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["a", "b", "c"]
        assert [tick.get_text() for tick in axes.get_yticklabels()] == ["up", "down"]
        assert axes.yaxis_inverted()


# What pruned models say of SparseCSE: verdicts follow from the scores, and how stable the score is.


def as_claimed(key: str, row: Row, task: str) -> float:
    """An optimum at a low share by score, at another for TREC; nothing of the kind at random."""
    best = pruned(0.2 if task == "TREC" else 0.05, "score")
    return 0.95 if row.key == best else 0.7 if row.key == WHOLE else 0.72 if row.point["criterion"] == "score" else 0.5


def better_than_random_only(key: str, row: Row, task: str) -> float:
    """Pruning harms, at random more."""
    return 0.9 if row.key == WHOLE else 0.8 if row.point["criterion"] == "score" else 0.6


def results(runs: Path, quality: Quality, key: str = OWN_PRUNED, seeds: int = 4) -> PresetResults:
    return PresetResults.read(write_store(runs, [key], quality, seeds=seeds), "sample")


@pytest.fixture(scope="module")
def claimed(tmp_path_factory) -> PresetResults:
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


@pytest.mark.parametrize("left", [(0.05, 0.5), (0.05,), (0.5,)])
def test_a_table_of_fewer_shares_is_judged_by_those_that_it_has(left, claimed):
    [full] = claimed.tables
    keys = {WHOLE, *(pruned(share, criterion) for share in left for criterion in ("score", "random"))}
    smaller = replace(full.table, rows=tuple(row for row in full.table.rows if row.key in keys))
    found = verdicts(with_table(claimed, replace(full, table=smaller)))
    rises = "shown" if left == (0.05, 0.5) else "not tested here"  # it also needs a larger share
    assert {found[key][0] for key in ("similarity-rises", "transfer-rises")} == {rises}
    assert found["better-than-random"][0] == ("not tested here" if left == (0.5,) else "shown")
    assert (found["optima-differ"][0] == "not tested here") == (len(left) == 1)  # one share has no better one
    if left == (0.05, 0.5):
        assert "5% by score less" in found["similarity-rises"][1]
        assert "5% by score, less at random" in found["better-than-random"][1]


@pytest.mark.slow
def test_what_is_left_is_compared_with_random_draws(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "intervals", lambda panels, *_: drawn.append(panels))
    key, draws = "sparsity-scores", np.random.default_rng(0)

    def trained(row: Row, seed: int) -> Trained:
        quality = 0.9 if row.point.get("criterion") == "highest" else 0.6
        return Trained({task: quality + 0.002 * draws.normal() for task in TABLES[key].columns})

    section = scores_section(results_of(tmp_path, key, trained, seeds=5))
    assert section is not None
    assert len(section.pictures) == len(drawn) == 2  # shares
    good, other = PRUNING_CHANGES["highest"][0], PRUNING_CHANGES["signed"][0]
    for panels in drawn:
        assert list(panels) == list(GROUPS)
        for of in panels.values():
            assert (of[good].hollow, of[good].low > 0, of[other].hollow) == (False, True, True)


# How stable the score is: the measures agree with hand counts, and a whole run has all comparisons.


def units(heads: list[float], neurons: list[float]) -> Units:
    """Two layers with these values."""

    def layers(values: list[float]) -> tuple[torch.Tensor, ...]:
        return torch.tensor(values[: len(values) // 2]), torch.tensor(values[len(values) // 2 :])

    return Units(layers(heads), layers(neurons))


def test_ranks_are_compared_over_all_layers():
    rising = [float(number) for number in range(20)]
    swapped = [1.0, 0.0, 3.0, 2.0, *rising[4:]]
    moved = [*rising[2:], 0.0, 1.0]  # the lowest two are the last
    pairs = [(units(rising, rising), units(other, rising)) for other in (swapped, rising[::-1], moved)]
    found = agreements({"x": pairs})
    heads, neurons = (found[found.units == name] for name in ("heads", "neurons"))
    squares = [4.0, sum((2 * number - 19) ** 2 for number in range(20)), 18 * 4 + 2 * 18**2]
    expected = [1 - 6 * square / (20 * (400 - 1)) for square in squares]  # Spearman's formula without ties
    assert list(heads.correlation) == pytest.approx(expected)
    assert list(heads.shared) == [1.0, 0.0, 0.0]
    assert list(neurons.correlation) == pytest.approx([1.0, 1.0, 1.0])


def test_scores_are_those_of_the_stage_and_all_comparisons_are_made(tiny_encoder, small_data, tmp_path, monkeypatch):
    seen: list[tuple[Units, Units]] = []
    original = agreements
    monkeypatch.setattr(
        "studies.sparse_cse.stability.agreements",
        lambda pairs: seen.extend(pairs["seeds of the batches"]) or original(pairs),
    )
    config, options = PruneConfig(train_limit=16, batch_size=8), RunOptions("cpu", "fp32", tmp_path)
    found = stability(str(tiny_encoder), small_data, config, 3, options, (4,))
    counts = found.groupby(["differs", "units"]).size().to_dict()
    kinds = {"seeds of the batches": 3, "batches of 8 and 4": 1}
    assert counts == {(what, name): count for what, count in kinds.items() for name in ("heads", "neurons")}
    assert found.correlation.between(-1, 1 + 1e-9).all()
    with np.load(prune(str(tiny_encoder), small_data, config, options).folder / "scores.npz") as arrays:
        expected = torch.from_numpy(arrays["neuron_scores"])
    assert torch.allclose(torch.stack(seen[0][0].neurons), expected, rtol=1e-5)
    assert not torch.allclose(torch.stack(seen[0][1].neurons), expected, rtol=1e-5)  # other batches
    scored = reliability(str(tiny_encoder), small_data, config, options)
    assert list(zip(scored.pairs, scored.units, strict=True)) == [(8, "heads"), (8, "neurons")]
    assert scored["mean"].between(-1, 1).all()
    kinds = kinds_of_text(str(tiny_encoder), [small_data, small_data], config, options)
    assert [(of.first, of.second, of.pairs) for of in kinds.itertuples()] == [(small_data.name, small_data.name, 8)] * 2
    assert kinds["mean"].to_list() == scored["mean"].to_list()


def test_two_kinds_agree_in_what_they_share():
    """A batch's noise is small beside what the kinds do not share."""
    draws = np.random.default_rng(0)
    shared = draws.normal(size=1000)
    kinds = [shared + draws.normal(size=1000) for _ in range(2)]
    first, second = ({"heads": kind + 0.01 * draws.normal(size=(6, 1000))} for kind in kinds)
    without_noise = stats.spearmanr(*kinds).statistic
    assert 0.3 < without_noise < 0.7
    assert agreement(first, second, 3)["mean"].to_list() == pytest.approx([without_noise], abs=0.002)
    assert agreement(first, first, 3)["mean"].to_list() == pytest.approx([1], abs=0.001)
    means = [first["heads"][list(rows)].mean(0) for rows in combinations(range(6), 3)]
    equal = {"heads": np.stack([first["heads"].mean(0)] * 6)}
    mean = np.mean([stats.spearmanr(one, equal["heads"][0]).statistic for one in means])
    assert agreement(first, equal, 3)["mean"].to_list() == pytest.approx([mean], abs=1e-4)


def test_more_pairs_agree_as_spearman_and_brown_say():
    """A batch's score is the true one with as much noise, so that k batches have a reliability of k / (k + 1)."""
    draws = np.random.default_rng(0)
    scores = draws.normal(size=1000) + draws.normal(size=(33, 1000))
    found = by_pairs({"neurons": scores}, batch_size=64, draws=20)
    assert list(found.pairs) == [64, 128, 256, 512, 1024]
    expected = [count / (count + 1) for count in (1, 2, 4, 8, 16)]
    in_ranks = 6 / np.pi * np.arcsin(np.array(expected) / 2)  # of normal values
    assert list(found["mean"]) == pytest.approx(in_ranks, abs=0.02)
    assert (found.low < found["mean"]).all()
