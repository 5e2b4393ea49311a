"""Fusion training: each batch's labels and then its sentences' views, in two steps or as one gradient."""

import csv
import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from minbert.files import read_json, sha256_of_file
from minbert.tokenizer import load_tokenizer
from multitask.base.options import RunOptions
from multitask.base.runs import Run
from multitask.data.examples import drawn_rows
from multitask.models.multitask_model import MultitaskModel
from multitask.models.settings import HeadsConfig
from multitask.objectives import build_objective
from multitask.stages.finetune import finetune
from multitask.stages.fuse import fuse
from multitask.stages.settings import SUPERVISED, FuseConfig
from multitask.training.settings import ContrastiveConfig, ObjectiveConfig, OptimizerConfig
from multitask.training.source import Update
from tests.conftest import COURSE_TASKS, task_file
from tests.multitask.declared import tasks_file
from tests.multitask.stages.conftest import embedded, gradients, weights

CONFIG = FuseConfig(replace(SUPERVISED, epochs=1, batch_size=12, optimizer=OptimizerConfig(learning_rate=1e-3)))
PLAIN = HeadsConfig(sharing="none", dropout=0.0)
ROWS = 64  # of each task's training set
TEXT_COLUMNS = {"sentiment": ("sentence",)}
PAIR_COLUMNS = ("sentence1", "sentence2")

Run = Callable[..., Run]


def varied(config: FuseConfig, **changes) -> FuseConfig:
    """With settings changed, wherever in the configuration they are."""

    def own(part) -> dict:
        return {name: value for name, value in changes.items() if name in {field.name for field in fields(part)}}

    parts = {"finetune": config.finetune, "contrastive": config.contrastive}
    changed = {name: replace(part, **own(part)) for name, part in parts.items()}
    return replace(config, **changed, **own(config))


@pytest.fixture
def run(run_stage):
    return lambda config=CONFIG, **arguments: run_stage(fuse, config, **arguments)


@pytest.fixture
def fusing(problem):
    """What the stage hands to the training loop."""
    return lambda config=CONFIG: problem(fuse, config)


def names(updates: list[Update]) -> list[tuple[str, ...]]:
    return [tuple(batch.source for batch in update) for update in updates]


def file_sentences(data: Path, task: str, rows: list[int]) -> list[str]:
    """All first sentences of the rows, then for pairs all second ones."""
    with task_file(data, task, "train").open(encoding="utf-8", newline="") as lines:
        everything = list(csv.DictReader(lines, delimiter="\t"))
    return [everything[row][column] for column in TEXT_COLUMNS.get(task, PAIR_COLUMNS) for row in rows]


def test_a_head_learning_rate_that_nothing_is_trained_with_is_named_also_if_it_is_finetunes_default(run, caplog):
    """Fusion has none by default."""
    config = varied(CONFIG, tasks=("similarity",), untrained=(), unlabelled=(), projection="none", train_limit=12)
    for rate in (None, 1e-3):
        run(varied(config, optimizer=OptimizerConfig(1e-3, head_learning_rate=rate)))
    idle = [line for line in caplog.messages if "learning_rate" in line]
    assert idle == ["head_learning_rate is 0.001 and has no effect: no weight outside the encoder is trained"]


def test_labels_without_a_row_that_is_trained_are_warned_of(problem, tmp_path, caplog):
    columns = {"text": [f"text {i}" for i in range(24)], "label": [f"rare {i}" for i in range(12)] + ["common"] * 12}
    data = tasks_file(tmp_path, columns, topic={"kind": "classification", "text": "text", "label": "label"})
    config = varied(CONFIG, tasks=("topic",), untrained=(), unlabelled=())
    for limit in (None, 8):
        caplog.clear()
        found = problem(fuse, varied(config, train_limit=limit), data=data)
        rows = np.concatenate([batch.rows for update in found.plan(0) for batch in update if batch.source == "topic"])
        lacking = {*columns["label"]} - {columns["label"][row] for row in rows}
        lines = [line for line in caplog.messages if "no trained row" in line]
        assert len(lines) == bool(lacking) == (limit is not None)
        assert all(f'"{label}"' in line for label in lacking for line in lines)


# The plan.


