"""Rows of tokens are those of the tokenizer, apart and joint; texts that are cut are counted."""

from pathlib import Path

import numpy as np
import pytest

from minbert.tokenizer import Tokenizer, load_tokenizer
from multitask.data.examples import Examples, LabelledData, tokenise

TEXTS = ["A band seemed to have a good time.", "", "time " * 200, "ünïcödé \u4e2d\u6587 🙂"]
SECOND = ["It was loud.", "an answer", "", "short " * 100]
ROWS = np.array([1, 0, 3, 1])


@pytest.fixture
def tokenizer(tiny_encoder: Path) -> Tokenizer:
    return load_tokenizer(str(tiny_encoder))


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("max_length", [None, 11])
def test_labelled_rows_come_as_all_first_then_all_second_sentences(tokenizer, max_length, joint, caplog):
    examples = Examples((TEXTS, SECOND), None, (), None, "data.csv")
    data = LabelledData.tokenised(examples, tokenizer, max_length, joint)
    first, second = tokenizer.encode(TEXTS, max_length), tokenizer.encode(SECOND, max_length)
    expected = [first[i] for i in ROWS] + [second[i] for i in ROWS]
    lengths = [len(a) + len(b) for a, b in zip(first, second, strict=True)]
    types = [np.zeros(len(row)) for row in expected]
    whole = [*tokenizer.lengths(TEXTS)[0], *tokenizer.lengths(SECOND)[0]]
    if joint:
        encoded, kinds = tokenizer.encode_pairs(TEXTS, SECOND, max_length)
        assert {0, 1} == {int(kind) for row in kinds for kind in row}
        expected, types, lengths = [encoded[i] for i in ROWS], [kinds[i] for i in ROWS], list(map(len, encoded))
        whole = [a + b - 1 for a, b in zip(whole[:4], whole[4:], strict=True)]  # one [CLS]
    found = data.sequences(ROWS)
    for rows, wanted in zip(found, (expected, types), strict=True):
        assert [list(row) for row in rows] == [list(row) for row in wanted]
    np.testing.assert_array_equal(data.lengths, lengths)
    limit = max_length or tokenizer.max_length
    cut = sum(int(length) > limit for length in whole)
    assert caplog.messages == [f"data.csv: cut {cut} of {len(whole)} texts to {limit} tokens (--max-length)"]


@pytest.mark.parametrize("joint", [False, True])
def test_texts_that_the_tokenizer_cannot_read_are_counted(tokenizer, joint, caplog):
    """Khmer is not in the vocabulary, and of an accent alone an uncased BERT keeps nothing."""
    examples = Examples(
        (["\u1781 \u1782", "A band", "\u0301", ""], ["\u1781", "\u1781", "\u0301", ""]), None, (), None, "x"
    )
    LabelledData.tokenised(examples, tokenizer, None, joint)
    (message,) = caplog.messages  # of the pair with "A band", two of three tokens are known
    assert message.startswith(f"x: most tokens of {2 if joint else 5} of {4 if joint else 8} texts are unknown ([UNK])")


def test_of_no_rows_there_are_no_tokens(tokenizer):
    tokens = tokenise([], tokenizer, None)
    assert (len(tokens), tokens.ids.dtype, tokens.lengths.tolist()) == (0, np.int32, [])
