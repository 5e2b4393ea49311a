"""MultitaskModel: predictions equal the padded encoder's; saving and loading changes no bit; damage is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from minbert.errors import InputError
from minbert.files import write_json
from minbert.model import BertModel
from minbert.tokenizer import load_tokenizer
from multitask.base.runs import Run
from multitask.data.tables import Format
from multitask.models.model_folder import DESCRIPTION, HEADS, resolve_pooling
from multitask.models.multitask_model import MultitaskModel, load_model
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.models.settings import HeadsConfig
from tests.conftest import COURSE_TASKS, with_files
from tests.multitask.declared import declared_tasks


def build(tiny_encoder: Path, heads: HeadsConfig, pooling="cls", tasks=COURSE_TASKS, max_length=None) -> MultitaskModel:
    torch.manual_seed(1)
    return MultitaskModel(SentenceEncoder.read(tiny_encoder, pooling, max_length), tasks, heads).eval()


@pytest.mark.parametrize(
    "heads",
    [
        HeadsConfig("shared", residual=True, head_hidden_size=20),
        HeadsConfig("shared_first_layer", "features"),
        HeadsConfig("separate", "embeddings", similarity_pairs="joint"),
    ],
    ids=str,
)
def test_saved_and_loaded_bit_for_bit(tiny_encoder, heads, tmp_path):
    model = build(tiny_encoder, heads, "mean", max_length=17)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.01)
    model.save(tmp_path / "model")
    loaded = MultitaskModel.load(tmp_path / "model", "cpu", "fp32")
    assert not loaded.training
    assert (loaded.encoder.pooling, loaded.heads_config, loaded.encoder.max_length) == ("mean", heads, 17)
    nowhere = {"train": None, "dev": None, "test": None, "format": Format()}
    assert loaded.tasks == {name: with_files(task, **nowhere) for name, task in COURSE_TASKS.items()}
    assert loaded.encoder.tokenizer.fingerprint() == model.encoder.tokenizer.fingerprint()
    state = model.state_dict()
    assert list(loaded.state_dict()) == list(state)
    assert all(torch.equal(tensor, state[name]) for name, tensor in loaded.state_dict().items())
    # named_parameters lists a shared parameter once, so layers are shared again
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in loaded.named_parameters()]
    for rows in (["A gem.", "It falls short."], [("How much is it?", "What is the price?")]):
        assert loaded.predict_all(rows) == model.predict_all(rows)


def test_saving_replaces_an_older_model(tiny_encoder, tmp_path):
    build(tiny_encoder, HeadsConfig("shared")).save(tmp_path / "model")
    (tmp_path / "model" / "left-over").touch()
    build(tiny_encoder, HeadsConfig("separate")).save(tmp_path / "model")
    assert MultitaskModel.load(tmp_path / "model").heads_config.sharing == "separate"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert not (tmp_path / "model" / "left-over").exists()


def describe(**changes):
    def damage(folder: Path) -> None:
        stored = json.loads((folder / DESCRIPTION).read_text())
        if isinstance(heads := changes.get("heads"), dict):
            changes["heads"] = stored["heads"] | heads
        (folder / DESCRIPTION).write_text(json.dumps(stored | changes))

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
    **{f"max_length {length}": describe(max_length=length) for length in (65, 10**300, "12", True, 2)},
    **{f"heads {heads}": describe(heads=heads) for heads in ({"sharing": "some"}, {"head_hidden_size": 10**9}, [])},
}


@pytest.fixture(scope="module")
def saved(tiny_encoder, tmp_path_factory) -> dict[str, bytes]:
    """The files of a model."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    build(tiny_encoder, HeadsConfig()).save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    for name, content in saved.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused_in_one_line(folder, damage):
    DAMAGES[damage](folder)
    with pytest.raises(InputError) as caught:
        MultitaskModel.load(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_outputs_beyond_all_numbers_name_the_model(folder):
    change_heads(lambda tensors: [tensor.fill_(3e38) for tensor in tensors.values()])(folder)
    with pytest.raises(InputError, match=f"^{folder}: the model's outputs for sentiment are not finite"):
        MultitaskModel.load(folder, "cpu", "fp32").predict("sentiment", ["a"])


def test_loads_the_leading_model_of_a_run(tiny_encoder, tmp_path, monkeypatch):
    run = Run(tmp_path / "runs" / "finetune-run-0123456789abcdef")
    write_json(run.folder / "config.json", {})
    write_json(run.folder / "inputs.json", {})
    write_json(run.folder / "best.json", {"overall": "paraphrase", "sentiment": "sentiment"})
    for name in ("sentiment", "paraphrase"):
        model = build(tiny_encoder, HeadsConfig(), tasks={name: COURSE_TASKS[name]})
        model.save(run.folder / "checkpoints" / name)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="not a complete run"):
        MultitaskModel.load(run.folder)
    with pytest.raises(InputError, match=r"^runs: no complete run with a model"):
        MultitaskModel.load("last")
    with pytest.raises(InputError, match=rf"no such folder; did you mean runs/{run.folder.name}\?$"):
        MultitaskModel.load(run.folder.name)
    run.finish()
    for named in (run.folder, str(run.folder), "last"):
        loaded = MultitaskModel.load(named, keep_layers=True)
        assert list(loaded.tasks) == ["paraphrase"]
        assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), model.parameters(), strict=True))


