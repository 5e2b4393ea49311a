"""Measures without tests stand beside the scores, and the power of the tests is told."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from multitask.evaluation.statistics import SampledScores
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


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_differences_are_significant_from_the_size_that_is_told(tmp_path: Path, noise: float) -> None:
    """Of rows whose scores rise in small steps, and vary alike or not over seeds."""
    (table,) = PresetResults.read(write_store(tmp_path, ["objectives"]), "sample").tables
    rows = [row.key for row in table.table.rows]
    rising = {}
    for place, row in enumerate(rows):
        usual = table.scores[row, "similarity"]
        observed = np.array([0.5, 0.51, 0.52]) + (0.004 + noise / 4) * place
        observed[::2] += noise * (place % 2) * np.array([-1, 1])
        rising[row, "similarity"] = SampledScores(observed, usual.resampled - usual.observed + observed)
    table = replace(table)
    table.__dict__["scores"] = rising
    assert table.alike["similarity"] == (noise == 0)
    least, most = table.significant_from("similarity") or (0, 0)
    differences = {row: abs(found.difference) for (row, _), found in table.against_reference.items()}
    sure = {row for (row, _), found in table.against_reference.items() if found.significant}
    assert {row for row, size in differences.items() if size > most} <= sure < set(differences)
    assert max(differences[row] for row in differences if row not in sure) <= most
    assert min(differences[row] for row in sure) >= 0.9 * least  # those that Holm's correction lets pass later
    assert table.significant_from("sentiment") is None


def test_one_seed_does_not_tell_from_what_size_differences_are_significant(tmp_path: Path) -> None:
    results = PresetResults.read(write_store(tmp_path, ["objectives"], seeds=1), "sample")
    (data,) = scores_as_data(results).tables
    assert data.description.columns[0].significant_from is None
    several = PresetResults.read(write_store(tmp_path / "several", ["objectives"], seeds=2), "sample")
    (data,) = scores_as_data(several).tables
    told = several.tables[0].significant_from("similarity")
    assert told is not None
    assert data.description.columns[0].significant_from == told
