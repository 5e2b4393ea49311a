"""Fine-tuning from start weights to an artefact: a run is a value, kinds of runs, frozen layers."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from minbert.errors import InputError
from minbert.files import sha256_of_file
from minbert.model import BertModel
from multitask.base.device import PROCESSOR
from multitask.base.keys import processor
from multitask.base.runs import Run, Weights, locate_model
from multitask.models.multitask_model import MultitaskModel
from multitask.models.settings import HeadsConfig
from multitask.stages import finetune as finetune_stage
from multitask.stages import training_run as stage
from multitask.stages.finetune import Finetuning, finetune, planned_rows
from multitask.stages.prune import prune
from multitask.stages.settings import FinetuneConfig, FuseConfig
from multitask.stages.settings_without_training import PruneConfig
from multitask.training.settings import OptimizerConfig
from multitask.training.source import Batch
from tests.conftest import random_encoder, sample_vocabulary
from tests.multitask.declared import tasks_file
from tests.multitask.stages.conftest import weights

CONFIG = FinetuneConfig(epochs=2, batch_size=12, optimizer=OptimizerConfig(learning_rate=1e-3))


@pytest.fixture
def run(run_stage, small_data):
    """Fine-tune the tiny encoder on the small data, by default into a folder of all tests' runs."""
    return lambda config=CONFIG, data=small_data, **changes: run_stage(finetune, config, data=data, **changes)


def sums(artefact: Run | Path) -> dict[str, str]:
    """Checksums of what an artefact keeps for good."""
    folder = artefact if isinstance(artefact, Path) else artefact.folder
    files = [*folder.glob("checkpoints/**/*"), folder / "best.json", folder / "config.json"]
    return {str(file.relative_to(folder)): sha256_of_file(file) for file in files if file.is_file()}


def scores(artefact: Run) -> list[dict[str, float]]:
    return [line["scores"] for line in artefact.history()]


def train_nothing(*_: object) -> None:
    raise AssertionError("trained again")


# A run is a value.


def test_the_artefact(run, tiny_encoder, small_data):
    artefact = run()
    inputs = json.loads((artefact.folder / "inputs.json").read_text())
    assert inputs["parents"][0]["model.safetensors"] == sha256_of_file(tiny_encoder / "model.safetensors")
    assert inputs["dev"]["similarity"] == sha256_of_file(small_data / "sts-dev.csv")
    assert inputs["labels"] | {"start": str(tiny_encoder), "data": str(small_data)} == inputs["labels"]
    assert inputs["machine"] == processor()
    config = json.loads((artefact.folder / "config.json").read_text())
    assert config["optimizer"]["learning_rate"] == 1e-3
    assert [line["step"] for line in artefact.history()] == [6, 12]  # 64 rows in batches of 12, the last one smaller
    assert set(scores(artefact)[0]) == {"overall", "sentiment", "paraphrase", "similarity"}
    best = json.loads((artefact.folder / "best.json").read_text())
    assert next(iter(best)) == "overall"
    for name, checkpoint in best.items():
        values = [line[name] for line in scores(artefact)]
        assert checkpoint == f"step-{6 * (1 + int(np.argmax(values))):07d}"
        assert artefact.model_folder(name) == locate_model(artefact.folder, best_on=name)
    assert {path.name for path in (artefact.folder / "checkpoints").iterdir()} == set(best.values())
    assert {path.name for path in artefact.folder.iterdir()} == {
        *("config.json", "inputs.json", "trained_on.npz", "metrics.jsonl", "best.json", "checkpoints", "DONE")
    }


def test_recomputed_layers_give_the_same_bits(run):
    config = replace(CONFIG, train_limit=12)
    recomputed = run(config, folder="not/there/yet", recompute=True)
    assert recomputed.folder.name == run(config).folder.name
    assert sums(recomputed) == sums(run(config))


def test_what_is_done_is_not_done_again(run, small_data, tmp_path, monkeypatch):
    artefact = run()
    before = sums(artefact)
    monkeypatch.setattr(stage, "train", train_nothing)
    moved = shutil.copytree(small_data, tmp_path / "copy")
    monkeypatch.chdir(moved.parent)
    for data in (small_data, moved, Path("copy")):  # the content counts, not where it lies
        assert run(data=data).folder == artefact.folder
    assert run(name="other-name", save_every=1.0, tensorboard=True).folder == artefact.folder
    assert sums(artefact) == before


