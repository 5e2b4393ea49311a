"""New vocabularies: the same from the same sentences, and read by transformers as by us."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from minbert.config import BertConfig
from minbert.model import BertModel
from minbert.tokenizer import Tokenizer, load_tokenizer
from minbert.vocabulary import train_tokenizer

FAMILIES = ("bert", "roberta")
SIZE = 500


@pytest.fixture(scope="module")
def sentences(sample_data: Path) -> list[str]:
    lines = (sample_data / "sentences.txt").read_text(encoding="utf-8").splitlines()[:400]
    return [*lines, "Zoë paid £5, naïvely.", "Zoë paid £5, naïvely!"]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def tokenizer(family: str, sentences: list[str]) -> Tokenizer:
    return train_tokenizer(family, sentences, SIZE, 64)


def test_the_same_sentences_give_the_same_vocabulary_and_others_another(family, tokenizer, sentences):
    for _ in range(3):  # the library's own maps are in another order every time
        assert train_tokenizer(family, sentences, SIZE, 64).fingerprint() == tokenizer.fingerprint()
    assert train_tokenizer(family, sentences[:100], SIZE, 64).fingerprint() != tokenizer.fingerprint()


def test_frequent_words_are_whole_and_the_size_is_kept(tokenizer, sentences):
    assert tokenizer.vocabulary_size == SIZE
    assert " the" in tokenizer.backend.decode(tokenizer.encode(["In the end"])[0])
    assert len(tokenizer.encode(["In the"])[0]) == 4
    few = train_tokenizer("bert", ["one two two"], SIZE, 64)
    assert few.vocabulary_size < 40
    assert few.encode(["two"])[0].tolist()[1:-1] == [few.backend.token_to_id("two")]
    assert len(few.encode(["one"])[0]) == 5  # a word that occurs once is no entry


def test_no_sentence_that_was_learned_from_has_an_unknown_word(tokenizer, sentences):
    unknown = tokenizer.backend.token_to_id("[UNK]") or tokenizer.backend.token_to_id("<unk>")
    assert not any(unknown in ids for ids in tokenizer.encode(sentences))


@settings(deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_bytes_express_any_text(sentences, text):
    tokenizer = train_tokenizer("roberta", sentences[:50], 300, 256)
    assert tokenizer.backend.decode(tokenizer.encode([text])[0]) == text


def test_transformers_reads_the_same_tokenizer(family, tokenizer, sentences, tmp_path):
    config = BertConfig(hidden_size=8, num_attention_heads=2, num_hidden_layers=1, max_position_embeddings=64)
    BertModel(config.of_family(family, SIZE)).save(tmp_path / "model", tokenizer)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "model")
    texts = [*sentences[:50], "", "ÉCOLE 中文 ##a", " two  spaces "]
    assert [ids.tolist() for ids in tokenizer.encode(texts)] == theirs(texts)["input_ids"]
    first, second = [text[:20] for text in texts[:5]], [text[:20] for text in texts[5:10]]
    ids, types = tokenizer.encode_pairs(first, second)
    pairs = theirs(first, second, return_token_type_ids=True)
    assert ([i.tolist() for i in ids], [t.tolist() for t in types]) == (pairs["input_ids"], pairs["token_type_ids"])
    assert (theirs.pad_token_id, theirs.mask_token_id) == (tokenizer.pad_token_id, tokenizer.mask_token_id)
    assert theirs.model_max_length == 64
    assert load_tokenizer(str(tmp_path / "model")).fingerprint() == tokenizer.fingerprint()
    assert config.of_family(family, SIZE).pad_token_id == tokenizer.pad_token_id
