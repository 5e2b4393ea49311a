"""Ensembles against plain numpy: averages, greedy selection, soups, thresholds, and what stage and command write."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import pandas
import pytest
import torch
from scipy.special import expit, softmax
from scipy.stats import pearsonr
from sklearn.metrics import f1_score

from minbert.config import BertConfig
from minbert.errors import InputError
from minbert.files import read_json, write_json
from minbert.model import BertModel
from multitask.base.keys import RunKey
from multitask.base.options import RunOptions
from multitask.base.runs import Run
from multitask.models.estimates import load_split, raw_outputs
from multitask.models.multitask_model import MultitaskModel
from multitask.models.prediction_heads import BilinearHead
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.models.settings import HeadsConfig
from multitask.stages.ensemble import Member, blend, ensemble, find_members, select_greedily, select_soup, soup, summary
from multitask.stages.settings import FinetuneConfig, FuseConfig
from multitask.stages.settings_without_training import EnsembleConfig
from multitask.tasks.declarations import task_of
from tests.conftest import COURSE_TASKS, SMALL_ROWS, random_encoder, sample_vocabulary, task_file
from tests.multitask.declared import tasks_file

TRAINED = ("sentiment", "paraphrase", "similarity")
STEMS = {task: COURSE_TASKS[task].prediction_file for task in TRAINED}
FILES = sorted(f"{STEMS[task]}-{split}-output.csv" for task in TRAINED for split in ("dev", "test"))
FEATURES = HeadsConfig("separate", "features")


@pytest.fixture(scope="module")
def other_encoder(sample_data, tmp_path_factory) -> Path:
    """An encoder of another size, whose tokenizer splits the same text otherwise."""
    return random_encoder(sample_vocabulary(sample_data)[:300], 1, tmp_path_factory.mktemp("other-encoder"))


Write = Callable[..., Path]


@pytest.fixture(scope="module")
def write_model(tiny_encoder, small_data, tmp_path_factory) -> Write:
    """Write a model folder: an encoder and heads, moved at random, then centred so that no class has all the rows."""

    made: dict[tuple, Path] = {}

    def write(seed: int, heads=FEATURES, pooling="mean", tasks=TRAINED, encoder=tiny_encoder, folder=None, length=None):
        folder = folder or tmp_path_factory.mktemp("model") / "model"
        if known := made.get(key := (seed, heads, pooling, tasks, encoder, length)):
            return shutil.copytree(known, folder)
        torch.manual_seed(seed)
        own = {name: COURSE_TASKS[name] for name in tasks}
        model = MultitaskModel(SentenceEncoder.read(encoder, pooling, length), own, heads)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
            for task, rows in load_split(model.eval(), small_data, "dev").items():
                if task != "similarity":
                    head = model.heads[task]
                    bias = head.bias if isinstance(head, BilinearHead) else head.mlp.second.bias
                    bias.sub_(torch.tensor(np.median(raw_outputs(model, task, rows), axis=0)).view_as(bias))
        model.save(folder)
        made[key] = folder
        return folder

    return write


@pytest.fixture(scope="module")
def write_run(write_model, tmp_path_factory) -> Write:
    """Write the folder of a run that keeps models of these seeds, the first of them as the best overall."""

    def write(
        *seeds: int, start: str = "one", done: bool = True, runs: Path | None = None, config: Any = None, **settings
    ) -> Path:
        runs = runs or tmp_path_factory.mktemp("runs")
        inputs = {"parents": [start], "seeds": list(seeds)}
        with Run.building(runs, RunKey("finetune", 1, config or FinetuneConfig(), inputs), "run", {}) as run:
            best = dict(zip(("overall", *TRAINED), (f"step-{seed}" for seed in seeds), strict=False))
            for seed in seeds:
                write_model(seed, folder=run.folder / "checkpoints" / f"step-{seed}", **settings)
            write_json(run.folder / "best.json", best)
            if done:
                run.finish()
        return run.folder

    return write


@pytest.fixture(scope="module")
def members(write_model, other_encoder) -> list[Path]:
    """Models that differ in heads, pooling, length, encoder, tokenizer, and in how they read pairs."""
    return [
        write_model(1),
        write_model(2, heads=HeadsConfig("separate", "joint", similarity_pairs="embeddings"), pooling="cls"),
        write_model(3, encoder=other_encoder, heads=HeadsConfig("separate", "joint"), length=30),
        write_model(4, heads=HeadsConfig("shared"), encoder=other_encoder),
    ]


def build(models, data, runs, method, **settings) -> Run:
    options = RunOptions(device="cpu", precision="fp32", runs=runs)
    return ensemble(models, data, EnsembleConfig(method, **settings), options)


def probabilities(folder: Path, task: str, data: Path, split: str) -> np.ndarray:
    """What a member says of every row, from its raw outputs by scipy."""
    model = MultitaskModel.load(folder, "cpu", "fp32", keep_layers=True)
    rows = load_split(model, data, split, [task])[task]
    raw = raw_outputs(model, task, rows).astype(np.float64)
    return {"sentiment": lambda: softmax(raw, axis=1), "paraphrase": lambda: expit(raw)}.get(
        task, lambda: np.clip(raw, 0, 1)
    )()


def decided(task: str, estimates: np.ndarray) -> np.ndarray:
    """Predictions from probabilities or similarities."""
    if task == "sentiment":
        return np.array([row.tolist().index(max(row)) for row in estimates])
    return np.array([int(value > 0.5) for value in estimates]) if task == "paraphrase" else 5 * estimates


def measured(task: str, estimates: np.ndarray, labels: np.ndarray) -> float:
    """The task's score, by hand."""
    predictions = decided(task, estimates)
    return float(pearsonr(predictions, labels)[0] if task == "similarity" else np.mean(predictions == labels))


