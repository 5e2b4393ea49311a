"""Train a tokenizer's vocabulary on sentences: word pieces for BERT, byte pairs for RoBERTa.

Source: Devlin et al. 2019, section 3 (WordPiece); Liu et al. 2019, section 4.4 (byte-level BPE).
"""

import json
from collections.abc import Sequence

from tokenizers import AddedToken, BertWordPieceTokenizer, ByteLevelBPETokenizer, processors
from tokenizers import Tokenizer as RustTokenizer

from minbert.config import ModelType
from minbert.tokenizer import Tokenizer
from minbert.tokenizer_files import SPECIALS

MIN_FREQUENCY = 2  # words and pairs that occur only once are mostly names and typing errors
NO_LIMIT = 2**31
# In the order of their ids.
BERT_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
MODEL_INPUTS = {"bert": ["input_ids", "token_type_ids", "attention_mask"], "roberta": ["input_ids", "attention_mask"]}


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
