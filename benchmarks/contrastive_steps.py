"""Steps of contrastive training: ours and those of sentence-transformers' trainer, in sentences per second.

    python -m benchmarks.contrastive_steps [--steps 12] [--batch-size 128] [--data data/sample]

Needs `pip install sentence-transformers datasets accelerate`. Both train all-MiniLM-L6-v2 on two dropout views of the
same sentences, cut to 32 tokens, with the same loss (MultipleNegativesRankingLoss, which is InfoNCE with temperature
0.05), bf16 autocast where the processor has it, fused AdamW and clipping. Before anything is timed, both give the same
loss without dropout. Then steps alternate, so that a busy machine slows both alike; the first step of each does not
count. A step of the trainer is what lies between two ends of its steps, so it includes tokenising the next batch; a
step of ours includes packing it.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    losses,
)
from torch import nn
from transformers import TrainerCallback
from transformers.utils import logging

from benchmarks.machine import machine, matrix_rate
from minbert import BertModel, load_tokenizer
from multitask.objectives.config import ObjectiveConfig
from multitask.runs.artefact import locate_model
from multitask.runtime.device import make_deterministic, seed_everything, start
from multitask.stages.common import Start
from multitask.stages.pretrain import PretrainConfig
from multitask.stages.pretrain.training import Pretraining
from multitask.tasks.training_sentences import training_sentences
from multitask.training.contrastive_source import load_contrastive
from multitask.training.optimizer import Optimizer
from multitask.training.trainable import Batch

MODEL = "all-minilm-l6-v2"
TOKENS = 32


class OurSteps:
    """The steps of `pretrain`, on the first sentences of a file in their order."""

    def __init__(self, data: Path, batch_size: int, steps: int) -> None:
        runtime = start("cpu", "auto")
        make_deterministic(runtime)
        tokenizer, encoder = load_tokenizer(MODEL), BertModel.from_pretrained(MODEL)
        config = PretrainConfig(
            batch_size=batch_size,
            projection="none",
            objective=ObjectiveConfig("mnrl"),
            select="last",
            max_length=TOKENS,
        )
        module = nn.ModuleDict({"encoder": encoder, "projection": nn.Identity()})
        source = load_contrastive("unlabelled", data, config, tokenizer, module["projection"], None, TOKENS)
        begin = Start(MODEL, data, encoder, tokenizer, "mean")
        self.problem = Pretraining(module, begin, {"unlabelled": source}, None, config, runtime)
        self.optimizer = Optimizer(module.train(), config.optimizer, steps)
        self.updates = [
            (Batch("unlabelled", np.arange(first, first + batch_size)),)
            for first in range(0, steps * batch_size, batch_size)
        ]
        self.tokens = 2 * float(source.columns[0].lengths[: steps * batch_size].mean())  # of both views

    def loss(self, number: int) -> float:
        """The loss of a step without dropout."""
        self.problem.module.eval()
        with torch.no_grad():
            (term,) = self.problem.losses(self.updates[number]).terms.values()
        self.problem.module.train()
        return float(term)

    def step(self, number: int) -> None:
        self.problem.backward(self.updates[number])
        self.optimizer.clip()
        self.optimizer.step(number)


class Alternate(TrainerCallback):
    """Takes one of our steps after each step of the trainer, and measures both."""

    def __init__(self, ours: OurSteps) -> None:
        self.ours = ours
        self.seconds: dict[str, list[float]] = {"theirs": [], "ours": []}
        self.mark = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._note("theirs")
        self.ours.step(len(self.seconds["ours"]))
        self._note("ours")

    def _note(self, side: str) -> None:
        now = time.perf_counter()
        self.seconds[side].append(now - self.mark)
        self.mark = now


def their_loss(model: SentenceTransformer, loss: nn.Module, sentences: list[str]) -> float:
    """The loss of a batch without dropout, in fp32."""
    features = [model.preprocess(sentences) for _ in range(2)]
    model.eval()
    with torch.no_grad():
        value = loss(features, labels=None)
    return float(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/sample"))
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    seed_everything(0)
    count = (options.steps + 1) * options.batch_size
    sentences = training_sentences("unlabelled", options.data)[0][:count]
    assert len(sentences) == count, f"{options.data} has too few sentences for {options.steps} steps"
    ours = OurSteps(options.data, options.batch_size, options.steps + 1)
    model = SentenceTransformer(str(locate_model(MODEL)), device="cpu")
    model.max_seq_length = TOKENS
    loss = losses.MultipleNegativesRankingLoss(model)
    expected, found = their_loss(model, loss, sentences[: options.batch_size]), ours.loss(0)
    assert abs(found - expected) < 0.05 * expected, f"ours: {found}, theirs: {expected}"
    bf16 = ours.problem.runtime.precision == "bf16"
    alternate = Alternate(ours)
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            folder,
            max_steps=options.steps + 1,
            per_device_train_batch_size=options.batch_size,
            learning_rate=1e-5,
            optim="adamw_torch_fused",
            bf16=bf16,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        pairs = Dataset.from_dict({"anchor": sentences, "positive": sentences})
        trainer = SentenceTransformerTrainer(model, arguments, train_dataset=pairs, loss=loss, callbacks=[alternate])
        alternate.mark = time.perf_counter()
        trainer.train()
    rate = matrix_rate(torch.bfloat16 if bf16 else torch.float32, torch.device("cpu"))
    work = 6 * sum(parameter.numel() for parameter in ours.problem.begin.encoder.layers.parameters())
    print(
        f"{machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, {ours.problem.runtime.precision} "
        f"(matrix products: {rate / 1e9:,.0f} GFLOP/s); {options.batch_size} sentences a step, in two views, at most "
        f"{TOKENS} tokens each; loss without dropout: ours {found:.4f}, theirs {expected:.4f}\n"
    )
    print(f"| | sentences/s, median of {options.steps} steps | quartiles | utilisation |\n|---|---:|---:|---:|")
    for side, seconds in alternate.seconds.items():
        speeds = [options.batch_size / value for value in seconds[1:]]
        low, middle, high = np.quantile(speeds, (0.25, 0.5, 0.75))
        print(f"| {side} | {middle:,.0f} | {low:,.0f} to {high:,.0f} | {middle * ours.tokens * work / rate:.0%} |")
    medians = {side: statistics.median(seconds[1:]) for side, seconds in alternate.seconds.items()}
    print(f"\nours / theirs: {medians['theirs'] / medians['ours']:.2f}x")


if __name__ == "__main__":
    main()
