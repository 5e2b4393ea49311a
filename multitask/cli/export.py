"""`multitask export`: an encoder as a folder that other libraries load."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from multitask.cli.command import Command
from multitask.models.config import Pooling


@dataclass(frozen=True)
class Export:
    """Write an encoder and its tokenizer as a folder that other libraries load. The tasks' heads are left out."""

    model: str
    """The model: a run, a model folder, all-minilm-l6-v2 or a hub id."""
    output: Path
    """Folder to write. It replaces one that exists."""
    to: Literal["transformers", "sentence-transformers", "onnx"] = "transformers"
    """`transformers`: for AutoModel and AutoTokenizer; `sentence-transformers`: with pooling and a model card, for
    SentenceTransformer; `onnx`: model.onnx from token ids to embeddings, checked with ONNX Runtime."""
    revision: str | None = None
    """Revision of a hub id: a branch, tag or commit."""
    pooling: Pooling = "auto"
    """Sentence embedding: the first token (`cls`) or the `mean` of all tokens. `auto` uses what the model was trained
    with. Not for transformers, whose models have no pooling."""
    normalize: bool = False
    """Scale every embedding to length 1. Not for transformers."""


def export(options: Export) -> int:
    """Write the folder; print its name."""
    from multitask.data.contamination import TrainedOn
    from multitask.inference.export import export_onnx, export_sentence_transformers, export_transformers
    from multitask.inference.model_card import model_card
    from multitask.models.sentence_encoder import SentenceEncoder
    from multitask.runs.artefact import locate_model

    encoder = SentenceEncoder.load(options.model, options.revision, options.pooling, "cpu", "fp32")
    trained_on = TrainedOn.of_folder(locate_model(options.model, options.revision), options.model)
    match options.to:
        case "transformers":
            export_transformers(encoder, options.output, trained_on)
        case "sentence-transformers":
            card = model_card(options.model, options.revision, encoder, options.normalize)
            export_sentence_transformers(encoder, options.output, card, options.normalize, trained_on)
        case "onnx":
            logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns that torchvision's operators are missing
            export_onnx(encoder, options.output, options.normalize, trained_on)
    print(options.output)
    return 0


COMMAND = Command("export", Export, export)
