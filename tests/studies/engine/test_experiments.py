"""Experiments: all tables in their order, chosen by key; keys of rows come from points; damaged records are refused."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from minbert.errors import InputError
from minbert.files import read_json
from multitask.base.runs import FORMAT_VERSION, Weights
from multitask.experiments.compare_rows import PresetResults
from multitask.experiments.grid_frames import GridFrames, RunResult
from multitask.experiments.table_definitions import Node, PresetRecord, Row, StudyTable, duration, row_key
from multitask.stages.settings_of_pretraining import PretrainConfig
from multitask.training.contrastive_source import _check_negatives
from studies.engine.presets import ONLY, PRESETS, PresetName, load_preset
from studies.engine.recipes import Recipes
from studies.study import all_experiments
from tests.conftest import ROOT
from tests.studies.synthetic import TABLES, write_store

NUMBERED = [str(number) for number in range(1, 11)]
OTHERS = """batch-sizes batches best best-base best-parts components components-suites data-sizes decoupled
decoupled-long domains figure2 gradient gradient-suites learning-rate-schedule mixed negative-pairs negatives
objectives objectives-long objectives-suites pairs regularisation reviews schedulers shapes simulations sparsity
sparsity-encoders sparsity-own sparsity-rewinding sparsity-moments sparsity-lambda sparsity-scores stages few-negatives
frozen architectures objectives-supervised supervision equal-steps defaults coefficients break-conditions
decoupled-longest"""


def test_no_table_is_lost_and_the_numbered_ones_come_first(recipes):
    experiments = all_experiments(recipes)
    tables = [experiment.table.key for experiment in experiments]
    assert tables[: len(NUMBERED)] == NUMBERED
    assert set(tables[len(NUMBERED) :]) == set(OTHERS.split())
    assert len(set(tables)) == len(tables)
    for experiment in experiments:
        assert len(set(experiment.models.values())) == len(experiment.models)


def test_every_row_but_the_test_scores_can_be_computed(recipes):
    missing = [
        (e.table.key, row.key) for e in all_experiments(recipes) for row in e.table.rows if row.key not in e.models
    ]
    assert missing == [("2", "ensemble-test")]


def test_every_rows_objective_takes_its_negatives(recipes):
    models = [model for experiment in all_experiments(recipes) for model in experiment.models.values()]
    configs = {node.config for model in models if isinstance(model, Node) for node in model.chain()}
    found = [config for config in configs if isinstance(config, PretrainConfig)]
    assert {"hardest", "random", "unlike"} <= {config.sampling.negatives for config in found}
    for config in found:
        _check_negatives(config.sampling.negatives, config.objective.build())


@pytest.mark.parametrize("name", PRESETS)
def test_all_rows_of_a_preset_begin_with_one_start(name):
    recipes = PRESETS[name]
    models = [model for experiment in all_experiments(recipes) for model in experiment.models.values()]
    nodes = {node for model in models for node in model.chain()}
    assert {parent for node in nodes for parent in node.parents if isinstance(parent, Weights)} == {recipes.start}


def test_trainings_of_medium_take_a_thousand_steps():
    multitask, recovery = PRESETS["medium"].multitask, PRESETS["medium"].recovery
    assert multitask.epoch_size
    assert recovery.train_limit
    steps = [epochs * (rows // batch) for epochs, rows, batch in (
        (multitask.epochs, multitask.epoch_size, multitask.batch_size),
        (recovery.epochs, recovery.train_limit, recovery.batch_size),
    )]  # fmt: skip
    assert steps == [1000, 1000]


def ensemble(recipes: Recipes) -> Node:
    return next(e.models["ensemble-dev"] for e in all_experiments(recipes) if e.table.key == "2")


def test_a_seed_goes_along_the_whole_chain(recipes):
    model = ensemble(recipes)
    seeds = {getattr(node.config, "seed", None) for node in model.seeded(3).chain()}
    assert seeds == {3, None}  # an ensemble has none of its own
    assert model.seeded(3).seeded(0) == model


def test_a_chain_has_every_stage_once_and_parents_first(recipes):
    seen: list[Node] = []
    for node in ensemble(recipes).chain():
        assert node not in seen
        assert set(node.needs) <= set(seen)
        seen.append(node)
    assert seen[-1] == ensemble(recipes)
    assert len(seen) == 9  # two pre-trainings, six fine-tunings, the ensemble


def keys(name: PresetName, *tables: str) -> list[str]:
    return [experiment.table.key for experiment in load_preset(name, tables=tables or None).experiments]


def test_tables_are_chosen_by_key_and_unknown_keys_are_listed():
    assert keys("sample", "7", "2") == ["2", "7"]
    with pytest.raises(InputError, match=r"no table 11; there are 1, 2,.*figure2"):
        load_preset("sample", tables=["2", "11"])


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in ONLY])
def test_a_preset_runs_all_tables_but_those_on_request(name):
    assert keys(name) == [e.table.key for e in all_experiments(PRESETS[name]) if not e.on_request]
    assert {*NUMBERED, "reviews", "figure2"} <= set(keys(name))
    assert not {"schedulers", "objectives", "best", "sparsity", "objectives-suites"} & set(keys(name))


def test_a_warning_does_not_depend_on_how_data_and_start_are_spelled(monkeypatch):
    monkeypatch.chdir(ROOT)
    usual = load_preset("sample").notes
    assert [note.split()[:4] for note in usual[:2]] == [
        ["The", "data", "is", "the"],
        ["The", "start", "weights,", "all-MiniLM-L6-v2,"],
    ]
    assert load_preset("sample", "sentence-transformers/all-MiniLM-L6-v2", ROOT / "data" / "sample").notes == usual
    assert load_preset("sample", "elsewhere", Path("data")).notes == usual[2:]


@pytest.mark.parametrize("name", ["best", "best-base"])
def test_the_presets_of_the_best_recipes_run_their_own_tables(name):
    [best] = load_preset(name).experiments
    assert (best.table.key, list(best.models)) == (name, [name])


def test_the_presets_of_the_gradient_paper_have_its_scripts_settings():
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
def test_a_long_table_takes_ten_passes_over_the_sentences_and_looks_less_often(key, times):
    usual, long = (load_preset("small", tables=[of]).experiments[0].models for of in (key, f"{key}-long"))
    assert list(long) == list(usual)
    for row, model in usual.items():
        epochs = round(times * model.config.epochs)
        assert long[row].config == replace(model.config, epochs=epochs, evaluate_every=32, probe_every=16)
        assert (model.config.evaluate_every, model.config.probe_every, epochs) == (8, 4, 10)


def test_the_long_tables_share_their_trainings():
    objectives, decoupled = (
        load_preset("small", tables=[key]).experiments[0].models for key in ("objectives-long", "decoupled-long")
    )
    assert [row for row in objectives if objectives[row] == decoupled.get(row)] == ["infonce", "met"]
    longest = load_preset("small", tables=["decoupled-longest"]).experiments[0].models
    assert [*longest] == ["infonce", "align_uniform", "dcl"]
    assert all(replace(node.config, epochs=10) == decoupled[row].config for row, node in longest.items())
    assert {node.config.epochs for node in longest.values()} == {30}


# Tables: keys come from points, and rows that a key or a reader could not tell apart are refused.


TABLE = StudyTable("1", "Title", "", (Row("a", "One"), Row("b", "Two")), reference="b")


@pytest.mark.parametrize(
    ("point", "key"),
    [
        ({"margin": 0.30}, "margin=0.3"),
        ({"margin": 2.0, "limit": None}, "margin=2,limit=none"),
        ({"loss": "vicreg", "components": ("weight", "ratio")}, "loss=vicreg,components=weight+ratio"),
        ({"components": ()}, "components=none"),
    ],
)
def test_a_key_is_made_from_a_point(point, key):
    assert Row.at(point, "any label").key == row_key(point) == key


def test_rows_differ_and_a_reference_is_the_key_of_one():
    for second in (Row("a", "Two"), Row("b", "One")):
        with pytest.raises(ValueError, match="two rows have the same key or label"):
            StudyTable("1", "", "", (Row("a", "One"), second))
    with pytest.raises(ValueError, match="no row has the key Two; there are a, b"):
        replace(TABLE, reference="Two")


def test_every_table_survives_json_and_has_short_ascii_keys():
    read = TypeAdapter(StudyTable)
    for name, recipes in PRESETS.items():
        for table in (experiment.table for experiment in all_experiments(recipes)):
            assert read.validate_json(json.dumps(asdict(table)), strict=True) == table, (name, table.key)
            assert all(row.key.isascii() and " " not in row.key and len(row.key) < 60 for row in table.rows)


def test_several_columns_have_means():
    assert TABLE.score_columns == ("overall", "sentiment", "paraphrase", "similarity")
    assert TABLE.tasks("overall") == TABLE.columns
    grouped = replace(TABLE, columns=("a", "b", "c"), groups={"first": ("a", "b"), "second": ("c",)})
    assert grouped.score_columns == ("first", "second", "a", "b", "c")
    assert [grouped.tasks(column) for column in ("first", "c")] == [("a", "b"), ("c",)]
    assert replace(TABLE, columns=("similarity",)).score_columns == ("similarity",)


@pytest.mark.parametrize(
    ("key", "title", "name"),
    [("3", "Table 3: Title", "table-3"), ("figure2", "Figure 2: Title", "figure2"), ("best", "Title", "best")],
)
def test_tables_of_the_report_have_their_numbers(key, title, name):
    table = replace(TABLE, key=key)
    assert (table.numbered_title, table.name) == (title, name)


# Records: a damaged one is refused in one line that says what to run again.


def test_a_damaged_record_is_one_clear_error(tmp_path):
    store = write_store(tmp_path, ["1"], seeds=1)
    good = read_json(PresetRecord.path(store, "sample"))
    for damaged in (
        {**good, "format_version": FORMAT_VERSION - 1},
        {"preset": "paper"},
        {**good, "runs": [{**good["runs"][0], "chain": ["../elsewhere"]}]},
        {**good, "runs": [{**good["runs"][0], "seed": "3"}]},
        {**good, "tables": good["tables"][1:]},
        {**good, "tables": [{**table, "rows": 2 * table["rows"]} for table in good["tables"]]},
        [],
    ):
        PresetRecord.path(store, "paper").write_text(json.dumps(damaged))
        with pytest.raises(InputError, match=r"experiments-paper\.json.*; run `multitask experiments run paper`"):
            PresetRecord.read(store, "paper")


def test_the_best_model_that_can_be_loaded_is_not_an_ensemble_that_only_has_predictions():
    table = TABLES["1"]
    scored = {"measures": dict.fromkeys(table.columns, "accuracy")}
    runs = tuple(
        RunResult(
            *("1", row.key, 0, name, name),
            **scored,
            keeps_model=kept,
            numbers={**{task: {"accuracy": score} for task in table.columns}, "overall": {"mean": score}},
        )
        for row, name, kept, score in zip(
            table.rows, ("fair", "good", "ensemble"), (True, True, False), (0.5, 0.7, 0.9), strict=False
        )
    )
    record = PresetRecord("sample", "some-weights", "data", (), (table,), ())
    for known, kept, expected in ((runs, True, "good"), (runs, False, "ensemble"), (runs[2:], True, "ensemble")):
        found = PresetResults.of(GridFrames(record, known)).best_run(table.columns, kept=kept)
        assert found is not None
        assert found.model == expected
    assert PresetResults.of(GridFrames(record, runs)).best_run(["sentiment"]) is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (59.94, "59.9 s"), (61, "1 min 01 s"), (7260, "2 h 01 min")]
)
def test_duration(seconds, text):
    assert duration(seconds) == text
