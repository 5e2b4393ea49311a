"""Disturbs the operations on files of a grid's smallest table, one at a time, and checks what is left.

The command runs once for each operation and each kind of fault (see `faulty_files`). Required each time: an exit with
one line that names a file, or the undisturbed result; no file under its final name that is other than in an undisturbed
run; and the same command, called again on a good disk, ends with the bytes of an undisturbed run. The kind "half a
file" cuts one file after another of a complete store in half: the command, called again, must end in the same way, or
whoever uses the run must find the damage.
"""

import os
from functools import partial
from pathlib import Path

from minbert.errors import InputError
from multitask.base.runs import Run
from tests.reliability import world
from tests.reliability.faulty_files import FAULTS, Fault, FaultyFiles
from tests.reliability.world import Ended, call, contents, copy, differences, in_child

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
