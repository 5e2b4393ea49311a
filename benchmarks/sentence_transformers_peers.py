"""The ways in which sentence-transformers embeds on a processor: torch, ONNX Runtime and OpenVINO, also in 8 bits.

Each is built as its own documentation says; `build` names those that cannot be built here, with the reason.
"""

import csv
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

import torch
from sentence_transformers import (
    SentenceTransformer,
    export_dynamic_quantized_onnx_model,
    export_static_quantized_openvino_model,
)

PEERS = ("torch-fp32", "torch-bf16", "onnx-fp32", "onnx-int8", "openvino", "openvino-int8")
ONNX_INT8 = "onnx/model_qint8_avx512_vnni.onnx"
OPENVINO_INT8 = "openvino/openvino_model_qint8_quantized.xml"


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
        with (data / "train.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["sentence"], *([sentence] for sentence in calibration)])
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
