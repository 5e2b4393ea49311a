"""Folders with every setting of a tokenizer give the ids of transformers' AutoTokenizer, or one line that refuses."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, ByteLevelBPETokenizer, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as RustTokenizer
from transformers import AutoTokenizer

from minbert import load_tokenizer
from minbert.errors import InputError
from minbert.files import write_json

TEXTS = [
    *("Hello World CAFÉ by Ångström", "the[NEW]cat new  [new] xNEWx [NEW] .", "[USR] hello [usr] [URL]", "", " "),
    *(
        "[MASK] [SEP] <mask> <s> x </s> <pad> <m>",
        "中文 and 日本 mixed",
        "İ ß e\u0301 \u200b\x00 \ufffd",
        "[U] user Usr",
    ),
]
WORDS = ["hello", "Hello", "the", "The", "cafe", "café", "CAFÉ", "cat", "new", "NEW", "##new", "[unused0]"]
CHARACTERS = sorted({c for text in TEXTS for c in (*text, *text.lower()) if c.isprintable() and c != " "})
NAMES = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
OTHER_NAMES = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<m>"}
RARE = ("[USR]", "[NEW]", "[URL]")


def word_pieces(names: dict[str, str] = NAMES) -> list[str]:
    return [*names.values(), *WORDS, *CHARACTERS, *(f"##{c}" for c in CHARACTERS)]


@pytest.fixture(scope="module")
def byte_pairs() -> RustTokenizer:
    learned = ByteLevelBPETokenizer()
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    learned.train_from_iterator(TEXTS, 330, special_tokens=specials, show_progress=False)
    return RustTokenizer.from_str(learned.to_str())


@pytest.fixture(params=["BERT", "RoBERTa"])
def family(request) -> str:
    return request.param


@pytest.fixture(params=["with tokenizer.json", "without"])
def folder(request, tmp_path, family, byte_pairs) -> Path:
    """A checkpoint's folder, still without settings."""
    vocabulary = word_pieces()
    if family == "BERT":
        backend = RustTokenizer(models.WordPiece({token: i for i, token in enumerate(vocabulary)}, unk_token="[UNK]"))
        backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        backend.add_special_tokens(list(NAMES.values()))
        (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    else:
        backend = byte_pairs
        backend.model.save(str(tmp_path))
    if request.param != "without":
        backend.save(str(tmp_path / "tokenizer.json"))
    write_json(tmp_path / "config.json", {"model_type": family.lower(), "vocab_size": 1000, "pad_token_id": 1})
    return tmp_path


def size(folder: Path) -> int:
    return len(AutoTokenizer.from_pretrained(folder))


def assert_same(folder: Path, elsewhere: Path) -> None:
    """Ids and types are transformers', also those of a saved copy in both libraries."""
    ours, theirs = load_tokenizer(str(folder)), AutoTokenizer.from_pretrained(folder)
    assert [ids.tolist() for ids in ours.encode(TEXTS)] == theirs(TEXTS)["input_ids"]
    assert ours.encode_and_count([(TEXTS[0], TEXTS[1])]).ids[0].tolist() == theirs(*TEXTS[:2])["input_ids"]
    assert (ours.pad_token_id, ours.mask_token_id) == (theirs.pad_token_id, theirs.mask_token_id)
    assert set(theirs.all_special_ids) <= set(ours.special_ids)
    ours.save(elsewhere)
    shutil.copy(folder / "config.json", elsewhere)
    assert load_tokenizer(str(elsewhere)).fingerprint() == ours.fingerprint()
    assert AutoTokenizer.from_pretrained(elsewhere)(TEXTS)["input_ids"] == theirs(TEXTS)["input_ids"]


def token(content: str, **flags: bool) -> dict[str, Any]:
    return {"content": content, **dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False), **flags}


