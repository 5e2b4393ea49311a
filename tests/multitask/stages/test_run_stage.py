"""A run's key follows what decides its bits and nothing else, and is known before anything is loaded."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch

from minbert.errors import InputError
from multitask.base.device import Runtime
from multitask.base.keys import hash_of_file
from multitask.base.options import RunOptions
from multitask.base.runs import Run, Weights
from multitask.models.model_folder import DESCRIPTION
from multitask.stages.reads import READING, declared
from multitask.stages.registry import stage_named
from multitask.stages.run_stage import identity_of, key_of, key_of_models, prepare_process, run_stage, runtime_of
from multitask.stages.settings import DistilConfig, FinetuneConfig, TeachingConfig
from multitask.stages.settings_of_pretraining import MlmConfig, PretrainConfig
from multitask.stages.settings_without_training import PruneConfig
from multitask.tasks.declarations import COURSE, load_tasks

PUBLISHED = Path(__file__).parents[3] / "docs" / "studies" / "results" / "runs" / "multitask-report-small.parquet"
TASKS = """
[tasks.topic]
kind = "classification"
text = "t"
label = "l"
labels = ["a", "b"]
train = "topic.csv"

[tasks.value]
kind = "regression"
text = "t"
label = "l"
train = "value.csv"
dev = "value-dev.csv"
test = "value-test.csv"
"""
FILES = {
    name: f"t,l\n{name},a\n" for name in ("topic.csv", "value.csv", "value-dev.csv", "value-test.csv", "other.csv")
}
CPU = Runtime(torch.device("cpu"), "fp32")


@pytest.fixture
def tasks_file(tmp_path) -> Path:
    for name, content in {**FILES, "sentences.txt": "One.\nTwo.\n", "tasks.toml": TASKS}.items():
        (tmp_path / name).write_text(content)
    return tmp_path / "tasks.toml"


def key(tasks_file: Path, config: Any = None, stage: str = "finetune", runtime: Runtime = CPU) -> str:
    config = config or stage_named(stage).config()
    return key_of(stage_named(stage), ["a parent"], tasks_file, config, runtime).digest()


@pytest.mark.parametrize(
    ("file", "finetune", "evaluate", "pretrain"),
    [
        ("topic.csv", True, True, False),
        ("value.csv", True, False, False),
        ("value-dev.csv", True, True, False),
        ("value-test.csv", False, False, False),
        ("other.csv", False, False, False),
        ("sentences.txt", False, False, True),
    ],
)
def test_only_the_files_that_a_stage_reads_are_part_of_its_key(tasks_file, file, finetune, evaluate, pretrain):
    """The rows of `topic` are training and development rows."""
    read = {"finetune": None, "evaluate": None, "pretrain": PretrainConfig(select="last")}
    before = {stage: key(tasks_file, config, stage) for stage, config in read.items()}
    one = FinetuneConfig(tasks=("value",))  # a task that is not trained does not matter
    alone = key(tasks_file, one)
    (tasks_file.parent / file).write_text("t,l\nchanged,a\n")
    changed = {stage: key(tasks_file, config, stage) != before[stage] for stage, config in read.items()}
    assert changed == {"finetune": finetune, "evaluate": evaluate, "pretrain": pretrain}
    assert (key(tasks_file, one) != alone) == (finetune and file != "topic.csv")


@pytest.mark.parametrize(("unlabelled", "matters"), [((), False), (("unlabelled",), True)])
def test_a_test_set_is_part_of_the_key_where_further_rows_leave_out_its_rows(tasks_file, unlabelled, matters):
    config = DistilConfig(teaching=TeachingConfig(unlabelled))
    before = key(tasks_file, config, "distil")
    (tasks_file.parent / "value-test.csv").write_text("t,l\nchanged,a\n")
    assert (key(tasks_file, config, "distil") != before) == matters


@pytest.mark.parametrize(
    ("then", "now", "matters"),
    [
        ("# a comment\n", "", False),
        ('test = "value-test.csv"', "", False),
        ('label = "l"\nlabels', 'label = "m"\nlabels', True),
        ('train = "topic.csv"', 'train = "topic.csv"\nweight = 2.0', True),
        ('train = "topic.csv"', 'train = "topic.csv"\nshown = ["A", "B"]', True),  # the saved model shows them
        ('train = "topic.csv"', 'train = "topic.csv"\nseparator = ";"', True),
        ('train = "topic.csv"', 'train = "topic.csv"\nquotes = false', True),
        ('train = "topic.csv"', 'train = "topic.csv"\ndev_share = 0.5', True),
        ('train = "topic.csv"', 'train = {file = "topic.csv", split = "train"}', True),
    ],
)
def test_declarations_are_part_of_the_key_and_the_tasks_file_is_not(tasks_file, then, now, matters):
    tasks_file.write_text("# a comment\n" + TASKS)
    before = key(tasks_file)
    tasks_file.write_text(("# a comment\n" + TASKS).replace(then, now))
    assert (key(tasks_file) != before) == matters


@pytest.mark.parametrize(("then", "now", "matters"), [('["0", "1"]', "[0, 1]", True), ("[0, 1]", "[0, 1.0]", False)])
def test_whether_labels_are_numbers_is_part_of_the_key(tasks_file, then, now, matters):
    """Numbers also stand for other ways to write them, for which a stored model reads files by its own labels."""
    keys = set()
    for labels in (then, now):
        tasks_file.write_text(TASKS.replace('["a", "b"]', labels))
        keys.add(key(tasks_file))
    assert len(keys) == 1 + matters


@pytest.mark.parametrize(
    ("stage", "config"),
    [
        ("mlm", MlmConfig(sources=("topic",))),
        ("pretrain", PretrainConfig(sources=("topic",), select="last")),
        ("prune", PruneConfig(score="task", task="topic")),
        ("finetune", FinetuneConfig(tasks=("topic",), held_out=0.1)),
    ],
)
def test_a_dev_file_is_part_of_the_key_because_without_one_training_rows_are_held_out(tasks_file, stage, config):
    before = key(tasks_file, config, stage)
    tasks_file.write_text(TASKS.replace('train = "topic.csv"', 'train = "topic.csv"\ndev = "other.csv"'))
    assert key(tasks_file, config, stage) != before


def test_the_order_of_tasks_matters_and_the_place_of_files_does_not(tasks_file, tmp_path):
    before = key(tasks_file)
    moved = Path(shutil.copytree(tasks_file.parent, tmp_path.with_name(f"{tmp_path.name}-moved")))
    assert key(moved / "tasks.toml") == before
    first, second = TASKS.split("\n\n")
    tasks_file.write_text(f"{second}\n{first}\n")
    assert key(tasks_file) != before


def test_tasks_other_than_the_courses_are_computed_anew_when_files_are_read_otherwise(tmp_path, monkeypatch):
    """A prediction file alone makes no task the course's."""
    course = COURSE.read_text(encoding="utf-8")
    own = course.replace("range = [0, 5]", "range = [0, 4]").replace("[tasks.reviews]", "[tasks.mood]")
    (tmp_path / "tasks.toml").write_text(own.replace('"quora-train.csv"', '{ file = "x.csv", split = "train" }'))
    tasks = load_tasks(tmp_path / "tasks.toml").values()
    before = declared(tasks)
    monkeypatch.setattr("multitask.stages.reads.READING", READING + 1)
    changed = [new["name"] for old, new in zip(before, declared(tasks), strict=True) if old != new]
    assert changed == ["paraphrase", "similarity", "mood"]


