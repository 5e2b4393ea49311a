"""Export of a model's encoder for other libraries: transformers, sentence-transformers and ONNX."""

import importlib.util
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from minbert.errors import InputError, install_with
from minbert.files import atomic_folder, read_json, read_optional_json, write_json, write_text
from multitask.base import logger
from multitask.base.runs import is_run, without_folders
from multitask.data.contamination import TrainedOn
from multitask.data.messages import listed
from multitask.models.model_folder import stored_include_prompt, stored_prompts, stored_similarity, write_pooling
from multitask.models.sentence_encoder import SentenceEncoder

MARK = "export.json"
"""A folder with this file is an export, which a new export may replace."""
ONNX_TOLERANCE = 1e-4  # largest difference between ONNX Runtime's embeddings and ours
ONNX_PACKAGES = ("onnx", "onnxscript")
CHECKED = ["One.", "Two dogs run over a field.", "A cat sleeps.", "Nobody wakes it, and it goes on. " * 100]
"""Sentences that exports are written and checked with; the last one is too long for most models."""


@contextmanager
def export_folder(folder: Path, trained_on: TrainedOn) -> Iterator[Path]:
    """Write an export atomically: into a new or empty folder, or over an earlier export. Raises InputError for others.

    The folder keeps what the model was trained on, for evaluations. It names no local folders, neither in this record
    nor in the tokenizer's settings, where other libraries write them: exports may be published.
    """
    check_export_folder(folder)
    with atomic_folder(folder) as temporary:
        yield temporary
        replace(trained_on, unknown=tuple(map(without_folders, trained_on.unknown))).keep(temporary)
        if (path := temporary / "tokenizer_config.json").is_file():
            stored = read_json(path, dict).items()
            write_json(path, {n: v for n, v in stored if n != "name_or_path" and not str(n).endswith("_file")})
        by = f"minbert-multitask {version('minbert-multitask')}"
        write_json(temporary / MARK, {"exported_by": by, "files": _files(temporary)})


def check_export_folder(folder: Path) -> None:
    """Raise InputError unless an export may be written into a folder: nothing else is ever replaced."""
    place = f"--output {folder}"
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{place}: a file or a link; expected the name of a folder")
    if run := next(filter(is_run, (folder, *folder.resolve().parents)), None):
        raise InputError(f"{place}: in the run {run}; expected a folder outside of it")
    if Path.cwd().is_relative_to(folder.resolve()):
        raise InputError(f"{place}: the working folder is in it; expected another folder")
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / MARK).is_file():
            raise InputError(f"{place}: has files and is no earlier export (no {MARK}); expected a new or empty folder")
        own = read_json(folder / MARK, dict).get("files", [])
        if others := sorted({*_files(folder)} - {*map(str, own), MARK}):
            raise InputError(f"{place}: {listed(others, most=3)} would be removed; expected only files of an export")


def _files(folder: Path) -> list[str]:
    """Everything in a folder that is no folder, by its path in it."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def export_transformers(encoder: SentenceEncoder, folder: Path, trained_on: TrainedOn) -> None:
    """Write a folder that transformers' Auto classes can load. Raises InputError for a pruned encoder."""
    with export_folder(folder, trained_on) as temporary:
        _write_encoder(encoder, temporary)


def export_sentence_transformers(
    encoder: SentenceEncoder, folder: Path, card: str, normalize: bool, trained_on: TrainedOn
) -> None:
    """Write a folder that sentence-transformers' SentenceTransformer can load, which gives the same embeddings.

    `card` is the text of README.md, and `normalize` scales embeddings to length 1; see also `export_transformers`.
    """
    paths = {"Transformer": "", "Pooling": "1_Pooling"} | ({"Normalize": "2_Normalize"} if normalize else {})
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (kind, path) in enumerate(paths.items())
    ]
    with export_folder(folder, trained_on) as temporary:
        _write_encoder(encoder, temporary)
        write_json(temporary / "modules.json", modules)
        if normalize:
            write_json(temporary / "2_Normalize" / "config.json", {})  # hubs do not keep empty folders
        write_json(
            temporary / "sentence_bert_config.json", {"max_seq_length": encoder.max_length, "do_lower_case": False}
        )
        write_json(
            temporary / "config_sentence_transformers.json",
            {
                "similarity_fn_name": stored_similarity(Path(encoder.name)),
                "prompts": stored_prompts(Path(encoder.name)),
                "default_prompt_name": None,
            },
        )
        write_text(temporary / "README.md", card)