def test_each_supervised_update_is_followed_by_its_views_and_then_come_the_unlabelled(fusing):
    config = varied(CONFIG, epochs=3, quora_share=0.25)
    found = fusing(config)
    epochs = [list(found.plan(epoch)) for epoch in range(3)]
    supervised = -(-ROWS // 12)
    for plan in epochs:
        expected = [("sentiment",), ("sentiment views",)] * supervised
        expected += [("paraphrase views",)] * 3  # a quarter of two times 64 sentences, and only of Quora's
        expected += [("similarity views",)] * 11
        assert names(plan) == expected
        for (labelled,), (views,) in zip(plan[: 2 * supervised : 2], plan[1 : 2 * supervised : 2], strict=True):
            assert labelled.rows.tolist() == views.rows.tolist()
    quora = [row for plan in epochs for (batch,) in plan if batch.source == "paraphrase views" for row in batch.rows]
    assert len(quora) == len(set(quora)) == 3 * 32  # other rows each epoch
    assert [[b.rows.tolist() for b in u] for u in found.plan(1)] == [[b.rows.tolist() for b in u] for u in epochs[1]]


def test_other_schedulers_keep_the_views_behind_their_batch(fusing):
    config = varied(CONFIG, tasks=("sentiment", "similarity"), untrained=(), unlabelled=())
    plan = names(list(fusing(varied(config, scheduler="batch_round_robin")).plan(0)))
    assert {len(update) for update in plan} == {1}
    assert [(f"{name} views",) for (name,) in plan[::2]] == plan[1::2]


@pytest.mark.parametrize(("pairs", "limit"), [("embeddings", None), ("joint", None), ("embeddings", 30)])
def test_views_are_the_batchs_own_sentences_and_of_pairs_both(pairs, limit, fusing, tiny_encoder, small_data):
    tasks = ("sentiment", "paraphrase", "similarity")
    heads = HeadsConfig(sharing="separate", pairs=pairs)
    config = varied(CONFIG, tasks=tasks, untrained=(), unlabelled=(), heads=heads, steps="one", train_limit=limit)
    found, tokenizer = fusing(config), load_tokenizer(str(tiny_encoder))
    update = found.plan(0)[2]
    assert len(update) == 6
    for labelled, views in zip(update[:3], update[3:], strict=True):
        texts = file_sentences(small_data, labelled.source, labelled.rows.tolist())
        assert len(texts) == len(labelled.rows) * (1 if labelled.source == "sentiment" else 2)
        encoded = [ids.tolist() for ids in tokenizer.encode(texts)]
        assert [ids.tolist() for ids in found.views[views.source].inputs(views.rows).ids] == encoded * 2


def test_a_limit_holds_for_labels_and_for_views(fusing):
    config = varied(CONFIG, train_limit=10, tasks=("similarity",), untrained=(), unlabelled=("similarity", "sentiment"))
    plan = fusing(config).plan(0)
    rows = {
        name: sorted({row for update in plan for b in update if b.source == name for row in b.rows.tolist()})
        for name in ("similarity", "similarity views", "sentiment views")
    }
    pairs, sentences = drawn_rows(ROWS, 10).tolist(), drawn_rows(2 * ROWS, 10).tolist()
    assert rows["similarity"] == pairs
    assert rows["sentiment views"] == list(range(10))  # read by this stage alone, so cut when it is read
    both = [*pairs, *(row + ROWS for row in pairs)]
    assert rows["similarity views"] == sorted({*both, *sentences})
    unlabelled = [batch for update in plan[2:] for batch in update if batch.source == "similarity views"]
    assert sorted(row for batch in unlabelled for row in batch.rows.tolist()) == sentences


# The gradient.


@pytest.mark.parametrize("objective", ["infonce", "vicreg"])
def test_one_step_has_the_gradient_of_the_sum(objective, fusing):
    config = varied(
        CONFIG,
        tasks=("sentiment", "similarity"),
        task_weights=(1.0, 3.0),
        untrained=(),
        unlabelled=(),
        steps="one",
        contrastive_weight=0.3,
        encoder_dropout=0.0,
        pooling="mean",
        heads=PLAIN,
        objective=ObjectiveConfig(objective),
    )
    found = fusing(config)
    assert names(found.plan(0)) == [("sentiment", "similarity", "sentiment views", "similarity views")] * 6
    update = found.plan(0)[1]
    labelled, views = found.backward(update[:2]), found.backward(update[2:])
    apart = gradients(found.module)  # of two steps, without an optimizer between them
    losses = found.backward(update)
    summed = gradients(found.module)
    for name, gradient in apart.items():
        torch.testing.assert_close(gradient, summed[name], rtol=1e-5, atol=1e-6)
    assert losses.terms.keys() == labelled.terms.keys() | views.terms.keys()

    def embeddings(task: str, rows: np.ndarray) -> Tensor:
        data = found.training[task]
        encoder = found.encoder.model
        return torch.stack([embedded(encoder, column[row]) for column in data.columns for row in rows])

    supervised, contrastive = {}, {}
    for batch in update[:2]:
        vectors = embeddings(batch.source, batch.rows)
        labels = torch.from_numpy(found.training[batch.source].examples.labels[batch.rows])
        if batch.source == "sentiment":
            logits = found.model.heads["sentiment"](vectors)
            supervised["sentiment"] = nn.functional.cross_entropy(logits, labels.long())
        else:
            cosine = nn.functional.cosine_similarity(*vectors.chunk(2))
            supervised["similarity"] = nn.functional.mse_loss(cosine, labels / 5)
        projected = found.module["projection"](vectors)
        contrastive[batch.source] = build_objective(objective)(projected, projected)
    total = (supervised["sentiment"] + 3.0 * supervised["similarity"]) / 2
    (total + 0.3 * (contrastive["sentiment"] + contrastive["similarity"]) / 2).backward()
    for name, loss in supervised.items():
        torch.testing.assert_close(losses.terms[name], loss, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(losses.terms[f"{name} views"], contrastive[name], rtol=1e-4, atol=1e-6)
    expected = gradients(found.module)
    assert summed.keys() == expected.keys()
    assert {name.split(".")[0] for name in summed} == {"encoder", "heads", "projection"}
    for name, gradient in expected.items():
        torch.testing.assert_close(summed[name], gradient, rtol=1e-3, atol=1e-5)
    once = sum(int(found.training[batch.source].lengths[batch.rows].sum()) for batch in update[:2])
    assert losses.tokens == 3 * once  # with labels, and in two views


def test_unlabelled_views_leave_the_heads_alone(fusing):
    found = fusing()
    last = found.plan(0)[-1]
    assert names([last]) == [("similarity views",)]
    found.backward(last)
    assert {name.split(".")[0] for name in gradients(found.module)} == {"encoder", "projection"}


def test_without_contrastive_weight_it_is_fine_tuning(run, tiny_encoder, small_data):
    config = varied(CONFIG, contrastive_weight=0.0, unlabelled=(), steps="one", encoder_dropout=0.0, heads=PLAIN)
    config = varied(config, optimizer=OptimizerConfig(learning_rate=1e-3, clip=None))  # a norm over more numbers rounds
    fused = run(config)
    options = RunOptions("cpu", "fp32", fused.folder.parent)
    tuned = finetune(str(tiny_encoder), small_data, config.finetune, options)
    assert weights(fused) == weights(tuned)
    assert [line["scores"] for line in fused.history()] == [line["scores"] for line in tuned.history()]


# The run.


def test_steps_scores_and_what_is_kept(run, small_data):
    two = run()
    (line,) = two.history()
    assert line["step"] == 6 + 6 + 1 + 11
    assert set(line["scores"]) == {"overall", "sentiment", "paraphrase", "similarity"}
    watched = set(line["training"])
    assert {"sentiment", "sentiment views", "paraphrase views", "similarity views", "gradient"} <= watched
    assert {"sentiment views alignment", "similarity views uniformity"} <= watched
    folder = two.model_folder()
    with safe_open(folder / "heads.safetensors", "pt") as heads, safe_open(folder / "model.safetensors", "pt") as body:
        stored = [*heads.keys(), *body.keys()]
    assert stored
    assert not any("projection" in name or name.startswith("cls.") for name in stored)
    assert [name for name in stored if name.startswith(tuple(COURSE_TASKS))]  # the heads'
    assert list(MultitaskModel.load(folder).tasks) == ["sentiment", "paraphrase", "similarity"]
    inputs = json.loads((two.folder / "inputs.json").read_text())
    assert inputs["views"]["similarity"] == sha256_of_file(small_data / "sts-train.csv")


def test_defaults_name_the_tasks_of_the_report_that_are_declared():
    assert FuseConfig().of_declared(COURSE_TASKS) == FuseConfig()
    some = FuseConfig().of_declared(["sentiment", "similarity", "topic"])
    assert (some.finetune.tasks, some.finetune.untrained) == (("sentiment",), ("similarity",))
    assert some.unlabelled == ("similarity",)
    none = FuseConfig().of_declared(["similarity", "topic"])
    assert (none.finetune.tasks, none.finetune.untrained, none.unlabelled) == ((), (), ())
    mine = FuseConfig(replace(SUPERVISED, tasks=("topic",), untrained=()), unlabelled=("texts.txt",))
    assert mine.of_declared(["similarity", "topic"]) == mine
    all_quora = replace(FuseConfig(), contrastive=ContrastiveConfig())  # as in the presets
    assert all_quora.of_declared(["similarity", "topic"]).unlabelled == ()


def test_all_tasks_of_ones_own_are_trained_on_labels_by_default(run, tmp_path):
    columns = {"text": [f"text {number}" for number in range(40)], "topic": ["a", "b"] * 20, "value": [*range(5)] * 8}
    kinds = {"topic": "classification", "value": "regression"}
    tasks = {name: {"kind": kind, "text": "text", "label": name} for name, kind in kinds.items()}
    found = run(varied(FuseConfig(), epochs=1), data=tasks_file(tmp_path, columns, **tasks))
    assert found.history()[0]["training"].keys() >= {"topic", "topic views", "value", "value views"}
    recorded = read_json(found.folder / "config.json", dict)
    assert recorded["finetune"]["tasks"] == recorded["finetune"]["untrained"] == recorded["unlabelled"] == []


def test_conflicts_are_those_of_the_update_without_its_views(fusing, monkeypatch):
    found = fusing(varied(CONFIG, steps="one", conflicts_every=1))
    looked: list[Update] = []
    monkeypatch.setattr(found.scheduler, "conflicts", lambda _, update: looked.append(update) or {})
    update = found.plan(0)[0]
    found.watch(update, 0)
    assert looked == [tuple(batch for batch in update if batch.source in CONFIG.finetune.tasks)]
    assert 0 < len(looked[0]) < len(update)