CONFIGS = {
    "none": None,
    "cased": {"do_lower_case": False},
    "accents kept": {"strip_accents": False},
    "cased, without accents": {"do_lower_case": False, "strip_accents": True},
    "Chinese words": {"tokenize_chinese_chars": False},
    "a first space": {"add_prefix_space": True},
    "of no effect": {"do_basic_tokenize": False, "never_split": ["NEW"], "model_max_length": 9, "trim_offsets": False},
    "further tokens": {
        "additional_special_tokens": ["[USR]", {"__type": "AddedToken", **token("NEW", lstrip=True, special=True)}]
    },
    "further tokens by their new name": {"extra_special_tokens": ["[USR]"], "additional_special_tokens": ["[NEW]"]},
    "further tokens with names": {"extra_special_tokens": {"user": "[USR]"}, "url_token": "[URL]", "bos_token": "[U]"},
    "a token of the vocabulary": {"additional_special_tokens": ["NEW", "[unused0]"]},
    "a mask that takes spaces": {"mask_token": {"__type": "AddedToken", **token("<mask>", lstrip=True, rstrip=True)}},
}


@pytest.mark.parametrize("config", CONFIGS)
def test_settings_of_tokenizer_config(folder, family, config, tmp_path):
    settings = CONFIGS[config]
    if config == "a mask that takes spaces" and family == "BERT":
        settings = {"mask_token": {**settings["mask_token"], "content": "[MASK]"}}
    if settings is not None:
        write_json(folder / "tokenizer_config.json", settings)
    assert_same(folder, tmp_path / "saved")


def test_settings_of_the_stored_vocabulary_have_no_effect(folder, family, tmp_path):
    """Byte pairs that were trained with dropout would be split in another way each time."""
    if (path := folder / "tokenizer.json").is_file():
        stored = json.loads(path.read_text(encoding="utf-8"))
        stored["model"] |= {"max_input_chars_per_word": 4} if family == "BERT" else {"dropout": 0.9}
        write_json(path, stored)
    assert_same(folder, tmp_path / "saved")


@pytest.mark.parametrize(("file", "kind"), [("tokenizer_config.json", "TokenizerFast"), ("config.json", "Tokenizer")])
def test_the_class_may_be_named_in_either_config(folder, family, file, kind, tmp_path):
    path = folder / file
    stored = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    write_json(path, stored | {"tokenizer_class": family.capitalize() + kind, "do_lower_case": False})
    assert_same(folder, tmp_path / "saved")


@pytest.mark.parametrize("where", ["added_tokens", "special_tokens_map", "both", "tokenizer_config too"])
@pytest.mark.parametrize("lower", [True, False])
def test_tokens_of_files_of_older_versions(folder, family, where, lower, tmp_path):
    first = size(folder)
    write_json(folder / "tokenizer_config.json", {"do_lower_case": lower})
    if where != "special_tokens_map":
        write_json(folder / "added_tokens.json", {text: first + i for i, text in enumerate(RARE)})
    if where != "added_tokens":
        mask = "[MASK]" if family == "BERT" else "<mask>"
        named = {"mask_token": token(mask, lstrip=True), "additional_special_tokens": ["[USR]", "[NEW]"]}
        write_json(folder / "special_tokens_map.json", named)
    if where == "tokenizer_config too":
        write_json(folder / "tokenizer_config.json", {"do_lower_case": lower, "additional_special_tokens": ["[URL]"]})
    assert_same(folder, tmp_path / "saved")


@pytest.mark.parametrize("flags", [(), ("lstrip", "rstrip"), ("single_word",), ("normalized",)], ids=str)
def test_flags_of_added_tokens(folder, family, flags, tmp_path):
    first, chosen = size(folder), dict.fromkeys(flags, True)
    decoder = {str(first + i): token(text, special=i == 1) | chosen for i, text in enumerate(RARE)}
    decoder |= {"4": token("[MASK]" if family == "BERT" else "<mask>", special=True) | chosen}
    write_json(
        folder / "tokenizer_config.json", {"added_tokens_decoder": decoder, "additional_special_tokens": ["NEW"]}
    )
    write_json(folder / "special_tokens_map.json", {"additional_special_tokens": ["[unused0]"]})  # does not count
    assert_same(folder, tmp_path / "saved")


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_other_names_of_the_special_tokens(tmp_path, typed, stored):
    vocabulary = word_pieces(OTHER_NAMES)
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    if stored:
        ids = {text: i for i, text in enumerate(vocabulary)}
        RustTokenizer(models.WordPiece(ids, unk_token="[UNK]")).save(str(tmp_path / "tokenizer.json"))
    named = {
        f"{role}_token": {"__type": "AddedToken", **token(text)} if typed else text
        for role, text in OTHER_NAMES.items()
    }
    write_json(tmp_path / "tokenizer_config.json", named)
    write_json(tmp_path / "config.json", {"model_type": "bert", "vocab_size": 1000})
    assert_same(tmp_path, tmp_path / "saved")


