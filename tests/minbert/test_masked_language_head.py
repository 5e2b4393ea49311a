"""The masked-language-model head equals transformers' head, whether loaded from a checkpoint or saved in one."""

from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForMaskedLM, BertForMaskedLM, RobertaForMaskedLM
from transformers.utils.logging import disable_progress_bar

from minbert import BertModel
from minbert.masked_language_head import MaskedLanguageHead
from tests.minbert.equivalence import random_reference

SHAPE = (2, 24, 3, 40, 40, 2)
CLASSES = {"bert": BertForMaskedLM, "roberta": RobertaForMaskedLM}
IDS = torch.randint(2, 101, (3, 9), generator=torch.Generator().manual_seed(0))

disable_progress_bar()


def save_reference(folder: Path, model_type: str) -> nn.Module:
    """A masked language model of transformers with every parameter drawn at random, saved."""
    base = random_reference(model_type, *SHAPE)
    model = CLASSES[model_type](base.config).eval()
    model.base_model.load_state_dict(base.state_dict(), strict=False)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.startswith(model.base_model_prefix):
                parameter.normal_(0, 0.3, generator=generator)
    model.save_pretrained(folder)
    return model


def load(folder: Path) -> tuple[BertModel, MaskedLanguageHead]:
    encoder = BertModel.from_pretrained(str(folder))
    return encoder, MaskedLanguageHead.of_checkpoint(folder, encoder.config)


@torch.no_grad()
def scores(folder: Path) -> Tensor:
    encoder, head = load(folder)
    return head(encoder(IDS).last_hidden_state, encoder.embeddings.word.weight)


@torch.no_grad()
def expected(reference: nn.Module) -> Tensor:
    return reference(IDS).logits


def assert_fresh(head: MaskedLanguageHead) -> None:
    assert head.transform.weight.std().item() == pytest.approx(0.02, rel=0.1)  # the config's initializer_range
    assert not head.transform.bias.any()
    assert not head.bias.any()
    assert torch.equal(head.norm.weight, torch.ones(24))
    assert not head.norm.bias.any()


@pytest.mark.parametrize("prefixed", [True, False])
@pytest.mark.parametrize("model_type", CLASSES)
def test_scores_are_those_of_transformers(model_type: str, prefixed: bool, tmp_path: Path) -> None:
    reference = save_reference(tmp_path, model_type)
    if not prefixed:
        path = tmp_path / "model.safetensors"
        named = {name.removeprefix(f"{model_type}."): t for name, t in safetensors.torch.load_file(path).items()}
        safetensors.torch.save_file(named, path, metadata={"format": "pt"})
    assert expected(reference).std() > 0.1
    torch.testing.assert_close(scores(tmp_path), expected(reference), rtol=0, atol=1e-5)


def test_a_checkpoint_without_a_head_gets_a_new_one(tmp_path: Path) -> None:
    random_reference("bert", *SHAPE).save_pretrained(tmp_path)
    assert_fresh(load(tmp_path)[1])


@pytest.mark.parametrize("damage", ["size", "missing"])
def test_a_head_that_does_not_fit_is_not_taken_in_part(tmp_path: Path, damage: str) -> None:
    save_reference(tmp_path, "bert")
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    tensors["cls.predictions.bias"] = torch.ones(102)
    if damage == "missing":
        del tensors["cls.predictions.bias"]
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    assert_fresh(load(tmp_path)[1])


@pytest.mark.parametrize("model_type", CLASSES)
def test_a_saved_head_is_found_again_here_and_in_transformers(model_type: str, tmp_path: Path) -> None:
    reference = save_reference(tmp_path, model_type)
    encoder, head = load(tmp_path)
    saved = tmp_path / "saved"
    saved.mkdir()
    encoder.save(saved, head.tensors(encoder.config))
    again, found = load(saved)
    for one, other in ((encoder, again), (head, found)):
        assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in one.state_dict().items())
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(saved)(IDS).last_hidden_state
        assert (hidden - encoder(IDS).last_hidden_state).abs().max() < 1e-5
        assert (AutoModelForMaskedLM.from_pretrained(saved)(IDS).logits - expected(reference)).abs().max() < 1e-5


def test_the_gradient_reaches_head_and_word_embeddings(tmp_path: Path) -> None:
    reference = save_reference(tmp_path, "bert")
    encoder, head = load(tmp_path)
    labels = IDS.flip(1)
    for logits in (
        reference(IDS).logits,
        head(encoder(IDS).last_hidden_state, encoder.embeddings.word.weight),
    ):
        nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
    theirs = reference.cls.predictions
    pairs = [
        (head.transform.weight, theirs.transform.dense.weight),
        (head.norm.bias, theirs.transform.LayerNorm.bias),
        (head.bias, theirs.bias),
        (encoder.embeddings.word.weight, reference.bert.embeddings.word_embeddings.weight),
    ]
    for ours, other in pairs:
        torch.testing.assert_close(ours.grad, other.grad, rtol=1e-4, atol=1e-6)
