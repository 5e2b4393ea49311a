"""Rows of the sparsity tables run to their end in small: break test, rewinding, geometry, what is pruned."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from minbert.files import read_arrays, read_json
from multitask.evaluation.embedding_suites import KnownEncoder, evaluate_suites
from multitask.runtime.options import RunOptions
from studies.engine.experiments import Experiment
from studies.engine.local_engine import InProcess
from studies.engine.presets import Preset
from studies.engine.recipes import Recipes
from studies.engine.record import Record
from studies.engine.run import run_preset
from studies.report.preset_results import PresetResults
from studies.report.scores_as_data import scores_as_data
from studies.sparse_cse.figures import pruned_section, removed
from studies.sparse_cse.tables import WHOLE, pruned, sparsity_own, sparsity_rewinding, sparsity_scores

ROWS = {
    sparsity_own: (WHOLE, pruned(0.5, "score")),
    sparsity_rewinding: ("whole-again", "share=0.5,after=rewound", "share=0.5,after=trained", "share=0.5,after=kept"),
    sparsity_scores: (pruned(0.3, "highest"),),
}


def only(experiment: Experiment, rows: tuple[str, ...]) -> Experiment:
    return replace(experiment, models={key: experiment.models[key] for key in rows})


@pytest.fixture(scope="module")
def runs(recipes: Recipes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    preset = Preset("sample", recipes, tuple(only(make(recipes), rows) for make, rows in ROWS.items()))
    assert not run_preset(preset, 1, RunOptions("cpu", "fp32", folder), InProcess()).failures
    return folder


def test_embeddings_are_measured_before_and_after_pruning(runs: Path, recipes: Recipes) -> None:
    record = Record.read(runs, "sample")
    for run in (record.of_row("sparsity-own", row)[0] for row in ROWS[sparsity_own]):
        measured = read_json(runs / str(run.evaluation) / "evaluation.json")["geometry"]
        known = KnownEncoder.load(str(runs / str(run.model)), device="cpu", precision="fp32")
        result = evaluate_suites(["geometry"], known, recipes.suites_data)["geometry"]
        expected = result.tasks["STSBenchmark"].scores
        for name in ("alignment", "uniformity", "effective_rank"):
            assert measured[name] == pytest.approx(getattr(expected, name), rel=1e-4)
        assert "bands" not in measured
    own = scores_as_data(PresetResults.read(runs, "sample")).table("sparsity-own")
    lines = own.lines[own.lines.task == "embeddings"].set_index(["row", "metric"])
    assert set(lines.index.get_level_values(1)) == {"alignment", "uniformity"}
    after = lines.loc[pruned(0.5, "score"), "alignment"]
    assert after.value == pytest.approx(measured["alignment"])
    assert after[["low", "p"]].isna().all()
    assert [own.description.columns[place].heading for place in own.pictured] == ["STS", "Alignment", "Uniformity"]


def test_rewound_and_kept_weights_are_those_of_the_tables_words(runs: Path, recipes: Recipes) -> None:
    record, models = Record.read(runs, "sample"), sparsity_rewinding(recipes).models
    whole = recipes.pretrain(recipes.untuned, recipes.recovery)
    rewound, trained, kept = (models[f"share=0.5,after={after}"] for after in ("rewound", "trained", "kept"))
    assert rewound == sparsity_own(recipes).models[pruned(0.5, "score")]  # computed once for both tables
    assert kept.parents == (whole,)
    assert trained == recipes.pretrain(kept, recipes.recovery)
    assert models["whole-again"] == recipes.pretrain(whole, recipes.recovery)
    found = {key: record.of_row("sparsity-rewinding", key)[0].model for key in ROWS[sparsity_rewinding]}
    assert len(set(found.values())) == 4


def test_the_break_test_removes_what_the_score_keeps(runs: Path, recipes: Recipes) -> None:
    record = Record.read(runs, "sample")
    [run] = record.of_row("sparsity-scores", pruned(0.3, "highest"))
    [artefact] = [name for name in run.chain if name.startswith("prune-")]
    arrays = read_arrays(runs / artefact / "scores.npz")
    scores, kept = arrays["neuron_scores"], arrays["neurons_kept"]
    assert kept.sum() == kept.size - round(0.3 * kept.size)
    assert scores[kept].max() <= scores[~kept].min()


def test_what_is_pruned_is_drawn_by_layer(runs: Path) -> None:
    results = PresetResults.read(runs, "sample")
    section = pruned_section("sparsity-own", results)
    assert section is not None
    of_row = results.finished_tables["sparsity-own"].runs[pruned(0.5, "score")]
    [artefact] = [stage.folder.name for stage in of_row[0].chain if stage.stage == "prune"]
    arrays = read_arrays(runs / artefact / "scores.npz")
    shares = removed(of_row)
    assert shares is not None
    for kind, found in zip(("heads", "neurons"), shares, strict=True):
        assert found == pytest.approx([1 - np.mean(layer) for layer in arrays[f"{kind}_kept"]])
    assert pruned_section("sparsity", results) is None
    assert removed(results.finished_tables["sparsity-own"].runs[WHOLE]) is None
