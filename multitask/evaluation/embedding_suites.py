"""Suites of tasks on frozen embeddings: similarity, transfer, retrieval, geometry; also scores on rows new to a model.

A suite is an entry in `SUITES`: its data sets and how each is measured. A task is an entry in the lists of data sets in
senteval_files.py and retrieval_sets.py.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError
from multitask.data.contamination import TrainedOn
from multitask.evaluation.embedding_cache import EmbeddingTable, embed
from multitask.evaluation.embedding_geometry import Geometry, geometry
from multitask.evaluation.retrieval_scores import RetrievalScores, query_scores, retrieval_scores
from multitask.evaluation.retrieval_sets import RetrievalData
from multitask.evaluation.senteval_files import STS_SETS, ClassificationData, DataSet, Mask, SimilarityData
from multitask.evaluation.sts_scores import StsScores, cosines, sts_scores
from multitask.evaluation.suite_sets import SETS, TaskSuite, missing_files
from multitask.evaluation.training_overlap import ScoresWithOverlap, SeenRows, scores_with_overlap
from multitask.evaluation.transfer_scores import TransferScores, predict_classes, transfer_scores
from multitask.models.config import Pooling
from multitask.models.sentence_encoder import Embedder, SentenceEncoder, load_encoder
from multitask.runs.artefact import is_run, locate_model
from multitask.runtime.options import Device, EmbeddingPrecision
from multitask.tasks.metrics import Metric

SuiteName = TaskSuite | Literal["geometry"]
SuiteScores = StsScores | TransferScores | RetrievalScores | Geometry


@dataclass(frozen=True)
class Measurement:
    """The scores of an encoder on a task.

    Args:
        scores_of: maps a mask of the scored rows to the scores on these rows.
        answers: gold answers and the encoder's answers, [rows] each; of retrieval, the best nDCG and the encoder's of
            each query; None for geometry, which has no answers.
    """

    scores_of: Callable[[Mask], SuiteScores]
    answers: tuple[NDArray[Any], NDArray[Any]] | None = None


@dataclass(frozen=True)
class Suite:
    """Data sets and what is measured on each.

    Args:
        sets: in the order of the columns of papers' tables.
        measure: maps a set's data, a table of its sentences' embeddings and a seed to the measurement.
        main: selects the score that papers' tables show; None if there is no such score.
        unit: kind of that score.
    """

    sets: Sequence[DataSet[Any]]
    measure: Callable[[Any, EmbeddingTable, int], Measurement]
    main: Callable[[Any], float] | None = None
    unit: Metric | None = None


def _measure_sts(data: SimilarityData, table: EmbeddingTable, _seed: int) -> Measurement:
    similarities = cosines(*(table[column] for column in data.columns))
    return Measurement(
        lambda rows: sts_scores(similarities[rows], data.gold[rows], data.subsets[rows]), (data.gold, similarities)
    )


def _measure_transfer(data: ClassificationData, table: EmbeddingTable, seed: int) -> Measurement:
    predictions, labels = predict_classes(data, table, seed), data.labels[data.scored]
    classes = len(np.unique(data.labels))
    return Measurement(lambda rows: transfer_scores(predictions[rows], labels[rows], classes), (labels, predictions))


def _measure_retrieval(data: RetrievalData, table: EmbeddingTable, _seed: int) -> Measurement:
    ndcg, reciprocal_ranks = query_scores(data, table)
    best = np.ones_like(ndcg)
    return Measurement(lambda rows: retrieval_scores(ndcg[rows], reciprocal_ranks[rows]), (best, ndcg))


def _measure_geometry(data: SimilarityData, table: EmbeddingTable, _seed: int) -> Measurement:
    return Measurement(lambda rows: geometry(data.only(rows), table))


SUITES: dict[SuiteName, Suite] = {
    "sts": Suite(SETS["sts"], _measure_sts, lambda scores: scores.all.spearman, "spearman"),
    "transfer": Suite(SETS["transfer"], _measure_transfer, lambda scores: scores.accuracy, "accuracy"),
    "retrieval": Suite(SETS["retrieval"], _measure_retrieval, lambda scores: scores.ndcg, "ndcg"),
    "geometry": Suite(STS_SETS, _measure_geometry),
}


@dataclass(frozen=True)
class SuiteResult:
    """The scores of an encoder on a suite.

    Args:
        suite: its name.
        model: the user's name for the encoder.
        settings: how it embeds and computes (pooling, length in tokens, device, precision), and the seed.
        tasks: scores of the tasks whose files exist, by name.
        missing: for each other task, the first file that does not exist.
        unknown: a line for each part of the model's training data that may contain a task's sentences, because its
            contents are not recorded.
        sentences: number of different sentences in all tasks.
        computed: how many of these were embedded now; the others came from the cache.
        seconds: of embedding and of scoring.
    """

    suite: SuiteName
    model: str
    settings: dict[str, Any]
    tasks: dict[str, ScoresWithOverlap[SuiteScores]]
    missing: dict[str, str]
    unknown: tuple[str, ...]
    sentences: int
    computed: int
    seconds: dict[str, float]

    def main(self, scores: SuiteScores | None) -> float | None:
        """The score that papers' tables show, 0 to 1."""
        of = SUITES[self.suite].main
        return None if of is None or scores is None else of(scores)

    def average(self, clean: bool = False) -> float | None:
        """Mean of the tasks' main scores, without tasks in `missing`. None if any task has no main score.

        Args:
            clean: take the scores on rows that the model was not trained on.
        """
        mains = [self.main(task.clean if clean else task.scores) for task in self.tasks.values()]
        return None if None in mains else float(np.mean([value for value in mains if value is not None]))

    def as_json(self) -> dict[str, Any]:
        """The whole result as JSON types."""
        return {**asdict(self), "average": self.average(), "clean_average": self.average(clean=True)}


