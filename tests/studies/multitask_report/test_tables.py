"""The multi-task report's tables and claims, and the treebank's phrases: equal rows are one recipe."""

import csv
import json
import shutil
from dataclasses import replace
from itertools import combinations
from math import nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minbert.errors import InputError
from multitask.base.keys import changed_settings
from multitask.base.options import RunOptions
from multitask.cli.arguments import Command, build, parse
from multitask.cli.settings_file import settings_of
from multitask.data.fetch import CHECKOUT_DATA
from multitask.experiments.grid_frames import RunResult
from multitask.experiments.table_definitions import OVERALL, Experiment, Preset, Row
from multitask.models.multitask_model import MultitaskModel
from multitask.stages.finetune import finetune
from multitask.stages.settings import FinetuneConfig, FuseConfig
from multitask.stages.settings_of_pretraining import PretrainConfig
from multitask.training.schedulers import SCHEDULERS
from multitask.training.settings import ObjectiveConfig, OptimizerConfig
from studies.engine.commands import COMMAND as EXPERIMENTS
from studies.engine.presets import GIVEN, PRESETS, load_preset
from studies.engine.recipes import Recipes
from studies.multitask_report.claims import until_best
from studies.multitask_report.tables import BEST, TABLES, report_table
from studies.multitask_report.treebank_phrases import main, read_trees, write_phrases
from studies.study import all_experiments
from tests.conftest import random_encoder, sample_vocabulary
from tests.multitask.training.schedulers.toy import TASKS, tasks_of

ROWS = {"1": 4, "2": 6, "3": 3, "4": 3, "5": 4, "6": 3, "7": 2, "8": 2, "9": 2, "10": 3}  # as counted in the report


def reported(recipes: Recipes) -> list[tuple[Experiment, Row]]:
    """All rows for which the report has scores."""
    made = [make(recipes) for make in TABLES]
    return [(experiment, row) for experiment in made for row in experiment.table.rows if row.published]


def test_tables_have_the_reports_rows(recipes):
    tables = {experiment.table.key: experiment.table for experiment in all_experiments(recipes)}
    assert {key: len(tables[key].rows) for key in ROWS} == ROWS
    assert len(reported(recipes)) == sum(ROWS.values())


def test_trainings_of_all_tables_begin_with_new_heads_whatever_the_start(recipes):
    """So rows differ by what the table says, and the key of a planned training needs no look at its start."""
    models = [model for experiment in all_experiments(recipes) for model in experiment.models.values() if model]
    configs = [node.config for model in models for node in model.chain() if node.stage in ("finetune", "fuse")]
    assert configs
    assert not any(config.keeps_heads for config in configs)


def test_published_overall_scores_are_the_means_of_the_three(recipes):
    for _, row in reported(recipes):
        tasks = [score for column, score in row.published.items() if column != OVERALL]
        if OVERALL in row.published:
            assert row.published[OVERALL] == pytest.approx(sum(tasks) / 3, abs=0.0011)


def test_rows_with_the_same_published_scores_are_one_recipe(recipes):
    equal = [(a, b) for a, b in combinations(reported(recipes), 2) if a[1].published == b[1].published]
    assert len(equal) == 8  # Table 2's in 5, 6, 8 and 10, Table 5's in 7 and 10
    for (first, row), (second, other) in equal:
        assert first.models[row.key] == second.models[other.key]


@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_the_reports_epochs_of_pre_training(name):
    lengths = {
        row: [node.config.epochs for node in model.chain() if isinstance(node.config, PretrainConfig)]
        for key in ("5", "8", "9")
        for row, model in report_table(key, PRESETS[name]).models.items()
    }
    given = 3 if name in ("small", "medium", "best") else 5
    assert lengths == {
        "nli-given": [3, given],
        "given-nli": [given, 3],
        "nli": [3],
        "given": [given],
        "epochs=1": [1],
        "epochs=2": [2],
        "epochs=3": [3],
    }


