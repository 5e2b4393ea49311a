"""Speed of `SentenceEncoder.encode` and of sentence-transformers with its backends, in sentences per second.

    python -m benchmarks.encode [--model all-minilm-l6-v2] [--data data/sample] [--sentences 2000] [--rounds 5]
                                [--exports FOLDER] [--peers torch-fp32 ...] [--ours fp32 bf16]

For all peers: `pip install "sentence-transformers[onnx,openvino]<6" "transformers<4.58" "optimum<2.2" datasets`; newer
versions did not fit together in November 2026. Peers that cannot be built are named with the reason. All embed the same
distinct sentences of the tasks' training sets, in random order, with the same number of threads, on the processor.
sentence-transformers sorts sentences by length itself; its batch size is the fastest of `--batch-sizes` on the first
sentences, for each peer alone. Ours fills batches by tokens.

All take turns, so that a busy machine slows them alike; the first round does not count. Cosines compare each embedding
with that of the reference, sentence-transformers with torch in fp32. Utilisation is the floating-point work of real
tokens (2 for each parameter outside the embeddings) over what the machine reaches in large bf16 matrix products.
Latency is the time for one sentence of 9 tokens. `predict` is that of a model with a head for sentiment.
"""

import argparse
import csv
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import (
    SentenceTransformer,
    export_dynamic_quantized_onnx_model,
    export_static_quantized_openvino_model,
)
from transformers.utils import logging

from benchmarks.measure import alternate, hide_gpus, machine, matrix_rate, print_table
from minbert.model import BertModel
from multitask import MultitaskModel, SentenceEncoder
from multitask.base.options import Precision
from multitask.base.runs import locate_model
from multitask.evaluation.embeddings import cosines
from multitask.models.settings import HeadsConfig
from multitask.tasks import MAIN_TASKS
from multitask.tasks.declarations import COURSE, chosen_tasks, task_named
from multitask.tasks.sources import source_named

PEERS = ("torch-fp32", "torch-bf16", "onnx-fp32", "onnx-int8", "openvino", "openvino-int8")
REFERENCE = "torch-fp32"
ONNX_INT8 = "onnx/model_qint8_avx512_vnni.onnx"
OPENVINO_INT8 = "openvino/openvino_model_qint8_quantized.xml"
CALIBRATION = 300  # sentences, as many as sentence-transformers takes
TRIED = 512  # sentences on which batch sizes are tried
SHORT = "Two dogs run over a field."
CALLS = 20  # for one sentence, in each round

Encode = Callable[[Sequence[str]], NDArray[np.float32]]


def with_onnx(model: str, exports: Path, int8: bool) -> SentenceTransformer:
    """With ONNX Runtime: the exported model in fp32, or its dynamic quantisation for processors with AVX-512 VNNI."""
    from onnxruntime import SessionOptions

    threads = SessionOptions()
    threads.intra_op_num_threads = torch.get_num_threads()
    load = partial(SentenceTransformer, device="cpu", backend="onnx")
    folder = exports / "onnx-fp32"
    if not folder.exists():
        load(model, model_kwargs={"export": True}).save_pretrained(str(folder))
    if int8 and not (folder / ONNX_INT8).exists():
        exported = load(str(folder), model_kwargs={"file_name": "onnx/model.onnx"})
        export_dynamic_quantized_onnx_model(exported, "avx512_vnni", str(folder))
    file = ONNX_INT8 if int8 else "onnx/model.onnx"
    return load(str(folder), model_kwargs={"file_name": file, "session_options": threads})


