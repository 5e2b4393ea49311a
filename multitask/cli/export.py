"""`multitask export`: a model as a folder that other libraries load, or as a repository of the hub."""

from pathlib import Path
from tempfile import TemporaryDirectory

from multitask.cli.commands import Export
from multitask.data.contamination import TrainedOn
from multitask.inference.export import (
    check_output,
    export_onnx,
    export_sentence_transformers,
    export_transformers,
)
from multitask.inference.export_heads import export_onnx_with_heads
from multitask.inference.model_card import model_card
from multitask.inference.push import check_push, push, what_is_pushed
from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.runs.artefact import locate_model


def export(options: Export) -> None:
    """Write the folder and print its name, or publish it and print its address."""
    if options.push:
        check_push(options.push, options.dry_run)
    if options.output is not None:
        check_output(options.output)
    with TemporaryDirectory() as temporary:
        folder = options.output or Path(temporary, "export")
        _export_tasks(options, folder) if options.with_heads else _export_encoder(options, folder)
        if options.output is not None:
            print(folder)
        if options.push and options.dry_run:
            print(what_is_pushed(folder, options.push, options.private))
        elif options.push:
            print(push(folder, options.push, options.private))


def _export_encoder(options: Export, folder: Path) -> None:
    encoder = SentenceEncoder.load(options.model, options.revision, options.pooling, "cpu", "fp32")
    trained_on = TrainedOn.of_folder(locate_model(options.model, options.revision), options.model)
    match options.form:
        case "transformers":
            export_transformers(encoder, folder, trained_on)
        case "sentence-transformers":
            card = model_card(options.model, options.revision, encoder, options.normalize, options.push)
            export_sentence_transformers(encoder, folder, card, options.normalize, trained_on)
        case "onnx":
            export_onnx(encoder, folder, options.normalize, trained_on)


def _export_tasks(options: Export, folder: Path) -> None:
    model_folder = locate_model(options.model, options.revision)
    model = MultitaskModel.load(model_folder, "cpu", "fp32")
    trained_on = TrainedOn.of_folder(model_folder, options.model)
    data = options.tasks_file or options.data
    print(export_onnx_with_heads(model, folder, trained_on, data, options.int8))