def labels_of(data: Path, task: str) -> np.ndarray:
    lines = task_file(data, task, "dev").read_text(encoding="utf-8").splitlines()
    return np.array([float(line.rsplit("\t", 1)[1]) for line in lines[1:]])


def read_file(artefact: Run, task: str, split: str) -> np.ndarray:
    path = artefact.folder / "predictions" / f"{STEMS[task]}-{split}-output.csv"
    return np.array([float(line.split(" , ")[1]) for line in path.read_text().splitlines()[1:]])


def evaluation(artefact: Run) -> dict:
    return read_json(artefact.folder / "evaluation.json")


# Votes.


@pytest.mark.parametrize("shape", [(7, 5), (7,)], ids=str)
def test_blend_is_the_weighted_mean(shape):
    draws = np.random.default_rng(0)
    estimates = [draws.random(shape) for _ in range(3)]
    expected = (2 * estimates[0] + 5 * estimates[2]) / 7
    np.testing.assert_allclose(blend(estimates, np.array([2, 0, 5])), expected, rtol=1e-12)
    np.testing.assert_array_equal(blend(estimates, np.array([0, 1, 0])), estimates[1])


def draw(task: str, seed: int, members: int = 5, rows: int = 24) -> tuple[list[np.ndarray], np.ndarray]:
    """Estimates of members that know something, and labels."""
    draws = np.random.default_rng(seed)
    if task == "sentiment":
        labels = draws.integers(0, 5, rows).astype(np.float32)
        logits = draws.normal(size=(members, rows, 5)) + np.eye(5)[labels.astype(int)]
        return list(softmax(logits, axis=2)), labels
    if task == "paraphrase":
        labels = draws.integers(0, 2, rows).astype(np.float32)
        return list(expit(draws.normal(size=(members, rows)) + labels - 0.5)), labels
    labels = draws.uniform(0, 5, rows).astype(np.float32)
    return list(np.clip(labels / 5 + 0.4 * draws.normal(size=(members, rows)), 0, 1)), labels


