"""What holds for every stage that trains: equal bits for equal seeds, also after a cut; rates; evaluation."""

import hashlib
import logging
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from minbert.errors import InputError
from minbert.files import read_json
from multitask.base.device import PROCESSOR
from multitask.base.errors import Stopped
from multitask.base.runs import Run, Weights
from multitask.models.estimates import estimate, load_split
from multitask.models.multitask_model import load_model
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.models.settings import HeadsConfig
from multitask.stages.evaluate import evaluate_on_dev, similarity_dev_set
from multitask.stages.finetune import Finetuning, finetune
from multitask.stages.fuse import fuse
from multitask.stages.mlm import mlm
from multitask.stages.pretrain import pretrain
from multitask.stages.run_stage import run_stage as run_any
from multitask.stages.settings import FINETUNE as FINETUNE_STAGE
from multitask.stages.settings import SUPERVISED, FinetuneConfig, FuseConfig
from multitask.stages.settings_of_pretraining import MlmConfig, PretrainConfig
from multitask.stages.settings_without_training import EvaluateConfig
from multitask.stages.training_run import StartModel
from multitask.tasks import MAIN_TASKS
from multitask.tasks.declarations import load_tasks
from multitask.training.optimizer import Optimizer, build_adamw
from multitask.training.schedulers import SCHEDULERS
from multitask.training.settings import ObjectiveConfig, OptimizerConfig, RegularisationConfig
from tests.conftest import slow_after
from tests.multitask.declared import tasks_file
from tests.multitask.stages.conftest import cut_before_step, history, weights
from tests.multitask.training.schedulers.toy import needs, tasks_of
from tests.multitask.training.toy import Cut

FAST = OptimizerConfig(learning_rate=1e-3)
AVERAGED = OptimizerConfig(learning_rate=1e-3, ema_decay=0.7, layer_decay=0.5)
BOTH = RegularisationConfig(smart_weight=1.0, r_drop_weight=1.0)
FINETUNE = FinetuneConfig(epochs=2, batch_size=12, encoder_dropout=None, optimizer=FAST)
PRETRAIN = PretrainConfig(batch_size=8, epochs=2, optimizer=FAST)
FUSE = FuseConfig(replace(SUPERVISED, epochs=2, batch_size=6, train_limit=16, optimizer=FAST))
CASES: dict[str, tuple[Any, Any]] = {
    "finetune": (
        finetune,
        replace(
            FINETUNE,
            tasks=("sentiment", "similarity"),
            optimizer=AVERAGED,
            regularisation=BOTH,
            batch_size=6,
            train_limit=16,
        ),
    ),
    "pretrain": (pretrain, replace(PRETRAIN, evaluate_every=3, chunk=3, mlm_weight=0.1, probe_every=3, train_limit=24)),
    "moco": (pretrain, replace(PRETRAIN, momentum=0.9, queue_size=20, mlm_weight=0.1, train_limit=24)),
    "byol": (
        pretrain,
        replace(PRETRAIN, momentum=0.9, objective=ObjectiveConfig("byol"), probe_every=3, train_limit=24),
    ),
    "mlm": (mlm, MlmConfig(batch_size=8, epochs=2, dev_share=0.2, evaluate_every=3, optimizer=FAST)),
    "fuse": (fuse, FUSE),
}


def with_seed(config: Any, seed: int) -> Any:
    return (
        replace(config, finetune=replace(config.finetune, seed=seed))
        if isinstance(config, FuseConfig)
        else replace(config, seed=seed)
    )


@pytest.fixture
def run(run_stage, one_layer):
    return partial(run_stage, start=one_layer)


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_was_cut_twice_ends_as_if_it_had_not_been_and_another_seed_does_not(case, run):
    stage, config = CASES[case]
    whole = run(stage, config, folder="whole")
    for at in (1, 4):
        with cut_before_step(at):
            run(stage, config, folder="cut", save_every=0.0)
        torch.manual_seed(99)  # the generator comes from the saved state
    resumed = run(stage, config, folder="cut")
    assert resumed.folder.name == whole.folder.name
    assert weights(resumed) == weights(whole)
    assert read_json(resumed.folder / "best.json") == read_json(whole.folder / "best.json")
    np.testing.assert_equal(history(resumed), history(whole))
    other = run(stage, with_seed(config, 1))
    assert other.folder.name != whole.folder.name
    assert not {*weights(whole).values()} & {*weights(other).values()}


