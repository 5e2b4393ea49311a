"""Transfer predictions equal the protocol written out with plain scikit-learn in fp64."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_info, threadpool_limits

from minbert.errors import InputError
from multitask.evaluation import transfer_scores as transfer
from multitask.evaluation.embeddings import EmbeddingTable
from multitask.evaluation.suite_data import LabelledRows
from multitask.evaluation.transfer_scores import predict_classes, transfer_scores

SEED = 7
FOLDS = 5
GRID = (0.25, 0.5, 1, 2, 4, 8)
TRAINING_SET_GRID = (0.5, 1, 2, 4, 8, 16, 32)

pytestmark = pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")  # all fits converge


@pytest.fixture(autouse=True)
def fewer_folds(monkeypatch):
    assert (transfer.FOLDS, transfer.GRID, transfer.TRAINING_SET_GRID) == (10, GRID, TRAINING_SET_GRID)
    monkeypatch.setattr(transfer, "FOLDS", FOLDS)


def problem(classes: int, splits: dict[str, int], dim: int = 8, columns: int = 1, noise: float = 1.5):
    """A task with random classes and `splits` rows in each split, and random embeddings of its sentences."""
    generator = np.random.default_rng(classes)
    split = np.repeat(list(splits), list(splits.values()))
    labels = generator.permutation(np.arange(len(split)) % classes)
    sentences = [[f"{column} {row}" for row in range(len(split))] for column in range(columns)]
    centres = generator.standard_normal((classes, dim))
    noises = noise * generator.standard_normal((columns, len(split), dim))
    vectors = (centres[labels] + noises).reshape(-1, dim)
    rows = {text: row for row, text in enumerate(text for column in sentences for text in column)}
    table = EmbeddingTable(rows, vectors.astype(np.float32))
    return LabelledRows(tuple(sentences), labels, split), table


def fit(features, labels, strength):
    return LogisticRegression(C=strength, tol=1e-9, max_iter=10_000).fit(features.astype(np.float64), labels)


def chosen(accuracies):
    """The regularisation with the best mean accuracy, the strongest of equal ones; accuracies by strength."""
    means = {strength: np.mean(values).round(9) for strength, values in accuracies.items()}
    return min(strength for strength, mean in means.items() if mean == max(means.values()))


def parts(labels):
    return [rows for _, rows in StratifiedKFold(FOLDS, shuffle=True, random_state=SEED).split(labels, labels)]


def without(rows, count):
    return np.setdiff1d(np.arange(count), np.concatenate(rows))


def test_predictions_do_not_depend_on_the_order_in_which_dimensions_are_added():
    """Other processors have other orders. The classes overlap, so that many rows are near the border."""
    data, table = problem(2, {"train": 1000, "dev": 200, "test": 4000}, dim=50, noise=10)
    vectors = (table.vectors + 100) / 20  # all in about the same direction, as those of many encoders
    orders = [np.random.default_rng(seed).permutation(50) for seed in range(4)]
    first, *others = (predict_classes(data, replace(table, vectors=vectors[:, order]), SEED) for order in orders)
    for found in others:
        np.testing.assert_array_equal(found, first)


def expected_predictions(features, labels, train, test, splits, grid):
    """With the regularisation that is best on average over `splits`, pairs of training rows and held-out rows."""
    accuracies = {strength: [] for strength in grid}
    for strength, (rows, held_out) in product(grid, splits):
        found = fit(features[rows], labels[rows], strength).predict(features[held_out])
        accuracies[strength].append(accuracy_score(labels[held_out], found))
    return fit(features[train], labels[train], chosen(accuracies)).predict(features[test])


def test_cross_validation_is_that_of_plain_loops():
    data, table = problem(2, {"test": 160})
    folds, expected = parts(data.labels), np.empty_like(data.labels)
    for outer, fold in enumerate(folds):
        splits = [(without([fold, other], 160), other) for inner, other in enumerate(folds) if inner != outer]
        train = without([fold], 160)
        expected[fold] = expected_predictions(table.vectors, data.labels, train, fold, splits, GRID)
    np.testing.assert_array_equal(predict_classes(data, table, SEED), expected)


def test_the_dev_set_chooses_where_there_is_one():
    data, table = problem(2, {"train": 120, "dev": 60, "test": 80})
    train, dev = data.parts == "train", data.parts == "dev"
    expected = expected_predictions(table.vectors, data.labels, train, data.scored, [(train, dev)], GRID)
    np.testing.assert_array_equal(predict_classes(data, table, SEED), expected)


@pytest.mark.parametrize(("classes", "columns"), [(4, 1), (2, 2)], ids=["several classes", "pairs"])
def test_cross_validation_on_the_training_set_chooses_else(classes, columns):
    data, table = problem(classes, {"train": 120, "test": 60}, columns=columns, noise=1.4)
    vectors = table.vectors.astype(np.float64)
    if columns == 2:
        first, second = np.split(vectors, 2)
        vectors = np.concatenate([np.abs(first - second), first * second], axis=1)
    train = np.flatnonzero(data.parts == "train")
    folds = parts(data.labels[train])
    splits = [(train[without([held_out], len(train))], train[held_out]) for held_out in folds]
    expected = expected_predictions(vectors, data.labels, train, data.scored, splits, TRAINING_SET_GRID)
    np.testing.assert_array_equal(predict_classes(data, table, SEED), expected)


def test_fits_use_one_thread_of_blas_and_give_the_others_back(monkeypatch):
    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    during = []
    fitted = transfer._predicted
    monkeypatch.setattr(transfer, "_predicted", lambda *given: during.extend(threads()) or fitted(*given))
    with threadpool_limits(2):
        before = threads()
        predict_classes(*problem(2, {"test": 60}), SEED)
        assert before == threads()
    assert before
    assert set(during) == {1}


def test_a_class_with_fewer_rows_than_folds_is_an_error():
    data, table = problem(2, {"test": 8})
    with pytest.raises(InputError, match="has 4 rows; expected at least 5, one for each fold"):
        predict_classes(data, table, SEED)


def test_accuracy_and_f1():
    labels, predictions = np.array([0, 1, 1, 0, 1]), np.array([0, 1, 0, 1, 1])
    scores = transfer_scores(predictions, labels, classes=2)
    assert scores["accuracy"] == accuracy_score(labels, predictions)
    assert scores["f1"] == f1_score(labels, predictions)
    assert transfer_scores(predictions, labels, classes=3)["f1"] is None
    assert math.isnan(transfer_scores(0 * labels, 0 * labels, classes=2)["f1"])
