"""STS scores equal scipy's, for each sub-set and for all together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cosine
from scipy.stats import pearsonr, spearmanr

from multitask.evaluation.embedding_scores import cosines, sts_scores


def test_cosines_are_scipys():
    first, second = np.random.default_rng(0).standard_normal((2, 50, 8)).astype(np.float32)
    expected = [1 - cosine(a.astype(np.float64), b.astype(np.float64)) for a, b in zip(first, second, strict=True)]
    assert cosines(first, second) == pytest.approx(expected, abs=1e-12)


def test_a_zero_vector_is_like_nothing():
    assert cosines(np.zeros((1, 4), np.float32), np.ones((1, 4), np.float32)).tolist() == [0.0]


@given(st.integers(0, 10**6), st.lists(st.integers(3, 20), min_size=1, max_size=4))
def test_all_mean_and_weighted_mean(seed, sizes):
    generator = np.random.default_rng(seed)
    subsets = np.repeat([f"set {i}" for i in range(len(sizes))], sizes)
    gold = generator.integers(0, 11, len(subsets)) / 2  # with ties, as in people's scores
    gold[np.cumsum(sizes) - 1] = 6  # so that no sub-set has equal scores only
    order = generator.permutation(len(subsets))
    subsets, gold = subsets[order], gold[order]
    similarities = gold + generator.normal(0, 2, len(subsets))
    scores = sts_scores(similarities, gold, subsets)
    each = [(similarities[subsets == name], gold[subsets == name]) for name in scores["subsets"]]
    for name, measure in (("spearman", spearmanr), ("pearson", pearsonr)):
        parts = [measure(*part).statistic for part in each]
        assert scores["all"][name] == pytest.approx(measure(similarities, gold).statistic, abs=1e-12)
        assert scores["mean"][name] == pytest.approx(sum(parts) / len(parts), abs=1e-12)
        weighted = np.average(parts, weights=[len(labels) for _, labels in each])
        assert scores["weighted_mean"][name] == pytest.approx(weighted, abs=1e-12)
