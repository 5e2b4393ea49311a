"""The command line: from options to calls. What is slow to import is imported by the command that needs it."""

import logging
import os
import sys
from collections.abc import Sequence
from functools import singledispatch
from pathlib import Path

import tyro

from minbert.errors import InputError
from multitask.cli.options import (
    Command,
    Data,
    Domains,
    Embed,
    Ensemble,
    Evaluate,
    Export,
    Fetch,
    Finetune,
    Fuse,
    Mlm,
    Predict,
    Pretrain,
    Probe,
    Prune,
    Report,
    Simulate,
)
from multitask.cli.types import REGISTRY
from multitask.runtime.errors import Interrupted, TrainingError
from studies.engine.command_options import Experiments


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0, 1 for a run that failed, 2 for wrong input, 128 + n for signal n."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for name in ("httpx", "sentence_transformers", "onnx_ir", "onnxscript"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # not every retry: the outcome is one line of ours
    try:
        markers = (tyro.conf.OmitSubcommandPrefixes,)
        command = tyro.cli(Command, args=arguments, prog="multitask", config=markers, registry=REGISTRY)
        if "TORCHELASTIC_RUN_ID" in os.environ and not isinstance(command, Pretrain | Mlm | Finetune | Fuse):
            raise InputError("torchrun is for pretrain, mlm, finetune and fuse; run other commands without it")
        return run(command)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk, a folder that may not be written, a file where a folder should be
        print(f"error: {error.filename or 'input or output'}: {error.strerror or error}", file=sys.stderr)
        return 1
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except Interrupted as stop:
        print(stop, file=sys.stderr)
        return 128 + stop.signal_number
    except KeyboardInterrupt:
        return 130


@singledispatch
def run(command: object) -> int:
    """Carry out a command; returns the exit code."""
    raise NotImplementedError(type(command).__name__)


@run.register
def _(command: Data) -> int:
    from multitask.data.check import check_folder
    from multitask.data.fetch import fetch, load_sources
    from multitask.evaluation.captions_and_news import write_captions_and_news
    from multitask.tasks.kinds import TASKS

    action = command.action
    if isinstance(action, Domains):
        for path, count in write_captions_and_news(action.folder, action.suites_data).items():
            print(f"{path}: {count:,} sentences")
        return 0
    if isinstance(action, Fetch):
        sources = load_sources()
        for path in fetch(sources, action.folder, action.sets):
            print(path)
        terms = {source.name: source.terms for source in sources if not action.sets or source.name in action.sets}
        print("\n".join(f"terms of {name}: {text}" for name, text in terms.items()))
        return 0
    report, problems = check_folder(action.folder, {name: task.schema for name, task in TASKS.items()})
    print(report.render())
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 2 if problems else 0


@run.register
def _(command: Pretrain | Mlm | Finetune | Fuse) -> int:
    from multitask.evaluation.text_tables import scores_table
    from multitask.runs.artefact import Weights
    from multitask.runtime import distributed
    from multitask.stages.registry import stages

    stage = next(stage for stage in stages().values() if stage.config is type(command.config))
    artefact = stage.run([Weights(command.start, command.revision)], command.data, command.config, command.options)
    if distributed.is_first():  # once however many ranks there are
        if isinstance(command, Finetune | Fuse):
            print(scores_table(artefact.history()))
        print(artefact.folder)
    return 0


@run.register
def _(command: Prune) -> int:
    from minbert.files import read_json
    from multitask.evaluation.text_tables import pruning_table
    from multitask.runs.artefact import Weights
    from multitask.runtime.options import RunOptions
    from multitask.stages.prune.pruning import prune

    options = RunOptions(command.device, runs=command.runs, name=command.name)
    rewind = Weights(command.rewind_to, command.rewind_revision) if command.rewind_to else None
    artefact = prune(Weights(command.start, command.revision), command.data, command.config, options, rewind)
    print(pruning_table(read_json(artefact.folder / "pruning.json")))
    print(artefact.folder)
    return 0


@run.register
def _(command: Evaluate) -> int:
    if command.suite != "multitask":
        return _evaluate_suite(command)
    if command.pooling != "auto":
        raise InputError("--pooling is for the suites sts, transfer and geometry; the tasks' heads have their own")
    from dataclasses import asdict

    from minbert.files import write_json
    from minbert.tokenizer import load_tokenizer
    from multitask.data.contamination import TrainedOn
    from multitask.evaluation.task_predictions import load_split, predict
    from multitask.evaluation.task_scores import overlap, score
    from multitask.evaluation.text_tables import metrics_table, overlap_table
    from multitask.evaluation.training_overlap import any_seen
    from multitask.models.multitask_model import load_model
    from multitask.runs.artefact import locate_model
    from multitask.runtime.device import start

    folder = locate_model(command.model, command.revision, command.best_on)
    runtime = start(command.device, command.precision)
    model = load_model(folder).to(runtime.device)
    data = load_split(model, load_tokenizer(str(folder)), command.data, command.split)
    examples = {name: rows.examples for name, rows in data.items()}
    predictions = predict(model, data, runtime)
    scores = score(predictions, examples)
    trained_on = TrainedOn.of_folder(folder, command.model)
    seen = overlap(predictions, examples, trained_on)
    output = command.output or folder / f"evaluation-{command.split}.json"
    result = {"overall": scores.overall, "tasks": scores.metrics, "split": command.split, **runtime.describe()}
    parts = {name: asdict(task) for name, task in seen.items()}
    write_json(output, {**result, "overlap": parts, "unknown": trained_on.unknown})
    print(metrics_table(scores))
    if any_seen(seen):
        print(overlap_table(seen))
    for line in trained_on.unknown:
        print(f"not known: {line}")
    print(output)
    return 0