def greedy_by_hand(task: str, estimates: list[np.ndarray], labels: np.ndarray, rounds: int) -> list[int]:
    """How often each member stands in the best prefix of the greedily grown bag."""
    bag: list[int] = []
    prefixes: list[tuple[float, list[int]]] = []
    for _ in range(rounds):
        found = [
            round(measured(task, np.mean([estimates[i] for i in [*bag, new]], axis=0), labels), 9)
            for new in range(len(estimates))
        ]
        bag = [*bag, found.index(max(found))]
        prefixes.append((max(found), bag))
    best = max(score for score, _ in prefixes)
    chosen = next(bag for score, bag in prefixes if score == best)
    return [chosen.count(i) for i in range(len(estimates))]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("task", TRAINED)
def test_greedy_selection_equals_a_bag_grown_by_hand(task, seed):
    estimates, labels = draw(task, seed)
    votes = select_greedily(COURSE_TASKS[task], estimates, labels, rounds=8)
    assert votes.tolist() == greedy_by_hand(task, estimates, labels, rounds=8)
    if (task, seed) == ("similarity", 0):  # several members, one of them twice
        assert np.count_nonzero(votes) > 1
        assert max(votes) > 1
    once = select_greedily(COURSE_TASKS[task], estimates, labels, rounds=1)
    assert once.tolist() == greedy_by_hand(task, estimates, labels, rounds=1)
    assert select_greedily(COURSE_TASKS[task], [estimates[0]] * 3, labels, rounds=4).tolist() == [1, 0, 0]
    single = max(measured(task, estimate, labels) for estimate in estimates)
    assert measured(task, blend(estimates, votes), labels) >= single


def test_an_undefined_score_counts_as_the_worst(write_model):
    estimates, labels = draw("similarity", seed=0, members=2)
    constant = np.full_like(estimates[0], 0.5)
    for given, expected in (([constant, estimates[0]], [0, 1]), ([constant, constant], [1, 0])):
        assert select_greedily(COURSE_TASKS["similarity"], given, labels, rounds=1).tolist() == expected
    ranked = find_members([write_model(seed) for seed in (1, 2, 3)])
    values = iter([float("nan"), 0.1, float("nan")])
    assert select_soup(ranked, lambda folders: next(values)) == ranked[:2]


def test_the_average_of_unlike_models(members, small_data, tmp_path):
    artefact = build(members, small_data, tmp_path, "average")
    said = evaluation(artefact)
    for task in TRAINED:
        for split, file in (("dev", "dev"), ("test", "test-student")):
            each = [probabilities(folder, task, small_data, split) for folder in members]
            assert len({tuple(decided(task, estimates)) for estimates in each}) == len(members)  # else a weak test
            mean = np.mean(each, axis=0)
            written = read_file(artefact, task, split)
            assert len(written) == SMALL_ROWS[file]
            np.testing.assert_allclose(written, decided(task, mean), atol=1e-6)
            if split == "dev":
                expected = measured(task, mean, labels_of(small_data, task))
                assert said["scores"][task] == pytest.approx(expected, abs=1e-6)
        assert said["weights"][task] == {str(folder): 0.25 for folder in members}
    assert said["overall"] == pytest.approx(np.mean([said["scores"][task] for task in TRAINED]))
    assert (said["method"], said["selected_on_dev"]) == ("average", False)
    printed = summary(artefact).splitlines()
    assert printed[-6:] == [str(artefact.folder / "predictions" / name) for name in FILES]
    assert printed[5].split()[1:] == [f"{number:.4f}" for number in (said["overall"], *said["scores"].values())]


def test_best_per_task_is_the_best_members_own_answer(members, small_data, tmp_path):
    said = evaluation(build(members, small_data, tmp_path / "runs", "best_per_task"))
    assert said["selected_on_dev"]
    for task in TRAINED:
        scores = {label: member["scores"][task] for label, member in said["members"].items()}
        best = max(scores, key=scores.__getitem__)
        assert said["weights"][task] == {best: 1.0}
        assert said["scores"][task] == scores[best]


def test_members_answer_only_tasks_that_they_have(write_model, small_data, tmp_path):
    models = [write_model(5, tasks=("similarity",)), write_model(6, tasks=("sentiment", "similarity"))]
    said = evaluation(build(models, small_data, tmp_path, "average"))
    assert list(said["scores"]) == ["sentiment", "similarity"]
    assert said["weights"]["sentiment"] == {str(models[1]): 1.0}
    assert list(said["members"][str(models[0])]["scores"]) == ["similarity"]


