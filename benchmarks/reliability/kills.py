"""Kills commands at random moments, again and again until they end, and compares every byte with an undisturbed run.

    python -m benchmarks.reliability.kills --output FOLDER [--points 100] [--at-once 3] [--seed 0] [--engine ray]

The command is `experiments run` on a tasks file: trainings, saved states, checkpoints, evaluations, an ensemble,
prediction files and the report. With --at-once, so many processes begin it in the same folder, and each is killed and
begun again by itself. With `--engine ray`, the command's jobs run on a cluster of two nodes; about half of the kills
are the loss of a node, with all its processes, while the command goes on.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.reliability.ray_nodes import Nodes
from benchmarks.reliability.world import call, contents, differences, grid, in_child, make_world
from multitask.evaluation.resampled_scores import resampled_scores
from studies.report import run_results

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
RAY_CRASH = "You have likely discovered a bug in Ray"
"""Ray's library may crash while it cancels tasks (ray-project/ray, pull request 54798, and version 2.60)."""
TIMED = ("report/index.html", "report/report.md")
"""Pages with measured seconds; their numbers are also in the record and in report/tables."""


def begin(folder: Path, command: Sequence[str]) -> int:
    """Start the command in a forked process; returns the process."""
    if (process := os.fork()) != 0:
        return process
    code = 98
    try:
        os.chdir(folder)
        with open(f"{folder}.log", "a") as log:  # noqa: PTH123
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        code, _, errors = call(command)
        os.write(2, errors.encode())
    except BaseException:
        traceback.print_exc()
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


@dataclass(frozen=True)
class Trial:
    """What is killed.

    Args:
        command: the arguments.
        processes: how many run it at once in one folder.
        usual: seconds that it takes undisturbed.
        lose_node: loses a node of the cluster that the command uses; None if there is none.
    """

    command: Sequence[str]
    processes: int
    usual: float
    lose_node: Callable[[], None] | None = None

    def moment(self, draw: random.Random) -> float:
        """A random moment of a run that begins now."""
        return draw.uniform(0, self.usual) + time.monotonic()


def kill_until_done(trial: Trial, folder: Path, points: int, draw: random.Random) -> Counter[str]:
    """Kill at most so many times, then let all processes end. Returns how often which signal hit a running process.

    Raises SystemExit if a process fails that was not killed.
    """
    killed: Counter[str] = Counter()
    running = {begin(folder, trial.command): trial.moment(draw) for _ in range(trial.processes)}
    while running:
        for process, deadline in list(running.items()):
            found, status = os.waitpid(process, os.WNOHANG)
            if found:
                del running[process]
                if code := os.waitstatus_to_exitcode(status):
                    raise SystemExit(f"a process that nobody killed ended with {code}")
            elif time.monotonic() <= deadline or killed.total() >= points:
                continue
            elif trial.lose_node is not None and draw.random() < 0.5:
                trial.lose_node()
                killed["node"] += 1
                running[process] = trial.moment(draw)
            else:
                number = draw.choice(SIGNALS)
                os.kill(process, number)
                code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
                del running[process]
                if code == 0:
                    continue  # it ended before the signal came
                if code in (-number, 128 + number):
                    killed[number.name] += 1
                elif trial.lose_node is not None and RAY_CRASH in Path(f"{folder}.log").read_text(errors="replace"):
                    killed[f"{number.name}, then a crash of Ray"] += 1
                else:
                    raise SystemExit(f"{number.name} ended with {code}")
                running[begin(folder, trial.command)] = trial.moment(draw)
        time.sleep(0.002)
    return killed


def kills(
    folder: Path, points: int, at_once: int, seed: int = 0, cluster: Nodes | None = None
) -> tuple[Counter[str], int, list[str]]:
    """Kill the command at so many points.

    Args:
        folder: an empty folder to work in.
        points: number of kills.
        at_once: processes in one folder.
        seed: of moments and signals.
        cluster: whose nodes compute and are lost; None: the command's own process computes.

    Returns:
        Kills by signal, how many runs were completed, and the files that differ from an undisturbed run.
    """
    # All runs happen in the same folder, because jobs on a cluster record absolute paths.
    world, here, draw = folder / "world", folder / "here", random.Random(seed)
    make_world(world, with_grid=False)
    shutil.copytree(world, here)
    began = time.monotonic()
    command = grid(*(("--engine", "ray") if cluster else ()))
    ended = in_child(partial(call, command), here)
    if ended.code:
        raise SystemExit(f"fails undisturbed: {ended.errors}")
    trial = Trial(command, at_once, time.monotonic() - began, cluster.lose_one if cluster else None)
    expected = results(here)
    here.rename(folder / "undisturbed")
    killed: Counter[str] = Counter()
    different: list[str] = []
    complete = 0
    while killed.total() < points:
        shutil.copytree(world, here)
        # A few kills for each undisturbed result, so that all stages are hit.
        killed += kill_until_done(trial, here, min(points - killed.total(), 10), draw)
        different += [f"killed-{complete}/{name}" for name in differences(results(here), expected)]
        here.rename(folder / f"killed-{complete}")
        complete += 1
        print(json.dumps({"killed": killed, "complete": complete, "different": different}), flush=True)
    return killed, complete, different


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    options = parser.parse_args()
    folder = options.output.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.environ |= {"MULTITASK_CACHE": "cache", "TOKENIZERS_PARALLELISM": "false"}
    # Jobs on a cluster have another current folder.
    os.environ["PYTHONPATH"] = os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path)
    with (
        patch.object(run_results, "resampled_scores", partial(resampled_scores, samples=100)),
        Nodes(folder) if options.engine == "ray" else contextlib.nullcontext() as cluster,
    ):
        _, _, different = kills(folder, options.points, options.at_once, options.seed, cluster)
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
