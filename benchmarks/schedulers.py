"""Time and memory of every scheduler compared with `average`, as a Markdown table.

    python -m benchmarks.schedulers [--steps 12] [--data data/sample] [--shape minilm] [--batch-size 16]

Each scheduler has its own process. There its steps and those of `average` alternate on one model with random weights,
so that a busy machine slows both alike. The first step of each does not count. Time is the median of a step,
optimizer included. "Same tokens" compares the time per token, because some schedulers train on one task per step.
Memory is measured in another process that runs the scheduler alone: the increase of its peak from before its first
step, of the resident set on a CPU, of torch's allocations on CUDA.
"""

import argparse
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

from benchmarks.finetune import SHAPES
from benchmarks.objectives import MIB, peak
from minbert import BertModel, load_tokenizer
from multitask.evaluation.task_predictions import load_split
from multitask.models.multitask_model import MultitaskModel
from multitask.runtime.device import make_deterministic, seed_everything, start
from multitask.schedulers import SCHEDULERS
from multitask.stages.finetune import FinetuneConfig
from multitask.stages.finetune.training import Finetuning
from multitask.tasks.declarations import MAIN_TASKS, chosen_tasks
from multitask.training.optimizer import Optimizer


class Bench:
    """Several schedulers that train one model with one optimizer."""

    def __init__(self, names: list[str], options: argparse.Namespace) -> None:
        self.runtime = start("auto", options.precision)
        make_deterministic(self.runtime)
        seed_everything(0)
        tokenizer = load_tokenizer("all-minilm-l6-v2")
        config = FinetuneConfig(batch_size=options.batch_size, pooling="mean", epochs=1)
        declared = chosen_tasks(options.data, MAIN_TASKS)
        model = MultitaskModel(BertModel(SHAPES[options.shape]), tokenizer, declared, "mean", config.heads)
        training = load_split(model.to(self.runtime.device), options.data, "train")
        self.problems = {}
        for name in names:
            tasks = ("similarity",) if name == "single" else MAIN_TASKS
            chosen = replace(config, scheduler=name, tasks=tasks)
            own = {task: training[task] for task in tasks}
            self.problems[name] = Finetuning(model, own, {}, chosen, self.runtime)
        first = self.problems[names[0]]
        self.optimizer = Optimizer(first.module.train(), config.optimizer, len(first.plan(0)))
        self.updates = {name: problem.plan(0) for name, problem in self.problems.items()}

    def step(self, name: str, number: int) -> tuple[float, int]:
        """Take a step. Returns its seconds and tokens."""
        problem, updates = self.problems[name], self.updates[name]
        begin = time.perf_counter()
        update = updates[number % len(updates)]
        losses = problem.scheduler.backward(problem, update)
        self.optimizer.clip()
        self.optimizer.step(0)
        if self.runtime.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin, losses.tokens

    def memory(self) -> float:
        """The peak of this process in bytes."""
        return torch.cuda.max_memory_allocated() if self.runtime.device.type == "cuda" else peak()


def seconds(name: str, options: argparse.Namespace) -> tuple[float, float]:
    """The median seconds per step, and the time per token relative to `average`."""
    bench = Bench(list(dict.fromkeys(["average", name])), options)
    taken: dict[str, list[tuple[float, int]]] = {each: [] for each in bench.problems}
    for k in range(options.steps + 1):
        for each, results in taken.items():
            results.append(bench.step(each, k))
    by_token = {each: median(time / tokens for time, tokens in results[1:]) for each, results in taken.items()}
    return median(time for time, _ in taken[name][1:]), by_token[name] / by_token["average"]


def added_memory(name: str, options: argparse.Namespace) -> float:
    """MiB that steps add to the peak. Call this in a new process."""
    bench = Bench([name], options)
    before = bench.memory()
    for k in range(options.steps):
        bench.step(name, k)
    return (bench.memory() - before) / MIB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--data", type=Path, default=Path("data/sample"))
    parser.add_argument("--shape", choices=SHAPES, default="minilm")
    parser.add_argument("--batch-size", type=int, default=16, help="examples per task in a step")
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    parser.add_argument("--schedulers", nargs="+", choices=sorted(SCHEDULERS), default=sorted(SCHEDULERS))
    parser.add_argument("--measure", choices=["seconds", "memory"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    name = options.schedulers[0]
    if options.measure == "memory":
        print(added_memory(name, options))
        return
    if options.measure == "seconds":
        print(*seconds(name, options))
        return
    runtime = start("auto", options.precision)
    print(
        f"{runtime.device.type}, {runtime.precision}, {torch.get_num_threads()} threads, torch {torch.__version__}, "
        f"{options.shape}, batches of {options.batch_size}, {options.data}\n"
    )
    print("| scheduler | s per step | same tokens, relative to average | MiB added | relative to average |")
    print("|---|---:|---:|---:|---:|")
    average = 0.0
    for each in ["average", *(name for name in options.schedulers if name != "average")]:
        command = [sys.executable, "-m", "benchmarks.schedulers", *sys.argv[1:], "--schedulers", each]
        results = []
        for measure in ("memory", "seconds"):
            child = subprocess.run([*command, "--measure", measure], capture_output=True, text=True, check=True)
            results += map(float, child.stdout.split())
        memory, step, ratio = results
        average = average or memory
        print(f"| {each} | {step:.3f} | {ratio:.2f}x | {memory:,.0f} | {memory / average:.2f}x |", flush=True)


if __name__ == "__main__":
    main()
