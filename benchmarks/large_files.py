"""Peak memory of checking, of starting a training, and of predicting, with files of many rows.

    python -m benchmarks.large_files --output FOLDER [--rows 1000000 10000000]

Writes a CSV file of generated rows and runs the commands as a user would, with a small random encoder (width 32, one
layer) so that computing does not hide reading. Memory is polled ten times a second: anonymous memory, which the process
needs, and resident pages of mapped files, which the system may drop at any time.
"""

import argparse
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.machine import machine
from minbert import BertConfig, BertModel, load_tokenizer
from multitask.evaluation.text_tables import aligned

WORDS = [
    "time",
    "film",
    "board",
    "tea",
    "price",
    "rust",
    "women",
    "couple",
    "serving",
    "good",
    "band",
    "short",
    "letter",
    "river",
]
TASKS = """
[tasks.topic]
kind = "classification"
text = "text"
label = "label"
train = "{rows}.csv"
dev = "dev.csv"
"""


@dataclass
class Peak:
    """Largest memory of a process in bytes, and its seconds."""

    anonymous: int = 0
    mapped: int = 0
    seconds: float = 0.0


def run(*arguments: str) -> tuple[Peak, str]:
    """Run a command of the project; returns its peak and what it printed."""
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "multitask", *arguments], stdout=subprocess.PIPE, text=True)
    peak = Peak()
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        sizes = {line.split(":")[0]: line.split() for line in status.splitlines()}
        if "RssAnon" in sizes:
            peak.anonymous = max(peak.anonymous, 1024 * int(sizes["RssAnon"][1]))
            peak.mapped = max(peak.mapped, 1024 * int(sizes["RssFile"][1]))
        time.sleep(0.1)
    peak.seconds = time.monotonic() - began
    assert process.stdout is not None
    if process.returncode:
        raise SystemExit(f"multitask {' '.join(arguments)} failed")
    return peak, process.stdout.read()


def write_rows(path: Path, rows: int, seed: int) -> None:
    draws = random.Random(seed)
    with path.open("w") as file:
        file.write("text,label\n")
        for _ in range(rows):
            file.write(f"{' '.join(draws.choices(WORDS, k=8))} {draws.randrange(10**9)},{draws.choice('abcd')}\n")


def write_encoder(folder: Path) -> None:
    tokenizer = load_tokenizer("all-minilm-l6-v2")
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=tokenizer.vocabulary_size, max_position_embeddings=64, **shape)).save(folder)
    tokenizer.save(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    options = parser.parse_args()
    folder = options.output
    folder.mkdir(parents=True, exist_ok=True)
    write_encoder(folder / "encoder")
    write_rows(folder / "dev.csv", 1000, 1)
    table = [["rows", "command", "anonymous memory", "mapped files", "seconds"]]
    for rows in options.rows:
        write_rows(folder / f"{rows}.csv", rows, 0)
        (folder / f"{rows}.toml").write_text(TASKS.format(rows=rows))
        tasks = ("--tasks-file", str(folder / f"{rows}.toml"))
        start = ("--start", str(folder / "encoder"), "--runs", str(folder / "runs"))
        training = (*start, "--epochs", "1", "--epoch-size", "64", "--max-length", "64")
        found = {"data check": run("data", "check", *tasks)[0]}
        found["finetune, 4 steps"], printed = run("finetune", *tasks, *training)
        model = ("--model", printed.splitlines()[-1], "--precision", "fp32")
        files = ("--input", str(folder / f"{rows}.csv"), "--output", str(folder / "predicted.csv"))
        found["predict"] = run("predict", *model, *files)[0]
        for name, peak in found.items():
            sizes = [f"{size / 1e6:,.0f} MB" for size in (peak.anonymous, peak.mapped)]
            table.append([f"{rows:,}", name, *sizes, f"{peak.seconds:,.0f}"])
        print(aligned(table, left=2), flush=True)
    print(machine())


if __name__ == "__main__":
    main()