def test_the_paper_preset_has_the_settings_of_section_5_3():
    given = PRESETS["paper"].supervised
    assert (given.sources, given.epochs, given.select) == (("quora", "sentiment", "similarity"), 5, "last")
    models = [model for experiment in load_preset("paper").experiments for model in experiment.models.values()]
    for node in {node for model in models for node in model.chain()}:
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


@pytest.mark.parametrize("name", PRESETS)
def test_all_ways_of_table_1_have_one_budget(name):
    models = report_table("1", PRESETS[name]).models.values()
    trained = {node.stage: node.config for model in models for node in model.chain() if node.stage != "mlm"}
    supervised, fusion, contrastive = trained["finetune"], trained["fuse"], trained["pretrain"]
    assert fusion.finetune == supervised
    assert supervised.encoder_dropout is None  # the checkpoint's, as in contrastive training
    for setting in ("optimizer", "epochs", "batch_size", "train_limit", "pooling"):
        assert getattr(contrastive, setting) == getattr(supervised, setting)
    assert contrastive.sources == (*supervised.tasks, *fusion.unlabelled)
    assert contrastive.quora_share == fusion.contrastive.quora_share


def test_every_seed_of_small_has_its_own_masked_language_modelling():
    masked = PRESETS["small"].masked
    assert masked is not None
    assert masked.optimizer == OptimizerConfig(learning_rate=5e-4, schedule="linear", warmup=0.1)
    assert (masked.train_limit, masked.max_length) == (30_000, 32)
    for key in map(str, range(1, 11)):
        for model in report_table(key, PRESETS["small"]).models.values():
            first, *_ = model.seeded(3).chain()
            assert (first.stage, first.config.seed) == ("mlm", 3)


@pytest.mark.parametrize("name", ["sample", "paper"])
def test_pre_trainings_with_and_without_labels_differ_in_labels_only(name):
    models = report_table("supervision", PRESETS[name]).models
    [without], [labelled] = (models[row].parents for row in ("unsupervised", "supervised"))
    assert models["unsupervised"].config == models["supervised"].config == models["none"].config
    assert replace(without, config=labelled.config) == labelled
    of_labels = {"sources": GIVEN, "negative_pairs": labelled.config.negative_pairs}
    assert replace(without.config, **of_labels) == labelled.config
    assert set(without.config.sources) == {"paraphrase", *GIVEN} - {"quora"}


def test_labels_of_learning_rates_are_the_presets_own():
    assert [row.label for row in report_table("10", PRESETS["paper"]).table.rows] == ["1e-5", "2e-5", "3e-5"]
    supervised = PRESETS["paper"].supervised
    faster = replace(supervised, optimizer=replace(supervised.optimizer, learning_rate=1e-4))
    other = report_table("10", replace(PRESETS["paper"], supervised=faster)).table
    assert other.rows[0].label == "1e-4 (report: 1e-5)"
    assert other.reference == "rate=2"


def test_the_table_of_schedulers_has_all_of_them(recipes):
    models = report_table("schedulers", recipes).models
    sums = {"pcgrad", "gradvac", "graddrop", "config", "nash_mtl", "fairgrad"}
    texts = {key: f"{key}:reduction=mean" if key in sums else key for key in models}
    assert {key: str(model.config.scheduler) for key, model in models.items()} == texts
    assert sorted(models) == sorted(name for name in SCHEDULERS if tasks_of(name) == TASKS)
    assert len({replace(model.config, scheduler="average") for model in models.values()}) == 1


def test_the_best_recipe_has_the_defaults_of_finetune_where_its_file_says_nothing():
    assert BEST.heads == FinetuneConfig().heads
    assert BEST.optimizer == FinetuneConfig().optimizer