# Kinds of runs.


def test_the_planned_rows_are_those_of_all_epochs_however_many():
    sets = {"sentiment": range(10), "similarity": range(25)}
    for epochs in (1, 2, 5, 10**12):
        config = FinetuneConfig(tasks=tuple(sets), epochs=epochs, epoch_size=4, patience=1)
        found = planned_rows(sets, config)
        for name, rows in sets.items():  # rows come again when all have been there
            assert len(found[name]) == min(4 * epochs, len(rows))
            assert found[name].tolist() == sorted(set(found[name].tolist()) & set(rows))
    assert len(planned_rows(sets, replace(config, train_limit=6))["similarity"]) == 6


def test_a_single_task_and_one_best(run):
    artefact = run(replace(CONFIG, tasks=("reviews",), epochs=1, keep_task_bests=False))
    assert list(json.loads((artefact.folder / "best.json").read_text())) == ["overall"]
    (line,) = artefact.history()
    assert line["scores"] == {"overall": line["dev"]["reviews"]["accuracy"]}
    assert set(line["training"]) == {"reviews", "gradient"}
    assert list(MultitaskModel.load(artefact.model_folder()).tasks) == ["reviews"]


def test_the_vanilla_baseline_scores_pairs_without_training_them(run):
    config = replace(CONFIG, tasks=("sentiment",), untrained=("paraphrase", "similarity"), heads=HeadsConfig("none"))
    line = run(config).history()[0]
    assert set(line["training"]) == {"sentiment", "gradient"}
    assert set(line["scores"]) == {"overall", "sentiment", "paraphrase", "similarity"}


def test_one_row_of_each_class_is_enough(run, small_data, tmp_path, caplog):
    data = shutil.copytree(small_data, tmp_path / "data")
    for path in data.iterdir():
        header, *rows = path.read_text(encoding="utf-8").splitlines()
        if path.name in ("ids-sst-train.csv", "quora-train.csv"):
            kept = list({row.rsplit("\t", 1)[1]: row for row in rows}.values())
            assert len(kept) == (5 if "sst" in path.name else 2)
        else:
            kept = rows[:1]
        path.write_text("\n".join([header, *kept]) + "\n", encoding="utf-8")
    artefact = run(replace(CONFIG, epochs=1), data=data)
    assert [line["step"] for line in artefact.history()] == [1]
    (line,) = scores(artefact)
    assert math.isnan(line["similarity"])  # no correlation of a single pair
    assert math.isnan(line["overall"])
    assert artefact.model_folder() == artefact.model_folder("similarity")  # a model is kept all the same
    assert "pearson and spearman are undefined for every model, as there is only one row" in caplog.text
    assert "whose F1 counts as 0: macro_f1 is at most 0.2000" in caplog.text  # of five classes
    assert caplog.messages[-1].startswith("overall was undefined at every evaluation")


def test_a_training_goes_on_where_its_start_ended_or_with_new_heads_as_from_the_encoder_alone(problem, tuned, tmp_path):
    """New heads draw what heads of a start without any draw, so that older runs stay what they are."""
    config = replace(CONFIG, tasks=("similarity", "sentiment"), max_length=40, encoder_dropout=None)
    going_on = problem(finetune, config, start=tuned.folder)
    going_on.module.eval()
    found = {name: score for name, score in going_on.evaluate().scores.items() if name != "overall"}
    assert found == pytest.approx({name: tuned.history()[-1]["scores"][name] for name in found}, abs=1e-6)
    bare = tmp_path / "bare"
    shutil.copytree(tuned.model_folder(), bare, ignore=shutil.ignore_patterns("multitask.json", "heads.safetensors"))
    new = problem(finetune, replace(config, new_heads=True), start=tuned.folder).module.state_dict()
    alone = problem(finetune, replace(config, pooling="mean"), start=bare).module.state_dict()
    assert new.keys() == alone.keys()
    assert all(torch.equal(value, alone[name]) for name, value in new.items())
    assert not torch.equal(
        new["heads.sentiment.mlp.second.weight"], going_on.model.heads["sentiment"].mlp.second.weight
    )


