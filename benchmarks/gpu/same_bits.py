"""Whether a training on the device gives the same bits again, and also after a kill and a resume."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch

from benchmarks.finetune import SHAPES
from benchmarks.reliability.world import contents, differences
from minbert import BertModel, load_tokenizer

SETTINGS = ("--epochs", "2", "--epoch-size", "64", "--batch-size", "16", "--save-every", "0")
STEPS_BEFORE_KILL = 3
PATIENCE = 240  # seconds that a training may take


def same_bits(
    shape: str, data: Path, device: Literal["cuda", "cpu"], precision: Literal["fp32", "bf16"]
) -> Iterator[dict[str, Any]]:
    """A row for the repeated training, and one for that which was killed and resumed."""
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder) / "start"
        torch.manual_seed(0)
        BertModel(SHAPES[shape]).save(start)
        load_tokenizer("all-minilm-l6-v2").save(start)
        chosen = ("--start", str(start), "--data", str(data), "--device", device, "--precision", precision, *SETTINGS)
        expected = trained(Path(folder) / "first", chosen)
        again = trained(Path(folder) / "second", chosen)
        row = {"precision": precision, "files": len(expected)}
        different = differences(again, expected)
        yield {**row, "training": "repeated", "different": "; ".join(different), "ok": not different}
        killed = Path(folder) / "killed"
        kill_after_steps(killed, chosen)
        resumed = trained(killed, chosen)
        different = differences(resumed, expected)
        log = killed.with_suffix(".log").read_text(encoding="utf-8")
        steps = [int(step) for step in re.findall(r"resuming at step (\d+)", log)]
        yield {
            **row,
            "training": "killed and resumed",
            "resumed at step": steps[0] if steps else None,
            "different": "; ".join(different),
            "ok": bool(steps) and not different,
        }


def begin(folder: Path, chosen: tuple[str, ...]) -> "subprocess.Popen[bytes]":
    """Start `multitask finetune`, which writes `runs` into the folder and a log beside it."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "multitask", "finetune", "--runs", str(folder / "runs"), *chosen]
    with folder.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "TOKENIZERS_PARALLELISM": "false"})


def trained(folder: Path, chosen: tuple[str, ...]) -> dict[str, Any]:
    """Train to the end. Returns the files that are results, by path."""
    process = begin(folder, chosen)
    if process.wait(PATIENCE):
        raise RuntimeError(folder.with_suffix(".log").read_text(encoding="utf-8")[-300:])
    return contents(folder)


def kill_after_steps(folder: Path, chosen: tuple[str, ...]) -> None:
    """Train until some states were saved, then kill the process without a warning."""
    process = begin(folder, chosen)
    seen: set[int] = set()
    while process.poll() is None and len(seen) < STEPS_BEFORE_KILL:
        with contextlib.suppress(FileNotFoundError):  # the training removes its state at the end
            seen |= {path.stat().st_mtime_ns for path in folder.glob("runs/*/state/state.pt")}
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