@pytest.mark.parametrize(("key", "layers", "reads_jointly"), [("best", 6, False), ("best-base", 12, True)])
def test_the_best_recipes_train_encoders_of_their_depth(sample_data, small_data, tmp_path, key, layers, reads_jointly):
    encoder = random_encoder(sample_vocabulary(sample_data), layers, tmp_path / "encoder")
    config = replace(report_table(key, PRESETS["best"]).models[key].config, epochs=1, epoch_size=32)
    run = finetune(str(encoder), small_data, config, RunOptions(runs=tmp_path / "runs"))
    [line] = map(json.loads, (run.folder / "metrics.jsonl").read_text().splitlines())
    trained = line["training"].keys() & line["dev"].keys()
    assert trained
    assert all(0 < line["training"][task] < 10 for task in trained)
    model = MultitaskModel.load(run.folder, keep_layers=True)
    assert len(model.encoder.model.layers) == layers
    assert [model.reads_jointly(task) for task in ("paraphrase", "similarity")] == [reads_jointly] * 2


@pytest.mark.parametrize("name", PRESETS)
def test_each_method_of_regularisation_is_isolated_from_the_best_recipe(name):
    models = report_table("regularisation", PRESETS[name]).models
    best, dropout = models["best"].config, models["encoder_dropout"].config
    parts = report_table("best-parts", PRESETS[name]).models
    assert (parts["best"], parts["encoder_dropout"]) == (models["best"], models["encoder_dropout"])
    changes = {key: changed_settings(model.config, best) for key, model in models.items()}
    assert changes == {
        "best": {},
        "smart": {"regularisation": {"smart_weight": 1.0}},
        "encoder_dropout": {"encoder_dropout": None},
        "r_drop": {"encoder_dropout": None, "regularisation": {"r_drop_weight": 1.0}},
        "ema": {"optimizer": {"ema_decay": 0.95}},
        "layer_decay": {"optimizer": {"layer_decay": 0.85}},
    }
    assert changed_settings(models["r_drop"].config, dropout) == {"regularisation": {"r_drop_weight": 1.0}}


@pytest.mark.parametrize(("name", "form"), [("paper", "literal"), ("small", "bounded"), ("sample", "bounded")])
def test_pre_trainings_maximise_the_loss_of_negative_pairs_as_the_report_does_or_bound_it(name, form):
    models, others = report_table("negative-pairs", PRESETS[name]).models, report_table("4", PRESETS[name]).models
    assert (models["left_out"], models[form]) == (others["quora-positives"], others["quora"])
    [literal], [bounded] = models["literal"].needs, models["bounded"].needs
    assert changed_settings(literal.config, bounded.config) == {"negative_pairs": "literal"}
    trained = {node.config for model in report_table("10", PRESETS[name]).models.values() for node in model.needs}
    assert {config.negative_pairs for config in trained} == {form}


def planned(arguments: str) -> Preset:
    """The preset that `experiments plan` makes of arguments."""
    command = next(of for of in EXPERIMENTS.commands if of.name == "plan")
    assert isinstance(command, Command)
    given, options = parse("plan", command, arguments.split()), command.declared()
    given |= settings_of(given.pop("set", []), "plan", options)
    defaults = {option.name: option.default for option in options}
    loaded: Preset = build(command.options, options, defaults | given).load()
    return loaded


def test_the_command_line_changes_a_presets_size_and_loss_and_the_report_names_it():
    usual, small = planned("paper --tables 1,4,8"), planned("paper --tables 1,4,8 --epochs 3 --epoch-size 960")
    assert (usual.notes, small.notes) == (
        (),
        ("Not with the preset's own settings, but with --epochs 3 --epoch-size 960.",),
    )
    for before, after in zip(usual.experiments, small.experiments, strict=True):
        for row, model in before.models.items():
            changes = [
                changed_settings(new.config, old.config)
                for old, new in zip(model.chain(), after.models[row].chain(), strict=True)
            ]
            if before.table.key == "1":  # as many epochs and rows for all
                assert {getattr(of, "train_limit", 960) for of in after.models[row].chain()} == {960}
                continue
            assert changes[-1] == {"epochs": 3, "epoch_size": 960}
            assert all(of == {"train_limit": 960} for of in changes[:-1])
    [unsupervised, _] = small.experiments[0].models["contrastive-first"].chain()
    assert (unsupervised.config.epochs, unsupervised.config.train_limit) == (3, 960)
    changed = planned("paper --tables 4 --set negative_pairs=bounded")
    [pretraining] = changed.experiments[0].models["given"].needs
    assert pretraining.config.negative_pairs == "bounded"
    assert changed.notes == ("Not with the preset's own settings, but with --negative-pairs bounded.",)