def test_tensorboard_holds_the_scores(run):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    artefact = run(replace(CONFIG, tasks=("similarity",), train_limit=24), folder="logged", tensorboard=True)
    log = events.EventAccumulator(str(artefact.folder / "tensorboard")).Reload()
    for name in ("overall", "similarity"):
        logged = [(event.step, pytest.approx(event.value, abs=1e-6)) for event in log.Scalars(f"scores/{name}")]
        assert [(line["step"], line["scores"][name]) for line in artefact.history()] == logged
    assert len(log.Scalars("training/gradient")) == 2


def test_encoder_dropout_replaces_the_checkpoints(run):
    without, with_it = (run(replace(CONFIG, train_limit=12, encoder_dropout=p)) for p in (CONFIG.encoder_dropout, None))
    assert weights(without) != weights(with_it)
    config = json.loads((without.model_folder() / "config.json").read_text())
    assert config["hidden_dropout_prob"] == 0.1  # what the checkpoint says stays


def test_losses_take_the_weights_of_their_rows_and_classes_their_order(tiny_encoder, tmp_path):
    columns = {"q": [f"Who is number {i}?" for i in range(60)], "c": np.arange(60) % 3, "w": np.arange(60) % 5}
    topic = {"kind": "classification", "text": "q", "label": "c", "weight": "w"}
    data = tasks_file(tmp_path, columns, topic=topic)
    config = replace(CONFIG, pooling="mean", train_limit=20, batch_size=8)
    begin = stage.StartModel.load(Weights(str(tiny_encoder)), config, PROCESSOR)
    problem = Finetuning.load(begin, data, config)
    [*_, [batch]] = problem.plan(0)
    found = problem.losses((Batch("topic", batch.rows),))
    texts = problem.training["topic"].examples.sentences[0]
    numbers = np.array([int(texts[row].removeprefix("Who is number ").removesuffix("?")) for row in batch.rows])
    losses = F.cross_entropy(found.outputs["topic"], torch.from_numpy(numbers % 3), reduction="none").detach().numpy()
    assert found.terms["topic"].item() == pytest.approx(np.average(losses, weights=numbers % 5), rel=1e-5)
    ordered = replace(config, ordinal=("topic",))
    trained = Finetuning.load(begin, data, ordered).model.tasks["topic"]
    assert trained.declaration() == {**problem.model.tasks["topic"].declaration(), "ordinal": True}


# Frozen layers.


LONG_TEXTS = ["time " * 100 + word + " time" * 99 for word in ("good", "band")]


def reviews(folder: Path, long: str, kind: str = "classification") -> Path:
    """A tasks file of texts of 200 words whose middle one is the label."""
    texts = LONG_TEXTS * 8
    review = {"kind": kind, "text": ["one", "two"] if "pair" in kind else "one", "label": "label", "long": long}
    return tasks_file(folder, {"one": texts, "two": texts, "label": ["good", "band"] * 8}, review=review)


@pytest.mark.parametrize("long", ["head", "middle", "windows"])
def test_long_texts_are_read_as_declared_from_training_to_prediction(run, tmp_path, caplog, long):
    """The texts differ in their middle, which windows alone read."""
    artefact = run(replace(CONFIG, tasks=(), max_length=32), data=reviews(tmp_path, long))
    said = {"head": "cut 16", "middle": "left out the middle of 16", "windows": "read 16"}[long]
    assert sum(f"rows.csv: {said} of 16 texts" in line for line in caplog.messages) == 2  # of training and dev set
    model = MultitaskModel.load(artefact.folder, "cpu", "fp32")
    assert model.tasks["review"].long == long
    assert model.tasks["review"].kept().get("long", "head") == long
    found = [each.probabilities[model.tasks["review"].names[0]] for each in model.predict("review", LONG_TEXTS)]
    embeddings = torch.from_numpy(model.encoder.encode(LONG_TEXTS, max_length=32, long=long))
    expected = model.head("review", embeddings).softmax(1)[:, 0].tolist()
    assert found == pytest.approx(expected, abs=1e-5)
    assert (found[0] != found[1]) == (long == "windows")
    assert caplog.messages[-1].startswith(f"predicted texts: {said.replace('16', '2')} of 2 texts")


