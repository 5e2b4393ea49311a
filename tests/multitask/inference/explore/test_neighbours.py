"""Neighbours have the highest cosines; the map is the plane of the covariance's two largest eigenvectors."""

import numpy as np
import pytest

from minbert.errors import InputError
from multitask.inference.explore.neighbours import MOST_POINTS, nearest, principal_map

RANDOM = np.random.default_rng(0)
EMBEDDINGS = RANDOM.normal(size=(60, 8)).astype(np.float32) * RANDOM.uniform(0.1, 9, (60, 1)).astype(np.float32)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def test_the_nearest_have_the_highest_cosines():
    query = RANDOM.normal(size=8).astype(np.float32)
    cosines = unit(EMBEDDINGS.astype(np.float64)) @ unit(query.astype(np.float64))
    found = nearest(query, EMBEDDINGS)
    assert [row for row, _ in found] == np.argsort(-cosines)[:10].tolist()
    np.testing.assert_allclose([cosine for _, cosine in found], np.sort(cosines)[::-1][:10], atol=1e-6)


def test_the_map_has_the_two_directions_of_largest_variance():
    found = principal_map(EMBEDDINGS[3], EMBEDDINGS)
    rows = unit(EMBEDDINGS.astype(np.float64))
    centred = rows - rows.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    np.testing.assert_allclose(found.variance, values[::-1][:2] / values.sum(), rtol=1e-6)
    np.testing.assert_allclose(np.abs(found.points), np.abs(centred @ vectors[:, ::-1][:, :2]), atol=1e-9)
    np.testing.assert_allclose(found.query, found.points[3], atol=1e-6)


def test_a_map_has_a_limited_number_of_points():
    many = RANDOM.normal(size=(MOST_POINTS + 5, 4)).astype(np.float32)
    assert principal_map(many[0], many).points.shape == (MOST_POINTS, 2)


def test_a_map_of_equal_or_zero_embeddings_is_finite():
    for value in (0, 1):
        found = principal_map(np.full(4, value, np.float32), np.full((5, 4), value, np.float32))
        assert np.isfinite(found.points).all()
        assert found.variance == (0, 0)


def test_two_sentences_make_no_map():
    with pytest.raises(InputError, match="2 different sentences; expected at least 3"):
        principal_map(EMBEDDINGS[0], EMBEDDINGS[:2])
