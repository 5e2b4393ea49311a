"""Lets every single operation on files of some commands fail, and checks what is left.

    python -m benchmarks.reliability.faults --output FOLDER [--commands finetune report] [--kinds "full disk"]

Each command runs once for each operation and each kind of fault (see `faulty_files`). Required each time: an exit with
one line that names a file, or the undisturbed result; no file under its final name that is other than in an undisturbed
run; and the same command, called again on a good disk, ends with the bytes of an undisturbed run.
"""

import argparse
import contextlib
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

from markupsafe import Markup

from benchmarks.reliability.faulty_files import FAULTS, Fault, FaultyFiles
from benchmarks.reliability.world import (
    COMPUTED,
    Ended,
    call,
    contents,
    copy,
    differences,
    finetune,
    grid,
    in_child,
    make_world,
    one_row,
)
from multitask.evaluation.resampled_scores import resampled_scores
from studies.report import figures, run_results

Command = Callable[[], tuple[int, str, str]]


TIMED = ("report/index.html", "report/report.md")
OF_ROWS = ("report/", "predictions/")


def commands(model: Path) -> dict[str, list[str]]:
    """What is tried, by name."""
    chosen = ("--model", str(model), *COMPUTED)
    return {
        "finetune": finetune("--seed", "1", "--epochs", "1", "--epoch-size", "32"),
        "evaluate": ["evaluate", *chosen, "--tasks-file", "data/tasks.toml", "--details", "details"],
        "predict": ["predict", *chosen, "--input", "data/sentences.txt", "--output", "answers.csv"],
        "predict the sets": ["predict", *chosen, "--tasks-file", "data/tasks.toml", "--output", "predictions"],
        "embed": ["embed", "data/sentences.txt", "embeddings.npy", *chosen],
        "export": ["export", "--model", str(model), "--output", "exported", "--to", "sentence-transformers"],
        "ensemble": ["ensemble", *chosen, "--kept", "all", "--tasks-file", "data/tasks.toml"],
        "report": ["report", "tasks", "--runs", "runs", "--report", "report"],
        "experiments run of one row": one_row(),
        "experiments run": grid(),
    }


@dataclass(frozen=True)
class Trial:
    """One command with one fault, in a copy of the world.

    Args:
        world: before the command.
        folder: for the copies.
        work: the command.
        expected: contents after an undisturbed run.
        before: contents before it.
        timed: files that show seconds that the command measures.
        of_rows: folders of files that also depend on which rows of a grid failed.
    """

    world: Path
    folder: Path
    work: Command
    expected: dict[str, object]
    before: dict[str, object]
    timed: tuple[str, ...] = ()
    of_rows: tuple[str, ...] = ()

    def problem(self, fault: Fault, at: int) -> str | None:
        """What the nth operation's failure led to that it should not; None if nothing."""
        here = copy(self.world, self.folder / "trial")
        ended = in_child(lambda: self._disturbed(here, fault, at), here)
        if (found := self._ending(ended)) or (found := self._half_written(here)):
            return f"{found}; failed: {ended.output}"
        again = in_child(self.work, here)
        if again.code:
            return f"does not go on: {again.errors[-300:]}"
        if different := differences(contents(here), self.expected):
            different = [name for name in different if not _temporary(name) and name not in self.timed]
        return f"other results after going on: {', '.join(different)}; failed: {ended.output}" if different else None

    def _disturbed(self, here: Path, fault: Fault, at: int) -> tuple[int, str, str]:
        layer = FaultyFiles(here, fault, at)
        with layer.installed():
            code, _, errors = self.work()
        return code, ", ".join(layer.failed[:3]), errors

    def _ending(self, ended: Ended) -> str | None:
        lines = ended.errors.splitlines()
        if "Traceback" in ended.errors or ended.code not in (0, 1, 2):
            return f"a traceback, code {ended.code}: {' / '.join(lines[-2:])}"
        if ended.code == 0:
            return None  # whether the result is right is seen from the files
        told = [line for line in lines if line.startswith("error: ")]
        if not told or any("input or output" in line for line in told):
            return f"expected a line that names a file: {told or lines[-1:]}"
        return None

    def _half_written(self, here: Path) -> str | None:
        """A result outside of runs is whole or absent; a run that is marked as complete is whole."""
        # The saved state of a complete run is removed last, and is not used any more.
        found = {name: content for name, content in contents(here).items() if "/state/" not in name}
        done = {str(Path(name).parent) for name in found if name.endswith("/DONE")}
        for name, content in found.items():
            complete = not name.startswith("runs/") or any(name.startswith(f"{run}/") for run in done)
            skipped = _temporary(name) or name.startswith(self.of_rows)
            if complete and not skipped and content not in (self.expected.get(name), self.before.get(name)):
                return f"half-written: {name}"
        return None


