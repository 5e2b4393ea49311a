"""A training goes on with the start's heads bit for bit where they mean the same, and says where and why not."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from minbert.errors import InputError
from multitask.models.heads_of_start import take_heads
from multitask.models.model_folder import HEADS
from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.models.settings import HeadsConfig
from multitask.tasks.declarations import task_of
from multitask.tasks.task import Task
from tests.multitask.declared import declared_tasks

TASKS = declared_tasks()
SEPARATE = HeadsConfig("separate")


def build(encoder: Path, tasks: dict[str, Task], heads: HeadsConfig = SEPARATE, pooling="mean") -> MultitaskModel:
    return MultitaskModel(SentenceEncoder.read(encoder, pooling), tasks, heads).eval()


def tensors(model: MultitaskModel, name: str) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in model.heads[name].state_dict().values()]


@pytest.fixture
def start(tiny_encoder: Path, tmp_path: Path):
    """The model in a folder, and the folder."""

    def call(heads: HeadsConfig = SEPARATE) -> tuple[MultitaskModel, Path]:
        torch.manual_seed(1)
        model = build(tiny_encoder, TASKS, heads)
        model.save(tmp_path / "start")
        return model, tmp_path / "start"

    return call


@pytest.mark.parametrize("heads", [SEPARATE, HeadsConfig("shared"), HeadsConfig("separate", "features", residual=True)])
def test_heads_of_the_same_tasks_go_on_and_no_random_number_is_drawn(start, tiny_encoder, heads, caplog):
    caplog.set_level("INFO")
    old, folder = start(heads)
    torch.manual_seed(2)
    model = build(
        tiny_encoder, {name: TASKS[name] for name in ("topic", "same", "similar")}, replace(heads, dropout=0.1)
    )
    state = torch.random.get_rng_state()
    take_heads(model, folder, new=False)
    assert torch.equal(torch.random.get_rng_state(), state)
    embeddings = torch.randn(6, 32)
    for name in model.tasks:
        assert torch.equal(model.head(name, embeddings), old.head(name, embeddings))
    assert caplog.messages == [
        "heads: kept from the start: topic, same, similar; left out: tags, stars, entails, distance"
    ]


@pytest.mark.parametrize(
    ("name", "fields", "reason"),
    [
        ("topic", {"labels": ["ABBR", "ENTY", "DESC"]}, "there its labels are ABBR, DESC, ENTY"),
        ("topic", {"kind": "multilabel"}, "there it is a classification"),
        ("stars", {"range": [0, 5]}, "there its range is 1 to 5"),
        ("similar", {"range": [0, 1]}, "there its range is 0 to 5"),
    ],
)
def test_a_head_that_means_something_else_begins_anew(start, tiny_encoder, name, fields, reason, caplog):
    caplog.set_level("INFO")
    _, folder = start()
    changed = task_of(name, {**TASKS[name].declaration(), **fields})
    model = build(tiny_encoder, {name: changed, "same": TASKS["same"], "own": replace(TASKS["same"], name="own")})
    before = {task: tensors(model, task) for task in model.tasks}
    take_heads(model, folder, new=False)
    kept = {task: all(map(torch.equal, tensors(model, task), before[task])) for task in before}
    assert kept == {name: True, "same": False, "own": True}
    (message,) = caplog.messages
    assert message.startswith(
        f"heads: kept from the start: same; new: {name} ({reason}), own (the start has none); left "
    )


@pytest.mark.parametrize(
    ("heads", "pooling", "reason"),
    [
        (SEPARATE, "cls", "the start pools by mean"),
        (HeadsConfig("shared"), "mean", "the start's has other layers"),
        (HeadsConfig("none"), "mean", "the start's has other layers"),
        (HeadsConfig("separate", "joint"), "mean", "the start's has other layers"),
        (HeadsConfig("separate", head_hidden_size=8), "mean", "the start's has other layers"),
    ],
)
def test_heads_with_other_layers_begin_anew(start, tiny_encoder, heads, pooling, reason, caplog):
    caplog.set_level("INFO")
    _, folder = start()
    model = build(tiny_encoder, {name: TASKS[name] for name in ("same", "similar")}, heads, pooling)
    before = {task: tensors(model, task) for task in model.tasks}
    take_heads(model, folder, new=False)
    assert all(all(map(torch.equal, tensors(model, task), before[task])) for task in before)
    assert f"new: same ({reason}), similar ({reason})" in caplog.text


def test_new_heads_on_request_and_none_of_a_start_without(start, tiny_encoder, caplog):
    caplog.set_level("INFO")
    _, folder = start()
    model = build(tiny_encoder, {"same": TASKS["same"]})
    before = tensors(model, "same")
    take_heads(model, tiny_encoder, new=False)
    assert caplog.messages == []
    take_heads(model, folder, new=True)
    assert caplog.messages[0].startswith("heads: all are new, and those of the start (topic, tags, ")
    assert all(map(torch.equal, tensors(model, "same"), before))
    (folder / HEADS).write_bytes(b"")
    with pytest.raises(InputError, match="heads"):
        take_heads(model, folder, new=False)
