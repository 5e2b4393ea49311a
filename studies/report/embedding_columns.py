"""Alignment and uniformity of the rows' embeddings, as further columns of a table.

They describe the embeddings of one dev set, so they have a spread over seeds but no interval and no test.
"""

from math import nan
from statistics import fmean, stdev
from typing import Final

from studies.report.table_results import Estimate, TableResults

MEASURES: Final = ("alignment", "uniformity")
NOTE: Final = (
    "Alignment and uniformity are those of the sentence embeddings before any head, means over seeds: of the "
    "similarity dev set, and in tables on SentEval's tasks of the STS Benchmark's test pairs. Lower alignment: pairs "
    "of similarity 4 and more are closer. Lower uniformity: sentences are spread more evenly."
)


def embedding_columns(results: TableResults) -> dict[str, dict[str, Estimate]]:
    """For each measure the value of every row that has one, by the row's key; empty if no row has any.

    An ensemble has no embeddings of its own.
    """
    found: dict[str, dict[str, Estimate]] = {}
    for row, runs in results.rows:
        measured = [run.evaluation["geometry"] for run in runs if "geometry" in run.evaluation]
        for measure in MEASURES:
            values = [geometry[measure] for geometry in measured if geometry[measure] is not None]
            if values:
                deviation = stdev(values) if len(values) > 1 else None
                found.setdefault(measure, {})[row.key] = Estimate(fmean(values), deviation, nan, nan)
    return found
