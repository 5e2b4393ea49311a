"""`multitask export`: a model as a folder that other libraries load."""

from multitask.base.runs import locate_model
from multitask.cli.commands import Export
from multitask.data.contamination import TrainedOn
from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.use.export import (
    check_export_folder,
    export_onnx,
    export_sentence_transformers,
    export_transformers,
)
from multitask.use.export_heads import export_onnx_with_heads
from multitask.use.model_card import model_card


def export(options: Export) -> None:
    """Write the folder and print its name."""
    check_export_folder(options.output)
    _export_tasks(options) if options.with_heads else _export_encoder(options)
    print(options.output)


def _export_encoder(options: Export) -> None:
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
    model_folder = locate_model(options.model, options.revision)
    model = MultitaskModel.load(model_folder, "cpu", "fp32")
    trained_on = TrainedOn.of_folder(model_folder, options.model)
    data = options.tasks_file or options.data
    print(export_onnx_with_heads(model, options.output, trained_on, data, options.int8))
