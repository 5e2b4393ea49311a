"""Tests and measurements on a CUDA machine, the most important first, with what fits into the given minutes.

    python -m benchmarks.gpu --output FOLDER [--minutes 40] [--parts equality fine-tuning]
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
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal, Self

import pandas
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from benchmarks import finetune, pretrain
from benchmarks.finetune import PUBLISHED, SHAPES, work_per_token
from benchmarks.measure import START, hide_gpus, machine, matrix_rate
from minbert import BertModel, load_tokenizer
from minbert.files import write_json, write_text
from multitask.stages.finetune import Finetuning
from multitask.stages.pretrain import Pretraining
from multitask.training.source import Update
from tests.reliability.world import contents, differences

LEAST_SECONDS = 10  # below this, no part is begun
# fp32 sums in another order; bf16 may be as far from fp32 as it is on the processor, and somewhat more.
FP32_LIMIT = 1e-3
BF16_RATIO = 2.0
LEAST_COSINE = {"fp32": 1 - 1e-5, "bf16": 0.999}
TRAINING = ("--epochs", "2", "--epoch-size", "64", "--batch-size", "16", "--save-every", "0")
STATES_BEFORE_KILL = 3

Device = Literal["cuda", "cpu"]
Row = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """What to measure: shapes of encoders, examples of each task or sentences in a step, and measured steps."""

    device: Device
    data: Path
    shapes: tuple[str, ...] = PUBLISHED
    batch_sizes: tuple[int, ...] = (16, 64)
    sentences: int = 128
    steps: int = 30

    @classmethod
    def small(cls, device: Device, data: Path) -> Self:
        """Sizes that only try the program."""
        return cls(device, data, ("tiny",), (4,), 8, 2)


def tests(sizes: Sizes) -> Iterator[Row]:
    """The tests marked `gpu`; without a GPU, a file of other tests."""
    # Files by name: other tests need packages that a machine for training lacks.
    marked = [str(path) for path in sorted(Path("tests").rglob("test_*.py")) if "mark.gpu" in path.read_text()]
    chosen = ["-m", "gpu", *marked] if sizes.device == "cuda" else ["tests/minbert/test_attention.py"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *chosen]
    ended = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    print(ended.stdout)  # into the log
    yield {"pytest": ended.stdout.splitlines()[-1], "ok": ended.returncode == 0}


def computed(problem: Finetuning | Pretraining, update: Update) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, the gradient end to end, and embeddings of the first batch's sentences; without dropout, on the CPU."""
    problem.module.eval()
    losses = torch.stack(list(problem.losses(update).terms.values()))
    losses.mean().backward()
    gradients = [p.grad.flatten().cpu() for p in problem.module.parameters() if p.grad is not None]
    sequences = problem.sources[update[0].source].inputs(update[0].rows).ids
    with torch.no_grad(), problem.runtime.autocast():
        embeddings = problem.encoder.embed(sequences)
    return losses.detach().cpu(), torch.cat(gradients), embeddings.float().cpu()


