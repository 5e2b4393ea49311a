"""A stage in one file of another package runs from the command line, in a grid and a plan, with no edit elsewhere."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

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


def multiply(models, data, config, run):
    write_json(run.folder / "result.json", config.factor * len(models) + config.seed)


def result(run):
    return (run.folder / "result.json").read_text()


STAGE = register(
    Stage(
        "toy", ToyConfig, "toy_stage:multiply", help="Multiply.", summary="toy_stage:result", common=("factor",)
    )
)
'''

GRID = """
import json
from pathlib import Path

from multitask.runs.artefact import Weights
from multitask.runtime.options import RunOptions
from studies.engine.experiments import Experiment
from studies.engine.grid import Grid, compute_grid
from studies.engine.local_engine import local_engine
from studies.engine.plan import make_plan
from studies.engine.presets import PRESETS, Preset
from studies.engine.recipes import Node
from studies.engine.store import Store
from studies.engine.table import Row, Table
from toy_stage import ToyConfig

start = Weights("all-minilm-l6-v2")
child = Node("toy", ToyConfig(factor=5), (Node("toy", ToyConfig(), (start,), Path("data")),), Path("data"))
table = Table("toy", "Toy", "", (Row("only", "Only"),))
experiment = Experiment(table, {"only": child}, evaluation=lambda model: model)
options = RunOptions("cpu", "fp32", Path("runs"))
preset = Preset("sample", PRESETS["sample"], (experiment,))
preset.recipes.data.mkdir(parents=True, exist_ok=True)


def planned():
    return [(stage.stage, stage.seeds, stage.missing) for stage in make_plan(preset, 2, options)]


before = planned()
with local_engine(1, "cpu") as engine:
    compute_grid(Grid.of([experiment], 2), Store(options), engine, options, lambda results: None)
results = sorted(json.loads(path.read_text()) for path in Path("runs").glob("toy-*/result.json"))
print(json.dumps({"before": before, "results": results, "after": planned()}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is a package with an entry point for the toy stage."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "toy_stage.py").write_text(TOY)
    (folder / "grid.py").write_text(GRID)
    (folder / "data").mkdir()
    installed = folder / "toy-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[multitask.stages]\ntoy = toy_stage\n")
    return folder


def run(folder: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_it_is_a_command(folder):
    help_text = run(folder, "-m", "multitask", "toy", "--help-all")
    assert "What the number of models is multiplied by." in help_text
    *result, place = run(folder, "-m", "multitask", "toy", "--factor", "7", "--runs", "by-hand").split()
    assert result == ["7"]
    assert json.loads((folder / place / "config.json").read_text()) == {"factor": 7, "seed": 0}


def test_a_grid_and_its_plan_know_it(folder):
    seen = json.loads(run(folder, "grid.py").splitlines()[-1])
    assert seen["before"] == [["toy", 2, 2], ["toy", 2, 2]]
    assert seen["results"] == [2, 3, 5, 6]  # factors 2 and 5, one model each, seeds 0 and 1
    assert seen["after"] == [["toy", 2, 0], ["toy", 2, 0]]