def test_a_model_that_has_none_of_the_tasks_is_named(labelled_runs, labelled, write_model, tmp_path, caplog):
    other = write_model(5, tasks=("similarity",))
    found = evaluation(build([labelled_runs[0], other], labelled, tmp_path, "average"))
    assert [*found["weights"]["tags"]] == [str(Run(labelled_runs[0]).model_folder())]
    expected = [f"{other}: has none of the tasks scored here (tags); it answers nothing"]
    assert [line for line in caplog.messages if "none of the tasks" in line] == expected


# Soups.


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return MultitaskModel.load(folder, keep_layers=True).state_dict()


def test_a_soup_has_the_mean_weights(write_run, small_data, tmp_path):
    """Dropout acts in training only, so its values may differ."""
    runs = [write_run(seed, heads=HeadsConfig("shared", dropout=seed / 10)) for seed in (1, 2, 3)]
    folders = [Run(run).model_folder() for run in runs]
    artefact = build(runs, small_data, tmp_path, "soup")
    assert (artefact.folder / "checkpoints" / "soup" / "heads.safetensors").is_file()
    parts = [tensors(folder) for folder in folders]
    for name, tensor in tensors(artefact.model_folder()).items():
        expected = np.mean([part[name].numpy().astype(np.float64) for part in parts], axis=0).astype(np.float32)
        np.testing.assert_array_equal(tensor.numpy(), expected)
    assert evaluation(artefact)["weights"]["paraphrase"] == pytest.approx({str(f): 1 / 3 for f in folders})


@pytest.mark.parametrize("method", ["soup", "greedy_soup"])
def test_a_soup_may_keep_a_share_of_its_start(method, run_stage, tuned, tiny_encoder, small_data, tmp_path):
    mixed = tensors(build([tuned.folder], small_data, tmp_path, method, keep_start=0.3).model_folder())
    before, after = BertModel.from_pretrained(str(tiny_encoder)).state_dict(), tensors(tuned.model_folder())
    for name, tensor in mixed.items():
        expected = after[name]
        if name.startswith("encoder."):
            start = before[name.removeprefix("encoder.model.")].double()
            expected = (0.3 * start + 0.7 * expected.double()).float()
        torch.testing.assert_close(tensor, expected, rtol=0, atol=0)
    assert any(not torch.equal(after[name], tensor) for name, tensor in mixed.items())


def test_start_weights_that_have_changed_are_not_mixed_in(tuned, tiny_encoder, small_data, tmp_path):
    run = shutil.copytree(tuned.folder, tmp_path / tuned.folder.name)
    other = shutil.copytree(tiny_encoder, tmp_path / "other")
    BertModel(BertConfig.from_file(other / "config.json")).save(other)
    inputs = read_json(run / "inputs.json")
    write_json(run / "inputs.json", {**inputs, "labels": {**inputs["labels"], "start": str(other)}})
    (run / "DONE").write_text(json.dumps({**read_json(run / "DONE"), "files": {}}))
    with pytest.raises(InputError, match=r"other: changed since .* was trained from it"):
        build([run], small_data, tmp_path / "runs", "soup", keep_start=0.3)


def test_greedy_soup_equals_its_recipe(write_model):
    ranked = find_members([write_model(seed) for seed in range(1, 7)])
    values = iter([0.5, 0.4, 0.5, 0.6, 0.55, 0.7])  # of the first alone, then with each of the others
    tried: list[dict[str, torch.Tensor]] = []

    def score(folders: list[Path]) -> float:
        tried.append(soup(folders).state_dict())
        return next(values)

    assert select_soup(ranked, score) == [ranked[0], ranked[2], ranked[3], ranked[5]]
    name = next(iter(tried[0]))
    parts = [tensors(member.folder)[name].double() for member in ranked]
    for state, used in zip(tried, [(0,), (0, 1), (0, 2), (0, 2, 3), (0, 2, 3, 4), (0, 2, 3, 5)], strict=True):
        expected = sum(parts[i] for i in used) / len(used)
        torch.testing.assert_close(state[name].double(), expected, rtol=0, atol=1e-7)


