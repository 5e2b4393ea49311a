"""Kills commands at random moments, again and again until they end, and compares every byte with an undisturbed run.

    python -m benchmarks.reliability.kills --output FOLDER [--points 100] [--at-once 3] [--seed 0]

The command is `experiments run` on a tasks file: trainings, saved states, checkpoints, evaluations, an ensemble,
prediction files and the report. With --at-once, so many processes begin it in the same folder, and each is killed and
begun again by itself.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.reliability.world import call, contents, differences, grid, in_child, make_world
from multitask.evaluation.resampled_scores import resampled_scores
from studies.report import run_results

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TIMED = ("report/index.html", "report/report.md")
"""Pages with measured seconds; their numbers are also in the record and in report/tables."""


def begin(folder: Path) -> int:
    """Start the command in a forked process; returns the process."""
    if (process := os.fork()) != 0:
        return process
    code = 98
    try:
        os.chdir(folder)
        with open(os.devnull, "w") as null:  # noqa: PTH123
            os.dup2(null.fileno(), 1)
            os.dup2(null.fileno(), 2)
        code = call(grid())[0]
    except BaseException:
        code = 97
    finally:
        os._exit(code)


def results(folder: Path) -> dict[str, Any]:
    """All results of the command but those with times, and temporary files that a kill left outside of runs."""
    return {
        name: content
        for name, content in contents(folder).items()
        if name not in TIMED and not (Path(name).name.startswith(".") and name.endswith(".tmp"))
    }


def kill_until_done(folder: Path, processes: int, points: int, usual: float, draw: random.Random) -> Counter[str]:
    """Kill at most so many times, then let all processes end. Returns how often which signal hit a running process.

    Raises SystemExit if a process fails that was not killed.
    """
    killed: Counter[str] = Counter()
    running = {begin(folder): draw.uniform(0, usual) + time.monotonic() for _ in range(processes)}
    while running:
        for process, deadline in list(running.items()):
            found, status = os.waitpid(process, os.WNOHANG)
            if found:
                del running[process]
                if code := os.waitstatus_to_exitcode(status):
                    raise SystemExit(f"a process that nobody killed ended with {code}")
            elif time.monotonic() > deadline and killed.total() < points:
                number = draw.choice(SIGNALS)
                os.kill(process, number)
                code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
                del running[process]
                if code == 0:
                    continue  # it ended before the signal came
                if code not in (-number, 128 + number):
                    raise SystemExit(f"{number.name} ended with {code}")
                killed[number.name] += 1
                running[begin(folder)] = draw.uniform(0, usual) + time.monotonic()
        time.sleep(0.002)
    return killed


def kills(folder: Path, points: int, at_once: int, seed: int = 0) -> tuple[Counter[str], int, list[str]]:
    """Kill the command at so many points.

    Args:
        folder: an empty folder to work in.
        points: number of kills.
        at_once: processes in one folder.
        seed: of moments and signals.

    Returns:
        Kills by signal, how many runs were completed, and the files that differ from an undisturbed run.
    """
    world, draw = folder / "world", random.Random(seed)
    make_world(world, with_grid=False)
    undisturbed = Path(shutil.copytree(world, folder / "undisturbed"))
    began = time.monotonic()
    ended = in_child(partial(call, grid()), undisturbed)
    if ended.code:
        raise SystemExit(f"fails undisturbed: {ended.errors}")
    usual, expected = time.monotonic() - began, results(undisturbed)
    killed: Counter[str] = Counter()
    different: list[str] = []
    complete = 0
    while killed.total() < points:
        here = Path(shutil.copytree(world, folder / f"killed-{complete}"))
        # A few kills for each undisturbed result, so that all stages are hit.
        killed += kill_until_done(here, at_once, min(points - killed.total(), 10), usual, draw)
        different += [f"{here.name}/{name}" for name in differences(results(here), expected)]
        complete += 1
    return killed, complete, different


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder = options.output.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    os.environ |= {"MULTITASK_CACHE": "cache", "TOKENIZERS_PARALLELISM": "false"}
    with patch.object(run_results, "resampled_scores", partial(resampled_scores, samples=100)):
        killed, complete, different = kills(folder, options.points, options.at_once, options.seed)
    print(json.dumps({"killed": killed, "complete": complete, "different": different}))
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
