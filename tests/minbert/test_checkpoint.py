"""Checkpoints of transformers load with equal outputs or are refused in one line; transformers loads what we save."""

import logging
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModel,
    BertForMaskedLM,
    RobertaForMaskedLM,
)

from minbert import BertModel
from minbert.files import sha256_of_file
from tests.conftest import ROOT
from tests.minbert.equivalence import random_reference
from tests.minbert.reference_checkpoints import (
    IDS,
    SHAPE,
    as_pickle,
    assert_same_outputs,
    load_error,
    outputs,
    read_tensors,
    rewrite,
    save_reference,
)

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


@pytest.mark.slow
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
    assert message.startswith(f"{tmp_path / 'model.safetensors'}: the weights do not fit config.json: ")
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


# What we save.


@pytest.mark.parametrize("model_type", ["bert", "roberta"])
def test_saved_weights_load_in_transformers_and_come_back_bit_for_bit(tmp_path, model_type):
    reference = save_reference(tmp_path / "source", model_type)
    model = BertModel.from_pretrained(str(tmp_path / "source"))
    (tmp_path / "saved").mkdir()
    model.save(tmp_path / "saved")
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
    model.save(tmp_path)
    for x, y in zip(expected, outputs(BertModel.from_pretrained(str(tmp_path))), strict=True):
        assert torch.equal(x, y)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
