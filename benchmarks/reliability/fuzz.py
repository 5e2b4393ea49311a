"""Gives mutated inputs to everything that reads, and counts tracebacks, hangs and unclear errors.

    python -m benchmarks.reliability.fuzz --output FOLDER [--seconds 900] [--first 0] [--targets table tasks ...]

A case is a number and a target; the same case is always the same input. The last line says with which `--first` a later
call goes on. A new traceback's input is kept in FOLDER/found. A good end is a result or one line of at most 2,000
characters without control characters.
"""

import argparse
import contextlib
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
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

import pyarrow.csv
import pyarrow.parquet

from benchmarks.reliability.mutations import mutated_arguments, mutated_file
from benchmarks.reliability.world import finetune, grid, make_world
from minbert.errors import InputError
from multitask.cli.command import Command
from multitask.cli.main import error_line, find_command, run_command
from multitask.cli.settings_file import read_settings
from multitask.data.read_unlabelled_files import read_pairs, read_sentences, read_triplets
from multitask.data.tables import Dialect, Source, open_table
from multitask.data.text_lines import text_lines
from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import load_encoder
from multitask.runs.artefact import Artefact
from multitask.runs.garbage import keep_lists
from multitask.runtime.errors import TrainingError
from multitask.stages.registry import stage_named
from multitask.tasks.declarations import load_tasks
from multitask.tasks.read_examples import load_rows
from studies.engine.record import Record
from studies.engine.store import _read_note

SECONDS = 20.0
"""Of the processor: the most that a case may take."""
LONGEST = 2000
"""Characters of the longest message."""

Target = Callable[[random.Random], Path | None]


class Hang(BaseException):
    """A case took too long."""


