"""The map of principal components is the plane of the two largest eigenvectors."""

import sys

import numpy as np
import pytest

from minbert.errors import InputError
from multitask.service.explorer import MOST_POINTS, draw_map

RANDOM = np.random.default_rng(0)
EMBEDDINGS = RANDOM.normal(size=(60, 8)).astype(np.float32) * RANDOM.uniform(0.1, 9, (60, 1)).astype(np.float32)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def test_the_map_has_the_two_directions_of_largest_variance():
    found = draw_map(EMBEDDINGS, "pca")
    rows = unit(EMBEDDINGS.astype(np.float64))
    centred = rows - rows.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    assert found.variance == pytest.approx(values[-2:].sum() / values.sum(), rel=1e-6)
    np.testing.assert_allclose(np.abs(found.points), np.abs(centred @ vectors[:, ::-1][:, :2]), atol=1e-9)
    np.testing.assert_allclose(found.place(EMBEDDINGS[3]), found.points[3], atol=1e-6)


def test_a_map_has_a_limited_number_of_points():
    many = RANDOM.normal(size=(MOST_POINTS + 5, 4)).astype(np.float32)
    assert draw_map(many, "pca").points.shape == (MOST_POINTS, 2)


@pytest.fixture(params=["pca", pytest.param("umap", marks=pytest.mark.slow)])  # numba compiles for half a minute
def method(request):
    if request.param == "umap":
        pytest.importorskip("umap", reason="needs: pip install umap-learn")
    return request.param


@pytest.mark.parametrize("value", [0, 1])
def test_a_map_of_equal_or_zero_embeddings_is_finite(value, method):
    found = draw_map(np.full((5, 4), value, np.float32), method)
    assert np.isfinite(found.points).all()
    assert np.isfinite(found.place(np.full(4, value, np.float32))).all()


@pytest.mark.parametrize("count", [3, 60])
def test_a_second_map_has_the_same_bits(count, method):
    first, second = (draw_map(EMBEDDINGS[:count], method) for _ in range(2))
    assert first.points.shape == (count, 2)
    assert first.points.tobytes() == second.points.tobytes()
    places = [found.place(EMBEDDINGS[row]) for found in (first, second) for row in (1, 0, 1)]
    assert np.isfinite(places).all()
    assert len({place.tobytes() for place in places}) == 2


def test_without_umap_learn_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(InputError, match=r"^UMAP needs umap-learn; install with: .*explore"):
        draw_map(EMBEDDINGS, "umap")
