"""Speed and size of pruned encoders compared with the whole one, as a Markdown table.

    python -m benchmarks.pruning [--start all-minilm-l6-v2] [--text data/sample/sentences.txt] [--rounds 7]

The same share of heads and of feed-forward neurons is removed at random; which ones does not matter for speed. Times
are those of `SentenceEncoder.encode`, tokenizer included, on the same sentences. The encoders take turns, so that a
busy machine slows them alike. The first turn of each does not count.
"""

import argparse
import statistics
import tempfile
import time
from copy import deepcopy
from pathlib import Path

import torch

from benchmarks.machine import machine
from minbert.remove_heads_and_neurons import without_units
from multitask.data.read_unlabelled_files import SENTENCES, read_texts
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.stages.prune import PruneConfig
from multitask.stages.prune.pruning import choose
from multitask.training.importance_scores import random_scores

SHARES = (0.0, 0.2, 0.5, 0.9)


def pruned(whole: SentenceEncoder, share: float) -> SentenceEncoder:
    """The encoder without a share of its heads and neurons, the same share in each layer."""
    model = whole.model
    if share:
        config = PruneConfig(share=share, score="random", scope="layer")
        kept, _ = choose(model.config, lambda factors: random_scores(model.config, config.seed), config)
        model = without_units(model, kept)
    return SentenceEncoder(model, whole.tokenizer, whole.pooling, whole.runtime, whole.max_length)


def size(encoder: SentenceEncoder) -> int:
    """Size of the encoder's weights file in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        deepcopy(encoder.model).float().save(Path(folder))
        return (Path(folder) / "model.safetensors").stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", default="all-minilm-l6-v2")
    parser.add_argument("--text", type=Path, default=Path("data/sample/sentences.txt"))
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    options = parser.parse_args()
    sentences = read_texts(options.text, SENTENCES, options.sentences).columns[0]
    whole = SentenceEncoder.load(options.start, precision=options.precision, keep_layers=True)
    encoders = {share: pruned(whole, share) for share in SHARES}
    seconds: dict[float, list[float]] = {share: [] for share in SHARES}
    for _ in range(options.rounds + 1):
        for share, encoder in encoders.items():
            begin = time.perf_counter()
            encoder.encode(sentences)
            seconds[share].append(time.perf_counter() - begin)
    medians = {share: statistics.median(times[1:]) for share, times in seconds.items()}
    print(
        f"{machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, {whole.runtime.precision}, "
        f"{options.start}, {len(sentences)} sentences of {options.text}\n"
    )
    print("| heads and neurons removed | parameters | without embeddings | weights file | sentences/s | speed-up |")
    print("|---:|---:|---:|---:|---:|---:|")
    for share, encoder in encoders.items():
        parameters = sum(parameter.numel() for parameter in encoder.model.parameters())
        inner = sum(parameter.numel() for parameter in encoder.model.layers.parameters())
        print(
            f"| {share:.0%} | {parameters / 1e6:.1f} M | {inner / 1e6:.1f} M | {size(encoder) / 1e6:.1f} MB "
            f"| {len(sentences) / medians[share]:,.0f} | {medians[0.0] / medians[share]:.2f}x |"
        )


if __name__ == "__main__":
    main()
