"""Ids equal those of transformers' tokenizers, whatever settings a checkpoint's file contains."""

import copy
import json
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import ByteLevelBPETokenizer
from tokenizers.processors import RobertaProcessing
from transformers import AutoTokenizer, RobertaConfig, RobertaTokenizerFast

from minbert import load_tokenizer
from minbert.config import BertConfig
from minbert.download_checkpoint import BUNDLED, resolve
from minbert.errors import InputError
from minbert.model import BertModel
from minbert.tokenizer import Tokenizer, train_tokenizer
from tests.conftest import SPECIALS, interrupted, word_piece
from tests.minbert.references import composed_sentences

VARIED = [
    "",
    " ",
    "Hello, world!",
    "naïve café ÜBER Straße",
    "中文 and 日本語 mixed",
    "[MASK] inside [SEP] a [CLS] text",
    "a\tb\nc\u00a0d\u200be\x00f\ufffdg",
    "don't 'quote' ``this'' -LRB- \\/ -RRB-",
    "x" * 150,
    "😀 👩‍👩‍👧 ﬁ ① e\u0301",
    *composed_sentences(40),
]


def test_inputs_with_more_unknown_tokens_than_known_ones_are_counted():
    """Of an accent alone an uncased BERT keeps nothing; of a word of more than 100 letters, it keeps one token."""
    tokenizer = Tokenizer(word_piece([*SPECIALS, "w", "##w"]), 8, {})
    read = ["w", "w x", "w x, w w", "", "w " * 5 + "x " * 5]
    unread = ["x", "w x y", "\u0301", "w" * 101]
    assert tokenizer.encode_and_count([*read, *unread]).unread == len(unread)
    assert tokenizer.encode_and_count([("w", "x y"), ("w w", "x y"), ("", ""), ("\u0301", "")]).unread == 2
    lengths, count = tokenizer.lengths([*read, *unread])
    assert (lengths.tolist(), count) == ([3, 4, 7, 2, 12, 3, 5, 2, 3], len(unread))


@pytest.fixture(scope="module")
def ours():
    return load_tokenizer(BUNDLED)


@pytest.fixture(scope="module")
def theirs():
    return AutoTokenizer.from_pretrained(resolve(BUNDLED))


