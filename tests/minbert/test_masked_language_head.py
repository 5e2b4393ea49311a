"""The masked-language-model head equals transformers' head, whether loaded from a checkpoint or saved in one."""

from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoModelForMaskedLM, BertForMaskedLM, RobertaForMaskedLM

from minbert import BertModel
from minbert.masked_language_head import MaskedLanguageHead
from tests.minbert.equivalence import random_reference
from tests.minbert.reference_checkpoints import IDS, rewrite, stored_tensors

SHAPE = (2, 24, 3, 40, 40, 2)
CLASSES = {"bert": BertForMaskedLM, "roberta": RobertaForMaskedLM}


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
def assert_same_scores(folder: Path, reference: nn.Module) -> None:
    encoder, head = load(folder)
    ours, theirs = head(encoder(IDS).last_hidden_state, encoder.embeddings.word.weight), reference(IDS).logits
    assert theirs.std() > 0.1
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


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
        rewrite(tmp_path, {name.removeprefix(f"{model_type}."): t for name, t in stored_tensors(tmp_path).items()})
    assert_same_scores(tmp_path, reference)


@pytest.mark.parametrize("damage", ["size", "missing", "no head"])
def test_a_head_that_does_not_fit_is_not_taken_in_part(tmp_path: Path, damage: str) -> None:
    save_reference(tmp_path, "bert")
    tensors = stored_tensors(tmp_path) | {"cls.predictions.bias": torch.ones(102)}
    if damage != "size":
        lost = "cls." if damage == "no head" else "cls.predictions.bias"
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(lost)}
    rewrite(tmp_path, tensors)
    assert_fresh(load(tmp_path)[1])


@pytest.mark.parametrize("model_type", CLASSES)
def test_a_saved_head_is_found_again_here_and_in_transformers(model_type: str, tmp_path: Path) -> None:
    save_reference(tmp_path, model_type)
    encoder, head = load(tmp_path)
    saved = tmp_path / "saved"
    saved.mkdir()
    encoder.save(saved, head.tensors(encoder.config))
    again, found = load(saved)
    for one, other in ((encoder, again), (head, found)):
        assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in one.state_dict().items())
    assert_same_scores(saved, AutoModelForMaskedLM.from_pretrained(saved))
