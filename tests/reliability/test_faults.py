"""Operations on files that fail, one in four of those that can, and that the layer does what it says."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from tests.reliability import faults
from tests.reliability.faults import HALF, Trials
from tests.reliability.faulty_files import FAULTS, FaultyFiles
from tests.reliability.world import Ended, quick_reports


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    with quick_reports():
        yield Trials(tmp_path_factory.mktemp("faults"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*FAULTS, HALF])
def test_a_fault_ends_in_one_line_and_the_same_command_goes_on(trials, kind):
    tried = range(2, count := trials.count(kind), count // 4)
    assert [problem for at in tried if (problem := trials.problem(kind, at))] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "ended", "problem"),
    [
        ("whole", (0, "", ""), None),
        ("whole", (1, "", "Traceback"), "a traceback"),
        ("ha", (0, "", ""), "half-written: result"),
        ("whole", (1, "", ""), "expected a line that names a file"),
    ],
)
def test_problems_are_seen(trials, monkeypatch, text, ended, problem):
    def work() -> Ended:
        Path("result").write_text(text)
        return ended

    monkeypatch.setattr(faults, "WORK", work)
    monkeypatch.setattr(trials, "expected", {**faults.contents(trials.world), "result": b"whole"})
    found = trials.problem("one input/output error", 99)
    assert found is None if problem is None else problem in found


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
