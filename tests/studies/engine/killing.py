"""Runs a grid again and again, each time killed at a random moment by one of three signals, until it is complete.

A process of its own, started by test_run_killed_and_resumed.py: it imports everything once and forks, so that a run
takes no start-up time. Prints as JSON how many runs were killed by which signal, and how many grids were completed.
"""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import scipy.stats
import torch
import torch._dynamo  # which torch's optimizers import when they are made

from multitask.runs.artefact import Weights
from multitask.runtime.errors import Interrupted
from multitask.runtime.options import RunOptions
from multitask.stages.ensemble import combining
from multitask.stages.evaluate import scoring
from multitask.stages.finetune import FinetuneConfig
from multitask.stages.finetune import training as finetuning
from multitask.stages.fuse import REPORT, FuseConfig
from multitask.stages.fuse import training as fusing
from multitask.stages.pretrain import PretrainConfig
from multitask.stages.pretrain import training as pretraining
from multitask.stages.prune import PruneConfig
from multitask.training.config import OptimizerConfig
from studies.engine.experiments import all_experiments, choose
from studies.engine.local_engine import local_engine
from studies.engine.presets import GIVEN, UNSUPERVISED, Preset
from studies.engine.recipes import Recipes
from studies.engine.run import run_preset

# Here, so that no run has to.
IMPORTED = (scipy.stats, torch._dynamo, combining, scoring, finetuning, fusing, pretraining)
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def preset(start: str, data: str, tables: list[str]) -> Preset:
    """Tables of small models."""
    optimizer = OptimizerConfig(learning_rate=1e-3, schedule="linear", warmup=0.1)
    multitask = FinetuneConfig(epochs=2, batch_size=32, optimizer=optimizer, keep_task_bests=False)
    supervised = PretrainConfig(sources=GIVEN, select="last", train_limit=16, optimizer=optimizer)
    recipes = Recipes(
        start=Weights(start),
        data=Path(data),
        multitask=multitask,
        supervised=supervised,
        unsupervised=replace(supervised, sources=UNSUPERVISED, select="similarity"),
        fusion=FuseConfig(replace(REPORT, epochs=2, batch_size=32, train_limit=32, keep_task_bests=False)),
        reviews=multitask,
        masked=None,
        views=supervised,
        pruning=PruneConfig(),
        recovery=supervised,
    )
    return Preset("sample", recipes, choose(all_experiments(recipes), tables))


def fork(grid: Preset, folder: Path, workers: int) -> int:
    """Start a run of the grid in a folder; returns the process."""
    folder.mkdir(parents=True, exist_ok=True)
    if (process := os.fork()) != 0:
        return process
    code = 1
    try:
        os.chdir(folder)
        options = RunOptions("cpu", "fp32", Path("runs"), save_every=0)  # saved after every step
        record = run_preset(grid, 1, options, local_engine(workers, "cpu"))
        code = len(record.failures)
    except (Interrupted, KeyboardInterrupt):
        code = 130
    finally:
        os._exit(code)


def ended(process: int, seconds: float) -> bool:
    """Wait so long for a process to end by itself; whether it did, without any failed row."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (found := os.waitpid(process, os.WNOHANG))[0]:
            assert os.waitstatus_to_exitcode(found[1]) == 0
            return True
        time.sleep(0.001)
    return False


def main(start: str, data: str, folder: Path, tables: str, kills: int, workers: int) -> None:
    torch.set_num_threads(1)
    grid = preset(start, data, tables.split(","))
    begun = time.monotonic()
    assert ended(fork(grid, folder / "reference", 1), 600)
    usual = (time.monotonic() - begun) / 5
    draw = random.Random(0)
    killed: Counter[str] = Counter()
    complete = 0
    while killed.total() < kills:
        done, longest, runs = 0, usual, folder / f"killed-{complete}"
        while not ended(
            process := fork(grid, runs, workers), draw.uniform(0, longest) if killed.total() < kills else 600
        ):
            number = SIGNALS[killed.total() % len(SIGNALS)]
            os.kill(process, number)
            os.waitpid(process, 0)
            killed[number.name] += 1
            before, done = done, len(list(runs.glob("runs/*/DONE")))
            longest = usual if done > before else 1.1 * longest  # a stage that has no state must end within a run
        complete += 1
    print(json.dumps({"killed": killed, "complete": complete}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4], int(sys.argv[5]), int(sys.argv[6]))
