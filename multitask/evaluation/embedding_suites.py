"""Suites of tasks on frozen embeddings: similarity, transfer, retrieval, geometry; also scores on rows new to a model.

A suite is an entry in `SUITES`: its data sets and how each is measured. A task is an entry in the lists of
suite_sets.py.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError
from multitask.data.contamination import TrainedOn
from multitask.evaluation.embedding_cache import EmbeddingTable, embed
from multitask.evaluation.embedding_geometry import Geometry, geometry
from multitask.evaluation.retrieval_scores import RetrievalScores, query_scores, retrieval_scores
from multitask.evaluation.retrieval_sets import RetrievalData
from multitask.evaluation.senteval_files import ClassificationData, Mask, SimilarityData
from multitask.evaluation.sts_scores import StsScores, cosines, sts_scores
from multitask.evaluation.suite_sets import SETS, DataSet, TaskSuite, missing_files
from multitask.evaluation.training_overlap import ScoresWithOverlap
from multitask.models.config import Pooling
from multitask.models.sentence_encoder import Embedder, SentenceEncoder, load_encoder
from multitask.runs.artefact import is_run, locate_model
from multitask.runtime.options import Device, EmbeddingPrecision
from multitask.tasks.metrics import Metric

if TYPE_CHECKING:
    from multitask.evaluation.transfer_scores import TransferScores

SuiteName = TaskSuite | Literal["geometry"]
STSB = "STSBenchmark"
SuiteScores: TypeAlias = "StsScores | TransferScores | RetrievalScores | Geometry"
Answers = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class Measurement:
    """The scores of an encoder on a task."""

    scores_of: Callable[[Mask], SuiteScores]  # maps a mask of the scored rows to the scores on these rows
    # gold answers and the encoder's answers, [rows] each; of retrieval, the best nDCG and the encoder's of each
    # query; None for geometry, which has no answers
    answers: Answers | None = None


@dataclass(frozen=True)
class Suite:
    """Data sets and what is measured on each."""

    sets: Sequence[DataSet]  # in the order of the columns of papers' tables
    # maps a set's data, a table of its sentences' embeddings and a seed to the measurement
    measure: Callable[[Any, EmbeddingTable, int], Measurement]
    # selects the score that papers' tables show; None if there is no such score
    main: Callable[[Any], float] | None = None
    unit: Metric | None = None  # kind of that score


def _measure_sts(data: SimilarityData, table: EmbeddingTable, _seed: int) -> Measurement:
    found = cosines(*(table[column] for column in data.columns))
    return Measurement(lambda rows: sts_scores(found[rows], data.gold[rows], data.subsets[rows]), (data.gold, found))


def _measure_transfer(data: ClassificationData, table: EmbeddingTable, seed: int) -> Measurement:
    from multitask.evaluation.transfer_scores import predict_classes, transfer_scores  # imports scikit-learn

    predictions, labels = predict_classes(data, table, seed), data.labels[data.scored]
    classes = len(np.unique(data.labels))
    return Measurement(lambda rows: transfer_scores(predictions[rows], labels[rows], classes), (labels, predictions))


def _measure_retrieval(data: RetrievalData, table: EmbeddingTable, _seed: int) -> Measurement:
    ndcg, ranks = query_scores(data, table)
    return Measurement(lambda rows: retrieval_scores(ndcg[rows], ranks[rows]), (np.ones_like(ndcg), ndcg))


SUITES: dict[SuiteName, Suite] = {
    "sts": Suite(SETS["sts"], _measure_sts, lambda scores: scores.all.spearman, "spearman"),
    "transfer": Suite(SETS["transfer"], _measure_transfer, lambda scores: scores.accuracy, "accuracy"),
    "retrieval": Suite(SETS["retrieval"], _measure_retrieval, lambda scores: scores.ndcg, "ndcg"),
    "geometry": Suite(SETS["sts"], lambda data, table, _: Measurement(lambda rows: geometry(data.only(rows), table))),
}


@dataclass(frozen=True)
class KnownEncoder:
    """An encoder with the user's name for it, how it embeds and computes, and its training data."""

    encoder: Embedder
    name: str
    settings: Mapping[str, Any]
    trained_on: TrainedOn

    @classmethod
    def load(
        cls,
        name: str,
        revision: str | None = None,
        best_on: str | None = None,
        pooling: Pooling = "auto",
        device: Device = "auto",
        precision: EmbeddingPrecision = "auto",
    ) -> "KnownEncoder":
        """Load an encoder.

        Args:
            name: a run's folder, a model folder, `all-minilm-l6-v2` or a hub id.
            revision: of a hub id.
            best_on: of a run's models, take the one that is best on this score; the leading model when left out.
            pooling: replaces the model's own, unless it is `auto`.
            device: where to compute.
            precision: of matrix products.

        Raises:
            InputError: no such model.
        """
        place = str(locate_model(name, revision, best_on)) if is_run(name) else name
        encoder = load_encoder(place, revision, pooling, device, precision)
        if isinstance(encoder, SentenceEncoder):
            settings = {"pooling": encoder.pooling, "max_length": encoder.max_length, **encoder.runtime.describe()}
            return cls(encoder, name, settings, TrainedOn.of_folder(locate_model(place, revision), name))
        settings = {"pooling": "its own" if pooling == "auto" else pooling, "max_length": "its own"}
        return cls(encoder, name, settings, TrainedOn(unknown=(f"the training data of {name} is not recorded",)))