@pytest.mark.parametrize("kept", ['{"seconds": 7.5}', "{}", '{"seconds": null}', '{"seconds": NaN}', '{"seco', None])
@pytest.mark.parametrize("state", ["whole", "damaged", None])
def test_a_damaged_time_and_that_of_a_state_that_no_run_goes_on_from_count_as_none(tmp_path, kept, state):
    (tmp_path / "state").mkdir()
    if state is not None:
        content = b"tensors" + hashlib.sha256(b"tensors").hexdigest().encode()
        (tmp_path / "state" / "state.pt").write_bytes(content if state == "whole" else content[1:])
    if kept is not None:
        (tmp_path / "state" / "seconds.json").write_text(kept)
    assert Run(tmp_path).seconds_before == (7.5 if state == "whole" and kept == '{"seconds": 7.5}' else 0)


def test_the_time_of_a_run_that_was_stopped_is_that_of_all_its_processes(run, monkeypatch):
    """Loading and each evaluation take an hour here, and steps take none."""
    hours = [0]

    def an_hour(function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            hours[0] += 1
            return function(*arguments)

        return call

    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 3600 * hours[0])
    monkeypatch.setattr(Finetuning, "load", an_hour(Finetuning.load))
    monkeypatch.setattr(Finetuning, "evaluate", an_hour(Finetuning.evaluate))
    config = replace(FINETUNE, tasks=("sentiment",), epochs=3, train_limit=12)
    for epoch in (1, 2):
        until = partial(run_any, FINETUNE_STAGE, on_evaluation=lambda _, line, last=epoch: line["epoch"] == last)
        with pytest.raises(Stopped):
            run(until, config, folder="stopped")
    found = run(finetune, config, folder="stopped")
    assert round(found.seconds / 3600, 1) == hours[0] == 3 + 3
    assert not (found.folder / "state").exists()


def test_a_run_is_found_with_any_threads_and_goes_on_with_its_own(run, monkeypatch, caplog):
    """Ctrl-C, and the same command again with another number of threads."""
    used, step, before = [], Optimizer.step, torch.get_num_threads()
    caplog.set_level(logging.INFO)
    config = replace(FINETUNE, tasks=("sentiment",), epochs=1, train_limit=36)
    whole = run(finetune, config, folder="whole", threads=2)

    def cut(self: Optimizer, number: int) -> None:
        used.append(torch.get_num_threads())
        if len(used) == 2:
            raise Cut
        step(self, number)

    with monkeypatch.context() as patch:
        patch.setattr(Optimizer, "step", cut)
        with pytest.raises(Cut):
            run(finetune, config, folder="cut", threads=2, save_every=0.0)
        resumed = run(finetune, config, folder="cut", threads=1)
    assert set(used) == {2}
    assert resumed.folder.name == whole.folder.name
    assert weights(resumed) == weights(whole)
    assert read_json(resumed.folder / "inputs.json")["threads"] == 2
    said = "threads: 2, as the run began, so that it ends with the same bits; another number needs --threads and a new "
    assert [line for line in caplog.messages if line.startswith("threads: ")] == [
        f"{said}beginning: delete {resumed.folder}, which loses its steps"
    ]
    assert run(finetune, config, folder="whole", threads=3).folder == whole.folder  # and computes nothing
    assert torch.get_num_threads() == before  # the number is of that call


@pytest.mark.parametrize(
    ("load", "given", "threads", "said"),
    [
        (9.0, {}, 1, "this machine is busy (load 9.0, 2 cores), where one thread is faster, so the run has one; "),
        (9.0, {"threads": 2}, 2, "this machine is busy (load 9.0, 2 cores), where one thread is faster than 2; "),
        (2.4, {}, 2, None),  # of a training that has just ended
    ],
    ids=["busy", "asked for", "not busy"],
)
def test_a_run_begins_with_one_thread_on_a_busy_machine(load, given, threads, said, run, monkeypatch, caplog):
    before = torch.get_num_threads()
    caplog.set_level(logging.INFO)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    torch.set_num_threads(2)
    found = run(finetune, replace(FINETUNE, tasks=("sentiment",), epochs=1, train_limit=12), folder="busy", **given)
    assert torch.get_num_threads() == 2  # for what the process does next
    torch.set_num_threads(before)
    assert read_json(found.folder / "inputs.json")["threads"] == threads
    lines = [line for line in caplog.messages if "busy" in line]
    assert len(lines) == (said is not None)
    assert all(line.startswith(said) for line in lines)


