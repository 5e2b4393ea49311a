"""Sweeps, whose lines are rows that differ by one parameter only, and what the probe saw over training."""

import json
import re
from pathlib import Path

import pytest

from multitask.runs.artefact import Artefact
from multitask.stages.pretrain import HELD_OUT as IN_LOG
from studies.engine.recipes import Recipes
from studies.gradient_paradigm.tables_of_sweeps import VARIED, data_sizes, gradient, shapes
from studies.gradient_paradigm.training_claims import HELD_OUT
from studies.gradient_paradigm.training_figures import (
    OTHER_SWEEPS,
    TASK_SWEEPS,
    component_sweeps,
    decoupling_section,
    long_section,
    rows_along,
    sweep_figure,
)
from studies.report.format import score
from studies.report.preset_results import PresetResults
from studies.report.run_results import RunResult
from tests.studies.gradient_paradigm.published import probed_as_published
from tests.studies.synthetic import write_store

pytestmark = pytest.mark.usefixtures("undrawn")


def test_a_parameter_of_the_gradient_form_has_one_line_through_the_defaults(recipes: Recipes) -> None:
    table = gradient(recipes).table
    for parameter in ("margin", "temperature", "ratio"):
        [(name, line)] = rows_along(table, parameter).items()
        assert name == "gradient form"
        assert len(line) == 1 + len(VARIED[parameter])
        assert list(line.values()).count("defaults") == 1
        assert all(row in ("defaults", f"{parameter}={value:g}") for value, row in line.items())


def test_other_parameters_name_the_lines(recipes: Recipes) -> None:
    assert list(rows_along(data_sizes(recipes).table, "limit")) == ["InfoNCE", "VICReg, modified"]
    lines = rows_along(shapes(recipes).table, "size")
    assert list(lines)[:2] == ["BERT, InfoNCE", "BERT, VICReg"]
    assert len(lines) == 6
    assert {tuple(line) for line in lines.values()} == {("2x128", "4x256", "6x384")}


def test_each_kind_of_task_has_a_line(tmp_path) -> None:
    results = PresetResults.read(write_store(tmp_path, ["gradient-suites"], seeds=1), "sample")
    for sweep in TASK_SWEEPS:
        figure = sweep_figure(sweep, results)
        assert figure is not None
        svg = str(figure.svg)
        for column in ("STS", "Transfer", "Retrieval"):
            mean = results.tables[0].estimates["defaults", column].mean
            assert f"{column}: " in svg
            assert score(mean) in svg


def test_places_are_in_rising_order_and_all_sentences_come_last(tmp_path) -> None:
    results = PresetResults.read(write_store(tmp_path, ["data-sizes"], seeds=1), "sample")
    figures = [figure for sweep in OTHER_SWEEPS if (figure := sweep_figure(sweep, results))]
    [svg] = [str(figure.svg) for figure in figures]
    places = [svg.index(f"{place} 0.") for place in ("1,024", "4,096", "16,384", "65,536", "all")]
    assert places == sorted(places)


def test_statistics_of_the_components_are_those_that_decide_the_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = PresetResults.read(write_store(tmp_path, ["gradient"], seeds=1), "sample")
    asked = []
    probed = RunResult.probed
    monkeypatch.setattr(RunResult, "probed", lambda run, **what: asked.append(what["place"]) or probed(run, **what))
    assert component_sweeps(results) is not None
    assert set(asked) == {HELD_OUT}


@pytest.mark.parametrize("key", ["decoupled", "decoupled-long"])
def test_decoupled_losses_have_curves_norms_metrics_and_the_gap_to_sts(tmp_path: Path, key: str) -> None:
    runs = write_store(tmp_path, [key], probe=probed_as_published, seeds=3)
    parts = ["Dev score", "the alignment part", "the uniformity part", "Alignment of two", "Uniformity of two"]
    assert all(part in caption for part, (caption, _) in zip(parts, drawn(key, runs), strict=True))

    for seed, aligned in enumerate((0.5, 0.6, 0.8)):
        measure_dev_set(runs / f"pretrain-{key}-infonce-{seed}", aligned)
    parts += ["gap to STS: alignment", "gap to STS: uniformity"]
    found = drawn(key, runs)
    assert all(part in caption for part, (caption, _) in zip(parts, found, strict=True))
    assert "InfoNCE 0.333 to 1.733" in found[-2][1]
    assert "MET" not in found[-2][1]

    # Training that an earlier version began and this one resumed has not measured all of it.
    path = runs / f"pretrain-{key}-infonce-0" / "metrics.jsonl"
    first, *rest = [json.loads(line) for line in path.read_text().splitlines()]
    del first["dev"]["similarity"]["alignment"]
    path.write_text("".join(json.dumps(line) + "\n" for line in (first, *rest)))
    Artefact(path.parent).finish()
    del parts[-2]
    assert all(part in caption for part, (caption, _) in zip(parts, drawn(key, runs), strict=True))


def test_long_trainings_are_drawn_as_published_and_with_three_components(tmp_path: Path) -> None:
    runs = write_store(tmp_path, ["objectives-long"], seeds=2)

    def drawn() -> list[str]:
        section = long_section(PresetResults.read(runs, "sample"))
        assert section is not None
        assert all("Bands: one standard deviation" in figure.caption for figure in section.figures)
        return [str(figure.svg) for figure in section.figures]

    named = [re.findall(r"(?:; |, )([A-Z][^;,]*(?:, modified)?) 0\.\d+ to", svg) for svg in drawn()]
    plain = ["InfoNCE", "MET", "Gradient form", "MHE", "MHS", "Barlow Twins", "VICReg"]
    assert [list(dict.fromkeys(names)) for names in named] == [
        plain,
        ["InfoNCE", *(f"{name}, modified" for name in plain[3:])],
    ]

    for seed in (0, 1):
        measure_dev_set(runs / f"pretrain-objectives-long-infonce-{seed}", seed / 10)
    *_, spread, spread_of_modified = drawn()
    assert "InfoNCE −2.000 to −2.500" in spread
    assert "InfoNCE −2.000 to −2.500" in spread_of_modified


def measure_dev_set(folder: Path, aligned: float) -> None:
    """Adds the dev set's alignment and uniformity, and alignment of held-out sentences, to a training's history."""
    path = folder / "metrics.jsonl"
    history = [json.loads(line) for line in path.read_text().splitlines()]
    for number, line in enumerate(history):
        line["dev"]["similarity"] |= {"alignment": aligned + number, "uniformity": -2.0 - number / 4}
        line["training"][f"{IN_LOG} alignment"] = 0.3 * (number + 1)
    path.write_text("".join(json.dumps(line) + "\n" for line in history))
    Artefact(folder).finish()


def drawn(key: str, runs: Path) -> list[tuple[str, str]]:
    """Captions and descriptions of the figures of decoupled losses."""
    section = decoupling_section(key, PresetResults.read(runs, "sample"))
    assert section is not None
    return [(figure.caption, str(figure.svg)) for figure in section.figures]
