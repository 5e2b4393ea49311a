"""Tables: every row of the report, equal rows are one recipe, and the paper preset has the report's settings."""

from dataclasses import replace
from itertools import combinations, product

import pytest

from minbert.errors import InputError
from multitask.objectives.config import ObjectiveConfig
from multitask.runs.artefact import Weights
from multitask.schedulers import SCHEDULERS
from multitask.stages.finetune import FinetuneConfig
from multitask.stages.fuse import FuseConfig
from multitask.stages.pretrain import PretrainConfig
from studies.engine.presets import ONLY, PRESETS, PresetName, load_preset
from studies.engine.recipes import Node, Recipes
from studies.engine.tables import Row, all_tables
from studies.sparse_cse.tables.sparsity import WHOLE

ROWS = {"1": 4, "2": 6, "3": 3, "4": 3, "5": 4, "6": 3, "7": 2, "8": 2, "9": 2, "10": 3}  # as counted in the report


def rows(recipes: Recipes) -> list[Row]:
    return [row for table in all_tables(recipes) for row in table.rows]


def test_all_tables_of_the_report_are_there_in_its_order(recipes: Recipes) -> None:
    tables = all_tables(recipes)
    assert [table.key for table in tables][: len(ROWS)] == list(ROWS)
    assert len({table.key for table in tables}) == len(tables)
    assert {table.key: len(table.rows) for table in tables if table.key in ROWS} == ROWS
    for table in tables:
        labels = [row.label for row in table.rows]
        assert len(set(labels)) == len({row.model for row in table.rows}) == len(labels)
        assert table.reference is None or table.reference in labels


def test_published_overall_scores_are_the_means_of_the_three(recipes: Recipes) -> None:
    published = [row.published for row in rows(recipes) if row.published is not None]
    assert len(published) == sum(ROWS.values())
    for scores in published:
        if scores.overall is not None:
            tasks = [scores.sentiment, scores.paraphrase, scores.similarity]
            assert scores.overall == pytest.approx(sum(score for score in tasks if score) / 3, abs=0.0011)


def test_rows_with_the_same_published_scores_are_one_recipe(recipes: Recipes) -> None:
    reported = [row for row in rows(recipes) if row.published is not None]
    equal = [(a, b) for a, b in combinations(reported, 2) if a.published == b.published]
    assert len(equal) == 8  # Table 2's in 5, 6, 8 and 10, Table 5's in 7 and 10
    assert [(a.label, b.label) for a, b in equal if a.model != b.model] == []


def test_every_row_but_the_test_scores_can_be_computed(recipes: Recipes) -> None:
    assert [row.label for row in rows(recipes) if row.model is None] == ["Ensemble (test)"]


@pytest.mark.parametrize("name", PRESETS)
def test_presets_begin_with_one_start_and_have_the_reports_epochs_of_pre_training(name: PresetName) -> None:
    recipes = PRESETS[name]
    nodes = {node for row in rows(recipes) if row.model for node in row.model.chain()}
    assert {parent for node in nodes for parent in node.parents if isinstance(parent, Weights)} == {recipes.start}
    lengths = {
        row.label: [node.config.epochs for node in row.model.chain() if isinstance(node.config, PretrainConfig)]
        for table in all_tables(recipes)
        for row in table.rows
        if row.model and table.key in ("5", "8", "9")
    }
    assert lengths == {
        "NLI before 3 given": [3, 5],
        "3 given before NLI": [5, 3],
        "NLI": [3],
        "3 given": [5],
        "1 epoch": [1],
        "2 epochs": [2],
        "3 epochs": [3],
    }