def test_pairs_that_are_read_as_one_input_have_no_windows(run, tmp_path):
    joint = replace(CONFIG, tasks=(), max_length=32, heads=HeadsConfig("separate", pairs="joint"))
    declared = reviews(tmp_path, "windows", "pair_classification")
    (tmp_path / "rows.csv").write_text("one,two,label\n")  # without rows: they are read later
    expected = r"^tasks\.review: long is windows, but pairs are read as one input; take head or middle, or other heads$"
    with pytest.raises(InputError, match=expected):
        run(joint, data=declared)


def test_held_out_rows_that_the_start_was_trained_on_are_warned_of(run_stage, tuned, tiny_encoder, caplog):
    """Whoever chooses by their scores, as `tune` does, would choose what remembers them."""
    config = replace(CONFIG, tasks=("sentiment", "similarity"), epochs=1, held_out=0.25)
    for start, warned in ((tiny_encoder, []), (tuned.folder, ["sentiment", "similarity"])):
        caplog.clear()
        run_stage(finetune, config, start=start)
        told = [line for line in caplog.messages if "held-out rows" in line]
        said = "the start was trained on 16 of 16 held-out rows, so scores on them say little about other rows"
        assert told == [f"{name}: {said}" for name in warned]


def test_labels_without_a_row_that_is_trained_are_warned_of(problem, tmp_path, caplog):
    """The whole file has each, so nothing else says that some are never trained."""
    names = {f"rare {i}" for i in range(12)}
    columns = {"text": [f"text {i}" for i in range(24)], "label": [*sorted(names), *["common"] * 12]}
    data = tasks_file(tmp_path, columns, topic={"kind": "classification", "text": "text", "label": "label"})
    few = {"epochs": 1, "epoch_size": 4}
    for changes in ({}, {"held_out": 0.5}, {"train_limit": 8}, few, few | {"conflicts_every": 2}):
        caplog.clear()
        found = problem(finetune, replace(CONFIG, tasks=(), **changes), data=data)
        rows = np.concatenate([update[0].rows for epoch in range(found.config.epochs) for update in found.plan(epoch)])
        gold, task = found.training["topic"].examples.gold[rows], found.model.tasks["topic"]
        lacking = names - {task.names[int(label)] for label in gold}
        assert bool(lacking) == bool(changes)
        shown = ", ".join(f'"{name}"' for name in sorted(lacking))
        told = f"topic: no trained row has these labels: {shown}; "
        lines = [line for line in caplog.messages if "no trained row" in line]
        assert lines == [f"{told}hold out fewer rows, or raise train_limit, epoch_size or epochs"] * bool(changes)


def test_frozen_layers_keep_the_weights_of_the_start(run, tiny_encoder):
    before, after = (
        load_file(tiny_encoder / "model.safetensors"),
        load_file(run(replace(CONFIG, freeze="1", epochs=1)).model_folder() / "model.safetensors"),
    )
    changed = {name for name, start_of in before.items() if not torch.equal(start_of, after[name])}
    frozen = {name for name in before if name.startswith(("embeddings.", "encoder.layer.0."))}
    assert not changed & frozen
    assert {name for name in before if name.startswith("encoder.layer.1.")} <= changed


def test_an_encoder_without_layers_is_trained_and_not_pruned(run, run_stage, sample_data, tmp_path):
    (tmp_path / "start").mkdir()
    start = random_encoder(sample_vocabulary(sample_data), 0, tmp_path / "start")
    trained = run(replace(CONFIG, epochs=1), folder="runs", start=start)
    before, after = (load_file(folder / "model.safetensors") for folder in (start, trained.model_folder()))
    assert not any(torch.equal(before[name], after[name]) for name in before if name.startswith("embeddings."))
    with pytest.raises(InputError, match="the encoder has no layers, so there is nothing to remove"):
        run_stage(prune, PruneConfig(score="magnitude"), start=start)


