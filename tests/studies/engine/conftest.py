"""A small grid, computed once: fine-tuning from the start weights, and after a pre-training."""

import shutil
from pathlib import Path

import pytest

from multitask.base.options import RunOptions
from studies.engine.engines import Engine
from studies.engine.experiments import experiment
from studies.engine.presets import Preset
from studies.engine.recipes import Recipes
from studies.engine.run import run_preset
from studies.engine.table import Row


def two_rows(recipes: Recipes) -> Preset:
    """The grid."""
    lines = [
        (Row("none", "None"), recipes.finetune(recipes.start)),
        (Row("nli", "NLI"), recipes.finetune(recipes.nli(epochs=1))),
    ]
    return Preset("sample", recipes, (experiment("1", "", "", lines),))


def options(runs: Path) -> RunOptions:
    """Where a grid is computed."""
    return RunOptions("cpu", "fp32", runs)


def files(runs: Path) -> dict[str, bytes]:
    """What does not depend on the machine in the files of all runs."""
    paths = [path for path in runs.glob("*-*-*/**/*") if path.suffix in (".safetensors", ".npz", ".json")]
    return {str(path.relative_to(runs)): path.read_bytes() for path in paths if path.name != "inputs.json"}


@pytest.fixture(scope="session")
def computed(recipes: Recipes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of the grid, which no test may change."""
    runs = tmp_path_factory.mktemp("computed") / "runs"
    run_preset(two_rows(recipes), 1, options(runs), Engine())
    return runs


@pytest.fixture
def runs(computed: Path, tmp_path: Path) -> Path:
    """The runs of the grid, which a test may change."""
    return Path(shutil.copytree(computed, tmp_path / "runs"))