@pytest.mark.parametrize(("rate", "said"), [(0.0, False), (0.1, True)])
@pytest.mark.parametrize("case", ["finetune", "pretrain"])
def test_a_training_that_ends_below_its_start_says_so(case, rate, said, run, caplog):
    """With a rate of 0 the scores stay those of the start weights, and with a rate of 0.1 they are those of chance."""
    stage, config = CASES[case][0], {"finetune": FINETUNE, "pretrain": PRETRAIN}[case]
    tasks = {"tasks": ("similarity",)} if case == "finetune" else {}
    run(stage, replace(config, epochs=1, optimizer=OptimizerConfig(rate, head_learning_rate=rate), **tasks))
    lines = [record.getMessage() for record in caplog.records if "below its start" in record.getMessage()]
    assert len(lines) == said
    assert all(line.startswith("similarity ends below its start: ") for line in lines)
    assert ("learning_rate is 0.1; usual are 0.001 and less, and training" in caplog.text) == said


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_the_encoder_has_the_heads_learning_rate(case, problem):
    found = problem(*CASES[case])
    optimizer = build_adamw(found.module, OptimizerConfig(learning_rate=1e-5, head_learning_rate=1e-3))
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    encoder = {id(p) for p in found.module["encoder"].parameters()}
    assert {rates[name] for name in encoder} == {1e-5}
    assert {rate for name, rate in rates.items() if name not in encoder} == {1e-3}
    assert len(rates) == sum(p.requires_grad for p in found.module.parameters())


# Regularised fine-tuning of a tiny encoder: with every scheduler, and however pairs are read.


THREE_TASKS = FinetuneConfig(MAIN_TASKS, epochs=2, batch_size=8, epoch_size=16, optimizer=FAST, keep_task_bests=False)
PENALTIES = RegularisationConfig(smart_weight=2.0, smart_radius=0.05, r_drop_weight=1.5)


@pytest.fixture(scope="module")
def first_state(tiny_encoder, small_data) -> Callable[[FinetuneConfig], Finetuning]:
    """The first state of a training without dropout. All have the same encoder."""
    still = replace(THREE_TASKS, encoder_dropout=0.0, heads=HeadsConfig(dropout=0.0))
    begin = StartModel.load(Weights(str(tiny_encoder)), still, PROCESSOR)
    found = Finetuning.load(begin, small_data, still)

    def build(config: FinetuneConfig) -> Finetuning:
        training = {task: found.training[task] for task in config.tasks}
        first_state = Finetuning(found.model, training, found.dev, config)
        first_state.module.train().zero_grad()
        return first_state

    return build


@pytest.mark.parametrize("name", slow_after(4, sorted(SCHEDULERS)))
def test_every_scheduler_takes_the_regularised_losses(name, first_state):
    needs(name)
    config = replace(THREE_TASKS, scheduler=name, tasks=tasks_of(name))
    plain, regularised = first_state(config), first_state(replace(config, regularisation=PENALTIES))
    update = regularised.plan(0)[0]
    before = {task: term.item() for task, term in plain.losses(update).terms.items()}
    found = regularised.scheduler.backward(regularised, update)
    assert found.terms.keys() == before.keys()
    for task, term in found.terms.items():
        penalty = found.watched[f"{task} smart"].item()
        assert penalty > 0
        assert found.watched[f"{task} r_drop"] == 0  # there is no dropout
        assert term.item() == pytest.approx(before[task] + 2.0 * penalty, rel=1e-4)
    gradients = [p.grad for p in regularised.module.parameters() if p.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert not found.outputs  # nothing keeps the graph


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"encoder_dropout": 0.0}, 1),
        ({"encoder_dropout": 0.1, "freeze": "encoder"}, 1),
        ({}, 0),
        ({"encoder_dropout": 0.0, "tasks": ("similarity",), "heads": HeadsConfig("none", dropout=0.3)}, 1),
        ({"encoder_dropout": 0.0, "tasks": ("sentiment",), "heads": HeadsConfig("none", dropout=0.3)}, 0),
    ],
)
def test_r_drop_without_dropout_is_warned_of(settings, warned, problem, caplog):
    """A frozen encoder has none, whatever is asked for, and neither has a head without layers."""
    changes = {"encoder_dropout": 0.1, "heads": HeadsConfig(dropout=0.0), "regularisation": PENALTIES, **settings}
    found = problem(finetune, replace(THREE_TASKS, **changes))
    assert sum("r_drop_weight has no effect" in message for message in caplog.messages) == warned
    watched = found.losses(found.plan(0)[0]).watched
    assert all(watched[f"{name} r_drop"] == 0 for name in found.training) == warned


