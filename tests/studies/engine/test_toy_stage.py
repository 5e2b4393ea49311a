"""A stage in one file of another package runs from the command line, in a grid and a plan, with no edit elsewhere."""

import json
import os
import subprocess
import sys
from pathlib import Path

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
import sys
from pathlib import Path

from multitask.cli.main import main
from multitask.runs.artefact import Weights
from multitask.runtime.options import RunOptions
from studies.engine.experiments import Experiment
from studies.engine.engines import Engine
from studies.engine.grid import Grid, compute_grid, plan
from studies.engine.recipes import Node
from studies.engine.table import Row, Table
from toy_stage import ToyConfig

start = Weights("all-minilm-l6-v2")
child = Node("toy", ToyConfig(factor=5), (Node("toy", ToyConfig(), (start,), Path("data")),), Path("data"))
table = Table("toy", "Toy", "", (Row("only", "Only"),))
experiment = Experiment(table, {"only": child}, evaluation=lambda model: model)
grid = Grid([experiment], 2, RunOptions("cpu", "fp32", Path("runs")))
planned = [plan(grid)]
compute_grid(grid, Engine(), lambda results: None)
planned.append(plan(grid))
results = sorted(json.loads(path.read_text()) for path in Path("runs").glob("toy-*/result.json"))
print(json.dumps({"plans": planned, "results": results}))
sys.exit(main(["toy", "--help-all"]) or main(["toy", "--factor", "7", "--runs", "by-hand"]))
"""


def test_a_stage_of_another_package_is_a_command_and_has_its_place_in_grids_and_plans(tmp_path: Path) -> None:
    (tmp_path / "toy_stage.py").write_text(TOY)
    (tmp_path / "grid.py").write_text(GRID)
    (tmp_path / "data").mkdir()
    (installed := tmp_path / "toy-1.0.dist-info").mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[multitask.stages]\ntoy = toy_stage\n")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "grid.py"]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    first, *help_text, printed, place = filter(None, result.stdout.splitlines())
    seen = json.loads(first)
    assert [[stage for stage, *_ in plan[1:]] for plan in seen["plans"]] == [
        ["toy", "  toy", f"to do: {missing} of 4 stages"] for missing in (4, 0)
    ]
    assert seen["results"] == [2, 3, 5, 6]  # factors 2 and 5, one model each, seeds 0 and 1
    assert "What the number of models is multiplied by." in "\n".join(help_text)
    assert printed == "7"
    assert json.loads((tmp_path / place / "config.json").read_text()) == {"factor": 7, "seed": 0}
