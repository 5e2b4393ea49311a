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
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import nn
from transformers import TrainerCallback
from transformers.utils import logging

from benchmarks.finetune import OurLoop
from benchmarks.measure import hide_gpus, machine, matrix_rate, print_table
from multitask.base.device import prepare_training, resolve_runtime
from multitask.base.runs import locate_model
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.stages.pretrain import Pretraining
from multitask.stages.settings_of_pretraining import PretrainConfig
from multitask.stages.training_run import StartModel
from multitask.tasks.sources import source_named
from multitask.training.contrastive_source import load_contrastive
from multitask.training.settings import ObjectiveConfig
from multitask.training.source import Batch

MODEL = "all-minilm-l6-v2"
SOURCE = "unlabelled"
TOKENS = 32


def build_problem(data: Path, batch_size: int) -> Pretraining:
    """The training of `pretrain` with the peer's loss and no projection."""
    runtime = resolve_runtime("cpu", "auto")
    prepare_training(runtime)
    encoder = SentenceEncoder.read(locate_model(MODEL), "mean", TOKENS).on(runtime)
    objective = ObjectiveConfig("mnrl")
    config = PretrainConfig(
        batch_size=batch_size, projection="none", objective=objective, select="last", max_length=TOKENS
    )
    module = nn.ModuleDict({"encoder": encoder.model, "projection": nn.Identity()})
    source = load_contrastive(SOURCE, data, config, encoder, module["projection"], None)
    return Pretraining(module, StartModel(MODEL, data, encoder), encoder, {SOURCE: source}, None, config)


class Alternate(TrainerCallback):
    """Takes one of our steps after each step of the trainer, and measures both."""

    def __init__(self, ours: Callable[[int], None]) -> None:
        self.ours = ours
        self.seconds: dict[str, list[float]] = {"theirs": [], "ours": []}
        self.mark = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._note("theirs")
        self.ours(len(self.seconds["ours"]))
        self._note("ours")

    def _note(self, side: str) -> None:
        now = time.perf_counter()
        self.seconds[side].append(now - self.mark)
        self.mark = now


@torch.no_grad()
def same_losses(ours: OurLoop, update: tuple[Batch, ...], theirs: Any, sentences: Sequence[str]) -> str:
    """Both losses of a batch without dropout; AssertionError if they differ."""
    ours.problem.module.eval()
    theirs.model.eval()
    expected = float(theirs([theirs.model.preprocess(sentences) for _ in range(2)], labels=None))
    found = float(ours.losses(update)[0])
    ours.problem.module.train()
    assert abs(found - expected) < 0.05 * expected, f"ours: {found}, theirs: {expected}"
    return f"loss without dropout: ours {found:.4f}, theirs {expected:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/sample"))
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    hide_gpus()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(0)
    size, steps = options.batch_size, options.steps + 1
    sentences = source_named(SOURCE, options.data).sentences().texts[0][: steps * size]
    assert len(sentences) == steps * size, f"{options.data} has too few sentences for {options.steps} steps"
    problem = build_problem(options.data, size)
    ours = OurLoop(problem)
    planned = [(Batch(SOURCE, np.arange(first, first + size)),) for first in range(0, steps * size, size)]
    model = SentenceTransformer(str(locate_model(MODEL)), device="cpu")
    model.max_seq_length = TOKENS
    loss = MultipleNegativesRankingLoss(model)
    compared = same_losses(ours, planned[0], loss, sentences[:size])
    bf16 = problem.runtime.precision == "bf16"
    alternate = Alternate(lambda number: ours.step(planned[number]))
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            folder,
            max_steps=steps,
            per_device_train_batch_size=size,
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
    tokens = 2 * float(problem.contrastive[SOURCE].columns[0].lengths[: steps * size].mean())  # of both views
    work = 6 * tokens * sum(parameter.numel() for parameter in problem.encoder.model.layers.parameters())
    print(
        f"{machine()}, {problem.runtime.precision} (matrix products: {rate / 1e9:,.0f} GFLOP/s); {size} sentences a "
        f"step, in two views of at most {TOKENS} tokens; medians of {options.steps} steps; {compared}\n"
    )
    medians = {side: size / median(seconds[1:]) for side, seconds in alternate.seconds.items()}
    rows = [
        [side, f"{speed:,.0f}", f"{speed * work / rate:.0%}", f"{medians['ours'] / speed:.2f}x"]
        for side, speed in medians.items()
    ]
    print_table(["", "sentences/s", "utilisation", "ours / it"], rows)


if __name__ == "__main__":
    main()