def test_pooling_is_what_the_weights_were_tuned_with(tiny_encoder, tmp_path):
    assert resolve_pooling("auto", tiny_encoder) == "cls"
    assert resolve_pooling("mean", tiny_encoder) == "mean"
    with pytest.raises(InputError, match="pooling is 'max'; expected one of: auto, cls, mean"):
        resolve_pooling("max", tiny_encoder)
    for pooling in ("mean", "cls"):
        build(tiny_encoder, HeadsConfig(), pooling).save(tmp_path / pooling)
        assert resolve_pooling("auto", tmp_path / pooling) == pooling
    for tuned_with_mean in (True, False):
        settings = {"pooling_mode_mean_tokens": tuned_with_mean, "pooling_mode_cls_token": not tuned_with_mean}
        write_json(tmp_path / "tuned" / "1_Pooling" / "config.json", settings)
        assert resolve_pooling("auto", tmp_path / "tuned") == ("mean" if tuned_with_mean else "cls")


def test_an_encoder_alone_compares_pairs_by_cosine(tiny_encoder):
    model, tokenizer = load_model(tiny_encoder, COURSE_TASKS), load_tokenizer(str(tiny_encoder))
    first, second = ["a warm day", "two dogs run"], ["a cold night", "two dogs run"]
    encoder = BertModel.from_pretrained(str(tiny_encoder))
    with torch.no_grad():
        padded = [encoder(tokenizer([text]).input_ids).last_hidden_state[0, 0] for text in first + second]
        outputs = model.head("similarity", model.encoder.embed(tokenizer.encode([*first, *second]))).tolist()
    expected = [float(torch.dot(a, b) / a.norm() / b.norm()) for a, b in zip(padded[:2], padded[2:], strict=True)]
    assert outputs == pytest.approx(expected, abs=1e-5)
    assert outputs[1] == pytest.approx(1.0, abs=1e-5)
    assert set(model.tasks) == {"paraphrase", "similarity"}
    assert not list(model.heads.parameters())


def test_an_encoder_alone_says_which_label_is_that_of_alike_pairs(tiny_encoder, caplog):
    turned = replace(COURSE_TASKS["paraphrase"], labels=(1, 0))
    load_model(tiny_encoder, declared_tasks() | COURSE_TASKS | {"turned": turned})
    expected = (("same", "yes"), ("turned", "0"))
    assert caplog.messages == [f'{name}: alike pairs count as "{label}", the second label' for name, label in expected]


def test_an_encoder_alone_is_scored_at_the_length_at_which_it_embeds(tiny_encoder, tmp_path):
    folder = shutil.copytree(tiny_encoder, tmp_path / "model")
    write_json(folder / "tokenizer_config.json", {"model_max_length": 7})
    assert load_model(folder, COURSE_TASKS).encoder.max_length == 7 == SentenceEncoder.load(folder).max_length


def test_a_model_for_inference_predicts_as_autocast_does_and_is_not_saved(tiny_encoder, tmp_path):
    build(tiny_encoder, HeadsConfig(), "mean").save(tmp_path / "model")
    pairs = [("A cat sleeps.", "A kitten is asleep."), ("Two dogs run.", "Stocks fell on Monday, and rose on Tuesday.")]
    whole, rounded = (
        MultitaskModel.load(tmp_path / "model", "cpu", "bf16", keep_layers=keep).predict("similarity", pairs)
        for keep in (True, False)
    )
    for expected, found in zip(whole, rounded, strict=True):
        # Both round weights and states to 8 bits, in an order of their own; the range is 5.
        assert found.value == pytest.approx(expected.value, abs=5 * 2**-7)
    model = MultitaskModel.load(tmp_path / "model", "cpu", "bf16")
    assert {p.dtype for p in model.heads.parameters()} == {torch.float32}
    with pytest.raises(InputError, match="weights in bf16 are not saved; load the model with keep_layers=True"):
        model.save(tmp_path / "again")
    assert not (tmp_path / "again").exists()
