"""What trainings measured, as data: the file curves.parquet has a line for each value of each evaluation.

Scores of the finished models, with their intervals and tests, are in results.parquet.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minbert.files import atomic_file
from studies.report.preset_results import PresetResults
from studies.report.run_results import RunResult

if TYPE_CHECKING:
    import pyarrow

TRAINING = "training"
"""The source of what was measured on training batches; other sources are tasks, measured on their dev sets."""


def curves_as_data(results: PresetResults) -> "pyarrow.Table":
    """The values of all trainings of all tables.

    Columns: keys of the table and of its row, the row's label, the seed and the step (int64), the source, the measure
    as metrics.jsonl calls it, and its value (float64). Values of training batches are means since the previous
    evaluation.
    """
    import pyarrow

    text, whole = pyarrow.string(), pyarrow.int64()
    named = [("table", text), ("row", text), ("label", text), ("seed", whole), ("step", whole)]
    schema = pyarrow.schema([*named, ("source", text), ("measure", text), ("value", pyarrow.float64())])
    lines = [
        {"table": found.table.key, "row": row.key, "label": row.label, "seed": run.seed, **measured}
        for found in results.finished_tables.values()
        for row in found.table.rows
        for run in found.runs.get(row.key, ())
        for measured in _measured(run)
    ]
    return pyarrow.Table.from_pylist(lines, schema)


def save_curves(curves: "pyarrow.Table", path: Path) -> None:
    """Write the file, atomically."""
    import pyarrow.parquet

    with atomic_file(path) as temporary:
        pyarrow.parquet.write_table(curves, temporary, compression="zstd")


def _measured(run: RunResult) -> Iterator[dict[str, Any]]:
    for line in run.history:
        for source, measures in {TRAINING: line["training"], **line["dev"]}.items():
            for measure, value in measures.items():
                if isinstance(value, int | float):  # not tables, such as a confusion matrix
                    yield {"step": line["step"], "source": source, "measure": measure, "value": value}
