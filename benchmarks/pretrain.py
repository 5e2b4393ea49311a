"""Contrastive pre-training: memory with and without gradient caching, and each objective's share of the time.

    python -m benchmarks.pretrain [--shape minilm] [--chunk 64] [--largest-whole 1024]

Memory is the increase of a process's peak resident set by one step: forward and backward on two views of N sentences.
Each measurement has its own process. Times are medians at 128 sentences. A probe of the gradient (`--probe-every`)
adds its time to a step's.
"""

import argparse
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import nn

from benchmarks.finetune import SHAPES
from benchmarks.objectives import FORMS, MIB, make, peak, step
from minbert import BertModel, load_tokenizer
from multitask.runtime.device import make_deterministic, seed_everything, start
from multitask.runtime.options import Device, Precision
from multitask.stages.common import Start
from multitask.stages.pretrain import PretrainConfig
from multitask.stages.pretrain.training import Pretraining
from multitask.training.contrastive_source import build_projection, load_contrastive
from multitask.training.trainable import Batch

SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
SENTENCES = 128  # in a step whose time is measured
REPEATS = 5


def prepare(
    shape: str, data: Path, chunk: int | None, device: Device = "cpu", precision: Precision = "auto"
) -> Pretraining:
    seed_everything(0)
    runtime = start(device, precision)
    make_deterministic(runtime)
    tokenizer = load_tokenizer("all-minilm-l6-v2")
    encoder = BertModel(replace(SHAPES[shape], vocab_size=tokenizer.vocabulary_size))
    config = PretrainConfig(chunk=chunk, select="last", max_length=32)
    projection = build_projection(config.projection, encoder.config.hidden_size)
    source = load_contrastive("unlabelled", data, config, tokenizer, projection, config.train_limit, config.max_length)
    module = nn.ModuleDict({"encoder": encoder, "projection": projection}).to(runtime.device).train()
    return Pretraining(
        module, Start(shape, data, encoder, tokenizer, "cls"), {"unlabelled": source}, None, config, runtime
    )


def one_step(problem: Pretraining, sentences: int) -> None:
    """One step. Rows are repeated if the data has too few: memory does not depend on what the sentences say."""
    rows = np.resize(np.arange(len(problem.contrastive["unlabelled"])), sentences)
    problem.backward((Batch("unlabelled", rows),))
    problem.module.zero_grad()


def added_memory(shape: str, data: Path, chunk: int | None, sentences: int) -> float:
    """MiB that a step adds to the peak. Call this in a new process."""
    problem = prepare(shape, data, chunk)
    one_step(problem, 8)
    before = peak()
    one_step(problem, sentences)
    return (peak() - before) / MIB


def milliseconds(call: object) -> float:
    times = []
    for _ in range(REPEATS + 1):
        begin = time.perf_counter()
        call()  # type: ignore[operator]
        times.append(time.perf_counter() - begin)
    return median(times[1:]) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="minilm")
    parser.add_argument("--data", type=Path, default=Path("data/sample"))
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--largest-whole", type=int, default=1024, help="largest batch without caching")
    parser.add_argument("--only", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        sentences, chunk = options.only
        print(round(added_memory(options.shape, options.data, chunk or None, sentences)))
        return
    print(f"{options.shape}, {torch.get_num_threads()} threads, torch {torch.__version__}, chunks of {options.chunk}\n")
    print("| sentences | MiB added, whole batch | MiB added, gradient caching |\n|---:|---:|---:|")
    for sentences in SIZES:
        cells = []
        for chunk in (0, options.chunk):
            command = [sys.executable, "-m", "benchmarks.pretrain", *sys.argv[1:], "--only", str(sentences), str(chunk)]
            tried = chunk or sentences <= options.largest_whole
            cells.append(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() if tried else ""
            )
        print(f"| {sentences} | {' | '.join(cells)} |", flush=True)
    problem = prepare(options.shape, options.data, None)
    whole = milliseconds(lambda: one_step(problem, SENTENCES))
    print(f"\na step on {SENTENCES} sentences with infonce and a 2-layer projection: {whole:.0f} ms\n")
    probed = milliseconds(lambda: problem.watch((Batch("unlabelled", np.arange(SENTENCES)),), 0))
    share = probed / whole
    print(f"a probe of its gradient: {probed:.0f} ms, {share:.1%} of a step; at every fourth step {share / 4:.1%}\n")
    print("| objective alone | ms | share of a step |\n|---|---:|---:|")
    for label in FORMS:
        batch = make(label, SENTENCES, masked=False)
        own = milliseconds(lambda batch=batch: step(*batch))
        print(f"| {label} | {own:.2f} | {own / whole:.2%} |")


if __name__ == "__main__":
    main()
