"""MultitaskModel: one packed call equals task by task and the padded encoder; saving and loading changes no bit."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from minbert.errors import InputError
from minbert.files import write_json
from minbert.model import BertModel
from minbert.packing import PackedBatch
from minbert.tokenizer import Tokenizer, load_tokenizer
from multitask.models.config import HeadsConfig
from multitask.models.model_folder import DESCRIPTION, HEADS, resolve_pooling
from multitask.models.multitask_model import MultitaskModel, load_model
from multitask.runs.artefact import Artefact
from tests.conftest import COURSE_TASKS

SENTENCES = {
    "sentiment": (["The band seemed to have a good time.", "", "It falls short of what was promised. " * 3],),
    "paraphrase": (["How much is it?", "What takes rust off?"], ["What is the price?", "short"]),
    "similarity": (["Two women are measuring a board."] * 2, ["A couple is serving tea.", "Two women"]),
    "reviews": (["time"],),
}
HEADS_CONFIGS = [
    *(HeadsConfig(sharing, "embeddings") for sharing in ("separate", "shared_first_layer", "shared", "none")),
    *(HeadsConfig(sharing, pairs) for sharing in ("separate", "shared_first_layer") for pairs in ("features", "joint")),
    HeadsConfig("separate", "joint", similarity_pairs="embeddings"),
    HeadsConfig("separate", "embeddings", similarity_pairs="joint", residual=True),
    HeadsConfig("shared", residual=True, head_hidden_size=20),
]


@pytest.fixture
def tokenizer(tiny_encoder: Path) -> Tokenizer:
    return load_tokenizer(str(tiny_encoder))


def build(tiny_encoder: Path, heads: HeadsConfig, pooling="cls", tasks=COURSE_TASKS, max_length=None) -> MultitaskModel:
    torch.manual_seed(1)
    encoder, tokenizer = BertModel.from_pretrained(str(tiny_encoder)), load_tokenizer(str(tiny_encoder))
    return MultitaskModel(encoder, tokenizer, tasks, pooling, heads, max_length).eval()


def encode(model: MultitaskModel, tokenizer: Tokenizer, task: str):
    """Token ids and types as the model reads them."""
    columns, heads = SENTENCES[task], model.heads_config
    pairs = (task == "similarity" and heads.similarity_pairs) or heads.pairs
    if len(columns) == 2 and pairs == "joint":
        return tokenizer.encode_pairs(*columns)
    ids = [row for column in columns for row in tokenizer.encode(column)]
    return ids, [np.zeros_like(row) for row in ids]


@torch.no_grad()
def call(model: MultitaskModel, tokenizer: Tokenizer, *tasks: str) -> dict[str, Tensor]:
    ids, types = zip(*(encode(model, tokenizer, task) for task in tasks), strict=True)
    batch = PackedBatch.from_sequences([row for part in ids for row in part], [row for part in types for row in part])
    return model(batch, {task: len(SENTENCES[task][0]) for task in tasks})


@torch.no_grad()
def padded_embeddings(model: MultitaskModel, ids: list, types: list) -> Tensor:
    """Sentence embeddings by the padded path and pooling by hand."""
    width = max(map(len, ids))
    grid = torch.stack([torch.nn.functional.pad(torch.from_numpy(row).long(), (0, width - len(row))) for row in ids])
    kinds = torch.stack([torch.nn.functional.pad(torch.from_numpy(row).long(), (0, width - len(row))) for row in types])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids])
    hidden = model.encoder(grid, mask, kinds).last_hidden_state
    if model.pooling == "cls":
        return hidden[:, 0]
    return torch.stack([states[: len(row)].mean(dim=0) for states, row in zip(hidden, ids, strict=True)])


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("heads", HEADS_CONFIGS, ids=str)
def test_packed_equals_the_padded_encoder_with_pooling_by_hand(tiny_encoder, tokenizer, heads, pooling):
    model = build(tiny_encoder, heads, pooling)
    outputs = call(model, tokenizer, *COURSE_TASKS)
    for task, columns in SENTENCES.items():
        embeddings = padded_embeddings(model, *encode(model, tokenizer, task))
        parts = embeddings.split(len(columns[0]))  # first sentences, then second ones; one part for joint pairs
        with torch.no_grad():
            torch.testing.assert_close(outputs[task], model.heads[task](*parts), rtol=0, atol=1e-5)


@pytest.mark.parametrize("heads", HEADS_CONFIGS, ids=str)
def test_saved_and_loaded_bit_for_bit(tiny_encoder, tokenizer, heads, tmp_path):
    model = build(tiny_encoder, heads, "mean", max_length=17)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.01)
    model.save(tmp_path / "model")
    loaded = MultitaskModel.load(tmp_path / "model")
    assert not loaded.training
    assert (loaded.pooling, loaded.heads_config, loaded.max_length) == ("mean", heads, 17)
    without_files = {"train": None, "dev": None, "test": None, "separator": None}
    assert loaded.tasks == {name: replace(task, **without_files) for name, task in COURSE_TASKS.items()}
    assert list(loaded.tasks) == list(COURSE_TASKS)
    assert loaded.tokenizer.fingerprint() == tokenizer.fingerprint()
    state = model.state_dict()
    assert list(loaded.state_dict()) == list(state)
    assert all(torch.equal(tensor, state[name]) for name, tensor in loaded.state_dict().items())
    shared = [[name for name, _ in m.named_parameters()] for m in (model, loaded)]
    assert shared[0] == shared[1]  # named_parameters lists a shared parameter once, so layers are shared again
    before, after = call(model, tokenizer, *COURSE_TASKS), call(loaded, loaded.tokenizer, *COURSE_TASKS)
    assert all(torch.equal(before[task], after[task]) for task in COURSE_TASKS)


def test_saving_replaces_an_older_model(tiny_encoder, tmp_path):
    build(tiny_encoder, HeadsConfig("shared")).save(tmp_path / "model")
    (tmp_path / "model" / "left-over").touch()
    build(tiny_encoder, HeadsConfig("separate")).save(tmp_path / "model")
    assert MultitaskModel.load(tmp_path / "model").heads_config.sharing == "separate"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert not (tmp_path / "model" / "left-over").exists()


def describe(**changes):
    def damage(folder: Path) -> None:
        path = folder / DESCRIPTION
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def change_heads(edit):
    def damage(folder: Path) -> None:
        tensors = load_file(folder / HEADS)
        edit(tensors)
        save_file(tensors, folder / HEADS)

    return damage


def shorten(name):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-9])


DAMAGES = {
    "no description": lambda folder: (folder / DESCRIPTION).unlink(),
    "half a description": shorten(DESCRIPTION),
    "a description that is a list": lambda folder: (folder / DESCRIPTION).write_text("[]"),
    "unknown task": describe(tasks=["sentiment", "irony"]),
    "illegal pooling": describe(pooling="max"),
    "no heads": lambda folder: (folder / HEADS).unlink(),
    "half the heads": shorten(HEADS),
    "a tensor short": change_heads(lambda tensors: tensors.popitem()),
    "a tensor too many": change_heads(lambda tensors: tensors.update(more=torch.ones(2))),
    "a tensor of another shape": change_heads(lambda tensors: tensors.update({min(tensors): torch.ones(2)})),
    "no encoder": lambda folder: (folder / "model.safetensors").unlink(),
    "half the encoder": shorten("model.safetensors"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused_in_one_line(tiny_encoder, tmp_path, damage):
    folder = tmp_path / "model"
    build(tiny_encoder, HeadsConfig()).save(folder)
    MultitaskModel.load(folder)
    DAMAGES[damage](folder)
    with pytest.raises(InputError) as caught:
        MultitaskModel.load(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_loads_the_leading_model_of_a_run(tiny_encoder, tmp_path):
    names = ("sentiment", "paraphrase")
    models = {name: build(tiny_encoder, HeadsConfig(), tasks={name: COURSE_TASKS[name]}) for name in names}
    run = Artefact(tmp_path / "finetune-run-0123456789abcdef")
    write_json(run.folder / "config.json", {})
    write_json(run.folder / "inputs.json", {})
    write_json(run.folder / "best.json", {"overall": "paraphrase", "sentiment": "sentiment"})
    for name, model in models.items():
        model.save(run.folder / "checkpoints" / name)
    with pytest.raises(InputError, match="not a complete run"):
        MultitaskModel.load(run.folder)
    run.finish()
    for named in (run.folder, str(run.folder)):
        loaded = MultitaskModel.load(named)
        assert list(loaded.tasks) == ["paraphrase"]
        assert all(
            torch.equal(a, b) for a, b in zip(loaded.parameters(), models["paraphrase"].parameters(), strict=True)
        )


def test_pooling_is_what_the_weights_were_tuned_with(tiny_encoder, tmp_path):
    assert resolve_pooling("auto", tiny_encoder) == "cls"
    assert resolve_pooling("mean", tiny_encoder) == "mean"
    for pooling in ("mean", "cls"):
        build(tiny_encoder, HeadsConfig(), pooling).save(tmp_path / pooling)
        assert resolve_pooling("auto", tmp_path / pooling) == pooling
        assert resolve_pooling("cls", tmp_path / pooling) == "cls"
    (tmp_path / "tuned" / "1_Pooling").mkdir(parents=True)
    for tuned_with_mean in (True, False):
        settings = {"pooling_mode_mean_tokens": tuned_with_mean, "pooling_mode_cls_token": not tuned_with_mean}
        (tmp_path / "tuned" / "1_Pooling" / "config.json").write_text(json.dumps(settings))
        assert resolve_pooling("auto", tmp_path / "tuned") == ("mean" if tuned_with_mean else "cls")


def test_an_encoder_alone_compares_pairs_by_cosine(tiny_encoder):
    model, tokenizer = load_model(tiny_encoder, COURSE_TASKS), load_tokenizer(str(tiny_encoder))
    first, second = ["a warm day", "two dogs run"], ["a cold night", "two dogs run"]
    batch = tokenizer.pack([*first, *second])
    encoder = BertModel.from_pretrained(str(tiny_encoder))
    with torch.no_grad():
        padded = [encoder(tokenizer([text]).input_ids).last_hidden_state[0, 0] for text in first + second]
    expected = [float(torch.dot(a, b) / a.norm() / b.norm()) for a, b in zip(padded[:2], padded[2:], strict=True)]
    outputs = model(batch, {"similarity": 2})["similarity"].tolist()
    assert outputs == pytest.approx(expected, abs=1e-5)
    assert outputs[1] == pytest.approx(1.0, abs=1e-5)
    assert set(model.tasks) == {"paraphrase", "similarity"}
    assert not list(model.heads.parameters())
