"""Disturbs the operations on files of a grid's smallest table, one at a time, and checks what is left."""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from minbert.errors import InputError
from multitask.base.runs import Run
from tests.reliability import world
from tests.reliability.faulty_files import FAULTS, Fault, FaultyFiles
from tests.reliability.world import Ended, call, contents, copy, differences, in_child, quick_reports

HALF = "half a file"
COMMAND = world.grid("reviews")
WORK = partial(call, COMMAND)
OF_ROWS = "report/"
"""Folder whose files also depend on which rows failed."""


class Trials:
    """What the command does in a new folder, undisturbed and with faults."""

    def __init__(self, folder: Path) -> None:
        self.world, self.done, self.here = folder / "world", folder / "done", folder / "here"
        world.make_world(self.world)
        self.expected = world.undisturbed(COMMAND, copy(self.world, self.done))
        self.files = sorted(name for name in self.expected if name.startswith("runs/"))

    def count(self, kind: str) -> int:
        """How many operations, or files, a kind of fault can hit."""
        if kind == HALF:
            return len(self.files)
        return int(in_child(partial(_disturbed, FAULTS[kind], None), copy(self.world, self.here))[1])

    def problem(self, kind: str, at: int) -> str | None:
        """What a fault led to that it should not, in one line; None if nothing."""
        if kind == HALF:
            path = copy(self.done, self.here) / self.files[at]
            os.truncate(path, path.stat().st_size // 2)
            hit, ended = self.files[at], in_child(WORK, self.here)
            accepted = ended[0] == 0 and differences(contents(self.here), self.expected)
            unseen = accepted and not self._damage_is_found()
            found = _ending(ended) or (f"accepted, with other results: {accepted}" if unseen else None)
        else:
            ended = in_child(partial(_disturbed, FAULTS[kind], at), copy(self.world, self.here))
            hit, found = ended[1], _ending(ended) or self._half_written() or self._after_another_call()
        return f"{kind}, {at} ({hit}): {found}" if found else None

    def _damage_is_found(self) -> bool:
        try:
            for done in self.here.glob("runs/*/DONE"):
                Run(done.parent).check()
        except InputError:
            return True
        return False

    def _half_written(self) -> str | None:
        """A result outside of runs is whole or absent; a run that is marked as complete is whole."""
        contained = contents(self.here)
        done = tuple(name.removesuffix("DONE") for name in contained if name.endswith("/DONE"))
        for name, content in contained.items():
            final = name.startswith(done) or not name.startswith(("runs/", OF_ROWS))
            # The saved state of a complete run is removed last, and is not used any more.
            if final and content != self.expected.get(name) and not world.is_temporary(name) and "/state/" not in name:
                return f"half-written: {name}"
        return None

    def _after_another_call(self) -> str | None:
        code, _, errors = in_child(WORK, self.here)
        if code:
            return f"does not go on: {errors[-300:]}"
        different = differences(contents(self.here), self.expected)
        return f"other results after going on: {different}" if different else None


def _disturbed(fault: Fault, at: int | None) -> Ended:
    """The command's end; its output is the operations that failed, or the number of those that could."""
    layer = FaultyFiles(Path.cwd(), fault, at)
    with layer.installed():
        code, _, errors = WORK()
    return code, str(layer.count) if at is None else ", ".join(layer.failed[:3]), errors


def _ending(ended: Ended) -> str | None:
    """What is wrong with how the command ended. Whether a result is right is seen from the files."""
    code, _, errors = ended
    told = [line for line in errors.splitlines() if line.startswith("error: ")]
    if "Traceback" in errors or code not in (0, 1, 2):
        return f"a traceback, code {code}: {errors[-300:]}"
    if code and (not told or any("input or output" in line for line in told)):
        return f"expected a line that names a file: {told or errors[-300:]}"
    return None


# Operations on files that fail, one in four of those that can, and that the layer does what it says.


@pytest.fixture(scope="module")
def trials(tmp_path_factory) -> Iterator[Trials]:
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

    monkeypatch.setattr(sys.modules[__name__], "WORK", work)
    monkeypatch.setattr(trials, "expected", {**contents(trials.world), "result": b"whole"})
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