class _Scaled(nn.Module):
    """An encoder whose embeddings are scaled to length 1."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return nn.functional.normalize(self.encoder(input_ids, attention_mask))


def export_onnx(encoder: SentenceEncoder, folder: Path, normalize: bool, trained_on: TrainedOn) -> None:
    """Write a folder with model.onnx, the tokenizer's files and embedding.json (pooling, scaling, longest sentence).

    The model maps `input_ids` and `attention_mask`, both [batch, sequence] int64, to `sentence_embedding`
    [batch, hidden] fp32. Batches may have any size, and sequences any length up to the longest sentence. If ONNX
    Runtime is installed, its embeddings are compared with ours before the folder appears.

    The encoder is on the CPU, in fp32. `normalize` scales embeddings to length 1.

    Raises:
        InputError: onnx and onnxscript are not installed, or the folder may not be replaced.
        RuntimeError: ONNX Runtime computes other embeddings.
    """
    require(ONNX_PACKAGES)
    batch = encoder.tokenizer(CHECKED, encoder.max_length)
    module = _Scaled(encoder) if normalize else encoder
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    with export_folder(folder, trained_on) as temporary:
        write_onnx(module, inputs, ["sentence_embedding"], temporary / "model.onnx")
        encoder.tokenizer.save(temporary)
        write_json(
            temporary / "embedding.json",
            {"pooling": encoder.pooling, "normalize": normalize, "max_length": encoder.max_length},
        )
        _check_onnx(encoder, temporary / "model.onnx", normalize)


def require(packages: Sequence[str]) -> None:
    """Raise InputError if packages of the extra `onnx` are not installed."""
    if missing := [name for name in packages if importlib.util.find_spec(name) is None]:
        raise InputError(f"--to onnx needs {' and '.join(missing)}; {install_with('onnx')}")


@torch.no_grad()  # with gradients, attention on a processor is written in a form that fixes the batch size
def write_onnx(module: nn.Module, inputs: Mapping[str, Tensor], outputs: Sequence[str], path: Path) -> None:
    """Write a module as an ONNX file that takes any sizes of batch and sequence.

    `inputs` are examples, [batch, seq], and `outputs` names of what its forward takes and returns, in their order.
    """
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns that torchvision's operators are missing
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch warns about its own code
        program = torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes=(axes,) * len(inputs),
            dynamo=True,
            verbose=False,
        )
    assert program is not None, "given without a file"
    graph = program.model.graph
    computed = [value for node in graph for value in node.outputs if value not in graph.outputs]
    for value in [*computed, *graph.initializers.values()]:
        value.name = f"internal.{value.name}"  # an output may be called `linear` or `relu`
    program.save(path, external_data=False)


def _check_onnx(encoder: SentenceEncoder, path: Path, normalize: bool) -> None:
    try:
        from onnxruntime import InferenceSession
    except ImportError:
        logger.warning("model.onnx was not checked, because ONNX Runtime is not there; %s", install_with("onnx"))
        return
    session = InferenceSession(path)
    expected = encoder.encode(CHECKED, normalize=normalize)
    for sentences, rows in ((CHECKED, expected), (CHECKED[1:2], expected[1:2])):  # two sizes of both axes
        batch = encoder.tokenizer(sentences, encoder.max_length)
        inputs = {"input_ids": batch.input_ids.numpy(), "attention_mask": batch.attention_mask.numpy()}
        (embeddings,) = session.run(None, inputs)
        if not (worst := float(np.abs(embeddings - rows).max())) <= ONNX_TOLERANCE:  # also NaN
            raise RuntimeError(f"ONNX Runtime's embeddings differ by {worst:.1e}; expected at most {ONNX_TOLERANCE}")


def _write_encoder(encoder: SentenceEncoder, folder: Path) -> None:
    """Raises InputError for an encoder that transformers cannot represent, or whose weights are rounded."""
    if encoder.model.config.pruned:
        raise InputError(
            "the model is pruned, and transformers cannot represent that; use --to onnx, or load the model with minbert"
        )
    if any(parameter.dtype != torch.float32 for parameter in encoder.model.parameters()):
        raise InputError('an export needs all digits of the weights; load the encoder with precision="fp32"')
    encoder.model.save(folder)
    encoder.tokenizer.save(folder)
    write_pooling(folder, encoder.pooling, encoder.width, stored_include_prompt(Path(encoder.name)))
    path = folder / "tokenizer_config.json"  # where AutoTokenizer finds how many tokens to keep
    write_json(path, read_optional_json(path) | {"model_max_length": encoder.max_length})