@dataclass
class Inputs:
    """Real inputs, and a folder for changed ones.

    Args:
        world: a small world.
        model: of its fine-tuned model.
        folder: for changed files.
    """

    world: Path
    model: Path
    folder: Path

    def changed(self, source: Path, draw: random.Random, target: Path | None = None) -> Path:
        """Write a changed copy of a file; returns it."""
        target = target or self.folder / f"case{''.join(source.suffixes)}"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(mutated_file(source.read_bytes(), draw))
        return target

    def changed_copy(self, folder: Path, draw: random.Random, names: tuple[str, ...]) -> tuple[Path, Path]:
        """A copy of a folder in which one file is changed; returns the copy and the file."""
        copied = self.folder / folder.name
        shutil.copytree(folder, copied, dirs_exist_ok=True)
        name = draw.choice(names)
        return copied, self.changed(folder / name, draw, copied / name)

    def table(self, draw: random.Random) -> Path:
        """A csv, tsv, jsonl or parquet file, read with all dialects."""
        path = self.changed(draw.choice(sorted((self.world / "tables").iterdir())), draw)
        dialect = Dialect(draw.choice((None, None, ",", "\t", ";")), draw.random() < 0.8, draw.random() < 0.3)
        for _ in open_table(Source(str(path)), dialect).rows:
            pass
        return path

    def text(self, draw: random.Random) -> Path:
        """Plain sentences, triplets and pairs."""
        name, read = draw.choice(
            [
                ("sentences.txt", lambda path: list(text_lines(path))),
                ("sentences.txt", read_sentences),
                ("nli_triplets.csv", read_triplets),
                ("positive_pairs.tsv", read_pairs),
            ]
        )
        path = self.changed(self.world / "data" / name, draw)
        read(path)
        return path

    def tasks(self, draw: random.Random) -> Path:
        """A tasks file, and the rows that it declares."""
        path = self.changed(self.world / "data" / "tasks.toml", draw, self.world / "data" / "case.toml")
        for task in load_tasks(path).values():
            load_rows(task, "train")
        return path

    def settings(self, draw: random.Random) -> Path:
        """Settings of a TOML file, or of a run whose config.json or inputs.json changed."""
        command = find_command(["finetune"])[1]
        assert isinstance(command, Command)
        if draw.random() < 0.5:
            path = self.changed(self.world / "settings.toml", draw)
            folder = path
        else:
            folder = self.folder / "run"
            folder.mkdir(exist_ok=True)
            for name in ("config.json", "inputs.json"):
                shutil.copy(self.world / self.model / name, folder)
            path = folder / draw.choice(("config.json", "inputs.json"))
            self.changed(path, draw, path)
        read_settings(folder, "multitask finetune", stage_named("finetune"), command.declared())
        return path

    def checkpoint(self, draw: random.Random) -> Path:
        """An encoder or a multi-task model with one changed file, loaded and used."""
        [kept] = (self.world / self.model / "checkpoints").iterdir()
        names = tuple(path.relative_to(kept).as_posix() for path in sorted(kept.rglob("*")) if path.is_file())
        copied, path = self.changed_copy(kept, draw, names)
        if path.name in ("multitask.json", "heads.safetensors") or draw.random() < 0.3:
            model = MultitaskModel.load(copied, "cpu", "fp32")
            for name in model.tasks:
                model.predict(name, ["A cat sleeps."])
        else:
            load_encoder(str(copied), device="cpu", precision="fp32").encode(["A cat sleeps.", ""])
        return path

    def records(self, draw: random.Random) -> Path:
        """Notes, keep-lists, records of experiments, DONE, best.json and metrics.jsonl."""
        runs = self.world / "runs"
        files = [path for pattern in RECORDS for path in runs.glob(pattern)]
        source = draw.choice(sorted(files))
        if (source.parent / "inputs.json").is_file():
            copied = self.folder / "run"
            shutil.rmtree(copied, ignore_errors=True)
            shutil.copytree(source.parent, copied)
            path = self.changed(source, draw, copied / source.name)
            run = Artefact(copied)
            {"DONE": run.check, "best.json": run.kept_models, "metrics.jsonl": run.history}[source.name]()
            return path
        path = self.changed(source, draw, self.folder / "runs" / source.relative_to(runs))
        if source.parent.name == ".nodes":
            _read_note(path)
        elif source.parent.name == "keep":
            keep_lists(self.folder / "runs")
        else:
            Record.read(self.folder / "runs", "tasks")
        return path

    def arguments(self, draw: random.Random) -> None:
        """A command line, up to the command itself."""
        lines = [finetune(), grid(), *COMMAND_LINES]
        given = mutated_arguments(draw.choice(lines), draw)
        if "--save-config" not in given:  # it would write wherever the argument says
            prog, command, rest = find_command(given)
            if isinstance(command, Command):
                with contextlib.suppress(SystemExit):
                    run_command(prog, replace(command, run=lambda _: 0), rest)


RECORDS = (".nodes/*.json", "keep/*.json", "experiments-*.json", "*/DONE", "*/best.json", "*/metrics.jsonl")
COMMAND_LINES = (
    ["predict", "--model", "runs/x", "--input", "a.csv", "--output", "b.csv", "--probabilities", "--prefix", "p"],
    ["evaluate", "--model", "runs/x", "--suite", "sts", "--data", "data", "--seed", "3", "--split", "dev"],
    ["pretrain", "--objective", "vicreg:ratio=1.5,weight=0.05", "--sources", "nli", "--train-limit", "12"],
    ["embed", "a.txt", "b.npy", "--model", "all-minilm-l6-v2", "--normalize"],
    ["export", "--model", "m", "--output", "f", "--to", "onnx", "--with-heads"],
    ["experiments", "gc", "--runs", "runs", "finetune-x-00"],
    ["data", "check", "--tasks-file", "data/tasks.toml"],
    ["report", "sample", "--runs", "runs"],
    ["simulate", "--grid", "10"],
    ["serve", "--model", "runs/x", "--port", "8000"],
)
TARGETS = ("table", "text", "tasks", "settings", "checkpoint", "records", "arguments")


@dataclass
class Found:
    """What a run of the fuzzer found.

    Args:
        cases: by target.
        refused: cases that ended in a line of error, by target.
        problems: by kind and place, how often.
        inputs: of each problem, the first case and its file.
    """

    cases: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    inputs: dict[str, tuple[str, bytes]] = field(default_factory=dict)


