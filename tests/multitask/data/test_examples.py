"""Rows keep their texts, labels and ids together."""

import numpy as np

from multitask.data.examples import Examples, hash_of_texts


def test_taken_rows_keep_texts_labels_and_ids_together():
    whole = Examples((["a", "b", "c"],), np.array([0, 1, 2], np.float32), (), ["x", "y", "z"], "file", "f", 2)
    part = whole.take(np.array([2, 0]))
    assert part.sentences == (["c", "a"],)
    assert part.labels is not None
    assert part.labels.tolist() == [2, 0]
    assert part.ids == ["z", "x"]
    assert len(part) == 2
    identities = {whole.identity, part.identity, *(whole.take(np.array(rows)).identity for rows in ([0, 2], [0]))}
    assert len(identities) == 4
    assert whole.take(np.array([2, 0])).identity == part.identity


def test_the_hash_of_texts_covers_their_order_and_bounds():
    assert len({hash_of_texts(texts) for texts in (["a", "b"], ["b", "a"], ["ab"], ["a", "b", ""], ['a", "b'])}) == 5
