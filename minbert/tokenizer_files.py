"""A checkpoint's tokenizer files as one Rust tokenizer, put together as transformers' AutoTokenizer does.

The class that tokenizer_config.json names decides. Those of BERT and RoBERTa take from tokenizer.json only vocabulary
and added tokens: tokenizer_config.json and the class's defaults say how text is normalised and split. For other
classes, tokenizer.json says everything; a warning says where transformers' own class would give other tokens.
"""

import json
import logging
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as RustTokenizer

from minbert.config import ARCHITECTURES, BertConfig, ModelType
from minbert.download_checkpoint import sentence_settings
from minbert.errors import InputError
from minbert.files import read_optional_json, read_text

logger = logging.getLogger("minbert")

ROLES = (  # in the order in which transformers numbers new tokens
    *("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"),
)
SPECIALS: dict[ModelType, dict[str, str]] = {
    "bert": dict(zip(ROLES[2:], ("[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"), strict=True)),
    "roberta": dict(zip(ROLES, ("<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"), strict=True)),
}
"""The families' special tokens by their names in transformers."""
CLASSES: dict[str, ModelType] = {
    **dict.fromkeys(("Bert", "ConvBert", "DistilBert", "Electra", "LayoutLM", "Lxmert", "MobileBert"), "bert"),
    **dict.fromkeys(("Roberta", "Bart", "Longformer"), "roberta"),
}
"""Classes of transformers with the code of BERT's or RoBERTa's."""
REBUILT = ("XLMRoberta", "Camembert")
"""Classes of transformers that take vocabulary and character map from tokenizer.json, and split by themselves."""
PROBE = "A  e\u0301 \uff42 \u2460c"  # upper case, two spaces, an accent apart, a wide letter, a circled number
LONGEST_WORD = 100
"""Characters of BERT's longest word; a longer one is unknown."""
OTHER_CODE = ("BertJapanese", "Bertweet", "Phobert")  # classes that do not use the Rust tokenizer
COMPUTED = {"truncation_side": "right", "padding_side": "right", "split_special_tokens": False}
LISTS = ("extra_special_tokens", "additional_special_tokens")  # the new name and the old one


def read_tokenizer(folder: Path, config: BertConfig, kind: str | None) -> tuple[RustTokenizer, dict[str, str], str]:
    """The tokenizer in a checkpoint's folder, its special tokens by name, such as `pad_token`, and its class.

    `kind` is the class that config.json names, if any. Raises InputError if files are missing, damaged or contradict
    each other, or ask for what is not computed here.
    """
    path = folder / "tokenizer.json"
    stored = _parsed(path, RustTokenizer.from_str, read_text(path)) if path.is_file() else None
    try:
        settings, added = _settings_and_added_tokens(folder, stored)
        kind = str(settings.get("tokenizer_class") or kind or ARCHITECTURES[config.model_type][0].removesuffix("Model"))
        family = CLASSES.get(kind := kind.removesuffix("Fast").removesuffix("Tokenizer"))
        special = _special_tokens((SPECIALS[family] if family else {}) | settings)
        backend = _of_family(family, _model(folder, family, stored), settings) if family else stored
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        files = "tokenizer_config.json, special_tokens_map.json or added_tokens.json"
        raise InputError(f"{folder}: {files} has a value of the wrong type ({error!s:.200})") from None
    if backend is None or kind in OTHER_CODE:
        raise InputError(f"{folder}: no tokenizer.json, or one that transformers' {kind}Tokenizer does not use")
    for name, computed in COMPUTED.items():
        if (value := settings.get(name, computed)) != computed:
            raise InputError(f"{folder}: the tokenizer's {name} is {value!r:.60}; only {computed!r} is computed here")
    lower = sentence_settings(folder)
    if read_optional_json(lower).get("do_lower_case") and (
        not backend.normalizer or backend.normalizer.normalize_str("A") != "a"
    ):
        raise InputError(f"{lower}: do_lower_case is set; expected the do_lower_case of tokenizer_config.json instead")
    _warn_of_other_splits(path, kind, stored, backend, bool(settings.get("add_prefix_space", True)))

    texts = {name: token.content for name, token in special.items()}
    with_role = {texts[name] for name in ROLES if name in texts}
    for token in (*added.values(), *special.values()):
        token.special |= token.content in with_role
    for index, token in sorted(added.items()):
        backend.add_tokens([token])
        text, given = token.content, backend.token_to_id(token.content)
        if given != index:
            raise InputError(f"{folder}: the added token {text!r:.60} has the id {index!s:.20}; expected {given}")
    if family:
        ids: dict[str, Any] = {name: backend.token_to_id(texts.get(name, "")) for name in ROLES[2:]}
        if missing := [texts.get(name) or name for name, index in ids.items() if index is None]:
            raise InputError(f"{folder}: the tokenizer's vocabulary lacks {', '.join(missing)}")
        process: Any = processors.BertProcessing if family == "bert" else processors.RobertaProcessing
        backend.post_processor = process(*((texts[name], ids[name]) for name in ("sep_token", "cls_token")))
        backend.model.unk_token = texts["unk_token"] if family == "bert" else None
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    backend.add_tokens([token for token in special.values() if token.content not in known])
    return backend, SPECIALS[config.family] | texts, f"{kind}Tokenizer"


