"""SentenceEncoder against sentence-transformers on the bundled weights."""

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from minbert.checkpoint import BUNDLED, resolve
from minbert.errors import InputError
from multitask import SentenceEncoder

SENTENCES = [
    "A man is playing a guitar.",
    "",
    "?",
    "Zürich, São Paulo — 東京 and Москва 🙂",
    "  white   space\tall\naround ",
    "a man IS playing a GUITAR .",
    "An antidisestablishmentarianist's supercalifragilisticexpialidocious e-mail: a@b.c, 3.14%",
    "How long is a sentence that goes on and on? " * 12,
    "A man is playing a guitar.",
    "x" * 150,
]


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    return SentenceEncoder.load(BUNDLED, device="cpu", precision="fp32")


@pytest.fixture(scope="module")
def reference() -> SentenceTransformer:
    return SentenceTransformer(str(resolve(BUNDLED)), device="cpu")


def test_equals_sentence_transformers(encoder, reference):
    assert encoder.pooling == "mean"
    ours = encoder.encode(SENTENCES, normalize=True, max_length=reference.max_seq_length)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, reference.encode(SENTENCES, normalize_embeddings=True), rtol=0, atol=1e-5)


def test_without_normalising(encoder, reference):
    ours = encoder.encode(SENTENCES[:6])
    hidden = reference.encode(SENTENCES[:6], output_value="token_embeddings")
    theirs = [states[: len(encoder.tokenizer.encode([s])[0])].mean(dim=0) for s, states in zip(SENTENCES, hidden)]  # noqa: B905
    np.testing.assert_allclose(ours, np.stack([vector.numpy() for vector in theirs]), rtol=0, atol=1e-5)
    lengths = np.linalg.norm(ours, axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.encode(SENTENCES[:6], normalize=True), ours / lengths, rtol=0, atol=1e-6)
    assert abs(lengths - 1).min() > 0.01


def test_results_are_in_the_order_given(encoder):
    whole = encoder.encode(SENTENCES)
    np.testing.assert_allclose(encoder.encode(SENTENCES[::-1]), whole[::-1], rtol=0, atol=1e-5)
    np.testing.assert_allclose(whole[0], whole[8], rtol=0, atol=1e-6)  # the same sentence twice
    assert abs(whole[0] - whole[1]).max() > 0.1


@pytest.fixture(scope="module")
def tiny(tiny_encoder: Path) -> SentenceEncoder:
    return SentenceEncoder.load(tiny_encoder, device="cpu", precision="fp32")


@pytest.mark.parametrize("batch_size", [1, 3, 10, 1000])
def test_the_batch_size_does_not_matter(tiny, batch_size):
    np.testing.assert_allclose(tiny.encode(SENTENCES, batch_size), tiny.encode(SENTENCES), rtol=0, atol=1e-5)


def test_more_tokens_than_fit_into_a_batch(tiny):
    many = [SENTENCES[i % 10] for i in range(600)]
    np.testing.assert_allclose(tiny.encode(many), tiny.encode(SENTENCES)[np.arange(600) % 10], rtol=0, atol=1e-5)


def test_cut_to_a_length(tiny):
    long = ["good time " * 50]
    np.testing.assert_array_equal(tiny.encode(long, max_length=4), tiny.encode(["good time"], max_length=4))
    with pytest.raises(InputError, match="max_length is 65; this encoder takes 3 to 64 tokens"):
        tiny.encode(long, max_length=65)


def test_no_sentence_and_kinds_of_sequences(tiny):
    assert tiny.encode([]).shape == (0, 32)
    expected = tiny.encode(SENTENCES)
    for sequence in (tuple(SENTENCES), np.array(SENTENCES), np.array(SENTENCES, dtype=object)):
        np.testing.assert_array_equal(tiny.encode(sequence), expected)


def test_one_string_is_refused(tiny):
    with pytest.raises(InputError, match="takes a list of sentences"):
        tiny.encode("A man is playing a guitar.")


def test_bf16_is_close(tiny, tiny_encoder):
    coarse = SentenceEncoder.load(tiny_encoder, device="cpu", precision="bf16").encode(SENTENCES, normalize=True)
    assert coarse.dtype == np.float32
    difference = abs(coarse - tiny.encode(SENTENCES, normalize=True)).max()
    assert 1e-5 < difference < 0.05