def test_no_greedy_soup_by_errors(write_run, small_data, tmp_path, monkeypatch):
    by_error = replace(COURSE_TASKS["sentiment"], ordinal=True, metric="mae")
    monkeypatch.setitem(COURSE_TASKS, "sentiment", by_error)
    runs = [write_run(seed, tasks=("sentiment",)) for seed in (11, 12)]
    with pytest.raises(InputError, match=r"no task has one \(sentiment\); take the method soup, greedy or"):
        build(runs, small_data, tmp_path, "greedy_soup")


def test_no_soup_of_unlike_models(write_run, write_model, small_data, tmp_path, other_encoder):
    first = write_run(1)
    others = {
        "in heads;": write_run(2, heads=HeadsConfig("separate", "joint")),
        "in pooling;": write_run(2, pooling="cls"),
        "in tasks;": write_run(2, tasks=("sentiment",)),
        "in max_length;": write_run(2, length=20),
        "in encoder, tokenizer;": write_run(2, encoder=other_encoder),
        "in start weights;": write_run(2, start="another"),
        "its start weights are unknown": write_model(2),
    }
    for message, other in others.items():
        with pytest.raises(InputError, match=message):
            build([first, other], small_data, tmp_path / "runs", "soup")
    assert not list(tmp_path.glob("**/ensemble-*/config.json"))


# Members.


def labels(members: list[Member]) -> list[str]:
    return [Path(member.label).name for member in members]


def test_a_run_stands_for_its_leading_or_all_kept_models(write_run, write_model):
    run, model = write_run(1, 2, 3), write_model(4)
    assert labels(find_members([run, model, run.parent / ".." / run.parent.name / run.name])) == ["step-1", "model"]
    assert labels(find_members([run, model], every=True)) == ["step-1", "step-2", "step-3", "model"]


@pytest.mark.parametrize("of_stage", [FinetuneConfig, lambda **settings: FuseConfig(FinetuneConfig(**settings))])
def test_a_member_knows_the_seed_of_its_run(write_run, of_stage):
    """A soup of other seeds is warned of."""
    (member,) = find_members([write_run(1, config=of_stage(seed=3))])
    assert member.seed == 3


@pytest.mark.parametrize("chosen", [1, 2])
def test_heads_of_other_seeds_are_warned_of_where_they_are_averaged(
    write_run, small_data, tmp_path, monkeypatch, caplog, chosen
):
    runs = [write_run(seed, config=FinetuneConfig(seed=seed)) for seed in (1, 2)]
    monkeypatch.setattr("multitask.stages.ensemble.select_soup", lambda ranked, _: ranked[:chosen])
    build(runs, small_data, tmp_path, "greedy_soup")
    assert ("began from different seeds" in caplog.text) == (chosen > 1)


def test_what_is_no_member(write_run, tiny_encoder):
    with pytest.raises(InputError, match=r"not a fine-tuned model, as it has no multitask\.json"):
        find_members([tiny_encoder])
    with pytest.raises(InputError, match="not a complete run"):
        find_members([write_run(1, done=False)], every=True)
    with pytest.raises(InputError, match="an ensemble of no models"):
        find_members([])


# The artefact.


def test_one_model_is_in_memory_at_a_time(members, small_data, tmp_path, monkeypatch):
    alive: WeakSet[MultitaskModel] = WeakSet()
    counts = []
    load = MultitaskModel.load

    def counted(folder: Path, keep_layers: bool) -> MultitaskModel:
        alive.add(model := load(folder, keep_layers=keep_layers))
        counts.append(len(alive))
        return model

    monkeypatch.setattr(MultitaskModel, "load", counted)
    build(members, small_data, tmp_path, "greedy")
    assert len(counts) >= len(members)
    assert max(counts) == 1


