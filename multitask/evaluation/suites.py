"""Suites of tasks on frozen embeddings: similarity, transfer, retrieval, geometry; also scores on rows new to a model.

A suite is an entry in `SUITES`, its data sets are those of suites.toml.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError
from multitask.data.contamination import TrainedOn
from multitask.evaluation.embeddings import EmbeddingTable, cosines, geometry, sts_scores
from multitask.evaluation.retrieval import RetrievalData, query_scores, read_retrieval
from multitask.evaluation.suite_data import SAME_MEANING, LabelledRows
from multitask.evaluation.suite_sets import SETS, DataSet, TaskSuite, missing_files
from multitask.evaluation.training_overlap import Main, Scores, ScoresWithOverlap
from multitask.models.compute_in_batches import check_dimensions
from multitask.models.sentence_encoder import Embedder

SuiteName = TaskSuite | Literal["geometry"]
STSB = "STSBenchmark"
SuiteAnswers = tuple[NDArray[Any], NDArray[Any]]
"""Gold answers and the encoder's, [scored rows] each; of retrieval, the best nDCG and the encoder's of each query."""
Measured = tuple[Callable[[NDArray[np.bool_]], Scores], SuiteAnswers | None]
"""A function from a mask of the scored rows to the scores on these; the answers of all, which geometry has not."""


@dataclass(frozen=True)
class Suite:
    """Data sets and what is measured on each."""

    sets: Sequence[DataSet]  # in the order of the columns of papers' tables
    # measures a set's data with a table of its sentences' embeddings and a seed
    measure: Callable[[Any, EmbeddingTable, int], Measured]
    main: Main | None = None  # the score that papers' tables show; None if there is no such score


def _sts(data: LabelledRows, table: EmbeddingTable, _seed: int) -> Measured:
    found = cosines(*(table[column] for column in data.columns))
    return lambda rows: sts_scores(found[rows], data.labels[rows], data.parts[rows]), (data.labels, found)


def _transfer(data: LabelledRows, table: EmbeddingTable, seed: int) -> Measured:
    from multitask.evaluation.transfer_scores import predict_classes, transfer_scores  # scikit-learn

    predictions = predict_classes(data, table, seed)
    labels, classes = data.labels[data.scored], len(np.unique(data.labels))
    return lambda rows: transfer_scores(predictions[rows], labels[rows], classes), (labels, predictions)


def _retrieval(data: RetrievalData, table: EmbeddingTable, _seed: int) -> Measured:
    found = query_scores(data, table)
    answers = np.ones_like(found["ndcg"]), found["ndcg"]
    return lambda rows: {name: float(values[rows].mean()) for name, values in found.items()}, answers


def _geometry(data: LabelledRows, table: EmbeddingTable, _seed: int) -> Measured:
    def scores_of(rows: NDArray[np.bool_]) -> Scores:
        kept = data.only(rows)
        return geometry(kept.columns, kept.labels >= SAME_MEANING, table)

    return scores_of, None


SUITES: dict[SuiteName, Suite] = {
    "sts": Suite(SETS["sts"], _sts, ("spearman", lambda scores: float(scores["all"]["spearman"]))),
    "transfer": Suite(SETS["transfer"], _transfer, ("accuracy", itemgetter("accuracy"))),
    "retrieval": Suite(SETS["retrieval"], _retrieval, ("ndcg", itemgetter("ndcg"))),
    "geometry": Suite(SETS["sts"], _geometry),
}


@dataclass(frozen=True)
class SuiteResult:
    """The scores of an encoder on a suite."""

    suite: SuiteName
    model: str  # the user's name for the encoder
    settings: Mapping[str, Any]  # of the encoder, and the seed
    tasks: Mapping[str, ScoresWithOverlap]  # scores of the tasks whose files exist, by name
    missing: Mapping[str, str]  # for each other task, the first file that does not exist
    # a line for each part of the model's training data that may contain a task's sentences, because its contents are
    # not recorded
    unknown: tuple[str, ...]
    sentences: int  # number of different sentences in all tasks that were evaluated together
    seconds: Mapping[str, float]  # of embedding and of scoring
    answers: Mapping[str, SuiteAnswers]  # of the tasks that have any
    geometry: Scores | None = None  # of the STS Benchmark's embeddings, if it was asked for and the suite has it
    # the results of the embeddings' first so many numbers, which differ from this one in `tasks`
    dimensions: Mapping[int, "SuiteResult"] = field(default_factory=dict)

    def main(self, scores: Scores | None) -> float | None:
        """The score that papers' tables show, 0 to 1."""
        main = SUITES[self.suite].main
        return None if main is None or scores is None else main[1](scores)

    def average(self, clean: bool = False) -> float | None:
        """Mean of the tasks' main scores, without tasks in `missing`. None if any task has no main score.

        Args:
            clean: take the scores on rows that the model was not trained on.
        """
        mains = [self.main(task.clean if clean else task.scores) for task in self.tasks.values()]
        return None if None in mains else float(np.mean([value for value in mains if value is not None]))

    def as_json(self) -> dict[str, Any]:
        """The result without answers and `geometry`, as JSON types."""
        values = asdict(replace(self, answers={}, dimensions={}))
        del values["answers"], values["geometry"], values["dimensions"]
        values |= {"average": self.average(), "clean_average": self.average(clean=True)}
        kept = ("tasks", "average", "clean_average")
        sized = {size: {name: part.as_json()[name] for name in kept} for size, part in self.dimensions.items()}
        return values | ({"dimensions": sized} if sized else {})


