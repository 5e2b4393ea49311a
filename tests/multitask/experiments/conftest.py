"""A small grid, computed once: fine-tuning from the start weights, and after a pre-training."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from multitask.base.options import RunOptions
from multitask.base.runs import Weights
from multitask.experiments.engines import Engine
from multitask.experiments.grid import run_preset
from multitask.experiments.table_definitions import Node, Preset, Row, experiment
from multitask.stages.settings import REPORT_SETTINGS, FinetuneConfig, FuseConfig
from multitask.stages.settings_of_pretraining import PretrainConfig
from multitask.training.settings import OptimizerConfig


@dataclass(frozen=True)
class Recipes:
    """Start weights, data and settings."""

    start: Weights
    data: Path
    multitask: FinetuneConfig
    supervised: PretrainConfig

    def finetune(self, start: Node | Weights, config: FinetuneConfig | None = None) -> Node:
        return Node("finetune", replace(config or self.multitask, new_heads=True), (start,), self.data)

    def fuse(self, start: Node | Weights) -> Node:
        return Node("fuse", FuseConfig(), (start,), self.data)

    def nli(self, epochs: int = 3) -> Node:
        return Node("pretrain", replace(self.supervised, epochs=epochs, sources=("nli",)), (self.start,), self.data)


@pytest.fixture(scope="session")
def recipes(tiny_encoder, grid_data) -> Recipes:
    fast = OptimizerConfig(learning_rate=1e-3)
    multitask = replace(REPORT_SETTINGS, epochs=1, batch_size=32, optimizer=fast, keep_task_bests=False)
    supervised = PretrainConfig(select="last", train_limit=16, optimizer=OptimizerConfig(learning_rate=2e-3))
    return Recipes(Weights(str(tiny_encoder)), grid_data, multitask, supervised)


def two_rows(recipes: Recipes) -> Preset:
    """The grid."""
    lines = [
        (Row("none", "None"), recipes.finetune(recipes.start)),
        (Row("nli", "NLI"), recipes.finetune(recipes.nli(epochs=1))),
    ]
    return Preset("sample", recipes.start, recipes.data, (experiment("1", "", "", lines),))


def options(runs: Path) -> RunOptions:
    """Where a grid is computed."""
    return RunOptions("cpu", "fp32", runs)


def files(runs: Path) -> dict[str, bytes]:
    """What does not depend on the machine in the files of all runs."""
    paths = [path for path in runs.glob("*-*-*/**/*") if path.suffix in (".safetensors", ".npz", ".json")]
    return {str(path.relative_to(runs)): path.read_bytes() for path in paths if path.name != "inputs.json"}


@pytest.fixture(scope="session")
def computed(recipes, tmp_path_factory) -> Path:
    """The runs of the grid, which no test may change."""
    runs = tmp_path_factory.mktemp("computed") / "runs"
    run_preset(two_rows(recipes), 1, options(runs), Engine())
    return runs


@pytest.fixture
def runs(computed, tmp_path) -> Path:
    """The runs of the grid, which a test may change."""
    return Path(shutil.copytree(computed, tmp_path / "runs"))
