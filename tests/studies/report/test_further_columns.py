"""Measures without tests stand beside the scores, and the power of the tests is told."""

import json
from pathlib import Path

import numpy as np
import pytest

from studies.report.further_columns import about, further_columns
from studies.report.preset_results import PresetResults
from studies.report.scores_as_data import scores_as_data
from tests.studies.synthetic import write_store


def test_the_reciprocal_rank_of_retrieval_tasks_is_a_column_without_a_test(tmp_path: Path) -> None:
    results = PresetResults.read(write_store(tmp_path, ["objectives-suites"], seeds=2), "sample")
    columns = further_columns(results.tables[0])
    assert [column.heading for column in columns] == ["QuoraRetrieval MRR", "SICKRetrieval MRR"]
    assert about(columns).count("MRR: ") == 1
    read = [
        json.loads((tmp_path / f"evaluate-objectives-suites-infonce-{seed}" / "evaluation.json").read_text())
        for seed in (0, 1)
    ]
    (table,) = scores_as_data(results).tables
    for column in columns:
        values = tuple(found["metrics"][column.task]["mrr"] for found in read)
        estimate = column.estimate("infonce")
        assert estimate is not None
        assert (estimate.mean, estimate.deviation) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
        (place,) = (i for i, of in enumerate(table.description.columns) if (of.task, of.metric) == (column.task, "mrr"))
        (cell,) = (row.cells[place] for row in table.rows if row.key == "infonce")
        assert cell is not None
        assert (cell.seeds, cell.values, cell.low, cell.p) == ((0, 1), values, None, None)
        assert not table.description.columns[place].pictured


def test_the_power_is_that_of_the_strictest_tests(tmp_path: Path) -> None:
    results = PresetResults.read(write_store(tmp_path, ["objectives"]), "sample")
    (table,) = results.tables
    tests = len(table.against_reference)
    assert tests == len(table.table.rows) - 1
    rows = [row for row, _ in table.against_reference]
    contrasts = [table.contrast({row: 1, "infonce": -1}, "similarity") for row in rows]
    widths = []
    for found in contrasts:
        assert found is not None
        low, high = np.quantile(found.draws, (0.025 / tests, 0.8))
        widths.append(high - low)
    assert table.detectable("similarity") == pytest.approx((min(widths), max(widths)))
    assert table.detectable("sentiment") is None
    (data,) = scores_as_data(results).tables
    assert data.description.columns[0].detectable == table.detectable("similarity")