@pytest.mark.parametrize("stage", ["finetune", "evaluate"])
def test_what_is_in_a_key_of_computing_and_tasks_is_that_of_published_runs(stage, tasks_file):
    """Otherwise `experiments run` would compute them again. They were trained with one thread."""
    files = pandas.read_parquet(PUBLISHED)
    [published, *_] = map(json.loads, files.text[files.run.str.startswith(f"{stage}-") & (files.file == "inputs.json")])
    found = key_of(
        stage_named(stage), ["a parent"], tasks_file, stage_named(stage).config(), replace(CPU, precision="bf16")
    )
    computing = ("device", "precision", "attention", "threads", "ranks")
    assert {of: found.inputs.get(of) for of in computing} == {of: published.get(of) for of in computing}
    tasks = [load_tasks("data")[task["name"]] for task in published["tasks"]]
    assert declared(tasks) == published["tasks"]


@pytest.mark.parametrize(
    ("device", "stage", "matters"),
    [("cuda", "finetune", True), ("cuda", "evaluate", False), ("cpu", "finetune", False)],
)
def test_fast_is_part_of_the_key_of_a_training_on_cuda_alone(tasks_file, device, stage, matters):
    slow, fast = (Runtime(torch.device(device), "bf16", fast=fast) for fast in (False, True))
    assert (key(tasks_file, stage=stage, runtime=slow) != key(tasks_file, stage=stage, runtime=fast)) == matters


@pytest.mark.parametrize(
    ("stage", "trains"), [("finetune", True), ("pretrain", True), ("prune", False), ("evaluate", False)]
)
def test_fast_changes_trainings_alone_as_other_keys_do_not_name_it(stage, trains):
    assert runtime_of(stage_named(stage), RunOptions(device="cpu", fast=True)).fast == trains