def _settings_and_added_tokens(
    folder: Path, stored: RustTokenizer | None
) -> tuple[dict[str, Any], dict[int, AddedToken]]:
    """All settings by name, and the added tokens with declared ids, by these."""
    sides = {"truncation_side": stored.truncation, "padding_side": stored.padding} if stored else {}
    settings = {side: found["direction"] for side, found in sides.items() if found}
    settings |= read_optional_json(folder / "tokenizer_config.json")
    if "added_tokens_decoder" in settings:
        return settings, {int(index): _token(value) for index, value in settings["added_tokens_decoder"].items()}
    # Without that, older files count.
    older = read_optional_json(folder / "special_tokens_map.json")
    lists = {name: older.pop(name) for name in LISTS if name in older}
    settings |= {name: value | {"special": True} if isinstance(value, dict) else value for name, value in older.items()}
    special = {token.content for token in _special_tokens(settings).values()}
    ids = {int(index): text for text, index in read_optional_json(folder / "added_tokens.json").items()}
    added = {i: AddedToken(text, normalized=text not in special, special=text in special) for i, text in ids.items()}
    return lists | settings, added | (stored.get_added_tokens_decoder() if stored else {})


def _special_tokens(settings: dict[str, Any]) -> dict[str, AddedToken]:
    """The special tokens by name, such as `pad_token`, in transformers' order."""
    further: Any = next(filter(None, (settings.get(name) for name in LISTS)), [])
    if isinstance(further, list):
        further = {f"further {number}": token for number, token in enumerate(further)}
    named = dict.fromkeys(ROLES) | settings
    named = {name: value for name, value in named.items() if name.endswith("_token") and isinstance(value, str | dict)}
    return {name: _token(value) for name, value in (named | further).items()}


def _token(value: str | dict[str, Any]) -> AddedToken:
    fields: dict[str, Any] = {"content": value, "special": True} if isinstance(value, str) else value
    return AddedToken(**{name: field for name, field in fields.items() if name != "__type"})


def _model(folder: Path, family: ModelType, stored: RustTokenizer | None) -> models.WordPiece | models.BPE:
    """The vocabulary of tokenizer.json, or of older files."""
    kind, *names = (models.WordPiece, "vocab.txt") if family == "bert" else (models.BPE, "vocab.json", "merges.txt")
    if stored and not isinstance(stored.model, kind):
        raise InputError(f"{folder / 'tokenizer.json'}: expected {kind.__name__}, which the tokenizer's class has")
    if stored:
        model = stored.model
        if isinstance(model, models.BPE):
            model.dropout = None
        else:
            model.max_input_chars_per_word = LONGEST_WORD
        return model
    if not all((folder / name).is_file() for name in names):
        raise InputError(f"{folder}: no tokenizer; expected tokenizer.json or {' and '.join(names)}")
    return _parsed(folder / names[0], kind.from_file, *(str(folder / name) for name in names))


def _of_family(family: ModelType, model: models.WordPiece | models.BPE, settings: dict[str, Any]) -> RustTokenizer:
    """The tokenizer as transformers' class makes it of its settings, still without added tokens."""
    backend = RustTokenizer(model)
    if family == "bert":
        backend.normalizer = normalizers.BertNormalizer(
            handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
            strip_accents=settings.get("strip_accents"),
            lowercase=settings.get("do_lower_case", True),
        )
        backend.pre_tokenizer, backend.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    else:
        split = pre_tokenizers.ByteLevel(add_prefix_space=settings.get("add_prefix_space", False))
        backend.pre_tokenizer, backend.decoder = split, decoders.ByteLevel()
    return backend


def _warn_of_other_splits(
    path: Path, kind: str, stored: RustTokenizer | None, backend: RustTokenizer, prefix: bool
) -> None:
    """Warn where tokenizer.json and transformers' class normalise, split or complete a text in two ways."""
    splits = [[part.__getstate__() for part in (t.normalizer, t.pre_tokenizer)] for t in (stored, backend) if t]
    if splits[0] != splits[-1]:
        of_class = f"{kind}Tokenizer with tokenizer_config.json"
        logger.warning("%s: %s splits text differently, and counts, as in transformers", path, of_class)
    specials = backend.num_special_tokens_to_add(False)
    if kind in REBUILT and (_pieces(backend) != _rebuilt_pieces(backend, prefix) or specials != 2):
        advice = "with tokenizer_class PreTrainedTokenizerFast in tokenizer_config.json it counts there, too"
        theirs = f"transformers' {kind}Tokenizer"
        logger.warning("%s: %s splits text differently. This file counts; %s", path, theirs, advice)


def _pieces(backend: RustTokenizer) -> list[str]:
    text = backend.normalizer.normalize_str(PROBE) if backend.normalizer else PROBE
    return [piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str(text)] if backend.pre_tokenizer else [text]


def _rebuilt_pieces(backend: RustTokenizer, prefix: bool) -> list[str]:
    """The pieces of transformers' `REBUILT` classes, which keep only the character map of the normalizer.

    `prefix` says that a word begins with a mark of the space before it (`add_prefix_space`).
    """
    found = json.loads(backend.normalizer.__getstate__()) if backend.normalizer else {}
    parts = found.get("normalizers", [found])
    maps = [b64decode(part["precompiled_charsmap"]) for part in parts if part.get("type") == "Precompiled"]
    text = normalizers.Precompiled(maps[0]).normalize_str(PROBE) if maps else PROBE
    marks = pre_tokenizers.Metaspace(prepend_scheme="always" if prefix else "never")
    split = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), marks])
    return [piece for piece, _ in split.pre_tokenize_str(text)]


def _parsed(path: Path, parse: Callable[..., Any], *content: str) -> Any:
    try:
        return parse(*content)
    except Exception as error:  # the Rust side raises bare Exception
        raise InputError(f"{path}: not a tokenizer file ({error!s:.200})") from None