@pytest.mark.parametrize("pairs", ["embeddings", "joint"])
def test_pairs_are_regularised_however_they_are_read(pairs, run_stage):
    sharing = "shared_first_layer" if pairs == "embeddings" else "separate"
    heads = HeadsConfig(sharing, pairs=pairs)
    artefact = run_stage(
        finetune,
        replace(THREE_TASKS, tasks=("paraphrase", "similarity"), epochs=1, heads=heads, regularisation=PENALTIES),
    )
    training = artefact.history()[0]["training"]
    assert training.keys() == {
        "gradient", *(f"{task}{name}" for task in ("paraphrase", "similarity") for name in ("", " smart", " r_drop"))
    }  # fmt: skip
    assert all(value > 0 for value in training.values())


# Evaluation of runs and checkpoints: scores and the geometry of embeddings by brute force, and when there is none.


CONFIG = FinetuneConfig(("sentiment",), epochs=1, epoch_size=16, optimizer=OptimizerConfig(learning_rate=1e-3))


@pytest.fixture
def sentiment_run(run_stage, small_data) -> Run:
    """A model of sentiment, whose embeddings are measured all the same."""
    return run_stage(finetune, CONFIG, data=small_data)


@pytest.fixture
def scored(run_stage, small_data) -> Callable[..., Path]:
    """The folder with a model's scores."""
    return lambda model, data=small_data: run_stage(evaluate_on_dev, EvaluateConfig(), start=model, data=data).folder


def test_pairs_are_also_scored_at_the_threshold_that_is_best_on_training_rows(run_stage, tiny_encoder, small_data):
    config = EvaluateConfig(thresholds=("paraphrase",))
    folder = run_stage(evaluate_on_dev, config, start=tiny_encoder, data=small_data).folder
    found = read_json(folder / "evaluation.json")["metrics"]["paraphrase"]
    model = load_model(tiny_encoder, load_tasks(small_data)).on(PROCESSOR)
    [training], [dev] = (load_split(model, small_data, split, ["paraphrase"]).values() for split in ("train", "dev"))
    scores, tried = (estimate(model, {"paraphrase": rows})["paraphrase"] for rows in (training, dev))
    accuracies = [np.mean((scores > limit) == training.examples.gold) for limit in [0.0, *scores]]
    assert np.mean((scores > found["threshold"]) == training.examples.gold) == max(accuracies)
    expected = np.mean((tried > found["threshold"]) == dev.examples.gold)
    assert found["accuracy_at_threshold"] == pytest.approx(expected) != found["accuracy"]
    for name in ("similarity", "unknown"):
        with pytest.raises(InputError, match=f"{name} is no task of this model with the probability of one class"):
            run_stage(evaluate_on_dev, EvaluateConfig(thresholds=(name,)), start=tiny_encoder, data=small_data)


def test_a_checkpoint_is_scored_on_pairs_and_its_embeddings_are_measured(scored, tiny_encoder, small_data):
    found = read_json(scored(tiny_encoder) / "evaluation.json")
    assert found["scores"].keys() == {"paraphrase", "similarity"}  # sentiment needs a trained head
    similar = similarity_dev_set(small_data)
    assert similar is not None
    _, pairs = similar
    embedder = SentenceEncoder.load(tiny_encoder, device="cpu", precision="fp32")
    first, second = (embedder.encode(list(column), normalize=True) for column in pairs.sentences)
    near = np.square(first - second).sum(1)[pairs.labels >= 4]
    assert found["geometry"]["alignment"] == pytest.approx(near.mean(), rel=1e-4)
    assert found["overlap"]["similarity"]["rows_seen"] == 0


