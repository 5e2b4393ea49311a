"""A small part of `python -m benchmarks.reliability.faults`, and that the layer does what it says."""

import contextlib
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from benchmarks.reliability.faults import Trial, commands
from benchmarks.reliability.faulty_files import FAULTS, FaultyFiles
from benchmarks.reliability.world import call, contents, copy, in_child

OPERATIONS = {"finetune": (33, 71), "predict": (0, 2), "export": (25,)}
"""Some operations of some commands; the program tries all of all."""


@pytest.fixture(scope="module", params=OPERATIONS)
def trial(request: pytest.FixtureRequest, world: Path, model: Path, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("faults")
    work = partial(call, commands(model)[request.param])
    undisturbed = copy(world, folder / "undisturbed")
    ended = in_child(work, undisturbed)
    assert ended.code == 0, ended.errors
    return OPERATIONS[request.param], Trial(world, folder, work, contents(undisturbed), contents(world))


@pytest.mark.parametrize("kind", FAULTS)
def test_a_failing_operation_ends_in_one_line_and_the_same_command_goes_on(trial, kind):
    operations, of_command = trial
    assert [problem for at in operations if (problem := of_command.problem(FAULTS[kind], at))] == []


def test_a_trial_sees_a_traceback_a_half_written_file_and_other_results(world, tmp_path):
    def work(*, text: str = "whole", traceback: bool = False, code: int = 0) -> tuple[int, str, str]:
        with open("result", "w") as file:  # noqa: PTH123
            file.write("h")
            file.flush()
            file.write(text)
        return code, "", "Traceback" if traceback else ""

    def problem(**settings: object) -> str:
        fails = partial(work, **settings)  # type: ignore[arg-type]
        return str(
            Trial(world, tmp_path, fails, {**contents(world), "result": b"hwhole"}, contents(world)).problem(
                FAULTS["one input/output error"], 99
            )
        )

    assert problem() == "None"
    assert "a traceback" in problem(traceback=True)
    assert "half-written: result" in problem(text="ha")
    assert "expected a line that names a file" in problem(code=1)


def copy_of(target: Path) -> None:
    target.with_name("source").write_bytes(b"abc")
    shutil.copy(target.with_name("source"), target)


def synchronised(target: Path) -> None:
    with target.open("w") as file:
        os.fsync(file.fileno())


WRITES: dict[str, tuple[Callable[[Path], object], int]] = {
    "text": (lambda target: target.write_text("abc"), 2),
    "bytes": (lambda target: target.write_bytes(b"abc"), 2),
    "numpy": (lambda target: np.save(target, np.ones(3)), 2),
    "safetensors": (lambda target: safetensors.torch.save_file({"a": torch.ones(3)}, target), 2),
    "copy": (copy_of, 4),
    "mkdir": (Path.mkdir, 1),
    "rename": (lambda target: target.parent.rename(target.parent.with_name("renamed")), 1),
    "fsync": (synchronised, 2),
}
"""Ways to write, and the fewest operations that each needs."""


@pytest.mark.parametrize("way", WRITES)
def test_the_layer_reaches_every_way_to_write(tmp_path, way):
    work, fewest = WRITES[way]
    fault, at = FAULTS["one input/output error"], 0
    while True:
        (target := tmp_path / str(at) / "file").parent.mkdir()
        layer = FaultyFiles(tmp_path, fault, at)
        with layer.installed(), contextlib.suppress(OSError, safetensors.SafetensorError):
            work(target)
        if not layer.failed:
            break
        at += 1
    assert at == layer.count >= fewest
