"""Time of the evaluation suites, ours and a plain script that embeds each file in its own order.

    python -m benchmarks.suites --data FOLDER [--model all-minilm-l6-v2] [--transfer]

FOLDER is SentEval's data folder. The plain script uses transformers' AutoModel in fp32, each file's sentences in
their order, batches of 64 padded to the longest sentence, mean pooling and scipy's Spearman correlation. Ours is
`evaluate --suite sts` without a cache: it embeds each distinct sentence once, in batches filled by tokens. Ours runs
before and after the plain script and the mean counts, so that a change of the machine's load favours neither. The
difference is the largest among the seven tasks' scores, in points.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from transformers import AutoModel, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from benchmarks.machine import machine
from multitask.data.contamination import TrainedOn
from multitask.evaluation.embedding_suites import SuiteName, SuiteResult, evaluate_suite
from multitask.evaluation.senteval_files import STS_SETS
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.runs.artefact import locate_model
from multitask.runtime.options import Precision

BATCH_SIZE = 64


def plain(name: str, folder: Path, device: torch.device) -> tuple[dict[str, float], float]:
    """The Spearman correlation of each task, and the seconds for all tasks."""
    place = str(locate_model(name))
    tokenizer, model = AutoTokenizer.from_pretrained(place), AutoModel.from_pretrained(place).to(device).eval()
    most = SentenceEncoder.load(name).max_length
    begin, scores = time.perf_counter(), {}
    for entry in STS_SETS:
        data = entry.read(entry.paths(folder))
        similarities = np.empty(len(data.gold))
        for subset in dict.fromkeys(data.subsets):
            rows = np.flatnonzero(data.subsets == subset)
            first, second = (embed(tokenizer, model, [c[row] for row in rows], most, device) for c in data.columns)
            similarities[rows] = (first * second).sum(1)
        scores[entry.name] = float(spearmanr(similarities, data.gold).statistic)
    return scores, time.perf_counter() - begin


@torch.no_grad()
def embed(
    tokenizer: AutoTokenizer, model: AutoModel, sentences: list[str], most: int, device: torch.device
) -> NDArray[np.float32]:
    """Embeddings of length 1, [sentences, dim]."""
    parts = []
    for start in range(0, len(sentences), BATCH_SIZE):
        texts = sentences[start : start + BATCH_SIZE]
        inputs = tokenizer(texts, padding=True, truncation=True, max_length=most, return_tensors="pt").to(device)
        hidden, mask = model(**inputs).last_hidden_state, inputs["attention_mask"][:, :, None]
        parts.append(torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1)).cpu().numpy())
    return np.concatenate(parts)


def ours(suite: SuiteName, name: str, folder: Path, precision: Precision) -> tuple[SuiteResult, float]:
    encoder = SentenceEncoder.load(name, pooling="mean", precision=precision)
    begin = time.perf_counter()
    result = evaluate_suite(suite, encoder, folder, TrainedOn(), name, encoder.runtime.describe(), cache=None)
    return result, time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="all-minilm-l6-v2")
    parser.add_argument("--transfer", action="store_true", help="also time our transfer suite")
    options = parser.parse_args()
    disable_progress_bar()
    print(f"{machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, {options.model}\n", flush=True)
    precisions: tuple[Precision, ...] = ("auto", "fp32")
    before = [ours("sts", options.model, options.data, precision) for precision in precisions]
    scores, seconds = plain(options.model, options.data, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    after = [ours("sts", options.model, options.data, precision) for precision in precisions]
    print("| STS suite | seconds | ratio | average, points | largest difference |\n|---|---:|---:|---:|---:|")
    print(
        f"| each file in batches of {BATCH_SIZE}, fp32 | {seconds:.1f} | | {100 * np.mean([*scores.values()]):.2f} | |"
    )
    for (result, first), (_, last) in zip(before, after, strict=True):
        mean = (first + last) / 2
        apart = max(abs((result.main(task.scores) or 0) - scores[name]) for name, task in result.tasks.items())
        average = 100 * (result.average() or 0)
        label = f"ours, {result.settings['precision']}"
        print(f"| {label} | {mean:.1f} | {seconds / mean:.2f}x | {average:.2f} | {100 * apart:.3f} |", flush=True)
    if options.transfer:
        result, seconds = ours("transfer", options.model, options.data, "auto")
        parts = ", ".join(f"{name} {value:.1f} s" for name, value in result.seconds.items())
        print(f"\ntransfer suite, ours, {result.settings['precision']}: {seconds:.1f} s ({parts})")


if __name__ == "__main__":
    main()
