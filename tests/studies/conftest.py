"""A preset small enough to run whole: a random encoder, a few rows of every file, an epoch of each training."""

from dataclasses import replace
from pathlib import Path

import pytest

from multitask.base.runs import Weights
from multitask.stages.settings import REPORT_SETTINGS, SUPERVISED, FuseConfig
from multitask.stages.settings_of_pretraining import MlmConfig, PretrainConfig
from multitask.stages.settings_without_training import PruneConfig, SuitesConfig
from multitask.training.settings import OptimizerConfig
from studies.engine.presets import GIVEN
from studies.engine.recipes import Recipes
from studies.gradient_paradigm.stages import SimulationConfig
from tests.conftest import resampling_little
from tests.multitask.evaluation.folder import write_sts

FAST = OptimizerConfig(learning_rate=1e-3)
MULTITASK = replace(REPORT_SETTINGS, epochs=1, batch_size=32, optimizer=FAST, keep_task_bests=False)

few_resamples = pytest.fixture(scope="package", autouse=True)(resampling_little)


@pytest.fixture(scope="session")
def suites_data(tmp_path_factory) -> Path:
    """SentEval's similarity tasks, small."""
    folder = tmp_path_factory.mktemp("senteval")
    write_sts(folder)
    return folder


@pytest.fixture(scope="session")
def recipes(tiny_encoder, grid_data, suites_data) -> Recipes:
    supervised = PretrainConfig(sources=GIVEN, epochs=5, select="last", train_limit=16, optimizer=FAST)
    return Recipes(
        start=Weights(str(tiny_encoder)),
        data=grid_data,
        multitask=MULTITASK,
        supervised=supervised,
        fusion=FuseConfig(replace(SUPERVISED, epochs=1, batch_size=32, train_limit=32, keep_task_bests=False)),
        reviews=replace(MULTITASK, tasks=("reviews",), epoch_size=32, max_length=32),
        masked=MlmConfig(train_limit=32, optimizer=FAST),
        views=PretrainConfig(train_limit=32, optimizer=FAST, probe_every=1),
        pruning=PruneConfig(train_limit=16),
        recovery=PretrainConfig(train_limit=32, optimizer=FAST),
        suites=SuitesConfig(("sts",), limit=100),
        suites_data=suites_data,
        simulation=SimulationConfig(grid=10, batches=20, batch_size=16, trials=20),
    )
