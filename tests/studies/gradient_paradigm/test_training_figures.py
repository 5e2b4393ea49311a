"""Sweeps: lines are rows whose points differ by one parameter only."""

from studies.engine.recipes import Recipes
from studies.gradient_paradigm.tables_of_sweeps import VARIED, data_sizes, gradient, shapes
from studies.gradient_paradigm.training_figures import OTHER_SWEEPS, TASK_SWEEPS, rows_along, sweep_figure
from studies.report.format import score
from studies.report.preset_results import PresetResults
from tests.studies.synthetic import write_store


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