def contradicting(path: Path) -> RustTokenizer:
    """A tokenizer.json whose vocabulary, normaliser, split, special tokens, padding and length are others."""
    ids = {token: index for index, token in enumerate(word_pieces()[:5] + word_pieces()[:4:-1])}
    backend = RustTokenizer(models.WordPiece(ids, unk_token="NEW"))
    backend.normalizer, backend.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.WhitespaceSplit()
    backend.add_tokens([AddedToken("[URL]", lstrip=True), "cat"])
    backend.enable_padding(length=40, pad_id=7, pad_token="x")
    backend.enable_truncation(5)
    backend.save(str(path))
    return backend


def test_tokenizer_config_counts_where_tokenizer_json_says_something_else(tmp_path, caplog):
    contradicting(tmp_path / "tokenizer.json")
    (tmp_path / "vocab.txt").write_text("\n".join(word_pieces()), encoding="utf-8")
    write_json(tmp_path / "config.json", {"model_type": "bert", "vocab_size": 1000})
    write_json(tmp_path / "tokenizer_config.json", {"do_lower_case": False})
    with caplog.at_level(logging.WARNING, "minbert"):
        load_tokenizer(str(tmp_path))
    assert caplog.messages == [
        f"{tmp_path / 'tokenizer.json'}: BertTokenizer with tokenizer_config.json splits text differently, and counts, "
        "as in transformers"
    ]
    assert_same(tmp_path, tmp_path / "saved")


@pytest.mark.parametrize("kind", ["PreTrainedTokenizerFast", "TokenizersBackend", "OfNobody"])
def test_tokenizer_json_counts_for_other_classes(tmp_path, kind, caplog):
    backend = contradicting(tmp_path / "tokenizer.json")
    stored = json.loads(backend.to_str())
    stored["post_processor"] = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    write_json(tmp_path / "tokenizer.json", stored)
    write_json(tmp_path / "config.json", {"model_type": "bert", "vocab_size": 1000})
    names = {f"{role}_token": text for role, text in NAMES.items()}
    further = {"additional_special_tokens": ["[USR]"], "tokenizer_class": kind, "do_lower_case": True}
    write_json(tmp_path / "tokenizer_config.json", names | further)
    assert_same(tmp_path, tmp_path / "saved")
    assert not caplog.messages