def _temporary(name: str) -> bool:
    """Whether it is a temporary file, or in such a folder: nobody can remove them while the disk fails."""
    return any(part.startswith(".") and part.endswith((".tmp", ".old")) for part in Path(name).parts)


def try_all(
    folder: Path,
    names: list[str],
    kinds: list[str],
    every: int = 1,
    first: int = 0,
    told: Callable[[str], None] = print,
) -> tuple[Counter[str], list[str]]:
    """Try every operation of commands with some kinds of faults.

    Args:
        folder: an empty folder to work in.
        names: of commands; empty: all.
        kinds: of faults; empty: all.
        every: try only each so-manieth operation.
        first: the operation to begin with, for a run that goes on.
        told: takes a line for each command and each problem.

    Returns:
        The number of faults tried by kind, and the problems found.
    """
    world = folder / "world"
    model = make_world(world, with_grid=not names or "report" in names)
    tried: Counter[str] = Counter()
    problems: list[str] = []
    for name, arguments in commands(model).items():
        if names and name not in names:
            continue
        began, work, before = time.monotonic(), partial(call, arguments), world
        if name.startswith("experiments run"):
            before = copy(world, folder / "without runs")
            shutil.rmtree(before / "runs")
        with contextlib.chdir(copy(before, folder / "imports")):
            work()  # what is imported here needs no time in the children
        undisturbed = copy(before, folder / "undisturbed")
        ended = in_child(work, undisturbed)
        if ended.code:
            raise SystemExit(f"{name} fails without a fault: {ended.errors}")
        of_grid = (TIMED, OF_ROWS) if name.startswith("experiments run") else ()
        trial = Trial(before, folder, work, contents(undisturbed), contents(before), *of_grid)
        count = 0
        for kind in kinds or FAULTS:
            fault = FAULTS[kind]
            operations = _operations(before, folder / "counted", work, fault)
            for at in range(first, operations, every):
                count += 1
                if count % 50 == 0:
                    told(f"{name}, {kind}: operation {at} of {operations}")
                if problem := trial.problem(fault, at):
                    problems.append(f"{name}, {kind}, operation {at}: {problem}")
                    told(problems[-1])
            tried[kind] += len(range(first, operations, every))
            told(f"{name}, {kind}: {tried[kind]} tried, {time.monotonic() - began:.0f} s")
        told(f"{name}: {count} faults, {time.monotonic() - began:.0f} s")
    return tried, problems


def _operations(world: Path, folder: Path, work: Command, fault: Fault) -> int:
    """How many operations of the command the fault can hit."""
    here = copy(world, folder)

    def counted() -> tuple[int, str, str]:
        layer = FaultyFiles(here, fault, None)
        with layer.installed():
            code, _, errors = work()
        return code, str(layer.count), errors

    ended = in_child(counted, here)
    if ended.code:
        raise SystemExit(f"the layer disturbs without a fault: {ended.errors}")
    return int(ended.output)


@contextlib.contextmanager
def quick_reports() -> Iterator[None]:
    """Reports resample little and draw nothing within the block: both take most of their time, and touch no file."""
    samples = patch.object(run_results, "resampled_scores", partial(resampled_scores, samples=100))
    with samples, patch.object(figures, "render_panels", lambda *_: Markup("<svg></svg>")):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--commands", nargs="+", default=[])
    parser.add_argument("--kinds", nargs="+", default=[], choices=FAULTS)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    folder = options.output.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    os.environ |= {"MULTITASK_CACHE": "cache", "TOKENIZERS_PARALLELISM": "false"}
    with quick_reports():
        tried, problems = try_all(
            folder, options.commands, options.kinds, options.every, options.first, partial(print, flush=True)
        )
    print(
        f"{tried.total()} faults ({', '.join(f'{kind}: {n}' for kind, n in tried.items())}); {len(problems)} problems"
    )
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