def _evaluate_suite(command: Evaluate) -> int:
    from multitask.evaluation.embedding_cache import default_cache
    from multitask.evaluation.embedding_suite_pages import suite_text, write_suite
    from multitask.evaluation.embedding_suites import evaluate_model
    from multitask.runs.artefact import is_run, locate_model

    assert command.suite != "multitask"
    name = command.model
    result = evaluate_model(
        command.suite,
        name,
        command.data,
        default_cache() if command.cache else None,
        command.revision,
        command.best_on,
        command.pooling,
        command.device,
        command.precision,
        command.seed,
    )
    if is_run(name):
        folder = locate_model(name, best_on=command.best_on)
    else:
        folder = Path(name) if Path(name).is_dir() else Path("evaluations", name.replace("/", "--"))
    print(suite_text(result))
    for path in write_suite(result, command.output or folder / f"evaluation-{command.suite}.json"):
        print(path)
    return 0


@run.register
def _(command: Predict) -> int:
    from multitask.inference.prediction_files import write_prediction_files

    for path in write_prediction_files(
        command.model, command.data, command.output, command.best_on, command.device, command.precision
    ):
        print(path)
    return 0


@run.register
def _(command: Ensemble) -> int:
    from minbert.files import read_json
    from multitask.evaluation.text_tables import ensemble_table
    from multitask.runtime.options import RunOptions
    from multitask.stages.ensemble.combining import ensemble

    options = RunOptions(command.device, command.precision, command.runs, command.name)
    artefact = ensemble(command.models, command.data, command.config, options, command.kept)
    print(ensemble_table(read_json(artefact.folder / "evaluation.json")))
    for path in sorted((artefact.folder / "predictions").iterdir()):
        print(path)
    print(artefact.folder)
    return 0


@run.register
def _(command: Simulate) -> int:
    from multitask.runtime.options import RunOptions
    from studies.gradient_paradigm.simulate import simulate
    from studies.gradient_paradigm.simulation_claims import claims_text, judged_simulations
    from studies.gradient_paradigm.simulation_figures import write_figures
    from studies.gradient_paradigm.simulation_outcomes import read_simulations

    artefact = simulate(command.config, RunOptions(runs=command.runs, name=command.name))
    print(claims_text(judged_simulations(*read_simulations(artefact.folder))))
    for path in write_figures(artefact.folder):
        print(path)
    print(artefact.folder)
    return 0


@run.register
def _(command: Embed) -> int:
    import numpy as np

    from minbert.files import atomic_file
    from multitask.data.read_unlabelled_files import read_sentences
    from multitask.models.sentence_encoder import load_encoder

    if command.output.suffix != ".npy":
        raise InputError(f"{command.output}: expected a name that ends in .npy")
    sentences = read_sentences(command.text).sentences
    encoder = load_encoder(command.model, command.revision, command.pooling, command.device, command.precision)
    embeddings = encoder.encode(sentences, normalize=command.normalize, show_progress=True)
    with atomic_file(command.output) as temporary, Path(temporary).open("wb") as file:
        np.save(file, embeddings)
    print(f"{command.output}: {embeddings.shape[0]} embeddings of size {embeddings.shape[1]}")
    return 0


@run.register
def _(command: Probe) -> int:
    from math import isfinite

    from minbert.files import write_json
    from multitask.evaluation.probe_encoder import probe_checkpoint, similar_pairs
    from multitask.evaluation.text_tables import probe_table
    from multitask.models.sentence_encoder import SentenceEncoder
    from multitask.tasks.training_sentences import training_sentences

    similar = command.source == "similar_pairs"
    texts = similar_pairs(command.data) if similar else [training_sentences(command.source, command.data)[0]]
    objective = command.objective.build()
    encoder = SentenceEncoder.load(command.model, command.revision, device=command.device, precision=command.precision)
    found = probe_checkpoint(encoder, texts, objective, command.batch_size, command.batches, command.seed)
    summaries = [components.summary() for components in found]
    print(f"{objective}, {len(found)} batches of {command.batch_size}")
    print(probe_table(summaries))
    if command.output is not None:
        finite = [{name: v if isfinite(v) else None for name, v in summary.items()} for summary in summaries]
        write_json(command.output, {"objective": str(objective), "source": command.source, "batches": finite})
        print(command.output)
    return 0


@run.register
def _(command: Export) -> int:
    from multitask.data.contamination import TrainedOn
    from multitask.inference.export import export_onnx, export_sentence_transformers, export_transformers
    from multitask.inference.model_card import model_card
    from multitask.models.sentence_encoder import SentenceEncoder
    from multitask.runs.artefact import locate_model

    encoder = SentenceEncoder.load(command.model, command.revision, command.pooling, "cpu", "fp32")
    trained_on = TrainedOn.of_folder(locate_model(command.model, command.revision), command.model)
    match command.to:
        case "transformers":
            export_transformers(encoder, command.output, trained_on)
        case "sentence-transformers":
            card = model_card(command.model, command.revision, encoder, command.normalize)
            export_sentence_transformers(encoder, command.output, card, command.normalize, trained_on)
        case "onnx":
            logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns that torchvision's operators are missing
            export_onnx(encoder, command.output, command.normalize, trained_on)
    print(command.output)
    return 0


@run.register
def _(command: Experiments) -> int:
    from studies.engine.command import run_action

    return run_action(command.action)


@run.register
def _(command: Report) -> int:
    from studies.report.report import write_report

    print(f"report: {write_report(command.runs, command.preset, command.report).resolve()}")
    return 0