def equality(sizes: Sizes) -> Iterator[Row]:
    """Losses, gradients and embeddings on the device compared with those of the processor in fp32."""

    def results(
        kind: str, shape: str, device: Device, precision: Literal["fp32", "bf16"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        if kind == "contrastive":
            contrastive = pretrain.prepare(shape, sizes.data, device=device, precision=precision)
            return computed(contrastive, pretrain.updates(contrastive, 16, 1)[0])
        tasks = finetune.build_problem(shape, 4, sizes.data, precision, device=device)
        return computed(tasks, tasks.plan(0)[0])

    for shape in sizes.shapes:
        for kind in ("fine-tuning", "contrastive"):
            exact, rounded = (results(kind, shape, "cpu", precision) for precision in ("fp32", "bf16"))
            limits: dict[Literal["fp32", "bf16"], float] = {
                "fp32": FP32_LIMIT,
                "bf16": BF16_RATIO * distance(rounded[1], exact[1]),
            }
            for precision, limit in limits.items():
                losses, gradient, embeddings = results(kind, shape, sizes.device, precision)
                loss, apart = float((losses - exact[0]).abs().max()), distance(gradient, exact[1])
                cosine = float(cosine_similarity(embeddings, exact[2]).min())
                named = {"loss difference": loss, "gradient difference": apart, "limit": limit, "cosine": cosine}
                ok = apart <= limit and cosine >= LEAST_COSINE[precision] and loss <= limit * 2
                yield {"shape": shape, "training": kind, "precision": precision, **named, "ok": ok}


def distance(one: Tensor, exact: Tensor) -> float:
    """Of two vectors, relative to the exact one's length."""
    return float((one - exact).norm() / exact.norm())


def fine_tuning(sizes: Sizes) -> Iterator[Row]:
    """Real tokens a second of fine-tuning on three tasks."""
    for shape in sizes.shapes:
        for size in sizes.batch_sizes:
            found = finetune.measure(shape, size, sizes.data, sizes.steps, "bf16", (*finetune.LOOPS, finetune.FAST))
            yield {"shape": shape, "batch": size, **compared(found, shape, sizes)}


def contrastive(sizes: Sizes) -> Iterator[Row]:
    """Real tokens a second of contrastive training: two views of sentences of at most 32 tokens."""
    for shape in sizes.shapes:
        found = pretrain.measure(shape, sizes.data, sizes.sentences, sizes.steps, sizes.device)
        yield {"shape": shape, "sentences": sizes.sentences, **compared(found, shape, sizes)}


def compared(speeds: dict[str, list[float]], shape: str, sizes: Sizes) -> Row:
    """Medians of real tokens a second, ratios, and the share of the matrix rate that ours uses."""
    medians = {name: median(values) for name, values in speeds.items()}
    ratios = {f"ours / {name}": round(medians["ours"] / value, 2) for name, value in medians.items() if name != "ours"}
    rate = matrix_rate(torch.bfloat16, torch.device(sizes.device), seconds=5 if sizes.device == "cuda" else 0.2)
    used = round(medians["ours"] * work_per_token(shape) / rate, 3)
    return {**{name: round(value) for name, value in medians.items()}, **ratios, "utilisation": used}


def same_bits(sizes: Sizes) -> Iterator[Row]:
    """Whether the same training gives the same bits again, also if it is killed and resumed."""
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder) / "start"
        torch.manual_seed(0)
        BertModel(SHAPES[sizes.shapes[0]]).save(start)
        load_tokenizer(START).save(start)
        for precision in ("bf16", "fp32"):
            chosen = ["--start", start, "--data", sizes.data, "--device", sizes.device, "--precision", precision]
            expected, again = (trained(Path(folder) / precision / name, chosen) for name in ("first", "second"))
            killed = Path(folder) / precision / "killed"
            trained(killed, chosen, kill=True)
            resumed = trained(killed, chosen)
            if not re.search(r"resuming at step \d+", (killed / "log").read_text(encoding="utf-8")):
                resumed["it began again"] = True
            for training, found in {"repeated": again, "killed and resumed": resumed}.items():
                different = differences(found, expected)
                row = {"precision": precision, "training": training, "different": "; ".join(different)}
                yield {**row, "ok": not different}


def trained(folder: Path, chosen: Sequence[object], kill: bool = False) -> dict[str, Any]:
    """Train to the end, or kill the process after it has saved some states. Returns the files that are results."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "multitask", "finetune", "--runs", folder / "runs", *TRAINING, *chosen]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log)
    seen: set[int] = set()
    while kill and process.poll() is None and len(seen) < STATES_BEFORE_KILL:
        with contextlib.suppress(FileNotFoundError):  # the training removes its state at the end
            seen |= {path.stat().st_mtime_ns for path in folder.glob("runs/*/state/state.pt")}
        time.sleep(0.001)
    if kill:
        process.kill()
    if process.wait() and not kill:
        raise RuntimeError((folder / "log").read_text(encoding="utf-8")[-300:])
    return {name: content for name, content in contents(folder).items() if name != "log"}


PARTS: dict[str, tuple[Callable[[Sizes], Iterator[Row]], float]] = {
    "tests": (tests, 6),
    "equality": (equality, 4),
    "contrastive": (contrastive, 5),
    "fine-tuning": (fine_tuning, 10),
    "same-bits": (same_bits, 5),
}
"""The parts in their order, each with the minutes that it may take at most."""


@dataclass(frozen=True)
class Outcome:
    """What came of a part: done or why it has not all rows, and what it measured; `ok` of a row says if it is right."""

    part: str
    ended: str
    seconds: float = 0.0
    rows: list[Row] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing failed. A part that was left out or stopped for lack of time has not failed."""
        return not self.ended.startswith("failed") and all(row.get("ok", True) for row in self.rows)

    def section(self) -> str:
        """Its section of the page: how it ended, and the rows with the columns of all."""
        word = self.ended if self.good or self.ended != "done" else "done, with values that are not ok"
        rows = (
            pandas.DataFrame(self.rows).to_string(index=False, na_rep="", float_format="{:.6g}".format)
            if self.rows
            else ""
        )
        return f"## {self.part}\n\n{word}; {self.seconds:,.1f} s\n\n```text\n{rows}\n```\n"


def run_part(name: str, command: Sequence[str], seconds: float, folder: Path) -> Outcome:
    """Run a command that prints rows as JSON; after so many seconds it is killed with all processes that it began."""
    rows_file, log_file = folder / f"{name}.jsonl", folder / f"{name}.log"
    began = time.monotonic()
    with rows_file.open("w") as rows, log_file.open("w") as log:
        process = subprocess.Popen(command, stdout=rows, stderr=log, start_new_session=True)
        try:
            ended = "done"
            if process.wait(seconds):
                logged = [line for line in log_file.read_text(errors="replace").splitlines() if line.strip()]
                ended = f"failed: {logged[-1].strip() if logged else 'no message'}"
        except subprocess.TimeoutExpired:
            ended = f"stopped after {seconds / 60:.1f} minutes"
        finally:
            with contextlib.suppress(ProcessLookupError):  # on any way out, also of what the part began
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lines = rows_file.read_text(encoding="utf-8").split("\n")[:-1]  # a killed part may leave half a line
    return Outcome(name, ended, round(time.monotonic() - began, 1), [json.loads(line) for line in lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--data", type=Path, default=Path("data/sample"))
    parser.add_argument("--small", action="store_true", help="a tiny encoder and few steps")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--only", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        sizes = (Sizes.small if options.small else Sizes)(options.device, options.data)
        rows, sys.stdout = sys.stdout, sys.stderr
        for row in PARTS[options.only][0](sizes):
            print(json.dumps(row), file=rows, flush=True)
        return
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no CUDA device here; --device cpu --small tries the program without one")
    if options.device == "cpu":
        hide_gpus()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the running part ends too
    options.output.mkdir(parents=True, exist_ok=True)
    header = f"{machine()}, Python {sys.version.split()[0]}, {options.data}"
    end = time.monotonic() + 60 * options.minutes
    outcomes: list[Outcome] = []
    for name in options.parts:
        outcome = Outcome(name, "left out: the minutes are over")
        if (left := end - time.monotonic()) >= LEAST_SECONDS:
            command = [sys.executable, "-m", "benchmarks.gpu", *sys.argv[1:], "--only", name]
            outcome = run_part(name, command, min(left, 60 * PARTS[name][1]), options.output)
        outcomes.append(outcome)
        write_json(options.output / "results.json", {"machine": header, "parts": [asdict(one) for one in outcomes]})
        page = [f"# GPU\n\n{header}\n", *(one.section() for one in outcomes)]
        write_text(options.output / "summary.md", "\n".join(page))
        print(f"{name}: {outcome.ended} ({outcome.seconds:,.1f} s)", flush=True)
    sys.exit(not all(outcome.good for outcome in outcomes))


if __name__ == "__main__":
    main()