def evaluate_suite(
    name: SuiteName,
    encoder: Embedder,
    folder: Path,
    trained_on: TrainedOn,
    model: str,
    settings: dict[str, Any],
    cache: Path | None,
    seed: int = 0,
) -> SuiteResult:
    """Score an encoder on all tasks of a suite whose files exist.

    Args:
        name: of the suite.
        encoder: embeds each different sentence once.
        folder: SentEval's data folder.
        trained_on: the encoder's training data.
        model: the user's name for the encoder.
        settings: of the encoder, for the result.
        cache: folder of the cache of embeddings; None for no cache.
        seed: for the folds of transfer tasks.

    Raises:
        InputError: a malformed file, or no data set of the suite exists.
    """
    data, missing = read_sets(name, folder)
    begin = time.perf_counter()
    sentences = (text for task in data.values() for text in task.sentences)
    table = embed(encoder, sentences, cache, show_progress=True)
    embedded = time.perf_counter()
    tasks = {task: measure_task(name, task, content, table, trained_on, seed)[1] for task, content in data.items()}
    seconds = {"embedding": embedded - begin, "scoring": time.perf_counter() - embedded}
    return SuiteResult(
        suite=name,
        model=model,
        settings={**settings, "seed": seed},
        tasks=tasks,
        missing=missing,
        unknown=trained_on.unknown,
        sentences=len(table.vectors),
        computed=table.computed,
        seconds=seconds,
    )


def measure_task(
    suite: SuiteName, task: str, data: Any, table: EmbeddingTable, trained_on: TrainedOn, seed: int
) -> tuple[Measurement, ScoresWithOverlap[SuiteScores]]:
    """Score an encoder on one task of a suite, with and without the rows that it was trained on."""
    columns = [[text for text, kept in zip(c, data.scored, strict=True) if kept] for c in data.columns]
    try:
        measurement = SUITES[suite].measure(data, table, seed)
    except InputError as error:
        raise InputError(f"{task}: {error}") from None
    return measurement, scores_with_overlap(measurement.scores_of, columns, SeenRows.of(trained_on, columns))


def read_sets(name: SuiteName, folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The suite's data by task, and for each task that lacks a file the first one missing.

    Raises:
        InputError: a malformed file, or no data set of the suite exists.
    """
    sets = SUITES[name].sets
    missing = missing_files(sets, folder)
    if len(missing) == len(sets):
        raise InputError(f"{folder}: no data set of --suite {name} is here; pass SentEval's data folder as --data")
    return {entry.name: entry.read(entry.paths(folder)) for entry in sets if entry.name not in missing}, missing


def evaluate_model(
    suite: SuiteName,
    name: str,
    folder: Path,
    cache: Path | None,
    revision: str | None = None,
    best_on: str | None = None,
    pooling: Pooling = "auto",
    device: Device = "auto",
    precision: EmbeddingPrecision = "auto",
    seed: int = 0,
) -> SuiteResult:
    """Load an encoder and score it on a suite.

    Args:
        suite: its name.
        name: of the encoder: a run's folder, a model folder, `all-minilm-l6-v2` or a hub id.
        folder: SentEval's data folder.
        cache: folder of the cache of embeddings; None for no cache.
        revision: of a hub id.
        best_on: of a run's models, take the one that is best on this score; the leading model when left out.
        pooling: replaces the model's own, unless it is `auto`.
        device: where to compute.
        precision: of matrix products.
        seed: for the folds of transfer tasks.

    Raises:
        InputError: no such model, a malformed file, or no data set of the suite exists.
    """
    place = str(locate_model(name, revision, best_on)) if is_run(name) else name
    encoder = load_encoder(place, revision, pooling, device, precision)
    if isinstance(encoder, SentenceEncoder):
        trained_on = TrainedOn.of_folder(locate_model(place, revision), name)
        settings = {"pooling": encoder.pooling, "max_length": encoder.max_length, **encoder.runtime.describe()}
    else:
        trained_on = TrainedOn(unknown=(f"the training data of {name} is not recorded",))
        settings = {"pooling": "its own" if pooling == "auto" else pooling, "max_length": "its own"}
    return evaluate_suite(suite, encoder, folder, trained_on, name, settings, cache, seed)
