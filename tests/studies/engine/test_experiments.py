"""Experiments: all tables in their order, chosen by key, with recipes that begin with one start."""

from dataclasses import replace

import pytest

from minbert.errors import InputError
from multitask.base.runs import Weights
from multitask.experiments.tables import Node
from studies.engine.presets import ONLY, PRESETS, PresetName, load_preset
from studies.engine.recipes import Recipes
from studies.study import all_experiments

NUMBERED = [str(number) for number in range(1, 11)]
OTHERS = """batch-sizes batches best best-base best-parts components data-sizes decoupled decoupled-long domains figure2
gradient gradient-suites learning-rate-schedule mixed negative-pairs negatives objectives objectives-long
objectives-suites pairs regularisation reviews schedulers shapes simulations sparsity sparsity-encoders sparsity-own
sparsity-rewinding sparsity-moments sparsity-lambda sparsity-scores stages few-negatives frozen objectives-supervised"""


def test_no_table_is_lost_and_the_numbered_ones_come_first(recipes: Recipes) -> None:
    experiments = all_experiments(recipes)
    tables = [experiment.table.key for experiment in experiments]
    assert tables[: len(NUMBERED)] == NUMBERED
    assert set(tables) >= set(OTHERS.split())
    assert len(set(tables)) == len(tables)
    for experiment in experiments:
        assert len(set(experiment.models.values())) == len(experiment.models)


def test_every_row_but_the_test_scores_can_be_computed(recipes: Recipes) -> None:
    missing = [
        (e.table.key, row.key) for e in all_experiments(recipes) for row in e.table.rows if row.key not in e.models
    ]
    assert missing == [("2", "ensemble-test")]


@pytest.mark.parametrize("name", PRESETS)
def test_all_rows_of_a_preset_begin_with_one_start(name: PresetName) -> None:
    recipes = PRESETS[name]
    models = [model for experiment in all_experiments(recipes) for model in experiment.models.values()]
    nodes = {node for model in models for node in model.chain()}
    assert {parent for node in nodes for parent in node.parents if isinstance(parent, Weights)} == {recipes.start}


def ensemble(recipes: Recipes) -> Node:
    return next(e.models["ensemble-dev"] for e in all_experiments(recipes) if e.table.key == "2")


def test_a_seed_goes_along_the_whole_chain(recipes: Recipes) -> None:
    model = ensemble(recipes)
    seeds = {getattr(node.config, "seed", None) for node in model.seeded(3).chain()}
    assert seeds == {3, None}  # an ensemble has none of its own
    assert model.seeded(3).seeded(0) == model


def test_a_chain_has_every_stage_once_and_parents_first(recipes: Recipes) -> None:
    seen: list[Node] = []
    for node in ensemble(recipes).chain():
        assert node not in seen
        assert set(node.needs) <= set(seen)
        seen.append(node)
    assert seen[-1] == ensemble(recipes)
    assert len(seen) == 9  # two pre-trainings, six fine-tunings, the ensemble


def keys(name: PresetName, *tables: str) -> list[str]:
    return [experiment.table.key for experiment in load_preset(name, tables=tables or None).experiments]


def test_tables_are_chosen_by_key_and_unknown_keys_are_listed() -> None:
    assert keys("sample", "7", "2") == ["2", "7"]
    with pytest.raises(InputError, match=r"no table 11; there are 1, 2,.*figure2"):
        load_preset("sample", tables=["2", "11"])


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in ONLY])
def test_a_preset_runs_all_tables_but_those_on_request(name: PresetName) -> None:
    assert keys(name) == [e.table.key for e in all_experiments(PRESETS[name]) if not e.on_request]
    assert {*NUMBERED, "reviews", "figure2"} <= set(keys(name))
    assert not {"schedulers", "objectives", "best"} & set(keys(name))


@pytest.mark.parametrize("name", ["best", "best-base"])
def test_the_presets_of_the_best_recipes_run_their_own_tables(name: PresetName) -> None:
    [best] = load_preset(name).experiments
    assert (best.table.key, list(best.models)) == (name, [name])


def test_the_presets_of_the_gradient_paper_have_its_scripts_settings() -> None:
    bert, roberta = (
        {e.table.key: e.models for e in load_preset(name).experiments} for name in ("paradigm", "paradigm-roberta")
    )
    assert list(bert) == list(roberta) == sorted(bert)
    expected = {
        "mhe": [(0.30, 1.75), (0.30, 1.25)],
        "mhs": [(0.30, 1.75), (0.27, 1.0)],
        "barlow_twins": [(0.30, 1.5), (0.37, 1.25)],
        "vicreg": [(0.30, 1.5), (0.37, 1.25)],
    }
    for loss, of_presets in expected.items():
        for models, (margin, ratio) in zip((bert, roberta), of_presets, strict=True):
            config = models["objectives"][f"{loss}-modified"].config
            found = dict(config.objective.parameters)
            assert (found["dissipation"], found["ratio"]) == (margin, ratio)
            same = [node for node in models["components"].values() if node.config.objective == config.objective]
            assert len(same) == 1
        assert roberta["objectives"][loss].config.optimizer.learning_rate == 1e-6
    modified = [models["objectives"]["mhe-modified"].config for models in (bert, roberta)]
    assert [(config.batch_size, config.evaluate_every) for config in modified] == [(128, 125), (512, 50)]
    for config in modified:
        assert config.freeze_embeddings
        assert (config.optimizer.schedule, config.optimizer.weight_decay) == ("linear", 0.0)


@pytest.mark.parametrize(("key", "times"), [("objectives", 10), ("decoupled", 10 / 3)])
def test_a_long_table_takes_ten_passes_over_the_sentences_and_looks_less_often(key: str, times: float) -> None:
    usual, long = (load_preset("small", tables=[of]).experiments[0].models for of in (key, f"{key}-long"))
    assert list(long) == list(usual)
    for row, model in usual.items():
        epochs = round(times * model.config.epochs)
        assert long[row].config == replace(model.config, epochs=epochs, evaluate_every=32, probe_every=16)
        assert (model.config.evaluate_every, model.config.probe_every, epochs) == (8, 4, 10)


def test_the_long_tables_share_their_trainings() -> None:
    objectives, decoupled = (
        load_preset("small", tables=[key]).experiments[0].models for key in ("objectives-long", "decoupled-long")
    )
    assert [row for row in objectives if objectives[row] == decoupled.get(row)] == ["infonce", "met"]