@dataclass(frozen=True)
class SuiteResult:
    """The scores of an encoder on a suite."""

    suite: SuiteName
    model: str  # the user's name for the encoder
    settings: dict[str, Any]  # of the encoder, and the seed
    tasks: dict[str, ScoresWithOverlap[SuiteScores]]  # scores of the tasks whose files exist, by name
    missing: dict[str, str]  # for each other task, the first file that does not exist
    # a line for each part of the model's training data that may contain a task's sentences, because its contents are
    # not recorded
    unknown: tuple[str, ...]
    sentences: int  # number of different sentences in all tasks that were evaluated together
    computed: int  # how many of these were embedded now; the others came from the cache
    seconds: dict[str, float]  # of embedding and of scoring
    # gold answers and the encoder's of the tasks that have any
    answers: dict[str, Answers] = field(default_factory=dict)
    geometry: Geometry | None = None  # of the STS Benchmark's embeddings, if it was asked for and the suite has it

    def main(self, scores: "SuiteScores | None") -> float | None:
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
        """The result without answers and `geometry`, as JSON types."""
        values = {name: value for name, value in asdict(self).items() if name not in ("answers", "geometry")}
        return {**values, "average": self.average(), "clean_average": self.average(clean=True)}


def evaluate_suites(
    names: Sequence[SuiteName],
    known: KnownEncoder,
    folder: Path,
    cache: Path | None = None,
    limit: int | None = None,
    with_geometry: bool = False,
    seed: int = 0,
) -> dict[SuiteName, SuiteResult]:
    """Score an encoder on all tasks of suites whose files exist. Each different sentence is embedded once.

    Args:
        names: of the suites.
        known: the encoder.
        folder: SentEval's data folder.
        cache: folder of the cache of embeddings; None for no cache.
        limit: score about this many rows of each task, the same ones every time; None for all.
        with_geometry: also measure the geometry of the STS Benchmark's embeddings.
        seed: for the folds of transfer tasks.

    Raises:
        InputError: a malformed file, or no data set of a suite exists.
    """
    data, missing = {}, {}
    for name in names:
        data[name], missing[name] = _read_sets(name, folder, limit)
    begin = time.perf_counter()
    sentences = (text for tasks in data.values() for task in tasks.values() for text in task.sentences)
    table = embed(known.encoder, sentences, cache, show_progress=True)
    embedding = time.perf_counter() - begin
    results = {}
    for name, tasks in data.items():
        begin, scores, answers = time.perf_counter(), {}, {}
        for task, content in tasks.items():
            measured = _measured(name, task, content, table, seed)
            columns = content.scored_columns
            scores[task] = ScoresWithOverlap.of(measured.scores_of, columns, known.trained_on)
            if measured.answers is not None:
                answers[task] = measured.answers
        results[name] = SuiteResult(
            suite=name,
            model=known.name,
            settings={**known.settings, "seed": seed},
            tasks=scores,
            missing=missing[name],
            unknown=known.trained_on.unknown,
            sentences=len(table.vectors),
            computed=table.computed,
            seconds={"embedding": embedding, "scoring": time.perf_counter() - begin},
            answers=answers,
            geometry=geometry(tasks[STSB], table) if with_geometry and name == "sts" and STSB in tasks else None,
        )
    return results


def _read_sets(name: SuiteName, folder: Path, limit: int | None) -> tuple[dict[str, Any], dict[str, str]]:
    """The suite's data by task, and for each task that lacks a file the first one missing."""
    sets = SUITES[name].sets
    missing = missing_files(sets, folder)
    if len(missing) == len(sets):
        raise InputError(f"{folder}: no data set of --suite {name} is here; pass SentEval's data folder as --data")
    found = {entry.name: entry.read(entry.paths(folder)) for entry in sets if entry.name not in missing}
    return found if limit is None else {task: data.sampled(limit) for task, data in found.items()}, missing


def _measured(suite: SuiteName, task: str, data: Any, table: EmbeddingTable, seed: int) -> Measurement:
    try:
        return SUITES[suite].measure(data, table, seed)
    except InputError as error:
        raise InputError(f"{task}: {error}") from None