def test_heads_alone_are_trained_on_embeddings_that_are_computed_once(run, tiny_encoder, monkeypatch, caplog):
    """Their weights are those of a training that computes the embeddings in each step, up to the order of sums."""
    config = replace(CONFIG, freeze="encoder", encoder_dropout=0.3, epochs=2, conflicts_every=1)
    once = run(config, folder="once")
    assert "conflicts_every records nothing if freeze is encoder" in caplog.text
    before, after = load_file(tiny_encoder / "model.safetensors"), load_file(once.model_folder() / "model.safetensors")
    assert all(torch.equal(start_of, after[name]) for name, start_of in before.items())
    calls = []
    forward = BertModel.forward_packed
    monkeypatch.setattr(
        BertModel, "forward_packed", lambda *args, **options: calls.append(args) or forward(*args, **options)
    )
    assert sums(run(config, folder="again")) == sums(once)
    few = len(calls)
    monkeypatch.setattr(finetune_stage, "MOST_KEPT", 0)
    each = run(config, folder="each")
    assert len(calls) - few > few
    heads = [load_file(found.model_folder() / "heads.safetensors") for found in (once, each)]
    for name, found in heads[0].items():
        torch.testing.assert_close(found, heads[1][name], atol=1e-4, rtol=1e-3)


def test_a_learning_rate_that_nothing_is_trained_with_is_said_to_have_no_effect(run, caplog):
    config = FinetuneConfig(("sentiment",), epochs=1, train_limit=12, freeze="encoder")
    found = [run(replace(config, optimizer=replace(config.optimizer, learning_rate=rate))) for rate in (7e-5, 1e-2)]
    assert weights(found[0]) == weights(found[1])
    idle = [line for line in caplog.messages if "learning_rate" in line]
    assert idle == ["learning_rate is 0.01 and has no effect: no weight of the encoder is trained"]
    caplog.clear()
    config = FinetuneConfig(("similarity",), epochs=1, train_limit=12, heads=HeadsConfig("none"))
    found = [run(replace(config, optimizer=replace(config.optimizer, head_learning_rate=r))) for r in (1e-3, 0.5)]
    assert weights(found[0]) == weights(found[1])
    idle = [line for line in caplog.messages if "learning_rate" in line]
    assert idle == ["head_learning_rate is 0.5 and has no effect: no weight outside the encoder is trained"]


def test_what_cannot_be_frozen_is_one_line(run, caplog):
    with pytest.raises(InputError, match=r"^freeze is 3; the encoder has 2 layers$"):
        run(replace(CONFIG, freeze=3))
    bare = replace(CONFIG, heads=HeadsConfig("none"), freeze="encoder")
    nothing = r"^freeze is encoder, which leaves nothing to train for similarity: its head has no weights$"
    both = ("sentiment", "similarity")
    run(replace(bare, tasks=both))
    assert [line for line in caplog.messages if line.startswith("freeze is")] == [
        "freeze is encoder, which leaves nothing to train for similarity; the loss counts all the same: name such "
        "tasks in --untrained, which scores them, or leave them out (with held-out rows, only this)"
    ]
    for changes in ({"tasks": ("similarity",)}, {"tasks": both, "scheduler": "batch_round_robin"}):
        with pytest.raises(InputError, match=nothing):
            run(replace(bare, **changes))
    with pytest.raises(
        InputError, match="freeze leaves no weights that tasks share, so their gradients cannot conflict"
    ):
        run(replace(CONFIG, freeze="encoder", scheduler="pcgrad"))
    with pytest.raises(InputError, match="freeze is for finetune; contrastive training trains the encoder"):
        FuseConfig(replace(CONFIG, freeze=1))


def test_the_metrics_of_tasks_of_which_none_selects_are_said_at_the_end(run_stage, tmp_path):
    columns = {"one": ["good", "band", "bad", "time"] * 3, "label": [1.0, 2.5, 4.0, 3.0] * 3}
    task = {"kind": "regression", "text": "one", "label": "label", "metric": "rmse"}
    config = FinetuneConfig((), epochs=2)
    run = run_stage(finetune, config, data=tasks_file(tmp_path, columns, own=task))
    last = run.history()[-1]["dev"]["own"]
    lines = [line.split() for line in finetune_stage.summary(run).splitlines()]
    assert lines == [["task", "metric", "value"], *(["own", name, f"{value:.4f}"] for name, value in last.items())]
