"""`multitask evaluate`: scores of a model on the tasks' labelled sets or on a suite of SentEval."""

from dataclasses import asdict, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from minbert.errors import InputError
from minbert.settings import settings
from multitask.cli.command import Command
from multitask.models.config import Pooling
from multitask.runtime.options import EmbeddingComputing

if TYPE_CHECKING:
    from multitask.data.labelled_data import LabelledData
    from multitask.models.multitask_model import MultitaskModel


@settings
class Evaluate:
    """Score a model on the tasks' labelled sets, or its frozen embeddings on a suite of SentEval.

    An encoder without heads is scored on the pair tasks by cosine. Scores are written as JSON, those of a suite also as
    Markdown and LaTeX.
    """

    model: str
    """The model: a run, a model folder, all-minilm-l6-v2 or a hub id."""
    revision: str | None = None
    """Revision of a hub id: a branch, tag or commit."""
    suite: Literal["multitask", "sts", "transfer", "retrieval", "geometry"] = "multitask"
    """`multitask`: the tasks' own sets. On frozen embeddings, `sts`: seven similarity tasks by cosine (Spearman
    correlation); `transfer`: seven transfer tasks by logistic regression (accuracy); `retrieval`: finding the
    sentences of the same meaning among the course's Quora questions and SICK's sentences (nDCG at 10); `geometry`: the
    geometry of the similarity tasks' sentences."""
    data: Path = Path("data/sample")
    """Folder with the course's files; for the other suites SentEval's data folder (with STS, SICK, MR and so on), for
    `retrieval` with a copy of the course's quora-dev.csv."""
    tasks_file: Path | None = None
    """Tasks file, which declares tasks of your own. Default: the course's tasks."""
    split: Literal["train", "dev", "test"] = "dev"
    """Which sets of the tasks to score; they need labels. Not for the other suites."""
    input: Path | None = None
    """Labelled file to score instead: csv, tsv, jsonl or parquet."""
    task: tuple[str, ...] = ()
    """Tasks to score. Default: all tasks of the model."""
    text: tuple[str, ...] = ()
    """Column of the sentences, or the two columns of pairs. Default: those of the task's declaration. With --input."""
    label: str | None = None
    """Column of the labels. Default: that of the task's declaration. With --input."""
    separator: str | None = None
    """What separates the fields. Default: a comma in .csv and a tab in .tsv. With --input."""
    quotes: bool = True
    """Whether fields may stand in quotes; if not, quotes are ordinary characters. With --input."""
    details: Path | None = None
    """Folder to write confusion matrix, scores of each class, calibration with a reliability plot, and the worst
    errors."""
    best_on: str | None = None
    """Which of a run's kept models: the best on this task or on `overall`. Default: the run's leading model."""
    pooling: Pooling = "auto"
    """Sentence embedding: the first token (`cls`) or the `mean` of all tokens. `auto` uses what the model was trained
    with. Only for the other suites."""
    cache: bool = True
    """Keep embeddings in the user's cache folder, or in $MULTITASK_CACHE, for the next evaluation. Only for the other
    suites."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of the transfer tasks' folds."""
    output: Path | None = None
    """JSON file to write. Default: evaluation-SPLIT.json or evaluation-SUITE.json in the model's folder; of a hub id
    in evaluations/."""
    computing: EmbeddingComputing = field(default_factory=EmbeddingComputing)

    def __post_init__(self) -> None:
        if self.suite == "multitask" and self.pooling != "auto":
            raise InputError("--pooling is for suites of frozen embeddings; the tasks' heads have their own")
        if self.suite == "multitask" and self.computing.precision == "int8":
            raise InputError("--precision int8 is for suites of frozen embeddings; use --precision auto")


def evaluate(options: Evaluate) -> int:
    """Score a model; print a table and the files written."""
    return _evaluate_tasks(options) if options.suite == "multitask" else _evaluate_suite(options)


