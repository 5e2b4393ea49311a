"""Kills a grid at random moments, again and again until it ends, and compares every byte with an undisturbed run."""

import os
import random
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.reliability import world
from tests.reliability.world import quick_reports

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
KILLS_OF_A_RESULT = 10
"""A few kills for each undisturbed result, so that all stages are hit."""


def kill_until_done(
    folder: Path, command: list[str], at_once: int, longest: float, kills: int, draw: random.Random
) -> Counter[str]:
    """Kill processes that run the command in a folder at most so many times, then let all of them end.

    Returns how often each signal hit a running process. Raises SystemExit if a process fails that was not killed.
    """
    killed: Counter[str] = Counter()

    def started() -> tuple[int, float]:
        return world.begin(partial(world.call, command), folder), time.monotonic() + draw.uniform(0, longest)

    running = dict(started() for _ in range(at_once))
    while running:
        for process, deadline in list(running.items()):
            number = 0
            if time.monotonic() > deadline and killed.total() < kills:
                os.kill(process, number := draw.choice(SIGNALS))
            found, status = os.waitpid(process, 0 if number else os.WNOHANG)
            if not found:
                continue
            del running[process]
            code = os.waitstatus_to_exitcode(status)
            if code not in (0, -number, 128 + number):
                raise SystemExit(f"signal {number} ended with {code}; see {world.told(folder, process)}")
            if code:  # otherwise it ended before the signal came
                killed[signal.Signals(number).name] += 1
                running |= [started()]
        time.sleep(0.002)
    return killed


def try_kills(folder: Path, tables: str, kills: int, at_once: int = 1, seed: int = 0) -> tuple[Counter[str], list[str]]:
    """Kill the grid so many times in an empty folder. Returns the kills by signal, and the files that differ."""
    world.make_world(folder / "world")
    command, draw = world.grid(tables), random.Random(seed)
    here, began = folder / "here", time.monotonic()
    expected = world.undisturbed(command, world.copy(folder / "world", here))
    longest = (time.monotonic() - began) / 2  # the first run also imports
    killed: Counter[str] = Counter()
    different: list[str] = []
    while killed.total() < kills:
        world.copy(folder / "world", here)
        some = min(kills - killed.total(), KILLS_OF_A_RESULT)
        killed += kill_until_done(here, command, at_once, longest, some, draw)
        different += world.differences(world.contents(here), expected)
        print(f"killed: {dict(killed)}, different files: {different}", flush=True)
    return killed, different


# A grid that is killed at any moment and started again ends with the same bits as one that is left alone.


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 3])
def test_a_killed_grid_ends_with_the_bytes_of_an_undisturbed_one(tmp_path, at_once, capfd):
    with quick_reports():
        killed, different = try_kills(tmp_path, "1,reviews", 8, at_once)
    assert killed.total() >= 8
    assert different == []