def with_openvino(model: str, exports: Path, int8: bool, calibration: Sequence[str]) -> SentenceTransformer:
    """With OpenVINO: the exported model in the precision that OpenVINO chooses, or its static quantisation."""
    threads = {"INFERENCE_NUM_THREADS": str(torch.get_num_threads())}
    load = partial(SentenceTransformer, device="cpu", backend="openvino")
    folder = exports / "openvino-fp32"
    if not folder.exists():
        load(model, model_kwargs={"export": True}).save_pretrained(str(folder))
    if int8 and not (folder / OPENVINO_INT8).exists():
        data = exports / "calibration"
        data.mkdir(exist_ok=True)
        with (data / "train.csv").open("w", encoding="utf-8", newline="") as table:
            csv.writer(table).writerows([["sentence"], *([sentence] for sentence in calibration)])
        export_static_quantized_openvino_model(
            load(str(folder), model_kwargs={"file_name": "openvino/openvino_model.xml"}),
            None,
            str(folder),
            dataset_name=str(data),
            dataset_config_name="default",
            dataset_split="train",
            column_name="sentence",
        )
    file = OPENVINO_INT8 if int8 else "openvino/openvino_model.xml"
    return load(str(folder), model_kwargs={"file_name": file, "ov_config": threads})


def build(
    names: Collection[str], model: str, exports: Path, calibration: Sequence[str]
) -> tuple[dict[str, SentenceTransformer], dict[str, str]]:
    """The peers that can be built, and for each other one the first line of the reason, both by name.

    Args:
        names: of `PEERS`.
        model: folder of the model, as sentence-transformers reads it.
        exports: folder for exported models; those that it holds are used again.
        calibration: sentences for the static quantisation, at least 300.
    """
    ways = {
        "torch-fp32": partial(SentenceTransformer, model, device="cpu", model_kwargs={"torch_dtype": torch.float32}),
        "torch-bf16": partial(SentenceTransformer, model, device="cpu", model_kwargs={"torch_dtype": torch.bfloat16}),
        "onnx-fp32": partial(with_onnx, model, exports, int8=False),
        "onnx-int8": partial(with_onnx, model, exports, int8=True),
        "openvino": partial(with_openvino, model, exports, int8=False, calibration=calibration),
        "openvino-int8": partial(with_openvino, model, exports, int8=True, calibration=calibration),
    }
    built, missing = {}, {}
    for name in names:
        try:
            built[name] = ways[name]()
        except Exception as error:  # every backend has errors of its own; sentence-transformers names a missing package
            missing[name] = (str(error).strip() or type(error).__name__).splitlines()[0]
    return built, missing


def draw(data: Path, count: int) -> list[str]:
    """Distinct sentences of the tasks whose files exist, in random order."""
    present = [name for name, task in chosen_tasks(data, MAIN_TASKS).items() if task.source("train").exists()]
    texts = sorted({text for name in present for text in source_named(name, data).sentences().texts[0]})
    return [texts[row] for row in np.random.default_rng(0).permutation(len(texts))[:count]]


def tuned(peer: SentenceTransformer, sentences: Sequence[str], batch_sizes: Sequence[int]) -> tuple[Encode, int]:
    """The peer with the batch size that is fastest on the first sentences; the first call does not count."""

    def encode(batch_size: int, texts: Sequence[str]) -> NDArray[np.float32]:
        return peer.encode(list(texts), batch_size=batch_size, normalize_embeddings=True, show_progress_bar=False)

    tried = {str(size): lambda _, size=size: encode(size, sentences[:TRIED]) for size in batch_sizes}
    seconds = alternate(tried, 1)
    best = min(batch_sizes, key=lambda size: seconds[str(size)])
    return partial(encode, best), best


def work_per_token(model: str) -> int:
    """Floating-point operations for each real token: 2 for each parameter in the layers."""
    return 2 * sum(parameter.numel() for parameter in BertModel.from_pretrained(model).layers.parameters())