def _evaluate_tasks(options: Evaluate) -> int:
    from minbert.files import write_json
    from multitask.data.contamination import TrainedOn
    from multitask.evaluation.calibration_and_errors import write_details
    from multitask.evaluation.task_predictions import estimate
    from multitask.evaluation.task_scores import overlap, score
    from multitask.evaluation.text_tables import metrics_table, overlap_table
    from multitask.evaluation.training_overlap import any_seen
    from multitask.models.multitask_model import load_model, tasks_to_score
    from multitask.runs.artefact import locate_model
    from multitask.runtime.device import start
    from multitask.tasks.declarations import load_tasks

    folder = locate_model(options.model, options.revision, options.best_on)
    assert options.computing.precision != "int8", "refused above"
    runtime = start(options.computing.device, options.computing.precision)
    model = load_model(folder, load_tasks(options.tasks_file or options.data)).to(runtime.device)
    data = _labelled_data(options, model)
    model.tasks = tasks_to_score(model, folder)
    examples = {name: rows.examples for name, rows in data.items()}
    estimates = estimate(model, data, runtime)
    scores = score(model.tasks, estimates, examples)
    trained_on = TrainedOn.of_folder(folder, options.model)
    seen = overlap(model.tasks, estimates, examples, trained_on)
    what = options.split if options.input is None else options.input.name.partition(".")[0]
    output = options.output or folder / f"evaluation-{what}.json"
    result = {"overall": scores.overall, "tasks": scores.metrics, "split": what, **runtime.describe()}
    parts = {name: asdict(task) for name, task in seen.items()}
    write_json(output, {**result, "overlap": parts, "unknown": trained_on.unknown})
    print(metrics_table(scores))
    if any_seen(seen):
        print(overlap_table(seen))
    for line in trained_on.unknown:
        print(f"not known: {line}")
    if options.details is not None:
        for path in write_details(options.details, model.tasks, estimates, examples):
            print(path)
    print(output)
    return 0


def _labelled_data(options: Evaluate, model: "MultitaskModel") -> "dict[str, LabelledData]":
    """The rows to score: the tasks' own sets, or those of the file that is given."""
    from multitask.data.tables import Source
    from multitask.evaluation.task_predictions import load_split, tokenised
    from multitask.tasks.read_examples import read_examples

    names = options.task or tuple(model.tasks)
    if unknown := [name for name in names if name not in model.tasks]:
        raise InputError(f'the model has no task "{unknown[0]}"; it has {", ".join(model.tasks)}')
    if options.input is None:
        return load_split(model, options.tasks_file or options.data, options.split, names, labelled=True)
    if len(names) > 1:
        raise InputError(f"--input needs --task: the model has {', '.join(names)}")
    task = replace(model.tasks[names[0]], id=None, separator=options.separator, quotes=options.quotes)
    task = replace(task, text=options.text or task.text, label=options.label or task.label)
    return {task.name: tokenised(model, task.name, read_examples(task, Source(str(options.input)), labelled=True))}


def _evaluate_suite(options: Evaluate) -> int:
    from multitask.evaluation.embedding_cache import default_cache
    from multitask.evaluation.embedding_suite_pages import suite_text, write_suite
    from multitask.evaluation.embedding_suites import evaluate_model
    from multitask.runs.artefact import is_run, locate_model

    assert options.suite != "multitask"
    name = options.model
    result = evaluate_model(
        options.suite,
        name,
        options.data,
        default_cache() if options.cache else None,
        options.revision,
        options.best_on,
        options.pooling,
        options.computing.device,
        options.computing.precision,
        options.seed,
    )
    if is_run(name):
        folder = locate_model(name, best_on=options.best_on)
    else:
        folder = Path(name) if Path(name).is_dir() else Path("evaluations", name.replace("/", "--"))
    print(suite_text(result))
    for path in write_suite(result, options.output or folder / f"evaluation-{options.suite}.json"):
        print(path)
    return 0


COMMAND = Command(
    "evaluate",
    Evaluate,
    evaluate,
    common=(
        *("model", "suite", "data", "tasks_file", "split", "input", "task"),
        *("details", "best_on", "pooling", "output", "device"),
    ),
)
