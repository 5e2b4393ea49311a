"""The progress of a grid: what is left follows from the stages that ended here."""

import logging
import time
from pathlib import Path

import pytest

from multitask.experiments.grid import GridProgress
from multitask.experiments.tables import Node
from multitask.stages.settings import EvaluateConfig
from tests.multitask.experiments.conftest import Recipes


def test_what_is_left_is_what_stages_of_the_same_kind_took(
    recipes: Recipes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    trained = [recipes.finetune(recipes.start), recipes.fuse(recipes.start)]
    scored = [Node("evaluate", EvaluateConfig(), (model,), Path()) for model in trained]
    names = {trained[0]: "finetune", trained[1]: "fuse", scored[0]: "first", scored[1]: "second"}
    caplog.set_level(logging.INFO)
    with GridProgress(names, names.__getitem__, live=False) as progress:
        assert progress.seconds_left() is None
        progress.began_stage(trained[0])
        progress.began_stage(trained[1])
        clock[0] += 30
        progress.ended_stage(trained[0])
        progress.began_stage(scored[0])
        assert progress.seconds_left() == (0 + 30 + 30) / 2  # as long as finetune; fuse is late, and two run at once
        clock[0] += 10
        progress.ended_stage(scored[0], "bad luck")
        assert progress.seconds_left() == (0 + 10) / 2
        progress.left_out(scored[1])
        assert progress.seconds_left() == 0
    assert caplog.messages[0] == "[1/4] finetune: 30 s (0:30 so far, 0:30 left)"
    assert caplog.messages[1].startswith("[2/4] first: failed: bad luck (0:40 so far")
