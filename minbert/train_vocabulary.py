"""New tokenizers, trained on sentences as each family's are: BERT's word pieces, RoBERTa's byte pairs.

Source: Devlin et al. 2019, section 3 (WordPiece); Liu et al. 2019, section 4.4 (byte-level BPE).
"""

import json
from collections.abc import Sequence

from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as RustTokenizer

from minbert.config import ModelType
from minbert.tokenizer import BERT_SPECIALS, Tokenizer, as_bert

MIN_FREQUENCY = 2  # a word or pair that occurs once is a name or a typing error
ROBERTA_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
# As transformers calls them.
SPECIALS = {
    "bert": dict(zip(("pad", "unk", "cls", "sep", "mask"), BERT_SPECIALS, strict=True)),
    "roberta": dict(zip(("cls", "pad", "sep", "unk", "mask"), ROBERTA_SPECIALS, strict=True))
    | {"bos": "<s>", "eos": "</s>"},
}
MODEL_INPUTS = {"bert": ["input_ids", "token_type_ids", "attention_mask"], "roberta": ["input_ids", "attention_mask"]}


def train_tokenizer(
    model_type: ModelType, sentences: Sequence[str], vocabulary_size: int, max_length: int
) -> Tokenizer:
    """A tokenizer whose vocabulary is learned from sentences; the same sentences give the same one.

    Args:
        model_type: `bert` for an uncased WordPiece vocabulary, `roberta` for byte-level BPE.
        sentences: what to learn from.
        vocabulary_size: entries to stop at; of few sentences there are fewer. The specials and what everything is
            spelled with are never left out: the characters that occur, or all 256 bytes.
        max_length: longest encoding in tokens that the encoder will take.
    """
    backend = (_word_pieces if model_type == "bert" else _byte_pairs)(sentences, vocabulary_size)
    processing = processors.BertProcessing if model_type == "bert" else processors.RobertaProcessing
    specials, ids = SPECIALS[model_type], backend.get_vocab()
    separator, start = specials["sep"], specials["cls"]
    backend.post_processor = processing((separator, ids[separator]), (start, ids[start]))
    settings = {f"{role}_token": token for role, token in specials.items()} | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": MODEL_INPUTS[model_type],
    }
    return Tokenizer(backend, max_length, {"tokenizer_config.json": json.dumps(settings, indent=2).encode()})


def _word_pieces(sentences: Sequence[str], size: int) -> RustTokenizer:
    unknown = SPECIALS["bert"]["unk"]
    backend = as_bert(RustTokenizer(models.WordPiece(unk_token=unknown)), lowercase=True)
    split, normalise = backend.pre_tokenizer.pre_tokenize_str, backend.normalizer.normalize_str
    inner = {character for text in sentences for word, _ in split(normalise(text)) for character in word[1:]}
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=MIN_FREQUENCY,
        # Left to itself the trainer numbers inner characters as it meets them, in another order every time.
        special_tokens=[*BERT_SPECIALS, *(f"##{character}" for character in sorted(inner))],
        show_progress=False,
    )
    backend.train_from_iterator(sentences, trainer)
    learned = as_bert(RustTokenizer(models.WordPiece(backend.get_vocab(), unk_token=unknown)), lowercase=True)
    learned.add_special_tokens(list(BERT_SPECIALS))
    learned.decoder = decoders.WordPiece()
    return learned


def _byte_pairs(sentences: Sequence[str], size: int) -> RustTokenizer:
    backend = RustTokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    mask = AddedToken(SPECIALS["roberta"]["mask"], lstrip=True, special=True)  # words begin with their space
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=MIN_FREQUENCY,
        special_tokens=[*ROBERTA_SPECIALS[:-1], mask],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(sentences, trainer)
    return backend
