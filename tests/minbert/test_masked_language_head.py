"""The masked-language-model head equals transformers' head; so do XLM-RoBERTa and CamemBERT."""

from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertForMaskedLM,
    CamembertConfig,
    CamembertModel,
    CamembertTokenizer,
    RobertaForMaskedLM,
    XLMRobertaConfig,
    XLMRobertaModel,
    XLMRobertaTokenizer,
)

from minbert import BertModel, load_tokenizer
from minbert.masked_language_head import MaskedLanguageHead
from multitask import SentenceEncoder
from multitask.models.sentence_encoder import load_encoder
from tests.minbert.references import IDS, random_reference, rewrite, stored_tensors

SHAPE = (2, 24, 3, 40, 40, 2)
CLASSES = {"bert": BertForMaskedLM, "roberta": RobertaForMaskedLM}


def save_reference(folder: Path, model_type: str, tied: bool = True) -> nn.Module:
    """A masked language model of transformers with every parameter drawn at random, saved."""
    base = random_reference(model_type, *SHAPE)
    base.config.tie_word_embeddings = tied
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
def test_scores_are_those_of_transformers(model_type, prefixed, tmp_path):
    reference = save_reference(tmp_path, model_type)
    if not prefixed:
        rewrite(tmp_path, {name.removeprefix(f"{model_type}."): t for name, t in stored_tensors(tmp_path).items()})
    assert_same_scores(tmp_path, reference)


@pytest.mark.parametrize("damage", ["size", "missing", "no head"])
def test_a_head_that_does_not_fit_is_not_taken_in_part(tmp_path, damage):
    save_reference(tmp_path, "bert")
    tensors = stored_tensors(tmp_path) | {"cls.predictions.bias": torch.ones(102)}
    if damage != "size":
        lost = "cls." if damage == "no head" else "cls.predictions.bias"
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(lost)}
    rewrite(tmp_path, tensors)
    assert_fresh(load(tmp_path)[1])


@pytest.mark.parametrize("model_type", CLASSES)
def test_a_head_with_an_output_matrix_of_its_own_is_not_taken_without_it(model_type, tmp_path):
    model = save_reference(tmp_path, model_type, tied=False)
    assert_fresh(load(tmp_path)[1])
    words = model.base_model.embeddings.word_embeddings.weight
    with torch.no_grad():
        model.get_output_embeddings().weight.copy_(words)
        model.get_output_embeddings().bias.zero_()
    model.save_pretrained(tmp_path)
    assert_fresh(load(tmp_path)[1])  # the bias is another
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("predictions.bias", "lm_head.bias")):
                parameter.zero_()
    model.save_pretrained(tmp_path)
    assert_same_scores(tmp_path, model)


@pytest.mark.parametrize("model_type", CLASSES)
def test_a_saved_head_is_found_again_here_and_in_transformers(model_type, tmp_path):
    save_reference(tmp_path, model_type)
    encoder, head = load(tmp_path)
    saved = tmp_path / "saved"
    saved.mkdir()
    encoder.save(saved, head.tensors(encoder.config))
    again, found = load(saved)
    for one, other in ((encoder, again), (head, found)):
        assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in one.state_dict().items())
    assert_same_scores(saved, AutoModelForMaskedLM.from_pretrained(saved))


# XLM-RoBERTa and CamemBERT: RoBERTa's architecture with a tokenizer of pieces, against transformers.


PIECES = ["▁", "▁the", "▁cat", "s", "▁sleep", "e", "a", "t", "c", "h", "▁Ça", "▁va", "é", "▁été", "l", "p", "?", "ing"]
TEXTS = [
    *("the cats sleep", "  the cat\tsleeping?  ", "Ça va été", "cafe\u0301 tcha", ""),
    *("the <mask> sleep", "日本語 the", "a", "the cat " * 30),
]
PIECE_CLASSES = {
    "xlm-roberta": (XLMRobertaConfig, XLMRobertaModel, XLMRobertaTokenizer),
    "camembert": (CamembertConfig, CamembertModel, CamembertTokenizer),
}


@pytest.fixture(scope="module", params=PIECE_CLASSES)
def saved_with_pieces(request, tmp_path_factory) -> Path:
    """A small random model and a tokenizer of few pieces, written by transformers."""
    config_class, model_class, tokenizer_class = PIECE_CLASSES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = [*((token, 0.0) for token in specials), *((p, -float(i)) for i, p in enumerate(PIECES, 1))]
    tokenizer = tokenizer_class(vocab=pieces)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    model = model_class(
        config_class(
            vocab_size=len(tokenizer), hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
            max_position_embeddings=42, type_vocab_size=1, pad_token_id=tokenizer.pad_token_id,
        )
    )  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    return folder


def test_ids_of_texts_and_pairs_are_those_of_transformers(saved_with_pieces):
    ours, theirs = load_tokenizer(str(saved_with_pieces)), AutoTokenizer.from_pretrained(saved_with_pieces)
    assert ours.max_length == 40
    expected = [theirs(text, truncation=True, max_length=40)["input_ids"] for text in TEXTS]
    assert [ids.tolist() for ids in ours.encode(TEXTS)] == expected
    pair = ("the cat", "Ça va?")
    assert ours.encode_and_count([pair]).ids[0].tolist() == theirs(*pair)["input_ids"]
    assert (ours.pad_token_id, ours.mask_token_id) == (theirs.pad_token_id, theirs.mask_token_id)
    assert ours.encode_and_count(["日本語", "the cat"]).unread == 1


@torch.no_grad()
def test_states_are_those_of_transformers_padded_and_packed(saved_with_pieces):
    encoder, reference = (
        BertModel.from_pretrained(str(saved_with_pieces)),
        AutoModel.from_pretrained(saved_with_pieces).eval(),
    )
    batch = load_tokenizer(str(saved_with_pieces))(TEXTS)
    theirs = reference(batch.input_ids, batch.attention_mask).last_hidden_state
    padded = encoder(batch.input_ids, batch.attention_mask).last_hidden_state
    real = batch.attention_mask.bool()
    assert (padded - theirs)[real].abs().max() < 1e-5
    packed = encoder.forward_packed(load_tokenizer(str(saved_with_pieces)).pack(TEXTS))
    assert (packed - theirs[real]).abs().max() < 1e-5


@torch.no_grad()
def test_transformers_reads_what_is_saved(saved_with_pieces, tmp_path):
    encoder, tokenizer = BertModel.from_pretrained(str(saved_with_pieces)), load_tokenizer(str(saved_with_pieces))
    head = MaskedLanguageHead.of_checkpoint(saved_with_pieces, encoder.config)
    encoder.save(tmp_path, head.tensors(encoder.config))
    tokenizer.save(tmp_path)
    again, theirs = AutoModel.from_pretrained(tmp_path).eval(), AutoTokenizer.from_pretrained(tmp_path)
    assert type(again) is type(AutoModel.from_pretrained(saved_with_pieces))
    assert theirs(TEXTS)["input_ids"] == AutoTokenizer.from_pretrained(saved_with_pieces)(TEXTS)["input_ids"]
    ids = torch.tensor([tokenizer.encode(["the cat"])[0].tolist()])
    assert (again(ids).last_hidden_state - encoder(ids).last_hidden_state).abs().max() < 1e-5


def test_sentences_are_embedded_on_the_fast_path(saved_with_pieces):
    assert isinstance(load_encoder(saved_with_pieces, device="cpu", precision="fp32"), SentenceEncoder)
