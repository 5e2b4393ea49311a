"""A small world in which commands are disturbed: an encoder of one layer, and the first rows of the sample's files.

Commands are called with the world as the current folder, so that no path in a file depends on where it lies.
"""

import contextlib
import io
import json
import logging
import os
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow
import torch
from markupsafe import Markup
from pyarrow import parquet

from minbert import BertConfig, BertModel
from minbert.tokenizer import train_tokenizer
from multitask.cli.main import main as command_line
from multitask.evaluation.statistics import resampled_scores
from multitask.experiments import compare_rows as run_results
from multitask.experiments import figures
from multitask.experiments.grid_frames import SCORES

SAMPLE = Path(__file__).parents[2] / "data" / "sample"
ROWS = {"train": 16, "dev": 12, "test-student": 6}
NO_RESULTS = ("runs/.", "runs/logs/", "cache/", "report/index.html", "report/report.md", "report/results.")
"""Beginnings of paths that hold measured seconds or come from several processes."""

Ended = tuple[int, str, str]
"""Exit code, standard output and standard error."""


def make_world(folder: Path) -> None:
    """Write the encoder and the data into a new folder."""
    (folder / "data").mkdir(parents=True)
    sentences: list[str] = []
    for path in sorted(SAMPLE.iterdir()):
        rows = next((rows for split, rows in ROWS.items() if path.stem.endswith(f"-{split}")), 24)
        with path.open(encoding="utf-8", newline="") as file:
            lines = [*islice(file, rows + 1)]
        (folder / "data" / path.name).write_text("".join(lines), encoding="utf-8", newline="")
        sentences += lines
    tokenizer = train_tokenizer("bert", sentences, 400, 32)
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    sizes: dict[str, Any] = {"vocab_size": tokenizer.vocabulary_size, "max_position_embeddings": 32, **shape}
    BertModel(BertConfig(**sizes, initializer_range=0.1)).save(folder / "encoder")
    tokenizer.save(folder / "encoder")


def grid(tables: str) -> list[str]:
    """The command that trains and reports tables of preset `sample`; the table `reviews` has one row."""
    computing = ("--workers", "1", "--device", "cpu", "--precision", "fp32", "--threads", "1", "--save-every", "0")
    where = ("--data", "data", "--start", "encoder", "--runs", "runs")
    return ["experiments", "run", "sample", "--tables", tables, *where, *computing]


def call(arguments: Sequence[str]) -> Ended:
    """Call the command line in this process. What is logged is in its standard error."""
    output, errors = io.StringIO(), io.StringIO()
    logged = patch.object(logging.getLogger(), "handlers", [logging.StreamHandler(errors)])
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors), logged:
        try:
            code = command_line(arguments)
        except Exception:
            traceback.print_exc(file=errors)
            code = 99
    return code, output.getvalue(), errors.getvalue()


def undisturbed(arguments: Sequence[str], folder: Path) -> dict[str, Any]:
    """The results of a command that runs in this process, which then has imported everything.

    Raises:
        SystemExit: it fails.
    """
    with contextlib.chdir(folder):
        code, _, errors = call(arguments)
    if code:
        raise SystemExit(f"fails undisturbed: {errors}")
    return contents(folder)


def begin(work: Callable[[], Ended], folder: Path) -> int:
    """Start the work in a forked process with this current folder. Returns the process; its exit code is the work's."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # outside of the block below it would end elsewhere
    if (process := os.fork()) != 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return process
    ended = (98, "", "the process ended without a word")
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        os.chdir(folder)
        ended = work()
    except KeyboardInterrupt:  # right before the command, or right after it
        ended = (130, "", "")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        told(folder, os.getpid()).write_text(json.dumps(ended))
        os._exit(ended[0])


def in_child(work: Callable[[], Ended], folder: Path) -> Ended:
    """Do the work in a forked process, and wait for it."""
    process = begin(work, folder)
    os.waitpid(process, 0)
    return tuple(json.loads(told(folder, process).read_text()))


def told(folder: Path, process: int) -> Path:
    """The file of how a process ended."""
    return folder.with_name(f"{folder.name}-{process}.ended")


def copy(world: Path, target: Path) -> Path:
    """A copy with the same times of files; any earlier copy is removed."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(world, target))


def contents(folder: Path) -> dict[str, Any]:
    """Every file that is a result, by its path: bytes, or parsed without measured seconds."""
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: _content(path) for name, path in paths.items() if not name.startswith(NO_RESULTS)}


def _content(path: Path) -> Any:
    content = path.read_bytes()
    if path.name == "DONE":  # it has times of files
        return b""
    if path.name == SCORES:
        return _without_costs(path)
    if path.name != "metrics.jsonl" and not path.name.startswith("experiments-"):
        return content
    try:
        return [
            _timeless(json.loads(line)) for line in (content.splitlines() if path.suffix == ".jsonl" else [content])
        ]
    except ValueError:  # damaged
        return content


def _without_costs(path: Path) -> str | bytes:
    """The lines of a frame of scores, in which each run has the seconds and machine of its stages."""
    try:
        lines = parquet.read_table(path).to_pylist()
    except pyarrow.ArrowException:  # damaged
        return path.read_bytes()
    facts = [{**json.loads(line["text"]), "costs": {}} if line["text"] else {} for line in lines]
    return str([{**line, "text": fact} for line, fact in zip(lines, facts, strict=True)])


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(part) for name, part in value.items() if name not in ("seconds", "sha256")}
    return [_timeless(part) for part in value] if isinstance(value, list) else value


def differences(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """Names of files that are missing, new or other than expected, apart from temporary ones that a kill left."""
    names = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
    return [name for name in names if not is_temporary(name)]


def is_temporary(name: str) -> bool:
    """Whether it is a temporary file, or in a temporary folder."""
    return any(part.startswith(".") and part.endswith((".tmp", ".old")) for part in Path(name).parts)


@contextlib.contextmanager
def quick_reports() -> Iterator[None]:
    """Reports resample little and draw nothing within the block: both take most of their time, and touch no file."""
    few = patch.object(run_results, "resampled_scores", partial(resampled_scores, samples=100))
    with few, patch.object(figures, "render", lambda *_: Markup("<svg></svg>")):
        yield
