"""The gradient study's tables: rows differ in what is compared only; captions and news are found however tokenised."""

import csv
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from minbert.errors import InputError
from multitask.experiments.table_definitions import Experiment, Node
from multitask.stages.settings_of_pretraining import PretrainConfig
from studies.engine.presets import PRESETS
from studies.engine.recipes import Recipes
from studies.gradient_paradigm.captions_and_news import main, write_captions_and_news
from studies.gradient_paradigm.condition_tables import (
    architectures,
    batch_sizes,
    break_conditions,
    data_sizes,
    domains,
    few_negatives,
)
from studies.gradient_paradigm.tables import (
    LOSSES,
    VARIED,
    coefficients,
    components,
    decoupled,
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
        (coefficients, {"objective"}),
        (break_conditions, {"objective", "optimizer", "sampling"}),
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


def test_coefficient_and_weight_change_one_after_the_other(recipes):
    """The first and last form of each loss are rows of the table of components, in which both change at once."""
    together = {node.config for node in components(recipes).models.values()}
    found = list(configs(recipes, coefficients).values())
    assert len(found) == 9
    for usual, smaller, weighed in zip(found[::3], found[1::3], found[2::3], strict=True):
        given = [dict(config.objective.parameters) for config in (usual, smaller, weighed)]
        assert given[0] | {"uniformity_weight": 1.0} == given[1]
        assert given[1] | {"weight": 0.05} == given[2]
        assert usual in together
        assert weighed in together
        assert smaller not in together


def test_a_condition_changes_one_setting_of_the_gradient_form(recipes):
    found = configs(recipes, break_conditions)
    for key, config in found.items():
        condition, parameter = key.split(",")
        usual = found[f"condition=none,{parameter}"]
        if condition == "condition=tiny-rate":
            assert config.optimizer.learning_rate == usual.optimizer.learning_rate / 50
            config = replace(config, optimizer=usual.optimizer)
        elif condition == "condition=hardest":
            assert (config.sampling.negatives, config.sampling.negatives_kept) == ("hardest", 16)
            config = replace(config, sampling=usual.sampling)
        assert config == usual


@pytest.mark.parametrize("name", ["small", "paradigm-roberta"])
def test_every_architecture_has_the_same_trainings_and_only_the_start_differs(name):
    recipes = PRESETS[name]
    trainings: dict[tuple[Any, ...], set[Any]] = {}
    starts = {}
    for row in architectures(recipes).table.rows:
        model, point = architectures(recipes).models[row.key], {**row.point}
        [start] = model.parents
        assert isinstance(start, Node)
        assert start.parents == (recipes.start,)
        assert starts.setdefault(point.pop("architecture"), start) == start
        trainings.setdefault(tuple(point.items()), set()).add(model.config)
    assert len({start.config.architecture for start in starts.values()}) == len(starts) == 6
    assert len({replace(start.config, architecture="bert") for start in starts.values()}) == 1
    of_components = {node.config.objective for key, node in components(recipes).models.items() if "loss=vicreg" in key}
    assert {config.objective for [config] in trainings.values()} == {LOSSES["infonce"], *of_components}
    assert {config.encoder_dropout for [config] in trainings.values()} == {0.1}


@pytest.mark.parametrize("name", ["sample", "paper", "paradigm-roberta"])
def test_every_loss_pre_trains_on_pairs_and_on_triplets_before_the_same_fine_tuning(name):
    recipes = PRESETS[name]
    models = objectives_supervised(recipes).models
    alone = models.pop("source=none,objective=none")
    assert alone == recipes.finetune(recipes.base)
    assert len(models) == 2 * len(LOSSES)
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
        assert pretraining.config.objective == recipes.losses.get(loss, LOSSES[loss])


@pytest.mark.parametrize("name", ["small", "paper"])
def test_rows_of_other_sizes_choose_the_best_of_equally_many_checkpoints(name):
    of_data = [config for config in configs(PRESETS[name], data_sizes).values() if config.train_limit]
    assert {config.train_limit // config.batch_size // config.evaluate_every for config in of_data} == {4}
    apart = [config.batch_size * config.evaluate_every for config in configs(PRESETS[name], batch_sizes).values()]
    assert max(apart) == pytest.approx(min(apart), rel=0.04)  # sentences; steps are whole


# Captions and news are found by SentEval's copy of the same pairs, in any tokenisation.


PAIRS = [
    ("A man isn't eating.", "Someone eats, slowly.", "2.0"),
    ("13 killed in attack", "6 killed in Kabul attack", "2.4"),
    ("A man isn't eating.", "A dog (black) runs.", "0.0"),
    ("Which pan is best?", "What pan do you like?", "3.0"),
]
THEIRS = {
    "train": [("main-captions", "a man is n't eating .", "someone eats , slowly .")],
    "dev": [("main-news", "13 killed in attack", "6 killed in kabul attack")],
    "test": [
        ("main-captions", "a man is n't eating .", "a dog -lrb- black -rrb- runs ."),
        ("main-forums", "which pan is best ?", "what pan do you like ?"),
        ("main-news", "a sentence that", "the course does not have"),
    ],
}


@pytest.fixture
def data(tmp_path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    with (folder / "sts-train.csv").open("w", encoding="utf-8", newline="") as file:
        rows = [(i, f"{i:025x}", *pair) for i, pair in enumerate(PAIRS)]
        csv.writer(file, delimiter="\t").writerows([("", "id", "sentence1", "sentence2", "similarity"), *rows])
    return folder


@pytest.fixture
def suites(tmp_path) -> Path:
    for split, pairs in THEIRS.items():
        path = tmp_path / "senteval" / "STS" / "STSBenchmark" / f"sts-{split}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{g}\tfile\t2012\t1\t2.0\t{a}\t{b}\n" for g, a, b in pairs), encoding="utf-8")
    return tmp_path / "senteval"


def test_each_sentence_goes_once_to_the_file_of_its_genre(data, suites, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["captions_and_news", str(data), str(suites)])
    main()
    captions = ["A man isn't eating.", "Someone eats, slowly.", "A dog (black) runs."]
    assert (data / "captions.txt").read_text(encoding="utf-8").splitlines() == captions
    assert (data / "news.txt").read_text(encoding="utf-8").splitlines() == [PAIRS[1][0], PAIRS[1][1]]
    assert capsys.readouterr().out == f"{data}/captions.txt: 3 sentences\n{data}/news.txt: 2 sentences\n"


def test_sentences_of_dev_and_test_are_left_out(data, suites):
    rows = "\tid\tsentence1\tsentence2"
    (data / "sts-dev.csv").write_text(f"{rows}\tsimilarity\n0\t{1:025x}\tA man isn't eating.\tOther words.\t1.0\n")
    (data / "sts-test-student.csv").write_text(f"{rows}\n0\t{2:025x}\tNo words.\t6 killed in Kabul attack\n")
    assert list(write_captions_and_news(data, suites).values()) == [2, 1]
    assert (data / "captions.txt").read_text().splitlines() == ["Someone eats, slowly.", "A dog (black) runs."]
    assert (data / "news.txt").read_text() == "13 killed in attack\n"


def test_other_text_is_not_overwritten(data, suites):
    (data / "news.txt").write_text("my own\n")
    with pytest.raises(InputError, match=r"news.txt: the file exists and has other text"):
        write_captions_and_news(data, suites)
    assert not (data / "captions.txt").exists()
    (data / "news.txt").unlink()
    assert write_captions_and_news(data, suites) == write_captions_and_news(data, suites)


def test_other_data_and_no_data_are_refused(data, suites, tmp_path):
    benchmark = suites / "STS" / "STSBenchmark"
    (benchmark / "sts-dev.csv").write_text("main-news\tfile\t2012\t1\t2.0\tother\tnews\n")
    with pytest.raises(InputError, match=r"sts-train.csv: no pair has the genre main-news in STS Benchmark"):
        write_captions_and_news(data, suites)
    assert not list(data.glob("*.txt"))
    with pytest.raises(InputError, match=re.escape(f"{tmp_path}/STS/STSBenchmark/sts-train.csv: no such file")):
        write_captions_and_news(data, tmp_path)


@pytest.mark.skipif("MINBERT_SHARED_DATA" not in os.environ, reason="MINBERT_SHARED_DATA names no data folder")
def test_every_pair_of_the_course_is_found(tmp_path):
    shared = Path(os.environ["MINBERT_SHARED_DATA"])
    (tmp_path / "sts-train.csv").write_bytes((shared / "cs224n" / "sts-train.csv").read_bytes())
    assert list(write_captions_and_news(tmp_path, shared / "senteval").values()) == [3808, 5837]
    (tmp_path / "dev").mkdir()
    for split in ("train", "dev", "test-student"):
        shutil.copy(shared / "cs224n" / f"sts-{split}.csv", tmp_path / "dev")
    assert list(write_captions_and_news(tmp_path / "dev", shared / "senteval").values()) == [3453, 5685]
