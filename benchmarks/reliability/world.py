"""A small world that every program here begins with: an encoder, data, trained runs, and a grid with a report.

    encoder/        a random BERT of 1 layer and width 16
    data/           the first rows of the sample's files, a tasks file on a CSV file, and sentences
    runs/           a fine-tuned model of that tasks file, and the runs of its table of each task alone and together

Commands are called with the world as the current folder, so that no path in a file depends on where it lies.
"""

import contextlib
import io
import json
import logging
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from minbert import BertConfig, BertModel
from minbert.train_vocabulary import train_tokenizer
from multitask.cli.main import main as command_line

SAMPLE = Path(__file__).parents[2] / "data"
ROWS = {"train": 16, "dev": 12, "test-student": 6}
CPU = ("--device", "cpu", "--precision", "fp32", "--threads", "1")
COMPUTED = ("--device", "cpu", "--precision", "fp32")
TASKS = """
[tasks.topic]
kind = "classification"
text = "message"
label = "topic"
train = "messages.csv"

[tasks.urgency]
kind = "regression"
text = "message"
label = "urgency"
range = [1, 5]
train = "messages.csv"
"""


def make_world(folder: Path, with_grid: bool = True) -> Path:
    """Write the world, and return the folder of its fine-tuned model, relative to it.

    Args:
        folder: an empty or new folder.
        with_grid: whether to run the grid too.
    """
    torch.set_num_threads(1)
    data = folder / "data"
    data.mkdir(parents=True)
    for path in sorted((SAMPLE / "sample").iterdir()):
        rows = next((rows for split, rows in ROWS.items() if path.stem.endswith(f"-{split}")), 24)
        _copy_rows(path, data / path.name, rows + 1)
    _copy_rows(SAMPLE / "own" / "messages.csv", data / "messages.csv", 49)
    (data / "tasks.toml").write_text(TASKS)
    write_encoder(folder / "encoder", [line for path in sorted(data.glob("*.*")) for line in path.open()])
    with contextlib.chdir(folder):
        told = [_made(call(arguments)) for arguments in ([finetune(), grid()] if with_grid else [finetune()])]
    return Path(told[0].splitlines()[-1])


def _made(ended: tuple[int, str, str]) -> str:
    code, output, errors = ended
    if code:
        raise SystemExit(f"the world could not be made: {errors}")
    return output


def write_encoder(folder: Path, sentences: Sequence[str], width: int = 16) -> None:
    """A random encoder of one layer with a vocabulary of the sentences."""
    tokenizer = train_tokenizer("bert", sentences, 400, 32)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=tokenizer.vocabulary_size,
        hidden_size=width,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=2 * width,
        max_position_embeddings=32,
        initializer_range=0.1,
    )
    BertModel(config).save(folder)
    tokenizer.save(folder)


def _copy_rows(source: Path, target: Path, lines: int) -> None:
    with source.open(encoding="utf-8", newline="") as file:
        target.write_text("".join(islice(file, lines)), encoding="utf-8", newline="")


def finetune(*more: str) -> list[str]:
    """A training of six steps, two evaluations and six saved states."""
    settings = ("--epochs", "2", "--batch-size", "16", "--epoch-size", "48", "--learning-rate", "1e-3")
    where = ("--start", "encoder", "--tasks-file", "data/tasks.toml", "--runs", "runs", "--save-every", "0")
    return ["finetune", *where, *settings, *CPU, *more]


def grid(*more: str) -> list[str]:
    """The table of the tasks file: four trainings, an ensemble, evaluations, and the report."""
    what = ("--tasks-file", "data/tasks.toml", "--start", "encoder", "--schedulers", "average", "--workers", "1")
    settings = ("--epochs", "1", "--batch-size", "16", "--epoch-size", "32", "--learning-rate", "1e-3")
    return ["experiments", "run", *what, *settings, *CPU, "--runs", "runs", "--save-every", "0", *more]


def one_row(*more: str) -> list[str]:
    """The smallest table of a preset: a training, its evaluation, prediction files, and the report."""
    what = ("sample", "--tables", "reviews", "--data", "data", "--start", "encoder", "--workers", "1")
    return ["experiments", "run", *what, *CPU, "--runs", "runs", "--save-every", "0", *more]


def call(arguments: Sequence[object]) -> tuple[int, str, str]:
    """Call the command line in this process. Returns exit code, standard output and standard error."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors), _logging_to(errors):
        try:
            code = command_line([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except Exception:
            traceback.print_exc(file=errors)
            code = 99
    return code, output.getvalue(), errors.getvalue()


@contextlib.contextmanager
def _logging_to(stream: io.StringIO) -> Iterator[None]:
    """Log there within the block; `main` only adds a handler where there is none."""
    handler, root = logging.StreamHandler(stream), logging.getLogger()
    before = root.handlers[:]
    root.handlers[:] = [handler]
    try:
        yield
    finally:
        root.handlers[:] = before


@dataclass(frozen=True)
class Ended:
    """How a forked process ended.

    Args:
        code: its exit code; negative for a signal.
        output: standard output.
        errors: standard error.
    """

    code: int
    output: str
    errors: str


def in_child(work: Callable[[], tuple[int, str, str]], folder: Path) -> Ended:
    """Do the work in a forked process with this current folder: everything is imported, and nothing is shared."""
    reader, writer = os.pipe()
    if (process := os.fork()) == 0:
        code = 98
        try:
            os.close(reader)
            os.chdir(folder)
            with open(writer, "w", encoding="utf-8") as pipe:  # noqa: PTH123 - a number, not a path
                pipe.write(json.dumps(work()))
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(code)
    os.close(writer)
    with open(reader, encoding="utf-8") as pipe:  # noqa: PTH123
        told = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return Ended(*json.loads(told)) if told else Ended(status or 97, "", "the process ended without a word")


def copy(world: Path, target: Path) -> Path:
    """A copy with the same times of files, as DONE has them; any earlier copy is removed."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(world, target))


def timeless(value: Any) -> Any:
    """JSON without measured seconds."""
    if isinstance(value, dict):
        return {name: timeless(part) for name, part in value.items() if name != "seconds"}
    return [timeless(part) for part in value] if isinstance(value, list) else value


LEFT_OUT = ("runs/.locks/", "runs/.nodes/", "runs/keep/", "runs/logs/", "cache/")


def contents(folder: Path) -> dict[str, Any]:
    """Every file that is a result, by its path: bytes, or parsed where there are times within.

    Left out are locks, logs, notes and keep-lists, which hold times or come from several processes.
    """
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or name.startswith(LEFT_OUT):
            continue
        try:
            found[name] = _timeless_content(path)
        except (ValueError, KeyError, TypeError, AttributeError):  # damaged
            found[name] = path.read_bytes()
    return found


def _timeless_content(path: Path) -> Any:
    if path.name == "metrics.jsonl":
        return [timeless(json.loads(line)) for line in path.read_text().splitlines()]
    if path.name == "DONE":  # it has times of files, and the hash of one that has times within
        vouched = json.loads(path.read_text()).items()
        return {file: of["sha256"] for file, of in vouched if file != "metrics.jsonl"}
    if path.name.startswith("experiments-") and path.suffix == ".json":
        return timeless(json.loads(path.read_text())["record"])
    return path.read_bytes()


def differences(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """Names of files that are missing, new or other than expected."""
    return sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
