"""Contrastive pre-training: memory with and without gradient caching, and speed.

    python -m benchmarks.pretrain [--shape minilm] [--chunk 64] [--largest-whole 1024] [--steps 5]

Memory is what one step, forward and backward on two views of N sentences, adds to the peak of a process of its own.
Speed is that of 128 sentences, next to a tuned loop around transformers' model, which computes both views in one pass
in bf16; both have the same loss without dropout.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from benchmarks.finetune import SHAPES, Loops, OurLoop, TheirLoop, check_losses, speeds
from benchmarks.measure import START, added_memory, hide_gpus, in_new_process, machine, print_table
from minbert import BertModel, load_tokenizer
from multitask.base.device import prepare_training, resolve_runtime
from multitask.base.options import Device, Precision
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.stages.pretrain import Pretraining
from multitask.stages.settings_of_pretraining import PretrainConfig
from multitask.stages.training_run import StartModel
from multitask.training.contrastive_source import build_projection, load_contrastive
from multitask.training.source import Batch, Update

SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
SENTENCES = 128  # in a step whose time is measured
SOURCE = "unlabelled"


class TheirContrastiveLoop(TheirLoop):
    """Both dropout views of all sentences in one pass, and InfoNCE as the cross-entropy of their cosines."""

    def loss(self, batch: Batch) -> Tensor:
        source = self.problem.contrastive[batch.source]
        views = self.embed([torch.tensor(sequence).long() for sequence in source.inputs(batch.rows).ids])
        with torch.autocast(views.device.type, torch.bfloat16, enabled=self.tuned):
            projected = self.heads(views)
        anchors, positives = normalize(projected.float(), dim=1).chunk(2)
        objective: Any = self.problem.config.objective.build()
        similarities = anchors @ positives.T / objective.temperature
        return cross_entropy(similarities, torch.arange(len(anchors), device=anchors.device))


def prepare(
    shape: str, data: Path, chunk: int | None = None, device: Device = "cpu", precision: Precision = "auto"
) -> Pretraining:
    """InfoNCE on dropout views of sentences, with a random encoder of the shape, mean pooling and a projection."""
    torch.manual_seed(0)
    runtime = resolve_runtime(device, precision)
    prepare_training(runtime)
    tokenizer = load_tokenizer(START)
    model = BertModel(replace(SHAPES[shape], vocab_size=tokenizer.vocabulary_size))
    config = PretrainConfig(chunk=chunk, select="last", max_length=32)
    encoder = SentenceEncoder(model, tokenizer, "mean", config.max_length).on(runtime)
    projection = build_projection(config.projection, encoder.width)
    source = load_contrastive(SOURCE, data, config, encoder, projection, config.train_limit)
    module = nn.ModuleDict({"encoder": model, "projection": projection}).to(runtime.device).train()
    return Pretraining(module, StartModel(shape, data, encoder), encoder, {SOURCE: source}, None, config)


def updates(problem: Pretraining, sentences: int, count: int) -> list[Update]:
    """Updates of distinct sentences, since equal ones are not negatives of each other in ours."""
    _, distinct = np.unique(problem.contrastive[SOURCE].identities[0], return_index=True)
    generator, size = np.random.default_rng(0), min(sentences, len(distinct))
    return [(Batch(SOURCE, generator.choice(distinct, size, replace=False)),) for _ in range(count)]


def measure(shape: str, data: Path, sentences: int, steps: int, device: Device) -> dict[str, list[float]]:
    """Real tokens a second of every step, of ours and of the tuned loop, in bf16."""
    problem = prepare(shape, data, device=device, precision="bf16")
    tuned = TheirContrastiveLoop(problem, problem.module.get_submodule("projection"), tuned=True)
    loops: Loops = {"tuned": tuned, "ours": OurLoop(problem)}
    planned = updates(problem, sentences, steps + 1)
    check_losses(problem, loops, planned[0])
    lengths = problem.contrastive[SOURCE].lengths
    return speeds(loops, dict.fromkeys(loops, planned), lambda update: int(lengths[update[0].rows].sum()))


def one_step(problem: Pretraining, sentences: int) -> None:
    """One step. Rows are repeated if the data has too few: memory does not depend on what the sentences say."""
    rows = np.resize(np.arange(len(problem.contrastive[SOURCE])), sentences)
    problem.backward((Batch(SOURCE, rows),))
    problem.module.zero_grad()


def memory(shape: str, data: Path, sentences: int, chunk: int | None) -> float:
    """MiB that a step adds to the peak. Call this in a new process."""
    problem = prepare(shape, data, chunk)
    one_step(problem, 8)
    return added_memory(lambda: one_step(problem, sentences))


def memory_rows(options: argparse.Namespace) -> Iterator[list[object]]:
    for sentences in SIZES:
        added = [
            in_new_process("benchmarks.pretrain", *("--shape", options.shape, "--data", options.data), "--only", *case)
            for case in ((sentences, 0), (sentences, options.chunk))
            if case[1] or sentences <= options.largest_whole
        ]
        yield [sentences, *([""] if len(added) == 1 else []), *added]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="minilm")
    parser.add_argument("--data", type=Path, default=Path("data/sample"))
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--largest-whole", type=int, default=1024, help="largest batch without caching")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--only", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    hide_gpus()
    if options.only:
        sentences, chunk = options.only
        print(round(memory(options.shape, options.data, sentences, chunk or None)))
        return
    print(f"{machine()}, {options.shape}, chunks of {options.chunk}, {options.data}\n")
    print_table(["sentences", "MiB added, whole batch", "MiB added, gradient caching"], memory_rows(options))
    found = measure(options.shape, options.data, SENTENCES, options.steps, "cpu")
    tuned, ours = (median(found[name]) for name in ("tuned", "ours"))
    print(f"\n{SENTENCES} sentences, real tokens/s: tuned {tuned:,.0f}, ours {ours:,.0f} ({ours / tuned:.2f}x)")


if __name__ == "__main__":
    main()
