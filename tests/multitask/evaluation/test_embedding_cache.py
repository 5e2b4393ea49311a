"""Every different sentence is embedded once; processes can share the cache, and it returns the same values."""

from collections.abc import Sequence

import numpy as np
import pytest

from minbert.errors import InputError
from multitask.evaluation.embedding_cache import default_cache, embed
from tests.multitask.evaluation.folder import BagOfWords

SENTENCES = ["the cat", "a dog", "the cat", "birds sing", "a dog"]


class Broken(BagOfWords):
    def encode(self, sentences: Sequence[str], *, normalize: bool = False, show_progress: bool = False):
        return super().encode(sentences) * np.float32("nan")


def test_sentences_are_embedded_once_and_found_by_text():
    encoder = BagOfWords()
    table = embed(encoder, SENTENCES, None)
    assert encoder.asked == ["the cat", "a dog", "birds sing"]
    assert table.computed == 3
    np.testing.assert_array_equal(table[SENTENCES], BagOfWords().encode(SENTENCES))


def test_the_cache_gives_the_same_values_and_embeds_only_what_is_new(tmp_path):
    first = embed(BagOfWords(), SENTENCES, tmp_path)
    encoder = BagOfWords()
    again = embed(encoder, SENTENCES, tmp_path)
    assert (encoder.asked, again.computed) == ([], 0)
    np.testing.assert_array_equal(again[SENTENCES], first[SENTENCES])
    more = embed(encoder, ["a fish", *SENTENCES], tmp_path)
    assert encoder.asked == ["a fish"]
    np.testing.assert_array_equal(more[["a fish", *SENTENCES]], BagOfWords().encode(["a fish", *SENTENCES]))
    assert embed(BagOfWords(name="other"), SENTENCES, tmp_path).computed == 3


def test_embeddings_that_are_not_finite_are_refused_and_not_kept(tmp_path):
    with pytest.raises(InputError, match=r"^bag: the encoder's embeddings are not finite"):
        embed(Broken(), SENTENCES, tmp_path)
    assert embed(BagOfWords(), SENTENCES, tmp_path).computed == 3


@pytest.mark.slow
def test_another_process_finds_the_embeddings(token_cache, processes):
    process = processes.Process(target=embed, args=(BagOfWords(name="process"), ["one", "two"], default_cache()))
    process.start()
    process.join()
    assert default_cache().is_relative_to(token_cache)
    assert embed(BagOfWords(name="process"), ["two", "one"], default_cache()).computed == 0
