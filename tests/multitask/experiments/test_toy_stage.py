"""A stage in one file of another package runs from the command line, in a grid and a plan, with no edit elsewhere."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from multitask.base.options import RunOptions
from multitask.base.runs import Weights
from multitask.cli.main import main
from multitask.cli.train import stage_commands
from multitask.experiments.engines import Engine
from multitask.experiments.grid import Grid, compute_grid, plan
from multitask.experiments.tables import Experiment, Node, Row, StudyTable
from multitask.stages import registry

TOY = '''
from minbert.files import write_json
from minbert.settings import settings
from multitask.stages.registry import Stage, register


@settings
class ToyConfig:
    """A sum."""

    factor: int = 2
    """What the number of models is multiplied by."""
    seed: int = 0
    """Added to the product."""


def compute(models, data, config, run):
    write_json(run.folder / "result.json", config.factor * len(models) + config.seed)


def summary(run):
    return (run.folder / "result.json").read_text()


STAGE = register(Stage("toy", ToyConfig, "Multiply.", common=("factor",)))
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package, where Python finds it; a second entry point names a module that it lacks, as a wheel may."""
    (tmp_path / "toy_stage.py").write_text(TOY)
    (package := tmp_path / "toy-1.0.dist-info").mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[multitask.stages]\ntoy = toy_stage\nelsewhere = toy_checkout.stage\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry.stages()))
    caches = registry.stages, stage_commands
    [function.cache_clear() for function in caches]
    yield
    monkeypatch.undo()
    [function.cache_clear() for function in caches]
    sys.modules.pop("toy_stage")


@pytest.mark.usefixtures("installed")
def test_a_stage_of_another_package_is_a_command_and_has_its_place_in_grids_and_plans(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, data = registry.stage_named("toy").config, tmp_path / "data"
    data.mkdir()
    child = Node("toy", config(factor=5), (Node("toy", config(), (Weights("all-minilm-l6-v2"),), data),), data)
    table = StudyTable("toy", "Toy", "", (Row("only", "Only"),))
    experiment = Experiment(table, {"only": child}, evaluation=lambda model: model)
    grid = Grid([experiment], 2, RunOptions("cpu", "fp32", Path("runs")))
    plans = [plan(grid)]
    compute_grid(grid, Engine(), lambda results: None)
    plans.append(plan(grid))
    assert [[stage for stage, *_ in found[1:]] for found in plans] == [
        ["toy", "  toy", f"to do: {missing} of 4 stages"] for missing in (4, 0)
    ]
    results = sorted(json.loads(path.read_text()) for path in Path("runs").glob("toy-*/result.json"))
    assert results == [2, 3, 5, 6]  # factors 2 and 5, one model each, seeds 0 and 1

    assert main(["toy", "--help-all"]) == 0
    assert "What the number of models is multiplied by." in capsys.readouterr().out
    assert main(["toy", "--factor", "7", "--runs", "by-hand"]) == 0
    printed, place = filter(None, capsys.readouterr().out.splitlines())
    assert printed == "7"
    assert json.loads(Path(place, "config.json").read_text()) == {"factor": 7, "seed": 0}


@pytest.mark.usefixtures("installed")
def test_a_stage_that_lacks_a_package_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "toy_checkout").mkdir()
    (tmp_path / "toy_checkout" / "stage.py").write_text("import not_installed_anywhere")
    registry.stages.cache_clear()
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        registry.stages()
