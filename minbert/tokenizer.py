"""Turn text into token ids, with the Rust `tokenizers` library and a checkpoint's own files, or a new vocabulary.

Source of the vocabularies: Devlin et al. 2019, section 3 (WordPiece); Liu et al. 2019, section 4.4 (byte-level BPE).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import AddedToken, BertWordPieceTokenizer, ByteLevelBPETokenizer, processors
from tokenizers import Tokenizer as RustTokenizer
from tokenizers.models import Unigram
from torch import Tensor

from minbert.config import BertConfig, Long, ModelType
from minbert.download_checkpoint import TOKENIZER_FILES, resolve
from minbert.errors import InputError, refuse_unknown
from minbert.files import NO_TEXT, atomic_file, read_bytes, read_json, write_text
from minbert.packing import PackedBatch
from minbert.tokenizer_files import SPECIALS, read_tokenizer

# The Rust tokenizer takes 280 bytes a character. An encoder reads 512 tokens or so, so of a longer text only a million
# characters are split.
LONGEST_TEXT = 2**20
TEXTS_PER_CALL, CHARACTERS_PER_CALL = 8192, 2**22
HEAD = 128 / 510
"""Share of the first tokens among those that are left of a text without its middle (Sun et al. 2019, arXiv 1905.05583,
section 5.3.1)."""
WINDOW_OVERLAP = 1 / 4
"""Share of a window's tokens that the window before it has, too."""
MIN_FREQUENCY = 2  # in new vocabularies; words and pairs that occur only once are mostly names and typing errors
NO_LIMIT = 2**31
# Of new vocabularies, in the order of their ids.
BERT_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
MODEL_INPUTS = {"bert": ["input_ids", "token_type_ids", "attention_mask"], "roberta": ["input_ids", "attention_mask"]}

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class PaddedBatch:
    """Sentences padded on the right to the length of the longest."""

    input_ids: Tensor  # [batch, seq] int64
    attention_mask: Tensor  # [batch, seq] int64, 1 at tokens and 0 at padding
    token_type_ids: Tensor  # [batch, seq] int64


class Encoded(NamedTuple):
    """Encoded sentences or pairs."""

    ids: list[Ids]  # token ids of each
    types: list[Ids]
    cut: int  # how many were longer than the largest length: cut, or read in windows
    unread: int  # how many have more unknown tokens than known ones, or no token although they are not empty


