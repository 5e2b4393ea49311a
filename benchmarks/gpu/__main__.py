"""Tests and measurements on a CUDA machine, the most important first, with what fits into the given minutes.

    python -m benchmarks.gpu --output FOLDER [--minutes 40] [--tables DATA] [--parts equality fine-tuning]
    python -m benchmarks.gpu --output FOLDER --device cpu --small --minutes 3    # tries the program without a GPU

Each part has a process of its own, so that a failure, or a device that a failure left unusable, does not stop the
others. A part is stopped when its own minutes or all minutes are over; what it has measured until then is kept. FOLDER
gets `results.json` and `summary.md`, written again after each part, and the parts' logs. The exit code is 1 if
something failed or a value was not as it should be.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import machine
from minbert.files import write_json, write_text

LEAST_SECONDS = 10  # below this, no part is begun


@dataclass(frozen=True)
class Outcome:
    """What came of a part.

    Args:
        part: its name.
        ended: "done", or why it has no or not all rows.
        seconds: how long it took.
        rows: what it measured; `ok` says whether values are as they should be.
    """

    part: str
    ended: str
    seconds: float = 0.0
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing failed. A part that was left out or stopped for lack of time has not failed."""
        return not self.ended.startswith("failed") and all(row.get("ok", True) for row in self.rows)


def run_part(name: str, command: Sequence[str], seconds: float, folder: Path, environment: dict[str, str]) -> Outcome:
    """Run a part for at most so many seconds.

    Args:
        name: of the part.
        command: prints a JSON object a line, one for each row.
        seconds: after them, the command and all processes that it began are killed.
        folder: gets the part's rows and log.
        environment: of the command.
    """
    rows_file, log_file = folder / f"{name}.jsonl", folder / f"{name}.log"
    began = time.monotonic()
    with rows_file.open("w") as rows, log_file.open("w") as log:
        process = subprocess.Popen(command, stdout=rows, stderr=log, env=environment, start_new_session=True)
        try:
            code = process.wait(seconds)
            ended = "done" if code == 0 else f"failed: {last_line(log_file)}"
        except subprocess.TimeoutExpired:
            ended = f"stopped after {seconds / 60:.1f} minutes"
        finally:
            with contextlib.suppress(ProcessLookupError):  # on any way out, also of what the part began
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lines = rows_file.read_text(encoding="utf-8").split("\n")[:-1]  # a killed part may leave half a line
    return Outcome(name, ended, round(time.monotonic() - began, 1), [json.loads(line) for line in lines])


def last_line(log: Path) -> str:
    """The last line of a log that says something."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "no message")


def summary(header: str, outcomes: Sequence[Outcome]) -> str:
    """The page of all outcomes, in Markdown."""
    parts = [f"# GPU\n\n{header}\n"]
    for outcome in outcomes:
        word = outcome.ended if outcome.good or outcome.ended != "done" else "done, with values that are not ok"
        parts.append(f"## {outcome.part}\n\n{word}; {outcome.seconds:,.1f} s\n")
        if outcome.rows:
            parts.append(table(outcome.rows))
    return "\n".join(parts)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as a Markdown table with the columns of all rows."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns), *([cell(row.get(name)) for name in columns] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cell(value: object) -> str:
    """A value of a table."""
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return "" if value is None else str(value).replace("|", "/")


def main() -> None:
    from benchmarks.gpu.parts import PARTS, Sizes

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--data", type=Path, default=Path("data/sample"), help="texts of all parts but the tables")
    parser.add_argument("--tables", type=Path, help="data folder of preset `small`; without it, no tables are computed")
    parser.add_argument("--small", action="store_true", help="a tiny encoder and few steps")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--only", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        sizes = Sizes.of(options.device, options.small, options.data, options.tables)
        rows, sys.stdout = sys.stdout, sys.stderr
        for row in PARTS[options.only].measure(sizes):
            print(json.dumps(row), file=rows, flush=True)
        return
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no CUDA device here; --device cpu --small tries the program without one")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the running part ends too
    options.output.mkdir(parents=True, exist_ok=True)
    hidden = {} if options.device == "cuda" else {"CUDA_VISIBLE_DEVICES": ""}
    named = machine() if options.device == "cuda" else "no GPU"
    header = f"{named}, torch {torch.__version__}, Python {sys.version.split()[0]}, {options.data}"
    end = time.monotonic() + 60 * options.minutes
    outcomes: list[Outcome] = []
    for name in options.parts:
        left = end - time.monotonic()
        if PARTS[name].needs_tables and options.tables is None:
            outcome = Outcome(name, "left out: no --tables")
        elif left < LEAST_SECONDS:
            outcome = Outcome(name, "left out: the minutes are over")
        else:
            command = [sys.executable, "-m", "benchmarks.gpu", *sys.argv[1:], "--only", name]
            seconds = min(left, 60 * PARTS[name].minutes)
            outcome = run_part(name, command, seconds, options.output, {**os.environ, **hidden})
        outcomes.append(outcome)
        write_json(options.output / "results.json", {"machine": header, "parts": [asdict(one) for one in outcomes]})
        write_text(options.output / "summary.md", summary(header, outcomes))
        print(f"{name}: {outcome.ended} ({outcome.seconds:,.1f} s)", flush=True)
    sys.exit(not all(outcome.good for outcome in outcomes))


if __name__ == "__main__":
    main()
