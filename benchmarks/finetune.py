"""Speed of multi-task fine-tuning, ours and a plain transformers loop, in real tokens per second.

    python -m benchmarks.finetune [--steps 12] [--data data/sample] [--shapes minilm bert-base]

The plain loop is typical of course projects: random batches padded to the longest sentence, transformers' BertModel
with sdpa attention, fp32, torch's AdamW, one forward pass per task and sentence column, and the mean of the three
losses. Ours is the loop of `finetune`. Both train the same heads on the same rows, starting from random weights of
the same shape. Their steps alternate, so that a busy machine slows both alike. The first step of each does not count.
Real tokens are those of sentences, special tokens included; padding does not count.
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import BertConfig as TheirConfig
from transformers import BertModel as TheirModel

from benchmarks.machine import machine
from minbert import BertConfig, BertModel, load_tokenizer
from multitask.evaluation.task_predictions import load_split
from multitask.models.multitask_model import MultitaskModel
from multitask.runtime.device import seed_everything, start
from multitask.runtime.options import Precision
from multitask.stages.finetune import FinetuneConfig
from multitask.stages.finetune.training import Finetuning
from multitask.tasks.declarations import MAIN_TASKS, chosen_tasks
from multitask.training.optimizer_and_clipping import Optimizer
from multitask.training.trainable import Batch, Update

SHAPES = {
    "minilm": BertConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536),
    "bert-base": BertConfig(),
}


class PlainLoop:
    """The reference: padded batches in fp32, and one encoder call per task and sentence column."""

    def __init__(self, problem: Finetuning, config: BertConfig) -> None:
        theirs = TheirConfig(**config.to_dict(), attn_implementation="sdpa")
        self.problem = problem
        self.encoder = TheirModel(theirs, add_pooling_layer=False).to(problem.runtime.device).train()
        self.heads = problem.model.heads
        self.optimizer = torch.optim.AdamW([*self.encoder.parameters(), *self.heads.parameters()], lr=1e-5)

    def step(self, update: Update) -> None:
        device = self.problem.runtime.device
        losses = []
        for batch in update:
            data = self.problem.training[batch.source]
            inputs = []
            for column in data.columns:
                ids = pad_sequence([torch.tensor(column[row]).long() for row in batch.rows], batch_first=True)
                mask = pad_sequence([torch.ones(len(column[row])) for row in batch.rows], batch_first=True)
                ids, mask = ids.to(device), mask.to(device)
                hidden = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
                inputs.append((hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True))
            labels = torch.from_numpy(data.examples.labels[batch.rows]).to(device)
            losses.append(self.problem.model.tasks[batch.source].loss(self.heads[batch.source](*inputs), labels))
        torch.stack(losses).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()


def random_updates(problem: Finetuning, steps: int) -> list[Update]:
    """Updates of a plain loop: rows in random order."""
    generator, size = np.random.default_rng(0), problem.config.batch_size
    orders = {
        name: np.resize(generator.permutation(len(data)), steps * size) for name, data in problem.training.items()
    }
    return [tuple(Batch(n, rows[k * size : (k + 1) * size]) for n, rows in orders.items()) for k in range(steps)]


def tokens_of(problem: Finetuning, update: Update) -> int:
    return sum(int(problem.training[batch.source].lengths[batch.rows].sum()) for batch in update)


def measure(shape: str, batch_size: int, data: Path, steps: int, precision: Precision) -> tuple[float, float]:
    """Median real tokens per second of the plain loop and of ours; their steps alternate."""
    runtime = start("auto", precision)
    seed_everything(0)
    tokenizer = load_tokenizer("all-minilm-l6-v2")
    config = FinetuneConfig(MAIN_TASKS, batch_size=batch_size, pooling="mean")
    tasks = chosen_tasks(data, MAIN_TASKS)
    model = MultitaskModel(BertModel(SHAPES[shape]), tokenizer, tasks, "mean", config.heads).to(runtime.device)
    ours = Finetuning(model, load_split(model, data, "train"), {}, config, runtime)
    plain = PlainLoop(ours, SHAPES[shape])
    optimizer = Optimizer(ours.module.train(), config.optimizer, config.epochs * len(ours.plan(0)))

    def our_step(update: Update) -> None:
        ours.scheduler.backward(ours, update)
        optimizer.clip()
        optimizer.step(0)
        if runtime.device.type == "cuda":
            torch.cuda.synchronize()

    speeds: dict[str, list[float]] = {"plain": [], "ours": []}
    for pair in zip(random_updates(ours, steps + 1), ours.plan(0)[: steps + 1], strict=True):
        for (name, step), update in zip((("plain", plain.step), ("ours", our_step)), pair, strict=True):
            begin = time.perf_counter()
            step(update)
            speeds[name].append(tokens_of(ours, update) / (time.perf_counter() - begin))
    return statistics.median(speeds["plain"][1:]), statistics.median(speeds["ours"][1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--data", type=Path, default=Path("data/sample"))
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[16, 64])
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    options = parser.parse_args()
    precision = start("auto", options.precision).precision
    print(
        f"{machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, ours in {precision}, "
        f"{options.data}\n"
    )
    print("| shape | batch | plain transformers loop, real tokens/s | ours, real tokens/s | ratio |")
    print("|---|---|---|---|---|")
    for shape in options.shapes:
        for batch_size in options.batch_sizes:
            plain, ours = measure(shape, batch_size, options.data, options.steps, options.precision)
            print(f"| {shape} | {batch_size} | {plain:,.0f} | {ours:,.0f} | {ours / plain:.2f}x |", flush=True)


if __name__ == "__main__":
    main()
