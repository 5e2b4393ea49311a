"""SparseCSE's tables: what is rewound, what scores it, and what is removed."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from minbert.files import write_json
from multitask.experiments.frames import RunResult
from studies.sparse_cse import figures
from studies.sparse_cse.figures import removed
from studies.sparse_cse.tables import (
    pruned,
    sparsity_encoders,
    sparsity_lambda,
    sparsity_moments,
    sparsity_own,
    sparsity_rewinding,
    sparsity_scores,
)


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


def test_what_is_removed_is_a_mean_over_seeds_by_layer(tmp_path):
    """Two layers; the second head of the second layer was missing before, as after an earlier pruning."""
    runs = []
    for seed, heads in enumerate(([[2, 2], [1, 1]], [[2, 1], [1, 1]])):
        runs.append(pruned_run(tmp_path / f"prune-{seed}", heads))
    heads, neurons = removed(runs, tmp_path) or ((), ())
    assert heads == pytest.approx([0.25, 0.0])
    assert neurons == pytest.approx([0.5, 0.5])
    assert removed([], tmp_path) is None


def test_the_heat_map_shows_percents_by_share_and_layer(tmp_path, monkeypatch):
    """Of two layers with two heads and two neurons each, one row of numbers for each share with runs."""
    runs = {}
    for share, heads in ((0.1, [[2, 2], [2, 1]]), (0.5, [[2, 1], [2, 1]])):
        runs[pruned(share, "score")] = (pruned_run(tmp_path / f"prune-{share}", heads),)
    drawn: list[tuple[Any, ...]] = []
    monkeypatch.setattr(figures, "matrices", lambda *given: drawn.append(given))
    results: Any = SimpleNamespace(finished_tables={figures.OWN: SimpleNamespace(runs=runs)}, folder=tmp_path)
    section = figures.pruned_section(figures.OWN, results)
    assert section is not None
    [(panels, texts, rows, columns, labels, title)] = drawn
    assert {name: of.tolist() for name, of in panels.items()} == {
        "heads": [[0.0, 0.5], [0.5, 0.5]],
        "neurons": [[0.5, 0.5], [0.5, 0.5]],
    }
    assert {name: of.tolist() for name, of in texts.items()} == {
        "heads": [["0", "50"], ["50", "50"]],
        "neurons": [["50", "50"], ["50", "50"]],
    }
    assert (rows, columns, labels) == (["10%", "50%"], ["0", "1"], ("layer", "share removed of all"))
    assert title == section.title
    assert figures.pruned_section(figures.START, results) is None


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