def evaluate_suites(
    suites: Sequence[SuiteName],
    encoder: Embedder,
    name: str,
    folder: Path,
    limit: int | None = None,
    with_geometry: bool = False,
    seed: int = 0,
    dimensions: Sequence[int] = (),
    split: str | None = None,
) -> dict[SuiteName, SuiteResult]:
    """Score an encoder on all tasks of suites whose files exist. Each different sentence is embedded once.

    Args:
        suites: their names.
        encoder: what embeds.
        name: the user's name of the encoder.
        folder: SentEval's data folder; with `split`, a retrieval set of one's own, see `read_retrieval`.
        limit: score about this many rows of each published task, the same ones every time; None for all.
        with_geometry: also measure the geometry of the STS Benchmark's embeddings.
        seed: for the folds of transfer tasks.
        dimensions: also score the first so many numbers of each embedding.
        split: of a set of one's own; None for SentEval's data folder.

    Raises:
        InputError: a malformed file, no data set of a suite exists, or embeddings have fewer dimensions.
    """
    sets = {suite: _sets_of(suite, folder, limit, split) for suite in suites}
    if dimensions:  # refuse too many before all sentences are embedded
        check_dimensions(max(dimensions), encoder.encode(["a"]).shape[1], name)
    begin = time.perf_counter()
    sentences = (text for tasks, _ in sets.values() for rows in tasks.values() for text in rows.sentences)
    table = EmbeddingTable.of(encoder, sentences)
    encoder.counts.warn(name)
    embedding = time.perf_counter() - begin
    width = table.vectors.shape[1]
    smaller = {size: replace(table, vectors=table.vectors[:, :size]) for size in dimensions if size < width}
    results, trained_on = {}, encoder.trained_on(name)
    for suite, (tasks, missing) in sets.items():
        begin = time.perf_counter()
        scores, answers = _scored(suite, tasks, table, trained_on, seed)
        stsb = tasks.get(STSB) if with_geometry and suite == "sts" else None
        result = SuiteResult(
            suite=suite,
            model=name,
            settings={**encoder.settings, "seed": seed} | ({} if split is None else {"split": split}),
            tasks=scores,
            missing=missing,
            unknown=trained_on.unknown,
            sentences=len(table.vectors),
            seconds={"embedding": embedding, "scoring": time.perf_counter() - begin},
            answers=answers,
            geometry=None if stsb is None else geometry(stsb.columns, stsb.labels >= SAME_MEANING, table),
        )
        sized = {
            size: replace(result, tasks=_scored(suite, tasks, narrower, trained_on, seed)[0])
            for size, narrower in smaller.items()
        }
        results[suite] = replace(result, dimensions=sized)
    return results


def _sets_of(
    suite: SuiteName, folder: Path, limit: int | None, split: str | None
) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """The data sets of a suite that are there, by task, and the missing ones; see `evaluate_suites`."""
    if split is not None:
        return {folder.resolve().name: read_retrieval(folder, split)}, {}
    missing = missing_files(SUITES[suite].sets, folder)
    if len(missing) == len(SUITES[suite].sets):
        raise InputError(f"{folder}: no data set of --suite {suite} is here; pass SentEval's data folder as --data")
    found = {entry.name: entry.read(entry.paths(folder)) for entry in SUITES[suite].sets if entry.name not in missing}
    return (found if limit is None else {task: rows.sampled(limit) for task, rows in found.items()}), missing


def _scored(
    suite: SuiteName, tasks: Mapping[str, Any], table: EmbeddingTable, trained_on: TrainedOn, seed: int
) -> tuple[dict[str, ScoresWithOverlap], dict[str, SuiteAnswers]]:
    scores, answers = {}, {}
    for task, rows in tasks.items():
        try:
            scores_of, answered = SUITES[suite].measure(rows, table, seed)
        except InputError as error:
            raise InputError(f"{task}: {error}") from None
        scores[task] = ScoresWithOverlap.of(scores_of, rows.scored_columns, trained_on)
        if answered is not None:
            answers[task] = answered
    return scores, answers
