"""`multitask export`: a model as a folder that other libraries load."""

from pathlib import Path
from typing import Literal

from minbert.errors import InputError
from minbert.settings import settings
from multitask.cli.command import Command
from multitask.models.config import Pooling


@settings
class Export:
    """Write a model and its tokenizer as a folder that other libraries load.

    Without --with-heads it is the encoder alone, for sentence embeddings. With --with-heads, an ONNX file predicts all
    tasks.
    """

    model: str
    """The model: a run, a model folder, all-minilm-l6-v2 or a hub id."""
    output: Path
    """Folder to write. It replaces one that exists."""
    to: Literal["transformers", "sentence-transformers", "onnx"] = "transformers"
    """`transformers`: for AutoModel and AutoTokenizer; `sentence-transformers`: with pooling and a model card, for
    SentenceTransformer; `onnx`: model.onnx from token ids to embeddings, checked with ONNX Runtime."""
    with_heads: bool = False
    """Export predictions of the tasks instead of embeddings. Only with --to onnx."""
    data: Path | None = None
    """Folder with the course's files: an ONNX export with heads is checked and scored on its dev sets. Without it,
    the export is checked on generated sentences."""
    tasks_file: Path | None = None
    """Tasks file, which declares tasks of your own. Its dev sets are used instead of those of --data."""
    int8: bool = False
    """Store an ONNX export with heads in 8 bits, and show how much that changes the scores on the dev sets."""
    revision: str | None = None
    """Revision of a hub id: a branch, tag or commit."""
    pooling: Pooling = "auto"
    """Sentence embedding: the first token (`cls`) or the `mean` of all tokens. `auto` uses what the model was trained
    with. Not for transformers, whose models have no pooling."""
    normalize: bool = False
    """Scale every embedding to length 1. Not for transformers."""

    def __post_init__(self) -> None:
        if self.with_heads and self.to != "onnx":
            raise InputError(f"--with-heads is for --to onnx, not for {self.to}, which has no such heads")
        if self.with_heads and (self.normalize or self.pooling != "auto"):
            raise InputError("--pooling and --normalize are for embeddings; the tasks' heads have their own pooling")
        if (self.int8 or self.data or self.tasks_file) and not self.with_heads:
            raise InputError("--int8, --data and --tasks-file are for --to onnx --with-heads")
        if self.int8 and not (self.data or self.tasks_file):
            raise InputError("--int8 needs --data or --tasks-file: it shows its loss of score on their dev sets")


def export(options: Export) -> int:
    """Write the folder; print its name."""
    _export_tasks(options) if options.with_heads else _export_encoder(options)
    print(options.output)
    return 0


def _export_encoder(options: Export) -> None:
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
            export_onnx(encoder, options.output, options.normalize, trained_on)


def _export_tasks(options: Export) -> None:
    from multitask.data.contamination import TrainedOn
    from multitask.inference.export_heads import export_onnx_with_heads, report_text
    from multitask.models.multitask_model import MultitaskModel
    from multitask.runs.artefact import locate_model

    folder = locate_model(options.model, options.revision)
    model = MultitaskModel.load(folder, "cpu", "fp32")
    trained_on = TrainedOn.of_folder(folder, options.model)
    data = options.tasks_file or options.data
    print(report_text(export_onnx_with_heads(model, options.output, trained_on, data, options.int8)))


COMMAND = Command("export", Export, export)