def test_the_paper_preset_has_the_settings_of_section_5_3() -> None:
    preset = load_preset("paper")
    nodes = {node for table in preset.tables for row in table.rows if row.model for node in row.model.chain()}
    for node in nodes:
        config = node.config
        if isinstance(config, PretrainConfig):
            rate = config.optimizer.learning_rate
            assert min(abs(rate - reported) for reported in (1e-5, 2e-5, 3e-5)) < 1e-12
            assert (config.batch_size, config.pooling, config.projection) == (16, "cls", "mlp")
            assert config.objective == ObjectiveConfig("infonce")
        supervised = config.finetune if isinstance(config, FuseConfig) else config
        if isinstance(supervised, FinetuneConfig):
            config = supervised
            assert (config.epochs, config.batch_size, config.pooling) == (10, 16, "cls")
            assert config.optimizer.learning_rate == 1e-5
            assert config.heads.dropout == 0.3
            assert config.heads.head_hidden_size in (None, 768)  # the encoder's own width is 768 too
        if isinstance(node.config, FuseConfig):
            assert node.config.contrastive.quora_share == 0.06
        if isinstance(config, PretrainConfig) and "paraphrase" in config.sources:
            assert (config.epochs, config.quora_share) == (10, 0.06)


def test_a_seed_goes_along_the_whole_chain(recipes: Recipes) -> None:
    ensemble = next(row.model for row in rows(recipes) if row.label == "Ensemble (dev)")
    assert ensemble is not None
    seeds = {getattr(node.config, "seed", None) for node in ensemble.seeded(3).chain()}
    assert seeds == {3, None}  # an ensemble has none of its own
    assert ensemble.seeded(3).seeded(0) == ensemble


def test_a_chain_has_every_stage_once_and_parents_first(recipes: Recipes) -> None:
    ensemble = next(row.model for row in rows(recipes) if row.label == "Ensemble (dev)")
    assert ensemble is not None
    seen: list[Node] = []
    for node in ensemble.chain():
        assert node not in seen
        assert set(node.needs) <= set(seen)
        seen.append(node)
    assert seen[-1] == ensemble
    assert len(seen) == 9  # two pre-trainings, six fine-tunings, the ensemble


def test_tables_are_chosen_by_key_and_unknown_keys_are_listed() -> None:
    assert [table.key for table in load_preset("sample", tables=["7", "2"]).tables] == ["2", "7"]
    with pytest.raises(InputError, match=r"no table 11; there are 1, 2,.*figure2"):
        load_preset("sample", tables=["2", "11"])


def test_labels_of_learning_rates_are_the_presets_own() -> None:
    [paper] = load_preset("paper", tables=["10"]).tables
    assert [row.label for row in paper.rows] == ["1e-5", "2e-5", "3e-5"]
    supervised = PRESETS["paper"].supervised
    faster = replace(supervised, optimizer=replace(supervised.optimizer, learning_rate=1e-4))
    other = next(t for t in all_tables(replace(PRESETS["paper"], supervised=faster)) if t.key == "10")
    assert other.rows[0].label == "1e-4 (report: 1e-5)"
    assert other.reference == "2e-4 (report: 2e-5)"


def test_the_table_of_schedulers_has_all_of_them(recipes: Recipes) -> None:
    [table] = [table for table in all_tables(recipes) if table.key == "schedulers"]
    named = [row.model.config.scheduler for row in table.rows if row.model is not None]
    assert sorted(named) == sorted(set(SCHEDULERS) - {"single"})
    assert len({replace(row.model.config, scheduler="average") for row in table.rows if row.model is not None}) == 1


def configs(recipes: Recipes, key: str) -> dict[str, PretrainConfig]:
    """A table's pre-trainings by label; they all start from one encoder."""
    [table] = [table for table in all_tables(recipes) if table.key == key]
    nodes = {row.label: row.model for row in table.rows if row.model is not None}
    assert len({node.parents for node in nodes.values()}) == 1
    found = {label: node.config for label, node in nodes.items()}
    return {label: config for label, config in found.items() if isinstance(config, PretrainConfig)}


def test_the_components_are_every_subset_on_every_loss(recipes: Recipes) -> None:
    objectives = [config.objective for config in configs(recipes, "components").values()]
    parts = ("dissipation", "weight", "ratio")
    cells = {(o.name, tuple(part in dict(o.parameters) for part in parts)) for o in objectives}
    full = {(name, on) for name in ("mhe", "barlow_twins", "vicreg") for on in product((False, True), repeat=3)}
    assert cells == full | {("mhs", (d, False, r)) for d in (False, True) for r in (False, True)}
    assert all(dict(o.parameters)["uniformity_weight"] == 1 for o in objectives if "weight" in dict(o.parameters))