def prepare(folder: Path) -> Inputs:
    """Write the real inputs."""
    world = folder / "world"
    model = make_world(world)
    tables = world / "tables"
    tables.mkdir()
    messages = world / "data" / "messages.csv"
    table = pyarrow.csv.read_csv(messages)
    shutil.copy(messages, tables)
    pyarrow.csv.write_csv(table, tables / "messages.tsv", pyarrow.csv.WriteOptions(delimiter="\t"))
    table.to_pandas().to_json(tables / "messages.jsonl", orient="records", lines=True)
    pyarrow.parquet.write_table(table, tables / "messages.parquet")
    (world / "data" / "positive_pairs.tsv").write_text("sentence1\tsentence2\n" + "A cat.\tOne cat.\n" * 9)
    (world / "settings.toml").write_text('epochs = 3\nstart = "encoder"\n[optimizer]\nlearning_rate = 1e-3\n')
    (folder / "case").mkdir()
    return Inputs(world, model, folder / "case")


def try_case(inputs: Inputs, target: str, number: int, found: Found) -> None:
    """Run one case and count how it ended."""
    draw = random.Random(f"{target} {number}")
    found.cases[target] += 1
    problem = None
    try:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        getattr(inputs, target)(draw)
    except (InputError, TrainingError) as error:
        found.refused[target] += 1
        line = error_line(error)
        if len(str(error)) > LONGEST or "\n" in str(error) or len(line) < len("error: a b"):
            problem = f"unclear error of {target}: {line[:120]!r}"
    except OSError as error:
        found.refused[target] += 1
        if error.filename is None:
            problem = f"OSError of {target} without a file: {error}"
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"{type(error).__name__} of {target} in {Path(last.filename).name}:{last.lineno}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if problem is not None:
        found.problems[problem] += 1
        if problem not in found.inputs:
            changed = max(inputs.folder.rglob("*"), key=lambda path: path.stat().st_mtime_ns, default=None)
            content = changed.read_bytes() if changed is not None and changed.is_file() else b""
            found.inputs[problem] = (f"{target}-{number}", content)


def _hang(_number: int, _frame: FrameType | None) -> None:
    raise Hang


def fuzz(folder: Path, targets: tuple[str, ...], first: int, seconds: float, most: int | None = None) -> Found:
    """Try cases of all targets in turn, from number `first` on, for so many seconds or `most` numbers."""
    inputs, found, began = prepare(folder), Found(), time.monotonic()
    signal.signal(signal.SIGPROF, _hang)
    number = first
    with contextlib.chdir(inputs.world), contextlib.redirect_stderr(io.StringIO()) as errors:
        while time.monotonic() - began < seconds and (most is None or number < first + most):
            for target in targets:
                # A checkpoint is loaded in the time of many other cases.
                for part in range(1 if target == "checkpoint" else 10):
                    try_case(inputs, target, 10 * number + part, found)
            number += 1
            errors.truncate(0)
            with contextlib.redirect_stdout(sys.__stdout__):
                if number % 500 == 0:
                    print(
                        f"{found.cases.total():,} cases, {len(found.problems)} problems, --first {number}", flush=True
                    )
    print(f"to go on: --first {number}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=TARGETS)
    options = parser.parse_args()
    folder = options.output.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    os.environ |= {"MULTITASK_CACHE": str(folder / "cache"), "TOKENIZERS_PARALLELISM": "false"}
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    found = fuzz(folder, tuple(options.targets), options.first, options.seconds)
    for target, count in found.cases.items():
        print(f"{target:<12}{count:>10,} cases, {found.refused[target]:,} refused")
    (folder / "found").mkdir()
    for problem, count in found.problems.most_common():
        name, content = found.inputs[problem]
        (folder / "found" / name).write_bytes(content)
        print(f"{count:>6}  {problem} ({name})")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{found.cases.total():,} cases, {found.problems.total():,} problems, peak memory {peak:.2f} GB")
    sys.exit(bool(found.problems))


if __name__ == "__main__":
    main()