class Tokenizer:
    """A checkpoint's tokenizer. It truncates to a given length; the truncation settings of its file have no effect.

    Args:
        backend: the Rust tokenizer.
        max_length: largest number of tokens, specials included, that the encoder takes.
        companions: contents of the checkpoint's other tokenizer files by name; `save` writes them back.
        source: the checkpoint's folder, as errors name it.
        special: the special tokens by name, such as `pad_token`.
    """

    def __init__(
        self,
        backend: RustTokenizer,
        max_length: int,
        companions: dict[str, bytes],
        source: str = "the tokenizer",
        special: Mapping[str, str] = SPECIALS["bert"],
    ) -> None:
        backend.no_padding()
        self.backend = backend
        self._lock = Lock()
        self.max_length = max_length
        self.companions = companions
        self.source = source
        self.pad_token_id, self.mask_token_id = self._id(special["pad_token"]), self._id(special["mask_token"])
        flagged = [index for index, token in backend.get_added_tokens_decoder().items() if token.special]
        named = [index for text in special.values() if (index := backend.token_to_id(text)) is not None]
        self.special_ids = tuple(sorted({*flagged, *named}))
        unknown, space = getattr(backend.model, "unk_token", None), ""
        if isinstance(backend.model, Unigram):  # which knows its unknown token by number alone
            unknown, space = special["unk_token"], "▁"
        found = (backend.token_to_id(text or "") for text in (unknown, space))
        self.unknown_id, self.space_id = (-1 if index is None else int(index) for index in found)

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids."""
        return int(self.backend.get_vocab_size())

    def fingerprint(self) -> str:
        """SHA-256 of everything that determines the ids of a text."""
        with self.cutting(None):
            return sha256(self.backend.to_str().encode()).hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())

    @contextmanager
    def cutting(self, length: int | None, stride: int = 0) -> Iterator[None]:
        """The Rust tokenizer cuts to so many tokens (None: it does not). Other threads, which share it, wait."""
        with self._lock:
            if length is None:
                self.backend.no_truncation()
            else:
                self.backend.enable_truncation(length, stride=stride)
            yield

    def encode(self, sentences: Sequence[str], max_length: int | None = None) -> list[Ids]:
        """Token ids of each sentence, specials included, cut to `max_length` tokens (default: the encoder's)."""
        return [np.array(encoding.ids, np.int32) for encoding in self._encode(sentences, max_length)]

    def encode_and_count(
        self, inputs: Sequence[str | tuple[str, str]], max_length: int | None = None, long: Long = "head"
    ) -> Encoded:
        """Encode sentences, or pairs as `[CLS] a [SEP] b [SEP]`, and count those too long or that cannot be read.

        Windows of a sentence, each with specials of its own, are laid end to end; all but the last have `max_length`
        tokens. The longer sentence of a pair is cut first.
        """
        ids, types, cut, unread = [], [], 0, 0
        length = self.max_length if max_length is None else max_length
        for text, encoding in zip(inputs, self._encode(inputs, length, long), strict=True):
            row, kind = np.array(encoding.ids, np.int32), np.array(encoding.type_ids, np.int32)
            too_long = bool(encoding.overflowing) or len(row) > length
            if too_long and long == "middle":
                kept = _around_the_middle(encoding.sequence_ids, length)
                row, kind = row[kept], kind[kept]
            elif too_long and long == "windows":
                row = np.concatenate([row, *(np.array(window.ids, np.int32) for window in encoding.overflowing)])
                kind = np.zeros_like(row)
            ids.append(row)
            types.append(kind)
            cut += too_long
            unread += self._cannot_read(text, encoding.ids)
        return Encoded(ids, types, cut, unread)

    def lengths(self, sentences: Sequence[str]) -> tuple[NDArray[np.int64], int]:
        """Number of tokens of each sentence without cutting, specials included, [sentences]; how many are unread."""
        lengths, unread = np.empty(len(sentences), np.int64), 0
        for number, encoding in enumerate(self._encodings(_calls(sentences))):
            row = encoding.ids
            lengths[number] = len(row)
            unread += self._cannot_read(sentences[number], row)
        return lengths, unread

    def _cannot_read(self, text: str | tuple[str, str], row: list[int]) -> bool:
        """Whether most tokens of a text are unknown, or a text that is not empty has none."""
        own = len(row) - self.backend.num_special_tokens_to_add(isinstance(text, tuple)) - row.count(self.space_id)
        return row.count(self.unknown_id) > own / 2 if own else bool("".join(text))

    def __call__(self, sentences: Sequence[str], max_length: int | None = None) -> PaddedBatch:
        """Encode into a padded batch."""
        encoded = self.encode(sentences, max_length)
        shape = len(encoded), max(map(len, encoded), default=0)
        input_ids = torch.full(shape, self.pad_token_id, dtype=torch.int64)
        attention_mask = torch.zeros(shape, dtype=torch.int64)
        for row, ids in enumerate(encoded):
            input_ids[row, : len(ids)] = torch.from_numpy(ids)
            attention_mask[row, : len(ids)] = 1
        return PaddedBatch(input_ids, attention_mask, torch.zeros_like(input_ids))

    def pack(self, sentences: Sequence[str], max_length: int | None = None) -> PackedBatch:
        """Encode into a packed batch."""
        return PackedBatch.from_sequences(self.encode(sentences, max_length))

    def save(self, folder: Path) -> None:
        """Write the tokenizer's files in the format of transformers' AutoTokenizer."""
        with self.cutting(None):
            write_text(folder / "tokenizer.json", self.backend.to_str(pretty=True))
        for name, content in self.companions.items():
            with atomic_file(folder / name) as temporary:
                temporary.write_bytes(content)

    def _encode(self, inputs: Sequence[Any], max_length: int | None, long: Long = "head") -> Iterator[Any]:
        length = self.max_length if max_length is None else max_length
        refuse_unknown("long", long, get_args(Long))
        if not 2 < length <= self.max_length:
            raise InputError(f"max_length is {length}; this encoder takes 3 to {self.max_length} tokens")
        if isinstance(next(iter(inputs), ""), tuple):
            specials = self.backend.num_special_tokens_to_add(is_pair=True)
            if length <= specials:  # with fewer, the Rust tokenizer cuts nothing
                raise InputError(f"max_length is {length}; pairs as one input need at least {specials + 1} tokens")
        if long == "middle":
            return self._encodings(_calls(inputs, long))
        stride = 0
        if long == "windows":
            if huge := next((text for text in inputs if len(text) > LONGEST_TEXT), None):
                raise InputError(
                    f"long is windows, but the text {huge[:40]!r}… has {len(huge):,} characters; expected at most "
                    f"{LONGEST_TEXT:,}; split it, or take head or middle"
                )
            stride = int(WINDOW_OVERLAP * (length - self.backend.num_special_tokens_to_add(is_pair=False)))
        return self._encodings(_calls(inputs), length, stride)

    def _encodings(self, calls: Iterable[list[Any]], length: int | None = None, stride: int = 0) -> Iterator[Any]:
        for call in calls:
            try:
                with self.cutting(length, stride):
                    encodings = self.backend.encode_batch_fast(call)
            except BaseException as error:
                # The Rust side raises bare Exception, and of a panic what is no Exception at all.
                texts = (text for each in call for text in ([each] if isinstance(each, str) else each))
                no_text = isinstance(error, TypeError) and any(map(NO_TEXT.search, texts))
                if type(error) is not Exception and type(error).__name__ != "PanicException" and not no_text:
                    raise
                for each in call if len(call) > 1 else ():  # which one?
                    list(self._encodings([[each]]))
                raise InputError(
                    f"{self.source}: the tokenizer cannot split the text {call[0]!r:.60} ({error!s:.200})"
                ) from None
            yield from encodings

    def _id(self, token: str) -> int:
        if (index := self.backend.token_to_id(token)) is None:
            raise InputError(f"{self.source}: the tokenizer has no token {token}; not that of a BERT or RoBERTa")
        return int(index)


def _calls(inputs: Sequence[Any], long: Long = "head") -> Iterator[list[Any]]:
    """Inputs of the Rust tokenizer in calls that bound its memory."""
    call: list[Any] = []
    characters = 0
    for text in inputs:
        part = _shorter(text, long) if isinstance(text, str) else tuple(_shorter(sentence, long) for sentence in text)
        size = len(part) if isinstance(part, str) else sum(map(len, part))
        if call and (characters + size > CHARACTERS_PER_CALL or len(call) == TEXTS_PER_CALL):
            yield call
            call, characters = [], 0
        call.append(part)
        characters += size
    yield call


def _shorter(text: str, long: Long) -> str:
    """The characters of a text that are split."""
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    return text[:half] + text[-half:] if long == "middle" else text[:LONGEST_TEXT]


def _around_the_middle(sequence_ids: Sequence[int | None], length: int) -> NDArray[np.bool_]:
    """Which tokens of an encoding stay, [tokens]: specials, and the first and last ones of each text."""
    owner = np.array([-1 if number is None else number for number in sequence_ids])
    first, second = (np.flatnonzero(owner == number) for number in (0, 1))
    room = max(length - int(np.count_nonzero(owner < 0)), 0)
    of_first = min(len(first), max(room - len(second), -(-room // 2)))  # of a pair, the shorter text is cut last
    for places, left in ((first, of_first), (second, room - of_first)):
        head = round(HEAD * left)
        owner[places[head : max(len(places) - (left - head), head)]] = -2
    return owner > -2


def load_tokenizer(name: str, revision: str | None = None) -> Tokenizer:
    """Load a checkpoint's tokenizer; names are those of `BertModel.from_pretrained`.

    Raises:
        InputError: no checkpoint has this name, it contains neither `tokenizer.json` nor `vocab.txt`, or its tokenizer
            has ids that its table of word embeddings lacks, or adds no special tokens.
    """
    folder = resolve(name, revision)
    companions = {file: read_bytes(folder / file) for file in TOKENIZER_FILES if (folder / file).is_file()}
    values = read_json(folder / "config.json", dict)
    config = BertConfig.from_dict(values, str(folder / "config.json"))
    backend, special, kind = read_tokenizer(folder, config, values.get("tokenizer_class"))
    settings = {"tokenizer_class": kind} | json.loads(companions.get("tokenizer_config.json", "{}"))
    companions["tokenizer_config.json"] = json.dumps(settings, indent=2).encode()  # the default depends on the model
    tokenizer = Tokenizer(backend, config.max_length, companions, str(folder), special)
    refuse_unfit(tokenizer, config.vocab_size)
    return tokenizer


def refuse_unfit(tokenizer: Tokenizer, vocab_size: int) -> None:
    """Raise InputError if a tokenizer gives ids that an encoder's vocabulary lacks, or adds no special tokens."""
    ids = [*tokenizer.backend.get_vocab().items()]
    for encoding in tokenizer._encodings([["", ("", "")]]):  # the specials have ids of their own
        if not encoding.ids:
            raise InputError(
                f"{tokenizer.source}: the tokenizer adds no special tokens, such as [CLS] and [SEP], to a sentence"
            )
        ids += zip(encoding.tokens, encoding.ids, strict=True)
    token, largest = max(ids, key=itemgetter(1), default=("", 0))
    if largest >= vocab_size:
        raise InputError(
            f"{tokenizer.source}: the tokenizer gives {token!r:.60} the id {largest}, but config.json has vocab_size "
            f"{vocab_size}; take tokenizer and weights from the same checkpoint"
        )


def train_tokenizer(
    model_type: ModelType, sentences: Sequence[str], vocabulary_size: int, max_length: int
) -> Tokenizer:
    """A tokenizer with a vocabulary learned from sentences. The same sentences always give the same tokenizer.

    Args:
        model_type: `bert` for an uncased WordPiece vocabulary, `roberta` for byte-level BPE.
        sentences: training text.
        vocabulary_size: largest number of entries; few sentences give fewer. The special tokens and the alphabet (the
            characters that occur, or all 256 bytes) are always included, even if this exceeds the number.
        max_length: largest number of tokens, specials included, that the encoder will take.
    """
    learned = (_word_pieces if model_type == "bert" else _byte_pairs)(sentences, vocabulary_size)
    backend = RustTokenizer.from_str(learned.to_str())
    processing = processors.BertProcessing if model_type == "bert" else processors.RobertaProcessing
    specials, ids = SPECIALS[model_type], backend.get_vocab()
    separator, start = specials["sep_token"], specials["cls_token"]
    backend.post_processor = processing((separator, ids[separator]), (start, ids[start]))
    settings = specials | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": MODEL_INPUTS[model_type],
    }
    companions = {"tokenizer_config.json": json.dumps(settings, indent=2).encode()}
    return Tokenizer(backend, max_length, companions, special=specials)


def _word_pieces(sentences: Sequence[str], size: int) -> BertWordPieceTokenizer:
    learning = BertWordPieceTokenizer()
    split, normalise = learning.pre_tokenizer.pre_tokenize_str, learning.normalizer.normalize_str
    inner = {character for text in sentences for word, _ in split(normalise(text)) for character in word[1:]}
    learning.train_from_iterator(
        sentences,
        size,
        MIN_FREQUENCY,
        limit_alphabet=NO_LIMIT,
        # Without this list the trainer numbers inner characters in a different order every time.
        special_tokens=[*BERT_SPECIALS, *(f"##{character}" for character in sorted(inner))],
        show_progress=False,
    )
    return BertWordPieceTokenizer(learning.get_vocab())


def _byte_pairs(sentences: Sequence[str], size: int) -> ByteLevelBPETokenizer:
    learned = ByteLevelBPETokenizer()
    mask = AddedToken(SPECIALS["roberta"]["mask_token"], lstrip=True, special=True)  # includes its space, as words do
    specials = [*ROBERTA_SPECIALS[:-1], mask]
    learned.train_from_iterator(sentences, size, MIN_FREQUENCY, show_progress=False, special_tokens=specials)
    return learned
