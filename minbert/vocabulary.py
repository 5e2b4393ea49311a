"""New tokenizers, trained on sentences as each family's are: BERT's word pieces, RoBERTa's byte pairs.

Source: Devlin et al. 2019, section 3 (WordPiece); Liu et al. 2019, section 4.4 (byte-level BPE).
"""

import json
from collections.abc import Sequence
from typing import Literal

from tokenizers import Tokenizer as RustTokenizer
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from minbert.tokenizer import BERT_SPECIALS, Tokenizer, as_bert

ROBERTA_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
UNKNOWN = "[UNK]"
MIN_FREQUENCY = 2  # a word or pair that occurs once is a name or a typing error
ROLES = {
    "bert": dict(zip(("pad", "unk", "cls", "sep", "mask"), BERT_SPECIALS, strict=True)),
    "roberta": dict(zip(("cls", "pad", "sep", "unk", "mask"), ROBERTA_SPECIALS, strict=True)),
}


def train_tokenizer(
    model_type: Literal["bert", "roberta"], sentences: Sequence[str], vocabulary_size: int, max_length: int
) -> Tokenizer:
    """A tokenizer whose vocabulary is learned from sentences; the same sentences give the same one.

    Args:
        model_type: `bert` for an uncased WordPiece vocabulary, `roberta` for byte-level BPE.
        sentences: what to learn from.
        vocabulary_size: most entries, specials included; of few sentences it has fewer. Byte-level BPE has no fewer
            than the 256 bytes and its specials.
        max_length: longest encoding in tokens that the encoder will take.
    """
    backend = (_word_pieces if model_type == "bert" else _byte_pairs)(sentences, vocabulary_size)
    processing = processors.BertProcessing if model_type == "bert" else processors.RobertaProcessing
    roles = ROLES[model_type]
    separator, start = roles["sep"], roles["cls"]
    ids = backend.get_vocab()
    backend.post_processor = processing((separator, ids[separator]), (start, ids[start]))
    settings = {f"{role}_token": token for role, token in roles.items()} | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
    }
    return Tokenizer(backend, max_length, {"tokenizer_config.json": json.dumps(settings, indent=2).encode()})


def _word_pieces(sentences: Sequence[str], size: int) -> RustTokenizer:
    backend = as_bert(RustTokenizer(models.WordPiece(unk_token=UNKNOWN)), lowercase=True)
    characters = {c for text in sentences for c in backend.normalizer.normalize_str(text) if not c.isspace()}
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=MIN_FREQUENCY,
        # Left to itself the trainer numbers inner characters as it meets them, in another order every time.
        special_tokens=[*BERT_SPECIALS, *(f"##{character}" for character in sorted(characters))],
        show_progress=False,
    )
    backend.train_from_iterator(sentences, trainer)
    learned = as_bert(RustTokenizer(models.WordPiece(backend.get_vocab(), unk_token=UNKNOWN)), lowercase=True)
    learned.add_special_tokens(list(BERT_SPECIALS))
    return learned


def _byte_pairs(sentences: Sequence[str], size: int) -> RustTokenizer:
    backend = RustTokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=MIN_FREQUENCY,
        special_tokens=list(ROBERTA_SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(sentences, trainer)
    return backend