def with_head(name: str, precision: Precision) -> MultitaskModel:
    """The model with a new head for sentiment, loaded as users load models."""
    tasks = {"sentiment": task_named(COURSE, "sentiment")}
    whole = MultitaskModel(SentenceEncoder.read(locate_model(name), "mean"), tasks, HeadsConfig())
    with tempfile.TemporaryDirectory() as temporary:
        whole.save(Path(temporary) / "model")
        return MultitaskModel.load(Path(temporary) / "model", "cpu", precision)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="all-minilm-l6-v2")
    parser.add_argument("--data", type=Path, default=Path("data/sample"))
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[16, 32, 64, 128], help="tried for each peer")
    parser.add_argument("--exports", type=Path, help="folder that keeps the peers' exported models for the next run")
    parser.add_argument("--peers", nargs="+", default=PEERS, choices=PEERS, help=f"{REFERENCE} always takes part")
    parser.add_argument("--ours", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    options = parser.parse_args()
    hide_gpus()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    drawn = draw(options.data, options.sentences + CALIBRATION)
    sentences, calibration = drawn[: options.sentences], drawn[-CALIBRATION:]
    with tempfile.TemporaryDirectory() as temporary:
        exports = options.exports or Path(temporary)
        exports.mkdir(parents=True, exist_ok=True)
        names = [name for name in PEERS if name in (REFERENCE, *options.peers)]
        peers, missing = build(names, str(locate_model(options.model)), exports, calibration)
        report(options, sentences, peers)
    for name, reason in missing.items():
        print(f"missing: {name}: {reason}")


def report(options: argparse.Namespace, sentences: list[str], peers: Mapping[str, SentenceTransformer]) -> None:
    """Measure, and print the machine and both tables."""
    processor = torch.device("cpu")
    rates = {str(dtype)[6:]: matrix_rate(dtype, processor) for dtype in (torch.float32, torch.bfloat16)}
    ours = {f"ours-{p}": SentenceEncoder.load(options.model, device="cpu", precision=p) for p in options.ours}
    one, *_ = ours.values()
    lengths = [len(ids) for ids in one.tokenizer.encode(sentences, one.max_length)]
    sides: dict[str, Encode] = {name: partial(encoder.encode, normalize=True) for name, encoder in ours.items()}
    batch_sizes = {}
    for name, peer in peers.items():
        sides[name], batch_sizes[name] = tuned(peer, sentences, options.batch_sizes)
    embeddings: dict[str, NDArray[np.float32]] = {}

    def embed(name: str, encode: Encode, _: int) -> None:
        embeddings[name] = encode(sentences)

    seconds = alternate({name: partial(embed, name, encode) for name, encode in sides.items()}, options.rounds)
    print(
        f"{machine()}, {options.model}; matrix products: "
        f"{', '.join(f'{name} {rate / 1e9:,.0f}' for name, rate in rates.items())} GFLOP/s\n{len(sentences)} sentences "
        f"of {options.data}, {min(lengths)} to {max(lengths)} tokens, {np.mean(lengths):.1f} on average; medians of "
        f"{options.rounds} rounds\n"
    )
    rows = []
    for name, taken in seconds.items():
        speeds = [len(sentences) / time for time in taken]
        used = median(speeds) * np.mean(lengths) * work_per_token(options.model) / rates["bfloat16"]
        similar = cosines(embeddings[REFERENCE], embeddings[name])
        shown = [f"{median(speeds):,.0f}", f"{min(speeds):,.0f} to {max(speeds):,.0f}", f"{used:.0%}"]
        rows.append([name, batch_sizes.get(name, "by tokens"), *shown, f"{similar.min():.5f}", f"{similar.mean():.5f}"])
    columns = ["sentences/s", "lowest to highest", "utilisation", "smallest cosine", "mean cosine"]
    print_table(["", "batch", *columns], rows)
    one_sentence = {name: lambda _, encode=encode: encode([SHORT]) for name, encode in sides.items()}
    for precision in options.ours:
        model = with_head(options.model, precision)
        one_sentence[f"ours-{precision}, predict"] = lambda _, model=model: model.predict("sentiment", [SHORT])
    latencies = alternate(one_sentence, CALLS * options.rounds)
    print()
    print_table(
        [f'"{SHORT}"', "p50, ms", "p95, ms"],
        ([name, *(f"{1000 * np.quantile(taken, q):.2f}" for q in (0.5, 0.95))] for name, taken in latencies.items()),
    )


if __name__ == "__main__":
    main()
