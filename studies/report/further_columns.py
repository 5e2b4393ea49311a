"""Further columns of a table: measures with a spread over seeds, but with neither an interval nor a test.

Alignment and uniformity describe the embeddings of one dev set. The mean reciprocal rank is a second measure of
retrieval tasks, which are tested by nDCG.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import nan
from statistics import fmean, stdev
from typing import Any, Final

from studies.report.run_results import RunResult
from studies.report.table_results import Estimate, TableResults

EMBEDDINGS: Final = "embeddings"
"""What alignment and uniformity are measured on, in place of a task."""
MEASURES: Final = ("alignment", "uniformity")
RANK: Final = "mrr"
METRICS: Final = (*MEASURES, RANK)
"""The metrics of all further columns."""
ABOUT_EMBEDDINGS: Final = (
    "Alignment and uniformity are those of the sentence embeddings before any head, means over seeds: of the "
    "similarity dev set, and in tables on SentEval's tasks of the STS Benchmark's test pairs. Lower alignment: pairs "
    "of similarity 4 and more are closer. Lower uniformity: sentences are spread more evenly."
)
ABOUT_RANK: Final = "MRR: the mean of 1 / rank of the first relevant sentence, over queries and seeds."


@dataclass(frozen=True)
class FurtherColumn:
    """A measure of a table's rows.

    Args:
        task: what it is measured on.
        metric: what is measured.
        heading: for readers.
        about: what readers must know of it.
        pictured: whether the table's picture has a panel for it.
        values: the seed and the value of every run that has one, by the row's key.
    """

    task: str
    metric: str
    heading: str
    about: str
    pictured: bool
    values: dict[str, list[tuple[int, float]]]

    def estimate(self, row: str) -> Estimate | None:
        """Mean and standard deviation of a row over seeds. None if no run of it has a value."""
        values = [value for _, value in self.values.get(row, ())]
        deviation = stdev(values) if len(values) > 1 else None
        return Estimate(fmean(values), deviation, nan, nan) if values else None


def further_columns(results: TableResults) -> list[FurtherColumn]:
    """The further columns of a table that a run has a value for. An ensemble has no embeddings of its own."""
    return [column for column in _possible(results) if column.values]


def about(columns: list[FurtherColumn]) -> str:
    """What readers must know of some columns, in sentences."""
    return " ".join(dict.fromkeys(column.about for column in columns))


def _possible(results: TableResults) -> Iterator[FurtherColumn]:
    # Papers on embeddings compare them next to the means of SentEval's tasks.
    pictured = bool(results.table.groups)
    for name in MEASURES:
        values = _values(results, "geometry", name)
        yield FurtherColumn(EMBEDDINGS, name, name.capitalize(), ABOUT_EMBEDDINGS, pictured, values)
    for task, metric in results.measures.items():
        if metric == "ndcg":
            yield FurtherColumn(task, RANK, f"{task} MRR", ABOUT_RANK, False, _values(results, "metrics", task, RANK))


def _values(results: TableResults, *keys: str) -> dict[str, list[tuple[int, float]]]:
    """What lies under some keys of evaluation.json, with the run's seed, by the row's key."""
    found = {row.key: [(run.seed, _below(run, *keys)) for run in runs] for row, runs in results.rows}
    known = {key: [(seed, value) for seed, value in of if value is not None] for key, of in found.items()}
    return {key: of for key, of in known.items() if of}


def _below(run: RunResult, *keys: str) -> Any:
    """What lies under some keys of evaluation.json; None if a key is missing."""
    found: Any = run.evaluation
    for key in keys:
        found = (found or {}).get(key)
    return found