@pytest.fixture(scope="module", params=["bundled", "vocabulary alone", "RoBERTa"])
def both(request, ours, theirs, tmp_path_factory):
    """Our tokenizer and transformers'."""
    folder = tmp_path_factory.mktemp("tokenizer")
    if request.param == "bundled":
        return ours, theirs
    if request.param == "vocabulary alone":
        return load_tokenizer(str(copy_files(folder, "config.json", "vocab.txt"))), theirs
    bpe = ByteLevelBPETokenizer()
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    bpe.train_from_iterator(composed_sentences(200), vocab_size=400, special_tokens=specials)
    bpe.save_model(str(folder))
    bpe.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0))
    bpe.enable_padding(length=64, pad_id=1, pad_token="<pad>")
    bpe.enable_truncation(20)
    bpe.save(str(folder / "tokenizer.json"))
    config = RobertaConfig(vocab_size=400, max_position_embeddings=66, type_vocab_size=1)
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    transformers_own = RobertaTokenizerFast(vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"))
    return load_tokenizer(str(folder)), transformers_own


def their_ids(tokenizer, *texts, max_length=512):
    return tokenizer(*texts, truncation=True, max_length=max_length, padding=False)["input_ids"]


def copy_files(folder: Path, *names: str) -> Path:
    for name in names:
        shutil.copy(resolve(BUNDLED) / name, folder)
    return folder


@pytest.mark.parametrize("max_length", [3, 7, None])
def test_varied_sentences(both, max_length):
    ours, theirs = both
    longest = max_length or ours.max_length
    cut = ours.encode(VARIED, max_length)
    assert [ids.tolist() for ids in cut] == their_ids(theirs, VARIED, max_length=longest)
    assert max(map(len, cut)) == longest


@settings(deadline=None, max_examples=30)
@given(text=st.text(max_size=60))
@example(text="İstanbul ǅ ß ſ ΙΧΣ")
@example(text="two <mask> dogs <pad> ran [MASK] Don't İ 中")
def test_any_unicode(both, text):
    ours, theirs = both
    assert ours.encode([text])[0].tolist() == their_ids(theirs, [text], max_length=ours.max_length)[0]


@settings(deadline=None, max_examples=30)
@given(
    first=st.lists(st.sampled_from(["dog", "unfathomable", "é", "."]), max_size=30),
    second=st.lists(st.sampled_from(["cat", "chrysanthemum"]), max_size=30),
    max_length=st.integers(5, 40),
)
def test_pairs_are_cut_as_transformers_cuts_them(both, first, second, max_length):
    ours, theirs = both
    pair = [" ".join(first)], [" ".join(second)]
    expected = theirs(*pair, truncation="longest_first", max_length=max_length)
    ids, types, *_ = ours.encode_and_count([*zip(*pair, strict=True)], max_length)
    assert ids[0].tolist() == expected["input_ids"][0]
    assert types[0].tolist() == expected.get("token_type_ids", [[0] * len(ids[0])])[0]


@pytest.mark.parametrize("max_length", [3, 7, 16])
def test_windows_are_those_of_transformers(both, max_length):
    ours, theirs = both
    room = max_length - 2
    expected = theirs(VARIED, truncation=True, max_length=max_length, stride=room // 4, return_overflowing_tokens=True)
    of = expected["overflow_to_sample_mapping"]
    found = ours.encode_and_count(VARIED, max_length, "windows")
    for row, ids in enumerate(found.ids):
        windows = [window for window, owner in zip(expected["input_ids"], of, strict=True) if owner == row]
        assert ids.tolist() == [token for window in windows for token in window]
        assert {len(window) for window in windows[:-1]} <= {max_length}
    assert found.cut == sum(count > 1 for count in map(of.count, range(len(VARIED)))) > 10


def without_middle(words: list[str], left: int) -> list[str]:
    """The first quarter and the tail of a text that has too many words."""
    head = round(left * 128 / 510)
    return words if len(words) <= left else words[:head] + words[len(words) - (left - head) :]


@settings(deadline=None, max_examples=30)
@given(first=st.integers(0, 40), second=st.integers(0, 40), max_length=st.integers(7, 40))
@example(first=600, second=0, max_length=512)
def test_without_the_middle_the_first_quarter_and_the_tail_are_read(ours, first, second, max_length):
    words = [["dog", "cat", "time", "film", "band"][number % 5] for number in range(first)], ["good"] * second
    a, b = (" ".join(text) for text in words)
    single = ours.encode_and_count([a], max_length, "middle")
    expected = without_middle(words[0], max_length - 2)
    assert [ids.tolist() for ids in single.ids] == [ids.tolist() for ids in ours.encode([" ".join(expected)])]
    assert single.cut == (first > max_length - 2)
    if first == 600:
        assert (len(expected), expected[:128], expected[128:]) == (510, words[0][:128], words[0][-382:])
        return
    lefts = [first, second]
    while sum(lefts) > max_length - 3:  # of a pair, the longer text gives a word away, one by one
        lefts[0 if lefts[0] > lefts[1] else 1] -= 1
    parts = [" ".join(without_middle(text, left)) for text, left in zip(words, lefts, strict=True)]
    pair, wanted = ours.encode_and_count([(a, b)], max_length, "middle"), ours.encode_and_count([tuple(parts)])
    assert (pair.ids[0].tolist(), pair.types[0].tolist()) == (wanted.ids[0].tolist(), wanted.types[0].tolist())
    assert pair.cut == (first + second > max_length - 3)


def test_special_ids(both):
    ours, theirs = both
    assert list(ours.special_ids) == sorted(theirs.all_special_ids)
    assert (ours.pad_token_id, ours.mask_token_id) == (theirs.pad_token_id, theirs.mask_token_id)
    assert ours.vocabulary_size == len(theirs)


@pytest.mark.parametrize("max_length", [-1, 0, 2, 513])
def test_an_impossible_length_is_refused(ours, max_length):
    with pytest.raises(InputError, match=f"max_length is {max_length}; this encoder takes 3 to 512 tokens"):
        ours.encode(["a"], max_length)


def test_pairs_need_room_for_a_token(both):
    ours, _ = both
    specials = len(ours.encode_and_count([("", "")]).ids[0])
    for length in range(3, specials + 1):
        with pytest.raises(
            InputError, match=f"max_length is {length}; pairs as one input need at least {specials + 1}"
        ):
            ours.encode_and_count([("a dog", "a cat")], length)
    assert len(ours.encode_and_count([("a dog", "a cat")], specials + 1).ids[0]) == specials + 1


def test_other_ways_to_read_a_long_text_are_refused(ours):
    with pytest.raises(InputError, match="long is 'tail'; expected one of: head, middle, windows"):
        ours.encode_and_count(["a"], long="tail")


def test_stored_settings_and_earlier_calls_change_no_ids(ours):
    stored = json.loads((resolve(BUNDLED) / "tokenizer.json").read_text(encoding="utf-8"))
    assert stored["padding"] is not None
    assert stored["truncation"]["max_length"] == 128
    before = ours.fingerprint()
    assert len(ours.encode(["dog " * 300], 10)[0]) == 10
    assert [len(ids) for ids in ours.encode(["a dog", "dog " * 300])] == [4, 302]
    assert ours.fingerprint() == before == load_tokenizer(BUNDLED).fingerprint()


@pytest.mark.parametrize(("own", "other"), [("head", "middle"), ("middle", "head"), ("windows", "head")])
def test_threads_do_not_change_how_others_texts_are_cut(ours, monkeypatch, own, other):
    texts = ["dog cat " * 30 + "time"]
    expected = ours.encode_and_count(texts, 10, own).ids[0].tolist()
    meanwhile = interrupted(ours, "encode_batch_fast", lambda: ours.encode_and_count(texts, 10, other))
    monkeypatch.setattr(ours, "backend", meanwhile)
    assert ours.encode_and_count(texts, 10, own).ids[0].tolist() == expected


def test_a_copy_has_the_same_ids(ours):
    for copied in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert copied.encode(["a dog"])[0].tolist() == ours.encode(["a dog"])[0].tolist()


def test_padded_and_packed_forms_hold_the_encodings(ours):
    sentences = ["a dog runs", "", "cats"]
    encoded = ours.encode(sentences)
    padded, packed = ours(sentences), ours.pack(sentences)
    assert padded.attention_mask.sum(1).tolist() == [len(ids) for ids in encoded]
    assert not padded.token_type_ids.any()
    for row, ids in enumerate(encoded):
        expected = torch.from_numpy(ids).long()
        assert torch.equal(padded.input_ids[row, : len(ids)], expected)
        assert (padded.input_ids[row, len(ids) :] == ours.pad_token_id).all()
        assert torch.equal(packed.input_ids[packed.offsets[row] : packed.offsets[row + 1]], expected)
    assert ours([]).input_ids.shape == (0, 0)


def test_a_token_may_be_an_unusual_line_separator(tmp_path):
    copy_files(tmp_path, "config.json")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "\u2028", "\x85", "\x0c", "b"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    assert load_tokenizer(str(tmp_path)).encode(["a b"])[0].tolist() == [2, 5, 9, 3]


def test_save_keeps_ids_and_settings(ours, theirs, tmp_path):
    copy_files(tmp_path, "config.json")
    ours.encode(["a"], 5)
    ours.save(tmp_path)
    stored = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert stored["truncation"] is stored["padding"] is None
    again = load_tokenizer(str(tmp_path))
    assert again.fingerprint() == ours.fingerprint()
    assert again.companions == ours.companions
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded(VARIED)["input_ids"] == theirs(VARIED, padding=False, truncation=False)["input_ids"]


# The course lower-cases and spaces out some punctuation before it tokenises, which our readers do not.


def as_the_course_does(sentence: str) -> str:
    for mark in ".?,'":
        sentence = sentence.replace(mark, f" {mark}")
    return " ".join(sentence.lower().split())


@settings(deadline=None)
@given(words=st.lists(st.from_regex(r"[A-Za-z]{0,6}['.?,\-!\"]{0,3}[A-Za-zé0-9]{1,3}", fullmatch=True), max_size=12))
def test_the_courses_preprocessing_changes_no_ids(ours, words):
    sentence = " ".join(words)
    assert ours.encode([sentence])[0].tolist() == ours.encode([as_the_course_does(sentence)])[0].tolist()


def test_of_a_huge_text_only_the_first_characters_are_split(monkeypatch):
    tokenizer = load_tokenizer(BUNDLED)
    expected, backend, read = tokenizer.encode(["word " * 600])[0].tolist(), tokenizer.backend, []

    def encode(texts):
        read.append([len(text) for text in texts])
        return backend.encode_batch_fast(texts)

    own = SimpleNamespace(enable_truncation=backend.enable_truncation, encode_batch_fast=encode)
    monkeypatch.setattr(tokenizer, "backend", own)
    monkeypatch.setattr("minbert.tokenizer.LONGEST_TEXT", 10_000)
    monkeypatch.setattr("minbert.tokenizer.CHARACTERS_PER_CALL", 40_000)
    found = tokenizer.encode(["word " * 28_000, *["word " * 1500] * 5])
    assert [ids.tolist() for ids in found] == [expected] * 6
    assert read == [[10_000, 7500, 7500, 7500, 7500], [7500]]


def test_of_a_huge_text_without_its_middle_both_ends_are_read_and_windows_refuse_it(ours, monkeypatch):
    monkeypatch.setattr("minbert.tokenizer.LONGEST_TEXT", 1000)
    text = "dog " * 200 + "time " * 1000 + "cat " * 200
    pair, (kept,) = ours.encode_and_count([(text, "film")], 23, "middle"), ours.encode(["dog " * 5 + "cat " * 15])
    single = ours.encode_and_count([text], 22, "middle")
    assert (single.ids[0].tolist(), single.cut, pair.cut) == (kept.tolist(), 1, 1)
    expected = ours.encode_and_count([("dog " * 5 + "cat " * 14, "film")]).ids[0]
    assert pair.ids[0].tolist() == expected.tolist()
    with pytest.raises(InputError, match=r"^long is windows, but the text 'dog .*'… has 6,600 characters; expected at"):
        ours.encode_and_count(["dog", text], 22, "windows")


# The same sentences give the same vocabulary, and transformers reads the tokenizer as we do.


SIZE = 500


@pytest.fixture(scope="module")
def sentences(sample_data) -> list[str]:
    lines = (sample_data / "sentences.txt").read_text(encoding="utf-8").splitlines()[:400]
    return [*lines, "Zoë paid £5, naïvely.", "Zoë paid £5, naïvely!"]


@pytest.fixture(scope="module", params=["bert", "roberta"])
def family(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def tokenizer(family, sentences) -> Tokenizer:
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
    ids, types, *_ = tokenizer.encode_and_count([*zip(first, second, strict=True)])
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