@pytest.mark.parametrize("kind", ["XLMRobertaTokenizer", "CamembertTokenizerFast"])
@pytest.mark.parametrize(
    ("normalizer", "splits", "single", "same"),
    [
        (None, [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()], "<s> $A </s>", True),
        (None, [pre_tokenizers.Metaspace()], "<s> $A </s>", False),
        (normalizers.Lowercase(), [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()], "<s> $A </s>", False),
        (normalizers.NFKC(), [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()], "<s> $A </s>", False),
        (None, [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()], "<s> <s> $A </s>", False),
        (
            None,
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="never")],
            "<s> $A </s>",
            True,
        ),
    ],
)
def test_a_warning_says_where_transformers_classes_of_unigrams_give_other_ids(
    tmp_path, kind, normalizer, splits, single, same, caplog
):
    """transformers itself says whether a warning is due."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "\u2581", "\u2581a", "a", "b", "\u2581A", "\u00e9", "<mask>"]
    backend = RustTokenizer(models.Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)], 3))
    backend.normalizer, backend.pre_tokenizer = normalizer, pre_tokenizers.Sequence(splits)
    specials = [(token, pieces.index(token)) for token in ("<s>", "</s>")]
    backend.post_processor = processors.TemplateProcessing(
        single=single, pair=f"{single} $B </s>", special_tokens=specials
    )
    backend.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True)])
    backend.enable_padding(length=16)  # as in folders of sentence-transformers; it must not count
    backend.save(str(tmp_path / "tokenizer.json"))
    prefix = getattr(splits[-1], "prepend_scheme", "always") != "never"
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": kind, "add_prefix_space": prefix})
    write_json(tmp_path / "config.json", {"model_type": "xlm-roberta", "vocab_size": 100, "pad_token_id": 1})
    with caplog.at_level(logging.WARNING, "minbert"):
        ours = load_tokenizer(str(tmp_path))
    text = "A  b e\u0301 \uff41"
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert (ours.backend.encode(text).ids == theirs(text)["input_ids"]) == same
    class_name = kind.removesuffix("Fast")
    assert caplog.messages == ([] if same else [
        f"{tmp_path / 'tokenizer.json'}: transformers' {class_name} splits text differently. This file counts; with "
        "tokenizer_class PreTrainedTokenizerFast in tokenizer_config.json it counts there, too"
    ])  # fmt: skip


# What is refused.


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("added_tokens.json", {"[USR]": 900}, "the added token '[USR]' has the id 900; expected "),
        ("added_tokens.json", {"[USR]": 1}, "the added token '[USR]' has the id 1; expected "),
        ("added_tokens.json", {"cat": 1}, "the added token 'cat' has the id 1; expected "),
        ("added_tokens.json", {"[USR]": "x"}, "added_tokens.json has a value of the wrong type"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"0": "cat"}}, "the added token 'cat' has the id 0; exp"),
        ("tokenizer_config.json", {"added_tokens_decoder": [1]}, "has a value of the wrong type"),
        ("tokenizer_config.json", {"additional_special_tokens": "[USR]"}, "has a value of the wrong type"),
        ("tokenizer_config.json", {"do_lower_case": None}, "has a value of the wrong type"),
        ("tokenizer_config.json", {"mask_token": None}, "the tokenizer's vocabulary lacks mask_token"),
        ("tokenizer_config.json", {"unk_token": "[OTHER]"}, "the tokenizer's vocabulary lacks [OTHER]"),
        (
            "tokenizer_config.json",
            {"truncation_side": "left"},
            "the tokenizer's truncation_side is 'left'; only 'right'",
        ),
        ("tokenizer_config.json", {"padding_side": "left"}, "the tokenizer's padding_side is 'left'; only 'right' is"),
        (
            "tokenizer_config.json",
            {"split_special_tokens": True},
            "split_special_tokens is True; only False is computed",
        ),
        ("tokenizer_config.json", {"tokenizer_class": "BertJapaneseTokenizer"}, "BertJapaneseTokenizer"),
        ("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"}, "no tokenizer.json, or one that"),
        ("tokenizer_config.json", {"tokenizer_class": "RobertaTokenizer"}, "expected tokenizer.json or vocab.json and"),
        ("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case is set; expected the do_lower_case of t"),
        ("sentence_albert_config.json", {"do_lower_case": True}, "do_lower_case is set; expected the do_lower_case of"),
    ],
)
def test_what_cannot_be_computed_is_refused_in_one_line(tmp_path, file, content, complaint):
    (tmp_path / "vocab.txt").write_text("\n".join(word_pieces()), encoding="utf-8")
    write_json(tmp_path / "config.json", {"model_type": "bert", "vocab_size": 1000})
    if file.startswith("sentence_"):
        write_json(tmp_path / file, content)
        load_tokenizer(str(tmp_path))  # its own lower case
        write_json(tmp_path / "tokenizer_config.json", {"do_lower_case": False})
    write_json(tmp_path / file, content)
    with pytest.raises(InputError) as caught:
        load_tokenizer(str(tmp_path))
    assert complaint in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)
