"""Gives mutated inputs to everything that reads, and counts tracebacks, hangs and unclear errors.

    python -m benchmarks.reliability.fuzz --output FOLDER [--seconds 900] [--first 0] [--targets tables tasks ...]

A case is a number and a target (see `fuzz_targets`); the same case is always the same input. Cases come in rounds, and
the last line says with which `--first` a later call goes on. A new traceback's input is kept in FOLDER/found. A good
end is a result or one line of at most 2,000 characters, without control characters, that names the file. `fuzz_guided`
lets coverage choose the inputs.

Most of a case's time goes into writing files, so FOLDER should be in memory, such as /dev/shm/fuzz.
"""

import argparse
import contextlib
import faulthandler
import io
import logging
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from benchmarks.reliability.fuzz_commands import remembered_commands
from benchmarks.reliability.fuzz_readers import Reader
from benchmarks.reliability.fuzz_targets import CHEAP, COSTLY, prepare, targets
from minbert.errors import InputError
from multitask.cli.main import error_line
from multitask.runtime.errors import TrainingError

SECONDS = 20.0
"""Of the processor: the most that a case may take."""
STUCK = 300.0
"""Seconds of a round after which the whole process ends: a library is stuck, and Python's signals do not reach it."""
MEMORY = 4 * 2**30
"""Bytes of address space that a case may take in addition."""
LONGEST = 2000
"""Characters of the longest message."""
TARGETS = (
    *("tables", "texts", "tasks", "settings", "models", "records", "arguments"),
    *COSTLY,
)


class Hang(BaseException):
    """A case took too long."""


@dataclass
class Found:
    """What a run of the fuzzer found.

    Args:
        cases: by target.
        refused: cases that ended in a line of error, by target.
        problems: by kind and place, how often.
        inputs: of each problem, the first case and its input.
    """

    cases: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    inputs: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    def try_case(self, target: str, number: int, readers: Sequence[Reader]) -> None:
        """Run one case and count how it ended."""
        draw = random.Random(f"{target} {number}")
        reader = draw.choice(readers)
        content = reader.change(reader.original, draw)
        self.cases[target] += 1
        refused, problem = outcome(reader, content)
        self.refused[target] += refused
        if problem is not None:
            problem = f"{target}: {problem}"
            self.problems[problem] += 1
            self.inputs.setdefault(problem, (f"{target}-{number}", content))


def outcome(reader: Reader, content: bytes) -> tuple[bool, str | None]:
    """Read an input. Returns whether it was refused, and what is wrong with how it ended, if anything."""
    try:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        reader.read(content)
    except (InputError, TrainingError, OSError) as error:
        problem = unclear(error, reader.names)
        return True, problem and f"{problem} in {_place(error)}"
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return False, f"{type(error).__name__} in {_place(error)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return False, None


def _place(error: BaseException) -> str:
    # Of a hang, the last frame is that of the alarm.
    last = traceback.extract_tb(error.__traceback__)[-2 if isinstance(error, Hang) else -1]
    return f"{Path(last.filename).name}:{last.lineno}"


def unclear(error: Exception, names: str) -> str | None:
    """What is wrong with an error that people are to read; None if it is clear."""
    line = error_line(error)
    if isinstance(error, OSError):
        return None if error.filename is not None else "OSError without a file"
    if len(line) > LONGEST or not line.isprintable():
        return "an error of more than a line"
    if len(line) < len("error: a b") or names not in line:
        return "an error that names no file"
    return None


@contextlib.contextmanager
def limited(memory: int | None) -> Iterator[None]:
    """Within the block, a case that takes too long raises Hang, and one that takes too much memory MemoryError."""

    def hang(_number: int, _frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, hang)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if memory is not None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, hard))
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, before)


def fuzz(
    readers: Mapping[str, Sequence[Reader]], folder: Path, first: int, seconds: float, most: int | None = None
) -> Found:
    """Try rounds of cases of all targets.

    Args:
        readers: of each target.
        folder: for the inputs that make problems.
        first: number of the first round.
        seconds: no round begins later.
        most: rounds; None: as many as the time allows.
    """
    found, began, number = Found(), time.monotonic(), first
    folder.mkdir()
    while time.monotonic() - began < seconds and (most is None or number < first + most):
        faulthandler.dump_traceback_later(STUCK, exit=True, file=sys.__stderr__)
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            for target, of_target in readers.items():
                count = COSTLY.get(target, CHEAP)
                for part in range(count):
                    found.try_case(target, count * number + part, of_target)
        number += 1
        for problem, (name, content) in list(found.inputs.items())[len(list(folder.iterdir())) :]:
            (folder / name).write_bytes(content)
            print(f"{problem} ({name})", flush=True)
        if number % 100 == 0:
            print(f"{found.cases.total():,} cases, {len(found.problems)} problems, --first {number}", flush=True)
    print(f"to go on: --first {number}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=TARGETS)
    options = parser.parse_args()
    world = begin(options.output.resolve())
    with contextlib.chdir(world), remembered_commands():
        readers = targets(world)
        with limited(MEMORY):
            chosen = {name: readers[name] for name in options.targets}
            found = fuzz(chosen, world.parent / "found", options.first, options.seconds)
    for target, count in found.cases.items():
        print(f"{target:<12}{count:>10,} cases, {found.refused[target]:,} refused")
    for problem, count in found.problems.most_common():
        print(f"{count:>6}  {problem} ({found.inputs[problem][0]})")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{found.cases.total():,} cases, {found.problems.total():,} problems, peak memory {peak:.2f} GB")
    sys.exit(bool(found.problems))


def begin(folder: Path) -> Path:
    """Make the world in a new folder, and let nothing in this process log or reach the network. Returns the world."""
    shutil.rmtree(folder, ignore_errors=True)
    os.environ |= {"MULTITASK_CACHE": "cache", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    return prepare(folder)


if __name__ == "__main__":
    main()