@pytest.fixture
def on_cuda(monkeypatch) -> Iterator[None]:
    """A GPU is chosen, and nothing computes on it."""
    before = torch.get_float32_matmul_precision()
    cuda = Runtime(torch.device("cuda"), "fp32")
    monkeypatch.setattr("multitask.stages.run_stage.resolve_runtime", lambda *_: cuda)
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda _: None)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(("stage", "expected"), [("evaluate", "highest"), ("suites", "highest"), ("finetune", "high")])
def test_fp32_is_exact_but_in_a_fast_training_as_keys_say(on_cuda, stage, expected):
    torch.set_float32_matmul_precision("high")
    prepare_process(stage_named(stage), RunOptions(fast=True))
    assert torch.get_float32_matmul_precision() == expected


def test_after_a_fast_training_fp32_is_exact_again(on_cuda, tasks_file, tiny_encoder, tmp_path, monkeypatch):
    def compute(*_: object) -> None:
        assert torch.get_float32_matmul_precision() == "high"
        raise InputError("refused")

    monkeypatch.setattr("multitask.stages.finetune.compute", compute)
    monkeypatch.setattr("multitask.base.runs.machine_name", lambda _: "a GPU")
    torch.set_float32_matmul_precision("highest")
    options = RunOptions(fast=True, runs=tmp_path / "runs")
    with pytest.raises(InputError, match="refused"):
        run_stage(stage_named("finetune"), str(tiny_encoder), tasks_file, None, options)
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_file_is_hashed_again_when_it_has_changed(tmp_path):
    path = tmp_path / "file"
    path.write_text("one")
    first = hash_of_file(path)
    path.write_text("two")
    assert hash_of_file(path) != first
    path.write_text("one")
    assert hash_of_file(path) == first


def test_a_model_is_its_runs_key_or_the_hashes_of_its_files(tiny_encoder, tmp_path):
    hashes = identity_of(Weights(str(tiny_encoder)))
    assert isinstance(hashes, dict)
    assert hashes == identity_of(Weights(str(shutil.copytree(tiny_encoder, tmp_path / "copy"))))
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= hashes.keys()
    run = tmp_path / "finetune-run-0123456789abcdef"
    run.mkdir()
    (run / "inputs.json").write_text('{"key": "0123456789abcdef"}')
    (run / "config.json").write_text("{}")
    with pytest.raises(InputError, match="not a complete run"):
        identity_of(Weights(str(run)))
    Run(run).finish()
    assert identity_of(Weights(str(run))) == "0123456789abcdef"
    assert identity_of(Weights(str(run.rename(tmp_path / "my-model")))) == "0123456789abcdef"


def test_weights_of_further_modules_identify_a_model_and_a_norm_does_not(tiny_encoder, tmp_path):
    folder = Path(shutil.copytree(tiny_encoder, tmp_path / "model"))
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense", "3_Normalize": "Normalize"}
    (folder / "modules.json").write_text(json.dumps([{"path": path, "type": f"s.{kinds[path]}"} for path in kinds]))
    found: list[Any] = [identity_of(Weights(str(folder)))]
    for name in ("3_Normalize/config.json", "2_Dense/README.md", "2_Dense/config.json", "2_Dense/model.safetensors"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}")
        found.append(identity_of(Weights(str(folder))))
    assert found[0] == found[1] == found[2]
    assert found[4].keys() - found[0].keys() == {"2_Dense/config.json", "2_Dense/model.safetensors"}


@pytest.mark.parametrize("stage", ["finetune", "fuse", "distil"])
def test_only_heads_that_go_on_are_in_a_key_so_older_runs_are_found(stage, tasks_file, tiny_encoder, tmp_path):
    found = stage_named(stage)
    goes_on = found.config()
    new = replace(goes_on, finetune=replace(goes_on.finetune, new_heads=True)) if stage == "fuse" else None
    new = new or replace(goes_on, new_heads=True)
    copy = Path(shutil.copytree(tiny_encoder, tmp_path / "copy"))
    for with_heads in (False, True):
        if with_heads:
            (copy / DESCRIPTION).write_text("{}")
        start = Weights(str(copy))
        plain = key_of(found, [identity_of(start)], tasks_file, found.config(), CPU)
        assert key_of_models(found, [start], tasks_file, new, CPU).digest() == plain.digest()
        assert (key_of_models(found, [start], tasks_file, goes_on, CPU).digest() == plain.digest()) != with_heads


def test_a_run_that_is_refused_leaves_nothing(tiny_encoder, tasks_file, tmp_path):
    options = RunOptions(device="cpu", precision="fp32", runs=tmp_path / "runs")
    with pytest.raises(InputError, match=r"topic\.csv"):
        run_stage(stage_named("finetune"), [tiny_encoder], tasks_file, FinetuneConfig(), options)
    assert not list((tmp_path / "runs").glob("[!.]*"))
