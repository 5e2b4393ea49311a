"""Time and memory of every scheduler compared with `average`, at the sizes of MiniLM and bert-base.

    python -m benchmarks.schedulers [--shapes minilm bert-base] [--schedulers pcgrad cagrad] [--steps 12]
                                    [--data data/sample] [--batch-size 16] [--precision auto]

Each scheduler has its own process. There its steps and those of `average` alternate on one model with random weights,
so that a busy machine slows both alike. Time is the median of a step, optimizer included. "Same tokens" compares the
time per token, because some schedulers train on one task per step. Memory is measured in another process that runs the
scheduler alone: what its steps add to the peak. A scheduler that fails, for example because an optional package is
missing, has no numbers; its error is on standard error.
"""

import argparse
import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median

from benchmarks.finetune import PUBLISHED, SHAPES, build_problem
from benchmarks.measure import added_memory, alternate, in_new_process, machine, print_table
from multitask.runtime.device import start
from multitask.schedulers import SCHEDULERS
from multitask.stages.finetune import Finetuning
from multitask.tasks.declarations import MAIN_TASKS
from multitask.training.optimizer import Optimizer


class Bench:
    """Several schedulers that train one model with one optimizer."""

    def __init__(self, names: list[str], options: argparse.Namespace) -> None:
        of_all = build_problem(options.shapes[0], options.batch_size, options.data, options.precision)
        self.problems = {}
        for name in names:
            tasks = ("similarity",) if name == "single" else MAIN_TASKS
            training = {task: of_all.training[task] for task in tasks}
            config = replace(of_all.config, scheduler=name, tasks=tasks, epochs=1)
            self.problems[name] = Finetuning(of_all.model, training, {}, config, of_all.runtime)
        first = self.problems[names[0]]
        self.optimizer = Optimizer(first.module.train(), first.config.optimizer, len(first.plan(0)))
        self.updates = {name: problem.plan(0) for name, problem in self.problems.items()}
        self.tokens: dict[str, list[int]] = {name: [] for name in names}

    def step(self, name: str, number: int) -> None:
        problem, updates = self.problems[name], self.updates[name]
        losses = problem.scheduler.backward(problem, updates[number % len(updates)])
        self.optimizer.clip()
        self.optimizer.step(0)
        self.tokens[name].append(losses.tokens)


def seconds(name: str, options: argparse.Namespace) -> tuple[float, float]:
    """The median seconds per step, and the time per token relative to `average`."""
    names = list(dict.fromkeys(["average", name]))
    bench = Bench(names, options)
    taken = alternate({each: lambda k, each=each: bench.step(each, k) for each in names}, options.steps)
    by_token = {
        each: median(time / tokens for time, tokens in zip(taken[each], bench.tokens[each][1:], strict=True))
        for each in names
    }
    return median(taken[name]), by_token[name] / by_token["average"]


def memory(name: str, options: argparse.Namespace) -> float:
    """MiB that steps add to the peak. Call this in a new process."""
    bench = Bench([name], options)
    return added_memory(lambda: [bench.step(name, number) for number in range(options.steps)])


def rows(options: argparse.Namespace) -> Iterator[list[str]]:
    """For each shape `average` first, then the others."""
    others = [name for name in options.schedulers if name != "average"]
    average = 0.0
    for shape, name in product(options.shapes, ["average", *others]):
        settings = ("--steps", options.steps, "--data", options.data, "--batch-size", options.batch_size)
        chosen = (*settings, "--precision", options.precision, "--shapes", shape, "--schedulers", name)
        try:
            added, (step, ratio) = (
                in_new_process("benchmarks.schedulers", *chosen, "--measure", what) for what in ("memory", "seconds")
            )
        except subprocess.CalledProcessError:
            yield [shape, name, "failed", "", "", ""]
            continue
        average = added if name == "average" else average
        yield [shape, name, f"{step:.3f}", f"{ratio:.2f}x", f"{added:,.0f}", f"{added / average:.2f}x"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--data", type=Path, default=Path("data/sample"))
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=PUBLISHED)
    parser.add_argument("--batch-size", type=int, default=16, help="examples per task in a step")
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    parser.add_argument("--schedulers", nargs="+", choices=sorted(SCHEDULERS), default=sorted(SCHEDULERS))
    parser.add_argument("--measure", choices=["seconds", "memory"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measured = {"seconds": seconds, "memory": memory}[options.measure]
        print(json.dumps(measured(options.schedulers[0], options)))
        return
    runtime = start("auto", options.precision)
    print(f"{machine()}, {runtime.precision}, batches of {options.batch_size}, {options.data}\n")
    header = ["shape", "scheduler", "s a step", "same tokens, relative to average", "MiB added", "relative to average"]
    print_table(header, rows(options), texts=2)


if __name__ == "__main__":
    main()