def test_what_changes_nothing_is_not_named_as_a_change():
    own = planned("paper --tables 4 --set negative_pairs=literal")  # the preset's own
    assert own == planned("paper --tables 4")
    assert planned("small --tables 1,6 --epochs 1") == planned("small --tables 1,6")
    with pytest.raises(InputError, match=r"^--negative-pairs: no setting of table 3; name others with --tables$"):
        planned("paper --tables 3 --set negative_pairs=bounded")


# Phrases are what a recursive walk over the trees finds, less every sentence that is scored.


TREE = "(4 (3 (2 A) (3 gem)) (3 (2 ,) (3 (3 truly) (2 .))))"
WORDS = st.text("abc'é&-$.", min_size=1, max_size=4)
TREES = st.recursive(
    st.tuples(st.integers(0, 4), WORDS),
    lambda parts: st.tuples(st.integers(0, 4), st.lists(parts, min_size=1, max_size=3)),
    max_leaves=8,
)


def written(tree) -> str:
    label, inner = tree
    return f"({label} {inner if isinstance(inner, str) else ' '.join(map(written, inner))})"


def words(tree) -> list[str]:
    return [tree[1]] if isinstance(tree[1], str) else [word for part in tree[1] for word in words(part)]


def every_phrase(tree) -> list[tuple[str, int]]:
    inner = [] if isinstance(tree[1], str) else [phrase for part in tree[1] for phrase in every_phrase(part)]
    return [*inner, (" ".join(words(tree)), tree[0])]


@given(st.lists(TREES, min_size=1, max_size=4))
def test_every_node_of_a_tree_is_a_phrase(tmp_path_factory, trees):
    path = tmp_path_factory.mktemp("trees") / "train.txt"
    path.write_text("".join(f"{written(tree)}\n" for tree in trees), encoding="utf-8")
    assert list(read_trees(path)) == [every_phrase(tree) for tree in trees]


@pytest.fixture
def data(tmp_path) -> Path:
    folder = tmp_path / "data"
    shutil.copytree(CHECKOUT_DATA / "sample", folder)
    rows = "\tid\tsentence\tsentiment\n"
    (folder / "ids-sst-train.csv").write_text(f"{rows}0\tx\tA gem , truly .\t4\n1\ty\tNo tree\t1\n", encoding="utf-8")
    (folder / "ids-sst-dev.csv").write_text(f"{rows}0\tz\tTruly\t3\n", encoding="utf-8")
    return folder


def test_phrases_of_training_sentences_are_added_except_sentences_that_are_scored(data, tmp_path, capsys, monkeypatch):
    trees = tmp_path / "train.txt"
    punctuated = "(1 (1 (2 No) (0 (2 tree) (2 !))) (2 .))"
    trees.write_text(f"{TREE}\n(1 (2 Other) (1 words))\n(2 (3 a) (2 gem))\n{punctuated}\n")
    monkeypatch.setattr("sys.argv", ["treebank_phrases", str(data), str(trees), str(tmp_path / "new")])
    main()
    assert capsys.readouterr().out == f"{tmp_path}/new: 10 phrases added to 2 sentences\n"
    with (tmp_path / "new" / "ids-sst-train.csv").open(encoding="utf-8", newline="") as file:
        found = [(row["sentence"], row["sentiment"]) for row in csv.DictReader(file, delimiter="\t")]
    phrases = [("A", "2"), ("gem", "3"), ("A gem", "3"), (",", "2"), (".", "2")]  # not "truly .", which the dev set has
    variants = [("No", "2"), ("tree", "2"), ("!", "2"), ("tree !", "0"), ("No tree !", "1")]
    assert found == [("A gem , truly .", "4"), ("No tree", "1")] * 3 + phrases + variants
    for name in ("quora-dev.csv", "sts-test-student.csv", "ids-sst-dev.csv"):
        assert (tmp_path / "new" / name).read_bytes() == (data / name).read_bytes()