def test_the_geometry_of_a_task_of_another_range_is_of_its_top_fifth(scored, tiny_encoder, tmp_path):
    pairs = {"a": ["a film", "two cats", "a dog"], "b": ["a movie", "three cats", "rain"]}
    found = []
    for name, scores, top in (("stars", [4.5, 3.9, 0.0], 5), ("percent", [90, 78, 0], 100)):
        fields = {"kind": "cosine", "text": ["a", "b"], "label": "score", "range": [0, top]}
        (tmp_path / name).mkdir()
        tasks = tasks_file(tmp_path / name, {**pairs, "score": scores}, alike=fields)
        found.append(read_json(scored(tiny_encoder, tasks) / "evaluation.json")["geometry"])
    assert found[0] == found[1]
    encoder = SentenceEncoder.load(tiny_encoder, device="cpu", precision="fp32")
    first, second = encoder.encode(["a film", "a movie"], normalize=True)
    assert found[0]["alignment"] == pytest.approx(np.square(first - second).sum(), rel=1e-3)


def test_an_encoder_alone_is_scored_with_the_labels_and_the_range_of_the_training_rows(
    scored, tiny_encoder, tmp_path, caplog
):
    rows = {"a": ["a film", "two cats", "a dog"], "b": ["a movie", "three cats", "rain"], "nli": ["n", "e", "c"]}
    rows |= {"same": ["no", "no", "yes"], "far": [40, 60, 20]}
    pair = {"text": ["a", "b"], "train": "train.csv"}
    named = {"kind": "pair_classification", "label": "same", **pair}
    tasks = tasks_file(
        tmp_path,
        rows,
        same=named,
        named=named | {"labels": ["no", "yes"]},
        nli={"kind": "pair_classification", "label": "nli", **pair},
        far={"kind": "pair_regression", "label": "far", "metric": "rmse", **pair},
        lost=named | {"train": "lost.csv"},
    )
    encoder = SentenceEncoder.load(tiny_encoder, device="cpu", precision="fp32")
    first, second = (encoder.encode(rows[column], normalize=True) for column in "ab")
    cosines = (first * second).sum(axis=1)
    for low, high in ((0, 100), (10, 60)):
        ends = "".join(f"x,y,{nli},{same},{far}\n" for nli, same, far in (("n", "no", low), ("e", "yes", high)))
        (tmp_path / "train.csv").write_text(f"a,b,nli,same,far\n{ends}x,z,c,no,{low}\n")
        folder = scored(tiny_encoder, tasks)
        metrics = read_json(folder / "evaluation.json")["metrics"]
        assert metrics.keys() == {"same", "named", "far"}  # three classes need a trained head
        assert any("lost.csv: no such file; lost is left out" in line for line in caplog.messages)
        assert metrics["same"] == metrics["named"]
        expected = low + cosines * (high - low)
        np.testing.assert_allclose(np.load(folder / "predictions.npz")["far_predictions"], expected, rtol=1e-4)
        assert metrics["far"]["rmse"] == pytest.approx(np.sqrt(np.mean((expected - rows["far"]) ** 2)), rel=1e-3)


def test_other_dev_rows_are_another_evaluation_and_refused_for_a_run(
    sentiment_run, scored, tiny_encoder, small_data, tmp_path
):
    data = shutil.copytree(small_data, tmp_path / "data")
    of_run, before = (scored(model, data) for model in (sentiment_run.folder, tiny_encoder))
    for name in ("quora-dev.csv", "ids-sst-dev.csv"):
        header, _, *rows = (data / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (data / name).write_text("".join([header, *rows]), encoding="utf-8")
    after = scored(tiny_encoder, data)
    assert len(np.load(after / "predictions.npz")["paraphrase_labels"]) == 31
    assert len(np.load(before / "predictions.npz")["paraphrase_labels"]) == 32
    assert (of_run / "DONE").exists()
    with pytest.raises(InputError, match=r"ids-sst-dev.csv: not the dev set on which"):
        scored(sentiment_run.folder, data)


def test_without_similar_pairs_nothing_is_measured(small_data, tmp_path):
    data = shutil.copytree(small_data, tmp_path / "data")
    (data / "sts-dev.csv").unlink()
    assert similarity_dev_set(data) is None
    header, row, *_ = (small_data / "sts-dev.csv").read_text(encoding="utf-8").splitlines()
    columns = row.split("\t")
    (data / "sts-dev.csv").write_text(header + "\n" + "\t".join([*columns[:2], "Same.", "Same.", columns[4]]) + "\n")
    assert similarity_dev_set(data) is None
