"""The gradient study's tables: rows differ in what is compared only, and points say how."""

from collections.abc import Callable
from itertools import product

import pytest

from multitask.experiments.tables import Experiment, Node
from multitask.stages.settings import PretrainConfig
from studies.engine.presets import PRESETS
from studies.engine.recipes import Recipes
from studies.gradient_paradigm.tables import (
    OBJECTIVES,
    VARIED,
    batch_sizes,
    components,
    data_sizes,
    decoupled,
    domains,
    few_negatives,
    gradient,
    mixed,
    objectives,
    objectives_supervised,
)

Make = Callable[[Recipes], Experiment]


def configs(recipes: Recipes, make: Make) -> dict[str, PretrainConfig]:
    """A table's pre-trainings by the row's key; they all start from one encoder."""
    models = make(recipes).models
    assert len({node.parents for node in models.values()}) == 1
    return {key: node.config for key, node in models.items() if isinstance(node.config, PretrainConfig)}


def test_the_components_are_every_subset_on_every_loss(recipes):
    parts = ("dissipation", "weight", "ratio")
    cells = set()
    found = configs(recipes, components)
    for row in components(recipes).table.rows:
        objective = found[row.key].objective
        given = dict(objective.parameters)
        on = tuple(part for part in parts if part in given)
        assert row.point == {"loss": objective.name, "components": on}
        assert given["uniformity_weight"] == 1 or "weight" not in on
        cells.add((objective.name, *(part in on for part in parts)))
    full = {(name, *on) for name in ("mhe", "barlow_twins", "vicreg") for on in product((False, True), repeat=3)}
    assert cells == full | {("mhs", d, False, r) for d in (False, True) for r in (False, True)}


def test_the_gradient_form_differs_from_its_defaults_in_one_component(recipes):
    names = {"margin": "dissipation", "temperature": "weight", "ratio": "ratio"}
    default, *others = gradient(recipes).table.rows
    found = configs(recipes, gradient)
    for row in others:
        [(parameter, value)] = row.point.items() - default.point.items()
        assert found[row.key].objective.changed() == {names[parameter]: value}
        assert row.key == f"{parameter}={value:g}"
    assert not found[default.key].objective.changed()
    assert len(others) == sum(map(len, VARIED.values()))


@pytest.mark.parametrize(
    ("make", "varied"),
    [
        (components, {"objective"}),
        (objectives, {"objective", "optimizer"}),
        (gradient, {"objective"}),
        (mixed, {"objective"}),
        (decoupled, {"objective"}),
        (batch_sizes, {"objective", "batch_size", "chunk", "optimizer"}),
        (data_sizes, {"objective", "train_limit", "probe_every"}),
        (domains, {"objective", "sources"}),
        (few_negatives, {"objective", "sampling"}),
    ],
)
def test_rows_differ_in_what_is_compared_only(recipes, make, varied):
    found = list(configs(recipes, make).values())
    assert {name for name in vars(found[0]) if len({vars(config)[name] for config in found}) > 1} == varied


@pytest.mark.parametrize("name", ["sample", "paper", "paradigm-roberta"])
def test_every_loss_pre_trains_on_pairs_and_on_triplets_before_the_same_fine_tuning(name):
    recipes = PRESETS[name]
    models = objectives_supervised(recipes).models
    alone = models.pop("source=none,objective=none")
    assert alone == recipes.finetune(recipes.base)
    assert len(models) == 2 * len(OBJECTIVES)
    for row in objectives_supervised(recipes).table.rows[1:]:
        model, source, loss = models[row.key], row.point["source"], str(row.point["objective"])
        [pretraining] = model.parents
        assert isinstance(pretraining, Node)
        assert isinstance(pretraining.config, PretrainConfig)
        assert (model.config, pretraining.parents) == (alone.config, (recipes.base,))
        usual = recipes.nli().config if source == "nli" else recipes.quora(recipes.supervised).config
        changed = {key for key, value in vars(pretraining.config).items() if value != vars(usual)[key]}
        assert changed <= {"objective", "optimizer", "negative_pairs"}
        assert (pretraining.config.sources, pretraining.config.negative_pairs) == ((source,), "bounded")
        assert pretraining.config.objective == recipes.losses.get(loss, OBJECTIVES[loss])


@pytest.mark.parametrize("name", ["small", "paper"])
def test_rows_of_other_sizes_choose_the_best_of_equally_many_checkpoints(name):
    of_data = [config for config in configs(PRESETS[name], data_sizes).values() if config.train_limit]
    assert {config.train_limit // config.batch_size // config.evaluate_every for config in of_data} == {4}
    apart = [config.batch_size * config.evaluate_every for config in configs(PRESETS[name], batch_sizes).values()]
    assert max(apart) == pytest.approx(min(apart), rel=0.04)  # sentences; steps are whole
