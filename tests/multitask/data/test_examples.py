"""Rows keep their texts, labels and ids together."""

import numpy as np

from multitask.data.examples import Examples


def test_taken_rows_keep_texts_labels_and_ids_together():
    whole = Examples((["a", "b", "c"],), np.array([0, 1, 2], np.float32), (), ["x", "y", "z"], "file", 2)
    part = whole.take(np.array([2, 0]))
    assert part.sentences == (["c", "a"],)
    assert part.labels is not None
    assert part.labels.tolist() == [2, 0]
    assert part.ids == ["z", "x"]
    assert len(part) == 2
