"""Speed of `SentenceEncoder.encode` and of `SentenceTransformer.encode`, in sentences per second.

    python -m benchmarks.encode [--model all-minilm-l6-v2] [--data data/sample] [--sentences 2000] [--rounds 5]

Both embed the same distinct sentences of the tasks' training sets, in random order, with the same number of threads.
sentence-transformers has its default settings: fp32, batches of 32 sentences sorted by length. Ours fills batches by
tokens; it runs in fp32 and in the precision that it chooses itself. All take turns, so that a busy machine slows them
alike. The first round does not count. The reported cosine is the smallest between the two embeddings of a sentence.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from transformers.utils.logging import disable_progress_bar

from benchmarks.machine import machine
from multitask import SentenceEncoder
from multitask.runs.artefact import locate_model
from multitask.runtime.device import start
from multitask.tasks.declarations import MAIN_TASKS, chosen_tasks
from multitask.tasks.training_sentences import training_sentences


def draw(data: Path, count: int) -> list[str]:
    """Distinct sentences of the tasks whose files exist, in random order."""
    present = [name for name, task in chosen_tasks(data, MAIN_TASKS).items() if task.source("train").exists()]
    texts = sorted({text for name in present for text in training_sentences(name, data)[0]})
    return [texts[row] for row in np.random.default_rng(0).permutation(len(texts))[:count]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="all-minilm-l6-v2")
    parser.add_argument("--data", type=Path, default=Path("data/sample"))
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--their-batch-size", type=int, default=32)
    options = parser.parse_args()
    disable_progress_bar()
    sentences = draw(options.data, options.sentences)
    device = start("auto", "auto").device.type
    theirs = SentenceTransformer(str(locate_model(options.model)), device=device)
    ours = {p: SentenceEncoder.load(options.model, precision=p) for p in ("fp32", "auto")}
    sides: dict[str, Callable[[], np.ndarray]] = {
        "theirs": lambda: theirs.encode(
            sentences, batch_size=options.their_batch_size, normalize_embeddings=True, show_progress_bar=False
        )
    }
    for name, encoder in ours.items():
        sides[name] = lambda encoder=encoder: encoder.encode(sentences, normalize=True)
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    embeddings = {}
    for _ in range(options.rounds + 1):
        for name, encode in sides.items():
            begin = time.perf_counter()
            embeddings[name] = encode()
            speeds[name].append(len(sentences) / (time.perf_counter() - begin))
    speed = {name: statistics.median(values[1:]) for name, values in speeds.items()}
    tokens = [len(ids) for ids in ours["fp32"].tokenizer.encode(sentences, ours["fp32"].max_length)]
    print(
        f"{machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, {options.model}\n{len(sentences)} "
        f"sentences of {options.data}, {min(tokens)} to {max(tokens)} tokens, {np.mean(tokens):.1f} on average\n"
    )
    print("| ours in | sentence-transformers (fp32), sentences/s | ours, sentences/s | ratio | smallest cosine |")
    print("|---|---:|---:|---:|---:|")
    for name, encoder in ours.items():
        cosine = (embeddings["theirs"] * embeddings[name]).sum(axis=1).min()
        precision = encoder.runtime.precision + (" (the default here)" if name == "auto" else "")
        print(
            f"| {precision} | {speed['theirs']:,.0f} | {speed[name]:,.0f} | {speed[name] / speed['theirs']:.2f}x "
            f"| {cosine:.6f} |"
        )


if __name__ == "__main__":
    main()
