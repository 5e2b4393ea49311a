"""Effects against a least-squares fit, and by hand."""

from dataclasses import replace

import numpy as np
import pytest

from multitask.experiments.table_results import PresetResults
from studies.gradient_paradigm.factorial import effect, effects_of_components, factorial_section, subsets
from studies.gradient_paradigm.tables_of_losses import NON_CONTRASTIVE
from tests.studies.gradient_paradigm.published import as_published
from tests.studies.synthetic import without_rows, write_store

FACTORS = ("a", "b", "c")


@pytest.mark.parametrize("factors", [FACTORS, FACTORS[:2], FACTORS[:1]], ids=len)
def test_effects_are_twice_the_coefficients_of_a_least_squares_fit(factors):
    cells = [frozenset(subset) for subset in subsets(factors)]
    values = np.random.default_rng(0).normal(size=(len(cells), 3))  # [cells, seeds]
    coded = {f: np.array([1 if f in cell else -1 for cell in cells]) for f in factors}
    design = np.stack(
        [np.prod([coded[f] for f in subset] or [np.ones(len(cells))], axis=0) for subset in subsets(factors)]
    )
    fitted = np.linalg.lstsq(np.repeat(design.T, 3, axis=0), values.ravel(), rcond=None)[0]
    means = dict(zip(cells, values.mean(axis=1), strict=True))
    for subset, coefficient in zip(subsets(factors)[1:], fitted[1:], strict=True):
        found = sum(weight * means[cell] for cell, weight in effect(factors, subset).items())
        assert found == pytest.approx(2 * coefficient)


def test_effects_are_contrasts_of_the_means_and_cover_what_the_models_were_made_with(tmp_path):
    results = PresetResults.read(write_store(tmp_path, ["components"], as_published), "sample")
    [table] = results.tables
    found = effects_of_components(table)
    losses = found.index.get_level_values(0)
    assert dict(losses.value_counts()) == {loss: 3 if loss == "mhs" else 7 for loss in NON_CONTRASTIVE}
    points = {row.key: row.point for row in table.table.rows if row.point["loss"] == "vicreg"}
    on, off = (
        [table.mean(key, "similarity") for key, point in points.items() if ("weight" in point["components"]) == is_on]
        for is_on in (True, False)
    )
    weight = found.loc["vicreg", "weight"]
    assert weight.difference == pytest.approx(np.mean(on) - np.mean(off))
    assert weight.low < weight.difference < weight.high
    assert weight.significant
    section = factorial_section(results)
    assert len(section.table) == len(found)
    less = without_rows(table, "loss=vicreg,components=none")
    assert "vicreg" not in effects_of_components(less).index.get_level_values(0)
    one = replace(table, runs={key: runs[:1] for key, runs in table.runs.items()})
    assert not any("×" in name for _, name in effects_of_components(one).index)  # interactions need three seeds
