"""Scores of transfer tasks: how well a linear classifier learns new tasks from frozen embeddings.

The protocol is SentEval's (Conneau & Kiela 2018, arXiv 1803.05449) with its scikit-learn classifier, logistic
regression. The strength of its L2 regularisation is chosen on data that is not scored: by cross-validation within each
of ten outer folds (MR, CR, SUBJ, MPQA), on the dev set (SST-2), or by ten-fold cross-validation on the training set
(TREC, MRPC). The features of a pair are |x − y| and x ⊙ y. Many published scores, such as SimCSE's, come from
SentEval's other classifier, the same model trained by Adam with early stopping.

The inverse strengths of regularisation are SentEval's: powers of two from 1/4 to 8, for TREC and MRPC from 1/2 to 32.
Some encoders would score higher with others, but a range that is chosen by scores of the test rows would fit these.

We differ from SentEval's code in three ways. The inner folds of an outer fold are the nine other outer folds, so that a
classifier trained without folds i and j is used for both. Folds are drawn with another seed, from rows in file order
instead of by length. Means are not rounded to 0.01 points before the best is chosen.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

from minbert.errors import InputError
from multitask.evaluation.embeddings import EmbeddingTable
from multitask.evaluation.retrieval import Mask
from multitask.evaluation.suite_data import LabelledRows

FOLDS = 10
GRID: Sequence[float] = (1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0)
TRAINING_SET_GRID: Sequence[float] = (1 / 2, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""For tasks that choose by cross-validation on their training set."""
# The search ends at this gradient of the mean loss, in units of the features' length. With a looser tolerance, or in
# fp32, the end would depend on the processor's order of summation, and so would the classes of single rows.
TOLERANCE = 1e-7
MOST_STEPS = 1000

ClassNumbers = NDArray[np.int64]  # [rows]
Features = NDArray[np.float64]  # [rows, features]


def transfer_scores(predictions: ClassNumbers, labels: ClassNumbers, classes: int) -> dict[str, float | None]:
    """Share of rows [rows] with the right class, and for two classes the F1 score of class 1.

    F1 is NaN if class 1 neither occurs nor is predicted, and None for more classes. Folds of a cross-validation are
    scored together.
    """
    f1 = float(f1_score(labels, predictions, zero_division=np.nan)) if classes == 2 else None
    return {"accuracy": float(np.mean(predictions == labels)), "f1": f1}


def predict_classes(data: LabelledRows, table: EmbeddingTable, seed: int) -> ClassNumbers:
    """Predicted classes of the scored rows, in file order; the data's splits decide how regularisation is chosen.

    Raises InputError if a class has less training rows than there are folds.
    """
    x, *of_pairs = (table[column] for column in data.columns)
    features = np.hstack([part for y in of_pairs for part in (np.abs(x - y), x * y)] or [x]).astype(np.float64)
    # These products are so small that sharing each between BLAS threads would take many times longer.
    with threadpool_limits(1):
        return _predicted(features, data, seed)


def _predicted(features: Features, data: LabelledRows, seed: int) -> ClassNumbers:
    train, dev, grid = data.parts == "train", data.parts == "dev", GRID
    if not train.any():
        return _cross_validated(features, data.labels, _folds(data.labels, data.scored, seed))
    if dev.any():
        accuracies = _accuracies(features, data.labels, train, [dev], grid)
    else:
        grid, parts = TRAINING_SET_GRID, _folds(data.labels, train, seed)
        accuracies = np.concatenate([_accuracies(features, data.labels, train & ~part, [part], grid) for part in parts])
    return _chosen(features, data.labels, train, data.scored, accuracies, grid)


def _folds(labels: ClassNumbers, among: Mask, seed: int) -> list[Mask]:
    """The rows of each fold, [rows] each, among some rows. All folds have about the same shares of classes."""
    chosen, rows = labels[among], np.flatnonzero(among)
    if (smallest := np.bincount(chosen).min()) < FOLDS:
        raise InputError(f"a class has {smallest} rows; expected at least {FOLDS}, one for each fold")
    splits = StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(chosen, chosen)
    return [np.isin(np.arange(len(labels)), rows[part]) for _, part in splits]


def _cross_validated(features: Features, labels: ClassNumbers, parts: Sequence[Mask]) -> ClassNumbers:
    accuracies: list[list[NDArray[np.float64]]] = [[] for _ in parts]
    for one, other in combinations(range(FOLDS), 2):
        train = ~(parts[one] | parts[other])
        on_other, on_one = _accuracies(features, labels, train, [parts[other], parts[one]], GRID)
        accuracies[one].append(on_other)
        accuracies[other].append(on_one)
    predictions = np.empty_like(labels)
    for part, of_fold in zip(parts, accuracies, strict=True):
        predictions[part] = _chosen(features, labels, ~part, part, np.stack(of_fold), GRID)
    return predictions


def _accuracies(
    features: Features, labels: ClassNumbers, train: Mask, held_out: Sequence[Mask], grid: Sequence[float]
) -> NDArray[np.float64]:
    """Accuracy on each held-out part with each regularisation, [parts, grid]. Each fit continues the one before it."""
    inputs, targets = features[train], labels[train]
    classifier = _classifier(inputs, targets).set_params(warm_start=True)
    found = np.empty((len(held_out), len(grid)))
    for place, strength in enumerate(grid):
        classifier.set_params(C=strength).fit(inputs, targets)
        found[:, place] = [classifier.score(features[part], labels[part]) for part in held_out]
    return found


def _chosen(
    features: Features,
    labels: ClassNumbers,
    train: Mask,
    test: Mask,
    accuracies: NDArray[np.float64],
    grid: Sequence[float],
) -> ClassNumbers:
    """Predictions on the test rows, with the regularisation of the best mean accuracy; of equal ones, the strongest."""
    best = grid[int(accuracies.mean(0).round(9).argmax())]  # equal means may differ in their last bits
    inputs, targets = features[train], labels[train]
    return _classifier(inputs, targets).set_params(C=best).fit(inputs, targets).predict(features[test])


def _classifier(features: Features, labels: ClassNumbers) -> LogisticRegression:
    """A classifier whose tolerance fits the size of features [rows, dim]."""
    length = float(np.sqrt(np.square(features).sum(1).mean()))
    # Both solvers end at the same weights. Newton's steps are few, but their cost grows faster with the classes.
    solver = "newton-cholesky" if len(np.unique(labels)) == 2 else "lbfgs"
    return LogisticRegression(solver=solver, tol=TOLERANCE * length, max_iter=MOST_STEPS)
