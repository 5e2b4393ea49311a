"""Speed and memory of multi-task fine-tuning: ours, a tuned transformers loop and a plain one.

    python -m benchmarks.finetune [--steps 12] [--data data/sample] [--shapes minilm bert-base]
                                  [--batch-sizes 16 64] [--loops tuned ours] [--memory]

All train the same heads on the same three tasks, with transformers' BertModel (sdpa) or ours of the same shape:

- plain: typical of course projects. Random batches padded to the longest sentence, fp32, torch's default AdamW, one
  forward pass per task and sentence column.
- tuned: what a careful user sets. bf16 autocast, batches of similar length, both columns of a pair in one pass, fused
  AdamW, clipping.
- ours: the loop of `finetune` in the precision it chooses itself, on the same batches as the tuned loop.

Before anything is timed, the three give the same losses without dropout, from the same weights on the same rows. Then
their steps alternate. Speeds are real tokens per second, special tokens included; padding does not count. Utilisation
is the floating-point work of these tokens (6 for each parameter outside the embeddings) over what the machine reaches
in large matrix products. With --memory, each loop takes a few steps in a process of its own, the longest sentences
first; the table has what they add to its peak, gradients and the optimizer's state included.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import chain, count, islice, product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import pad_sequence
from transformers import BertModel as TheirModel
from transformers.utils import logging

from benchmarks.measure import START, added_memory, alternate, in_new_process, machine, matrix_rate, print_table
from minbert import BertConfig, BertModel, load_tokenizer
from multitask.base.device import prepare_training, resolve_runtime
from multitask.base.options import Device, Precision
from multitask.models.estimates import load_split
from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.stages.finetune import Finetuning
from multitask.stages.pretrain import Pretraining
from multitask.stages.settings import REPORT_SETTINGS
from multitask.tasks import MAIN_TASKS
from multitask.tasks.declarations import chosen_tasks
from multitask.training.optimizer import Optimizer
from multitask.training.source import Batch, Update

SHAPES = {
    "minilm": BertConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536),
    "bert-base": BertConfig(),
    "tiny": BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64),  # for tests
}
PUBLISHED = ("minilm", "bert-base")
LOOPS = ("plain", "tuned", "ours")
RECOMPUTED = "ours, --recompute"
FAST = "ours, --fast"
Problem = Finetuning | Pretraining


class TheirLoop:
    """A loop around transformers' model: plain, or tuned as a careful user would."""

    def __init__(self, problem: Problem, heads: nn.Module, tuned: bool) -> None:
        self.problem: Any = problem  # of the kind whose losses it computes
        self.tuned = tuned
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        with tempfile.TemporaryDirectory() as folder:
            problem.encoder.model.save(Path(folder))
            self.encoder = TheirModel.from_pretrained(folder, add_pooling_layer=False, attn_implementation="sdpa")
        self.encoder.to(problem.runtime.device).train()  # type: ignore[arg-type]  # transformers wraps it
        self.heads: Any = heads
        self.parameters = [*self.encoder.parameters(), *self.heads.parameters()]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-5, fused=tuned or None)

    def losses(self, update: Update) -> list[Tensor]:
        return [self.loss(batch) for batch in update]

    def loss(self, batch: Batch) -> Tensor:
        data, device = self.problem.training[batch.source], self.problem.runtime.device
        columns = [[torch.tensor(column[row]).long() for row in batch.rows] for column in data.columns]
        if self.tuned:
            inputs = self.embed([ids for column in columns for ids in column]).chunk(len(columns))
        else:
            inputs = tuple(self.embed(column) for column in columns)
        labels = on_device(torch.from_numpy(data.examples.labels[batch.rows]), device)
        return self.problem.model.tasks[batch.source].loss(self.heads[batch.source](*inputs), labels)

    def embed(self, sequences: list[Tensor]) -> Tensor:
        device = self.problem.runtime.device
        ids = on_device(pad_sequence(sequences, batch_first=True), device)
        mask = on_device(pad_sequence([torch.ones(len(s)) for s in sequences], batch_first=True), device)
        with torch.autocast(device.type, torch.bfloat16, enabled=self.tuned):
            hidden = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        return (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)

    def step(self, update: Update) -> None:
        with in_any_order():
            torch.stack(self.losses(update)).mean().backward()
            if self.tuned:
                clip_grad_norm_(self.parameters, 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()


class OurLoop:
    """The steps of a stage."""

    def __init__(self, problem: Problem, fast: bool = False) -> None:
        self.problem = problem
        self.order = in_any_order if fast else nullcontext
        config = problem.config
        self.optimizer = Optimizer(problem.module.train(), config.optimizer, config.epochs * len(problem.plan(0)))

    def losses(self, update: Update) -> list[Tensor]:
        terms = self.problem.losses(update).terms
        return [terms[batch.source] for batch in update]

    def step(self, update: Update) -> None:
        with self.order():
            self.problem.backward(update)
            self.optimizer.clip()
            self.optimizer.step(0)


Loops = dict[str, TheirLoop | OurLoop]


@contextmanager
def in_any_order() -> Iterator[None]:
    """Allow operations that do not give the same bits twice. Ours forbids them on a GPU; a peer has no such promise."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor there; the host does not wait for the copy."""
    pinned = tensor.pin_memory() if device.type == "cuda" else tensor
    return pinned.to(device, non_blocking=True)


def random_updates(problem: Finetuning, steps: int) -> list[Update]:
    """Updates of a plain loop: rows in random order."""
    generator, size = np.random.default_rng(0), problem.config.batch_size
    orders = {
        name: np.resize(generator.permutation(len(data)), steps * size) for name, data in problem.training.items()
    }
    return [tuple(Batch(n, rows[k * size : (k + 1) * size]) for n, rows in orders.items()) for k in range(steps)]


def tokens_of(problem: Finetuning, update: Update) -> int:
    return sum(int(problem.training[batch.source].lengths[batch.rows].sum()) for batch in update)


def check_losses(problem: Problem, loops: Loops, update: Update) -> None:
    """Without dropout, all loops compute the same losses."""
    modules = [problem.module, *(loop.encoder for loop in loops.values() if isinstance(loop, TheirLoop))]
    for module in modules:
        module.eval()
    with torch.no_grad():
        found = {name: torch.stack(loop.losses(update)) for name, loop in loops.items()}
    for module in modules:
        module.train()
    first, expected = next(iter(found.items()))
    for name, losses in found.items():
        assert torch.allclose(losses, expected, rtol=0.01, atol=0.01), f"{name}: {losses}, {first}: {expected}"


def build_problem(
    shape: str, batch_size: int, data: Path, precision: Precision, recompute: bool = False, device: Device = "auto"
) -> Finetuning:
    """The three tasks with a random encoder of the shape."""
    runtime = replace(resolve_runtime(device, precision), recompute=recompute)
    prepare_training(runtime)
    torch.manual_seed(0)
    tokenizer = load_tokenizer(START)
    config = replace(REPORT_SETTINGS, tasks=MAIN_TASKS, batch_size=batch_size, pooling="mean")
    tasks = chosen_tasks(data, MAIN_TASKS)
    encoder = SentenceEncoder(BertModel(SHAPES[shape]), tokenizer, "mean")
    model = MultitaskModel(encoder, tasks, config.heads).on(runtime)
    return Finetuning(model, load_split(model, data, "train"), {}, config)


def build_loop(name: str, problem: Finetuning) -> TheirLoop | OurLoop:
    """One of the loops, with the problem's weights."""
    if name.startswith("ours"):
        return OurLoop(problem, fast=name == FAST)
    return TheirLoop(problem, problem.model.heads, tuned=name == "tuned")


def measure(
    shape: str, batch_size: int, data: Path, steps: int, precision: Precision, names: Sequence[str] = LOOPS
) -> dict[str, list[float]]:
    """Real tokens per second of every step of each loop; their steps alternate."""
    problem = build_problem(shape, batch_size, data, precision)
    loops = {name: build_loop(name, problem) for name in names}
    planned = list(islice(chain.from_iterable(map(problem.plan, count())), steps + 1))
    plans = {name: random_updates(problem, steps + 1) if name == "plain" else planned for name in names}
    check_losses(problem, loops, planned[0])
    return speeds(loops, plans, lambda update: tokens_of(problem, update))


def speeds(loops: Loops, plans: dict[str, list[Update]], tokens: Callable[[Update], int]) -> dict[str, list[float]]:
    """Real tokens per second of every step of each loop but the first; their steps alternate."""
    steps = {name: lambda k, name=name, loop=loop: loop.step(plans[name][k]) for name, loop in loops.items()}
    taken = alternate(steps, len(next(iter(plans.values()))) - 1)
    return {
        name: [tokens(update) / time for update, time in zip(plans[name][1:], seconds, strict=True)]
        for name, seconds in taken.items()
    }


def work_per_token(shape: str) -> int:
    """Floating-point operations of a training step for each real token: 6 for each parameter outside the embeddings."""
    config = SHAPES[shape]
    layer = 4 * config.hidden_size**2 + 2 * config.hidden_size * config.intermediate_size
    return 6 * config.num_hidden_layers * layer


def memory_of(shape: str, batch_size: int, data: Path, steps: int, precision: Precision, loop: str) -> float:
    """MiB that the steps of a loop add to the peak of this process, which should be a new one."""
    problem = build_problem(shape, batch_size, data, precision, recompute=loop == RECOMPUTED)
    steppable = build_loop(loop, problem)
    updates = sorted(problem.plan(0), key=lambda update: -tokens_of(problem, update))[:steps]
    return added_memory(lambda: [steppable.step(update) for update in updates])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--data", type=Path, default=Path("data/sample"))
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=PUBLISHED)
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[16, 64])
    parser.add_argument("--loops", nargs="+", choices=LOOPS, default=LOOPS, help="next to ours; they need more memory")
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    parser.add_argument("--memory", action="store_true", help="of four steps, instead of speed")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        settings = options.shapes[0], options.batch_sizes[0], options.data, 4, options.precision
        print(round(memory_of(*settings, options.only)))
        return
    names = [name for name in LOOPS if name in {*options.loops, "ours"}]
    runtime = resolve_runtime("auto", options.precision)
    print(f"{machine()}, ours in {runtime.precision}, {options.data}; ", end="")
    if options.memory:
        print("MiB added by 4 steps\n")
        print_table(["shape", "batch", *names, RECOMPUTED], memory_rows(options, [*names, RECOMPUTED]))
        return
    rate = matrix_rate(torch.bfloat16 if runtime.precision == "bf16" else torch.float32, runtime.device)
    print(f"matrix products: {rate / 1e9:,.0f} GFLOP/s; medians of {options.steps} steps, real tokens/s\n")
    compared = [f"ours / {name}" for name in names if name != "ours"]
    header = ["shape", "batch", *names, "quartiles of ours", *compared, "utilisation"]
    print_table(header, speed_rows(options, names, rate))


def memory_rows(options: argparse.Namespace, names: Sequence[str]) -> Iterator[list[object]]:
    for shape, size in product(options.shapes, options.batch_sizes):
        settings = ("--shapes", shape, "--batch-sizes", size, "--data", options.data)
        of_each = [in_new_process("benchmarks.finetune", *settings, "--only", name) for name in names]
        yield [shape, size, *(f"{mib:,}" for mib in of_each)]


def speed_rows(options: argparse.Namespace, names: Sequence[str], rate: float) -> Iterator[list[object]]:
    for shape, size in product(options.shapes, options.batch_sizes):
        found = measure(shape, size, options.data, options.steps, options.precision, names)
        medians = {name: median(values) for name, values in found.items()}
        low, high = np.quantile(found["ours"], (0.25, 0.75))
        ratios = [f"{medians['ours'] / medians[name]:.2f}x" for name in names if name != "ours"]
        used = f"{medians['ours'] * work_per_token(shape) / rate:.0%}"
        shown = [f"{medians[name]:,.0f}" for name in names]
        yield [shape, size, *shown, f"{low:,.0f} to {high:,.0f}", *ratios, used]


if __name__ == "__main__":
    main()
