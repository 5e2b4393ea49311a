"""The same sentences give the same vocabulary, and transformers reads the tokenizer as we do."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from minbert.config import BertConfig
from minbert.model import BertModel
from minbert.tokenizer import Tokenizer, load_tokenizer
from minbert.train_vocabulary import train_tokenizer

SIZE = 500


@pytest.fixture(scope="module")
def sentences(sample_data: Path) -> list[str]:
    lines = (sample_data / "sentences.txt").read_text(encoding="utf-8").splitlines()[:400]
    return [*lines, "Zoë paid £5, naïvely.", "Zoë paid £5, naïvely!"]


@pytest.fixture(scope="module", params=["bert", "roberta"])
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def tokenizer(family: str, sentences: list[str]) -> Tokenizer:
    return train_tokenizer(family, sentences, SIZE, 64)


def test_the_same_sentences_give_the_same_vocabulary_and_others_another(family, tokenizer, sentences):
    for _ in range(3):  # the library's maps have a different order every time
        assert train_tokenizer(family, sentences, SIZE, 64).fingerprint() == tokenizer.fingerprint()
    assert train_tokenizer(family, sentences[:100], SIZE, 64).fingerprint() != tokenizer.fingerprint()


def test_frequent_words_are_whole_and_the_size_is_kept(family, tokenizer, sentences):
    assert tokenizer.vocabulary_size == SIZE
    least = train_tokenizer(family, ["ab ab abc."], 1, 64)  # the alphabet is never left out
    assert least.vocabulary_size == (5 + 256 if family == "roberta" else 5 + len(["a", "b", "c", ".", "##b", "##c"]))
    assert " the" in tokenizer.backend.decode(tokenizer.encode(["In the end"])[0])
    assert len(tokenizer.encode(["In the"])[0]) == 4
    few = train_tokenizer("bert", ["one two two"], SIZE, 64)
    assert few.vocabulary_size < 40
    assert few.encode(["two"])[0].tolist()[1:-1] == [few.backend.token_to_id("two")]
    assert len(few.encode(["one"])[0]) == 5  # a word that occurs once has no entry


def test_no_sentence_that_was_learned_from_has_an_unknown_word(sentences):
    tokenizer = train_tokenizer("bert", [*sentences, "naïve 中文"], 150, 64)
    unknown = tokenizer.backend.token_to_id("[UNK]")
    assert not any(unknown in ids for ids in tokenizer.encode([*sentences, "naive", "中文"]))
    assert unknown in tokenizer.encode(["日本"])[0]


def test_a_mask_stands_for_a_word_with_its_space_as_in_roberta(sentences):
    byte_pairs = train_tokenizer("roberta", sentences[:50], 300, 256)
    with_word, masked = (byte_pairs.encode([f"The {word} is"])[0] for word in ("the", "<mask>"))
    assert masked.tolist() == [byte_pairs.mask_token_id if place == 2 else i for place, i in enumerate(with_word)]


def test_transformers_reads_the_same_tokenizer(family, tokenizer, sentences, tmp_path):
    config = BertConfig(hidden_size=8, num_attention_heads=2, num_hidden_layers=1, max_position_embeddings=64)
    BertModel(config.of_family(family, SIZE)).save(tmp_path / "model")
    tokenizer.save(tmp_path / "model")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "model")
    texts = [*sentences[:50], "", "ÉCOLE 中文 ##a", " two  spaces "]
    assert [ids.tolist() for ids in tokenizer.encode(texts)] == theirs(texts)["input_ids"]
    first, second = [text[:20] for text in texts[:5]], [text[:20] for text in texts[5:10]]
    ids, types = tokenizer.encode_pairs(first, second)
    pairs = theirs(first, second)
    assert [row.tolist() for row in ids] == pairs["input_ids"]
    assert ("token_type_ids" in pairs) == (family == "bert")
    assert [row.tolist() for row in types] == pairs.get("token_type_ids", [[0] * len(row) for row in ids])
    assert theirs.decode(theirs("the paint")["input_ids"], skip_special_tokens=True) == "the paint"
    assert (theirs.bos_token, theirs.eos_token) == ((None, None) if family == "bert" else ("<s>", "</s>"))
    assert (theirs.pad_token_id, theirs.mask_token_id) == (tokenizer.pad_token_id, tokenizer.mask_token_id)
    assert theirs.model_max_length == 64
    assert load_tokenizer(str(tmp_path / "model")).fingerprint() == tokenizer.fingerprint()
    assert config.of_family(family, SIZE).pad_token_id == tokenizer.pad_token_id