def test_training_rows_that_a_dev_or_test_set_has_are_left_out(data, tmp_path):
    trees = tmp_path / "train.txt"
    trees.write_text(f"{TREE}\n")
    with (data / "ids-sst-train.csv").open("a", encoding="utf-8") as file:
        file.write("2\tz\ttruly !\t4\n")
    with (data / "sts-train.csv").open(encoding="utf-8", newline="") as file:
        [pair, *others] = csv.DictReader(file, delimiter="\t")
    with (data / "sts-test-student.csv").open("a", encoding="utf-8") as file:
        file.write(f"9\tq\t{pair['sentence2'].upper()}\t{pair['sentence1']}\n")
    assert write_phrases(data, trees, tmp_path / "new") == (2, 5)
    with (tmp_path / "new" / "sts-train.csv").open(encoding="utf-8", newline="") as file:
        left = [
            (row["sentence1"], row["sentence2"], float(row["similarity"]))
            for row in csv.DictReader(file, delimiter="\t")
        ]
    assert left == [(row["sentence1"], row["sentence2"], float(row["similarity"])) for row in others]


def test_a_step_of_a_round_robin_reads_as_many_rows_as_one_of_the_average_loss():
    models = report_table("equal-steps", PRESETS["medium"]).models
    sizes = {key: model.config.batch_size for key, model in models.items()}
    assert sizes == {"average": 32, "batch_round_robin": 96, "epoch_round_robin": 96}
    configs = [
        replace(model.config, batch_size=1, scheduler=models["average"].config.scheduler) for model in models.values()
    ]
    assert configs == [configs[0]] * 3


def test_table_1_alone_is_also_scored_at_a_threshold_of_training_rows():
    for key in ("1", "2"):
        found = report_table(key, PRESETS["medium"])
        [thresholds] = {
            getattr(found.evaluation(model).config, "thresholds", ())
            for model in found.models.values()
            if model.stage != "ensemble"
        }
        assert thresholds == (("paraphrase",) if key == "1" else ())


@pytest.mark.parametrize(
    "line", ["(3 (2 A) (4 gem)", "(5 (2 A) (4 gem))", "A gem", "(3 (2 A) (4 gem)))", "(3 A) (4 gem)", ""]
)
def test_what_is_no_tree_is_refused_and_nothing_is_written(data, tmp_path, line):
    trees = tmp_path / "train.txt"
    trees.write_text(f"{TREE}\n{line}\n")
    with pytest.raises(InputError, match=r"train.txt:2: not a tree; expected a line such as"):
        write_phrases(data, trees, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_trees_of_other_sentences_and_an_existing_folder_are_refused(data, tmp_path):
    trees = tmp_path / "train.txt"
    trees.write_text("(1 (2 Other) (1 words))\n")
    with pytest.raises(InputError, match=r"no tree of a sentence in .*ids-sst-train.csv"):
        write_phrases(data, trees, tmp_path / "new")
    with pytest.raises(InputError, match="exists already"):
        write_phrases(data, trees, data)


# When a training is best, by hand.


RUN = RunResult("figure2", "none", 0, "model", "evaluation")


def with_curve(curve):
    return replace(RUN, history=[{"step": 8, "numbers": {OVERALL: {"mean": score}}} for score in curve])


@pytest.mark.parametrize(("best", "share"), [(0, 0.1), (4, 0.5), (9, 1.0)])
def test_a_training_is_best_at_its_first_highest_evaluation(best, share):
    curve = [0.5] * best + [0.6] * (10 - best)
    assert until_best(with_curve(curve)) == share


@pytest.mark.parametrize("curve", [[0.5] * 9, [nan] * 10])
def test_few_evaluations_and_undefined_scores_do_not_tell_when_a_training_is_best(curve):
    assert until_best(with_curve(curve)) is None