def test_the_gradient_form_differs_from_its_defaults_in_one_component(recipes: Recipes) -> None:
    default, *others = [config.objective for config in configs(recipes, "gradient").values()]
    assert not default.changed()
    changed = [list(other.changed()) for other in others]
    assert sorted(changed) == [["dissipation"]] * 6 + [["ratio"]] * 6 + [["weight"]] * 6


@pytest.mark.parametrize(
    ("key", "varied"),
    [
        ("components", {"objective"}),
        ("objectives", {"objective", "optimizer"}),
        ("gradient", {"objective"}),
        ("mixed", {"objective"}),
        ("decoupled", {"objective"}),
        ("batch-sizes", {"objective", "batch_size", "chunk", "optimizer"}),
        ("data-sizes", {"objective", "train_limit"}),
        ("domains", {"objective", "sources"}),
    ],
)
def test_rows_of_the_study_differ_in_what_is_compared_only(recipes: Recipes, key: str, varied: set[str]) -> None:
    found = list(configs(recipes, key).values())
    assert {name for name in vars(found[0]) if len({vars(config)[name] for config in found}) > 1} == varied


def test_plain_mhs_alone_learns_at_half_the_rate(recipes: Recipes) -> None:
    rates = {label: config.optimizer.learning_rate for label, config in configs(recipes, "objectives").items()}
    usual = recipes.views.optimizer.learning_rate
    assert {label: rate for label, rate in rates.items() if rate != usual} == {"MHS": usual / 2}


def test_encoders_are_rewound_and_trained_again_as_they_were(recipes: Recipes) -> None:
    models = {row.label: row.model for row in {t.key: t for t in all_tables(recipes)}["sparsity-encoders"].rows}
    wholes = {label.partition(":")[0]: model for label, model in models.items() if label.endswith(WHOLE.lower())}
    assert len(models) == len(wholes) * (1 + 2 * 2)
    for label, model in models.items():
        whole = wholes[label.partition(":")[0]]
        if model != whole:
            [pruned] = model.needs
            assert (pruned.stage, pruned.parents) == ("prune", (whole, *whole.parents))
            assert model.config == whole.config


def test_a_fine_tuned_head_scores_what_is_then_rewound(recipes: Recipes) -> None:
    models = {row.label: row.model for row in {t.key: t for t in all_tables(recipes)}["sparsity-scores"].rows}
    for share in ("10%", "30%"):
        [by_sentiment], [by_similarity] = (
            models[f"{share}, loss of {task}"].needs for task in ("sentiment", "similarity")
        )
        assert by_sentiment.parents == (recipes.finetune(recipes.start), recipes.start)
        assert (by_sentiment.config.score, by_sentiment.config.task) == ("task", "sentiment")
        assert by_similarity.parents == (recipes.start,)
        assert (by_similarity.config.score, by_similarity.config.task) == ("task", "similarity")


def keys(name: PresetName, *tables: str) -> list[str]:
    return [table.key for table in load_preset(name, tables=tables or None).tables]


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in ONLY])
def test_a_preset_runs_all_tables_but_those_on_request(name: PresetName) -> None:
    assert keys(name) == [table.key for table in all_tables(PRESETS[name]) if not table.on_request]
    assert {*ROWS, "reviews", "figure2"} <= set(keys(name))
    assert not {"schedulers", "objectives", "best"} & set(keys(name))


def test_the_preset_best_runs_its_own_table() -> None:
    assert keys("best") == ["best"]
    [table] = load_preset("best").tables
    assert [row.label for row in table.rows] == ["Best"]


@pytest.mark.parametrize("name", PRESETS)
def test_named_tables_take_the_place_of_a_presets_own(name: PresetName) -> None:
    assert keys(name, "2") == ["2"]
    assert keys(name, "objectives", "2") == ["2", "objectives"]
