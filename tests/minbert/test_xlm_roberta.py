"""XLM-RoBERTa and CamemBERT: RoBERTa's architecture with a tokenizer of pieces, against transformers."""

from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModel,
    AutoTokenizer,
    CamembertConfig,
    CamembertModel,
    CamembertTokenizer,
    XLMRobertaConfig,
    XLMRobertaModel,
    XLMRobertaTokenizer,
)

from minbert import BertModel, load_tokenizer
from minbert.masked_language_head import MaskedLanguageHead
from multitask import SentenceEncoder
from multitask.models.sentence_encoder import load_encoder

PIECES = ["▁", "▁the", "▁cat", "s", "▁sleep", "e", "a", "t", "c", "h", "▁Ça", "▁va", "é", "▁été", "l", "p", "?", "ing"]
TEXTS = [
    *("the cats sleep", "  the cat\tsleeping?  ", "Ça va été", "cafe\u0301 tcha", ""),
    *("the <mask> sleep", "日本語 the", "a", "the cat " * 30),
]
CLASSES = {
    "xlm-roberta": (XLMRobertaConfig, XLMRobertaModel, XLMRobertaTokenizer),
    "camembert": (CamembertConfig, CamembertModel, CamembertTokenizer),
}


@pytest.fixture(scope="module", params=CLASSES)
def saved(request, tmp_path_factory) -> Path:
    """A small random model and a tokenizer of few pieces, written by transformers."""
    config_class, model_class, tokenizer_class = CLASSES[request.param]
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


def test_ids_of_texts_and_pairs_are_those_of_transformers(saved):
    ours, theirs = load_tokenizer(str(saved)), AutoTokenizer.from_pretrained(saved)
    assert ours.max_length == 40
    expected = [theirs(text, truncation=True, max_length=40)["input_ids"] for text in TEXTS]
    assert [ids.tolist() for ids in ours.encode(TEXTS)] == expected
    pair = ("the cat", "Ça va?")
    assert ours.encode_and_count([pair]).ids[0].tolist() == theirs(*pair)["input_ids"]
    assert (ours.pad_token_id, ours.mask_token_id) == (theirs.pad_token_id, theirs.mask_token_id)
    assert ours.encode_and_count(["日本語", "the cat"]).unread == 1


@torch.no_grad()
def test_states_are_those_of_transformers_padded_and_packed(saved):
    encoder, reference = BertModel.from_pretrained(str(saved)), AutoModel.from_pretrained(saved).eval()
    batch = load_tokenizer(str(saved))(TEXTS)
    theirs = reference(batch.input_ids, batch.attention_mask).last_hidden_state
    padded = encoder(batch.input_ids, batch.attention_mask).last_hidden_state
    real = batch.attention_mask.bool()
    assert (padded - theirs)[real].abs().max() < 1e-5
    packed = encoder.forward_packed(load_tokenizer(str(saved)).pack(TEXTS))
    assert (packed - theirs[real]).abs().max() < 1e-5


@torch.no_grad()
def test_transformers_reads_what_is_saved(saved, tmp_path):
    encoder, tokenizer = BertModel.from_pretrained(str(saved)), load_tokenizer(str(saved))
    head = MaskedLanguageHead.of_checkpoint(saved, encoder.config)
    encoder.save(tmp_path, head.tensors(encoder.config))
    tokenizer.save(tmp_path)
    again, theirs = AutoModel.from_pretrained(tmp_path).eval(), AutoTokenizer.from_pretrained(tmp_path)
    assert type(again) is type(AutoModel.from_pretrained(saved))
    assert theirs(TEXTS)["input_ids"] == AutoTokenizer.from_pretrained(saved)(TEXTS)["input_ids"]
    ids = torch.tensor([tokenizer.encode(["the cat"])[0].tolist()])
    assert (again(ids).last_hidden_state - encoder(ids).last_hidden_state).abs().max() < 1e-5


def test_sentences_are_embedded_on_the_fast_path(saved):
    assert isinstance(load_encoder(saved, device="cpu", precision="fp32"), SentenceEncoder)