def test_a_missing_test_file_leaves_the_dev_scores(members, small_data, tmp_path, caplog):
    data = shutil.copytree(small_data, tmp_path / "data")
    (data / "quora-test-student.csv").unlink()
    artefact = build(members[:2], data, tmp_path, "average")
    written = sorted(path.name for path in (artefact.folder / "predictions").iterdir())
    assert written == [name for name in FILES if name != "para-test-output.csv"]
    assert "no test predictions for paraphrase" in caplog.text
    (data / "quora-dev.csv").unlink()
    with pytest.raises(InputError, match=r"quora-dev.csv: no such file"):
        build(members[:2], data, tmp_path, "average")


# Ensembles of models with thresholds and temperatures: each model is scored with its own, a soup has new ones.


LABELS = ["a", "b", "c"]
WORDS = ("film", "time", "board", "tea", "good", "bad", "dog", "cat")
TEXTS = [f"{WORDS[i % 8]} {WORDS[i * 5 % 7]}" for i in range(30)]
GOLD = np.array([[i % 3 == place or i % 2 == place for place in range(3)] for i in range(30)])
DECLARED = {"kind": "multilabel", "text": "q", "label": "tags"}


def joined(there: np.ndarray) -> list[str]:
    return ["|".join(label for label, has in zip(LABELS, row, strict=True) if has) for row in there]


@pytest.fixture
def labelled(tmp_path) -> Path:
    return tasks_file(tmp_path, {"q": TEXTS, "tags": joined(GOLD)}, tags=DECLARED)


def predicted(folder: Path) -> np.ndarray:
    """What a stored model predicts for the rows, [rows, labels]."""
    found = MultitaskModel.load(folder, "cpu", "fp32").predict("tags", TEXTS)
    return np.array([[label in prediction.labels for label in LABELS] for prediction in found])


@pytest.fixture
def labelled_runs(tiny_encoder, tmp_path) -> list[Path]:
    """Members whose models have random weights, and thresholds and a temperature of their own."""
    found = []
    for tuned in ({"thresholds": [0.999, 0.999, 0.999], "temperature": 5.0}, {"thresholds": [0.4, 0.5, 0.3]}):
        inputs = {"parents": ["one"], "tuned": tuned}
        key = RunKey("finetune", 1, FinetuneConfig(), inputs)
        with Run.building(tmp_path / "runs", key, "member", {}) as member:
            tasks = {name: task_of(name, {**DECLARED, "labels": LABELS, **tuned}) for name in ("tags", "undeclared")}
            torch.manual_seed(len(found) + 1)
            model = MultitaskModel(SentenceEncoder.read(tiny_encoder, "mean"), tasks, HeadsConfig())
            model.save(member.folder / "checkpoints" / "step-1")
            write_json(member.folder / "best.json", {"overall": "step-1"})
            member.finish()
        found.append(member.folder)
    return found


def test_members_are_scored_with_their_own_thresholds(labelled_runs, labelled, tmp_path):
    artefact = build(labelled_runs, labelled, tmp_path / "runs", "average")
    members = read_json(artefact.folder / "evaluation.json")["members"]
    for member in labelled_runs:
        folder = Run(member).model_folder()
        expected = f1_score(GOLD, predicted(folder), average="macro", zero_division=0)
        assert members[str(folder)]["scores"]["tags"] == pytest.approx(expected)


@pytest.mark.parametrize("method", ["soup", "greedy_soup"])
def test_a_stored_soup_predicts_what_the_ensemble_was_scored_with(labelled_runs, labelled, method, tmp_path, caplog):
    artefact = build(labelled_runs, labelled, tmp_path / "runs", method)
    assert "step-1 alone: undeclared" in caplog.text  # the thresholds of a task without a dev set
    found = predicted(artefact.folder)
    written = pandas.read_csv(artefact.folder / "predictions" / "tags-dev-output.csv", keep_default_na=False)
    assert list(written["tags"]) == joined(found)
    expected = f1_score(GOLD, found, average="macro", zero_division=0)
    assert read_json(artefact.folder / "evaluation.json")["overall"] == pytest.approx(expected)
    task = MultitaskModel.load(artefact.folder).tasks["tags"]
    assert max(task.thresholds) < 0.999
    assert task.temperature != 5.0
