"""Damages files of a store at random, and checks that no damage changes a result in silence.

    python -m benchmarks.reliability.damages --output FOLDER [--damages 1000] [--seed 0]

Each damage happens in a copy of a store, to a file of a random kind: of runs, of their checkpoints, and of the records
of grids. Half of the damages leave the file's size and time of change as they were, as a failing disk does. Then the
store is verified, and everything that could read the file is called: evaluate, predict, report, gc, run. A damage is
accepted in silence if a command succeeds with another result, although neither it nor `experiments verify` said
anything. The time that `verify` is needed for: a damage that leaves size and time is only found by it.
"""

import argparse
import os
import random
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.reliability.world import COMPUTED, Ended, call, contents, copy, grid, in_child, make_world
from multitask.evaluation.resampled_scores import resampled_scores
from studies.report import run_results

RESULTS = {
    "evaluate": ("scores.json",),
    "predict": ("answers.csv",),
    "report": ("again/",),
    "run": ("runs/", "report/tables/", "predictions/"),
}
"""What each command writes, as beginnings of paths. Pages of a grid that is run again show its new seconds."""


def uses(model: Path) -> dict[str, list[str]]:
    """The commands that use a store."""
    chosen = ("--model", str(model), *COMPUTED)
    return {
        "verify": ["experiments", "verify", "--runs", "runs"],
        "evaluate": ["evaluate", *chosen, "--tasks-file", "data/tasks.toml", "--output", "scores.json"],
        "predict": ["predict", *chosen, "--input", "data/sentences.txt", "--output", "answers.csv"],
        "report": ["report", "tasks", "--runs", "runs", "--report", "again"],
        "gc": ["experiments", "gc", "--runs", "runs"],
        "run": grid(),
    }


def flip(content: bytes, draw: random.Random) -> bytes:
    """One to eight flipped bits."""
    found = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8))):
        found[draw.randrange(len(found))] ^= 1 << draw.randrange(8)
    return bytes(found)


def zero(content: bytes, draw: random.Random) -> bytes:
    """A range of zeros."""
    begin, length = draw.randrange(len(content)), draw.choice((1, 16, 512, 4096))
    return content[:begin] + b"\0" * len(content[begin : begin + length]) + content[begin + length :]


def truncate(content: bytes, draw: random.Random) -> bytes:
    """A shorter file, perhaps an empty one."""
    return content[: draw.choice((0, draw.randrange(len(content))))]


def append(content: bytes, draw: random.Random) -> bytes:
    """A longer file."""
    return content + draw.choice((b"\n", b"\0" * 64, draw.randbytes(100), content))


CHANGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (flip, zero, truncate, append)


def kinds(store: Path) -> dict[str, list[Path]]:
    """The files of a store by kind: stage and name, or folder of records."""
    found = defaultdict(list)
    for path in sorted((store / "runs").rglob("*")):
        parts = path.relative_to(store / "runs").parts
        if path.is_file() and parts[0] not in (".locks", "logs") and path.stat().st_size:
            found[f"{parts[0].partition('-')[0]}/{path.name if parts[0] != '.nodes' else '*'}"].append(path)
    return dict(found)


def damage(store: Path, draw: random.Random) -> tuple[str, Path]:
    """Damage a file of a store. Returns what was done, and the file."""
    of_kind = kinds(store)
    kind = draw.choice(sorted(of_kind))
    path = draw.choice(of_kind[kind])
    content, stat = path.read_bytes(), path.stat()
    others = [other for other in of_kind[kind] if other.read_bytes() != content]
    what = draw.choice(["change", "change", "change", "delete", *(["swap"] if others else [])])
    if what == "delete":
        path.unlink()
        return "deleted", path
    if what == "swap":
        other = draw.choice(others)
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)
        return "swapped", path
    change = draw.choice(CHANGES)
    damaged = change(content, draw)
    path.write_bytes(damaged)
    kept = len(damaged) == len(content) and draw.random() < 0.5
    if kept:
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return change.__name__ + (", same size and time" if kept else ""), path


class Trials:
    """Damages of one store.

    Args:
        folder: an empty folder to work in.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.model = make_world(self.store)
        self.uses = uses(self.model)
        self.expected: dict[str, dict[str, Any]] = {}
        self.listed = ""  # what gc would remove
        here = copy(self.store, folder / "expected")
        for name, arguments in self.uses.items():
            ended = in_child(partial(call, arguments), here)
            if ended.code:
                raise SystemExit(f"{name} fails without damage: {ended.errors}")
            self.expected[name] = self._results(here, name)
            if name == "gc":
                self.listed = ended.output

    def _results(self, here: Path, name: str) -> dict[str, Any]:
        """What a command wrote; of runs all but the record, whose seconds change, and what only vouches for results."""
        wanted = RESULTS.get(name, ())
        left_out = "/KEEP", "/DONE"
        return {
            path: content
            for path, content in contents(here).items()
            if wanted and path.startswith(wanted)
            if not path.startswith("runs/experiments-") and not path.endswith(left_out)
        }

    def judge(self, seed: int) -> tuple[str, str, list[str]]:
        """Do one damage. Returns what was done, how it ended, and problems."""
        draw = random.Random(seed)
        here = copy(self.store, self.folder / "trial")
        what, path = damage(here, draw)
        name = path.relative_to(here)
        of_model = path.is_relative_to(here / self.model)
        chosen = ("verify", "evaluate", "predict") if of_model else ("verify", "gc", "report", "run")
        problems, noticed, other = [], False, []
        for use in chosen:
            ended: Ended = in_child(partial(call, self.uses[use]), here)
            if "Traceback" in ended.errors or ended.code not in (0, 1, 2):
                problems.append(f"{use}: a traceback: {ended.errors.splitlines()[-1:]}")
            said = ended.code != 0 or any(word in ended.errors for word in ("not used", "damaged", "put aside"))
            noticed |= said
            different = ended.output != self.listed if use == "gc" else self._results(here, use) != self.expected[use]
            if not said and different:
                other.append(use)
        if other and not (noticed and "same size and time" in what):
            problems.append(f"accepted in silence by {', '.join(other)}")
        ending = "noticed" if noticed else "silent" if other else "without effect"
        return what, ending, [f"seed {seed}: {what} {name}: {problem}" for problem in problems]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--damages", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder = options.output.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    os.environ |= {"MULTITASK_CACHE": "cache", "TOKENIZERS_PARALLELISM": "false"}
    counts: Counter[tuple[str, str]] = Counter()
    bad = 0
    with patch.object(run_results, "resampled_scores", partial(resampled_scores, samples=100)):
        trials = Trials(folder)
        for seed in range(options.seed, options.seed + options.damages):
            what, ending, problems = trials.judge(seed)
            counts[what, ending] += 1
            bad += bool(problems)
            for problem in problems:
                print(problem, flush=True)
    for (what, ending), count in sorted(counts.items()):
        print(f"{count:>5}  {what}: {ending}")
    print(f"{counts.total()} damages, {bad} with problems")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
