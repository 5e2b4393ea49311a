"""Commands that measure a model: evaluate, on labelled sets or a suite of SentEval, and probe, its gradients."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from minbert.errors import InputError
from minbert.files import write_json
from minbert.settings import Count, Seed, settings
from multitask.base.options import Computing
from multitask.base.runs import is_run, locate_model, refuse_file_of_run, replaced_files_named
from multitask.cli.arguments import Command, changed
from multitask.cli.use_models import BestOn, Data, ModelOption, PoolingOption
from multitask.training.settings import ObjectiveConfig

if TYPE_CHECKING:
    from multitask.data.examples import LabelledData
    from multitask.models.multitask_model import MultitaskModel


@settings
class Evaluate(Computing, PoolingOption, BestOn, ModelOption, Data):
    """Score a model on the tasks' labelled sets, or its frozen embeddings on a suite of SentEval.

    An encoder without heads is scored on the pair tasks by cosine. Scores are written as JSON, those of a suite also as
    Markdown and LaTeX.
    """

    suite: Literal["multitask", "sts", "transfer", "retrieval", "geometry"] = "multitask"
    """`multitask`: the tasks' own sets. The others score frozen embeddings; their --data is SentEval's data folder.
    `sts`: seven similarity tasks by cosine (Spearman correlation); `transfer`: seven transfer tasks by logistic
    regression (accuracy); `retrieval`: finding sentences with the same meaning, in SICK and in a copy of the course's
    quora-dev.csv (nDCG at 10), or in a set of your own, whose folder --data names: corpus.jsonl, queries.jsonl and
    qrels/SPLIT.tsv as in BEIR; `geometry`: how the sentences of the similarity tasks are spread (alignment, uniformity
    and others)."""
    split: Literal["train", "dev", "test"] = "dev"
    """Which sets of the tasks to score; they need labels. Also that of a retrieval set of your own."""
    input: Path | None = None
    """Labelled file to score instead: csv, tsv, jsonl, parquet or xlsx."""
    task: tuple[str, ...] = ()
    """Tasks to score. Default: all tasks of the model."""
    text: tuple[str, ...] = ()
    """Column of the sentences, or the two columns of pairs. Or columns and fixed words, such as "{title}. {text}".
    Default: as the task declares. With --input."""
    label: str | None = None
    """Column of the labels. Default: as the task declares. With --input."""
    separator: str | None = None
    """What separates the fields. Default: a tab in .tsv, otherwise as the training file or --tasks-file declares, or a
    comma. With --input."""
    details: Path | None = None
    """Folder to write the worst errors into, and for classifications also the scores of each class, the confusion
    matrix, and the calibration with a reliability plot."""
    dimensions: tuple[Count, ...] = ()
    """Keep only the first so many numbers of each embedding. Each size, e.g. 192 96, gets a row below that of whole
    embeddings. For suites of frozen embeddings."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of the transfer tasks' folds."""
    output: Path | None = None
    """JSON file to write. Default: evaluation-SPLIT.json, evaluation-SUITE.json or, of a retrieval set of your own,
    evaluation-retrieval-SET-SPLIT.json in the model's folder; for a hub id, in evaluations/. If the data is not the
    run's own, its name becomes a part of the file's name. Scores of --input go to evaluation-of-INPUT.json."""

    def __post_init__(self) -> None:
        if self.suite != "multitask" and self.data is None:
            raise InputError(f"--suite {self.suite} needs --data, SentEval's data folder")
        if self.suite == "multitask" and (found := changed(self, "pooling", "dimensions")):
            raise InputError(f"{found}: only for suites of frozen embeddings; the tasks' heads have their own")
        if self.suite != "transfer" and (found := changed(self, "seed")):
            raise InputError(f"{found}: only with --suite transfer; nothing else is drawn")
        of_input = changed(self, "text", "label", "separator")
        if self.suite != "multitask" and (found := changed(self, "task", "input", "details") or of_input):
            raise InputError(f"{found}: only for the tasks' own scores, not for --suite {self.suite}")
        if self.suite != "multitask" and self.output is not None and self.output.suffix in (".md", ".tex"):
            raise InputError(f"--output {self.output}: expected a name for JSON; tables get it with .md and .tex")
        if self.input is not None and self.split != "dev":
            raise InputError("--split is for the tasks' own sets, not for --input; leave one out")
        if self.input is None and of_input:
            raise InputError(f"{of_input}: only with --input; without it the tasks' own sets are scored")


def evaluate(options: Evaluate) -> None:
    """Score a model; print a table and the files written."""
    _evaluate_tasks(options) if options.suite == "multitask" else _evaluate_suite(options)


def _evaluate_tasks(options: Evaluate) -> None:
    from multitask.base.device import resolve_runtime
    from multitask.data.contamination import TrainedOn
    from multitask.data.tables import suffixes
    from multitask.evaluation.calibration_and_errors import class_table, write_details
    from multitask.evaluation.task_scores import evaluate as evaluate_tasks
    from multitask.evaluation.text_tables import intervals_table, metrics_table, overlap_table
    from multitask.evaluation.training_overlap import any_seen
    from multitask.models.model_folder import has_heads
    from multitask.models.multitask_model import load_model, tasks_to_score
    from multitask.tasks.check import warn_of_gaps
    from multitask.tasks.declarations import load_tasks
    from multitask.use.model_data import ModelData, data_for

    folder = locate_model(options.model, options.revision, options.best_on)
    runtime = resolve_runtime(options.device, options.precision)
    with_heads, own = has_heads(folder), ModelData(Path(), own=True)
    if options.input is not None and with_heads and options.data is not None:
        raise InputError("--data is for dev and test sets, not for --input; leave one out")
    if options.input is None or not with_heads:
        own = data_for(options.model, options.tasks_file or options.data)
    model = load_model(folder, {} if with_heads else load_tasks(own.path)).on(runtime)
    rows = _rows(options, model, own.path)
    model.tasks = tasks_to_score(model, folder)
    found = evaluate_tasks(model, rows, TrainedOn.of_folder(folder, options.model))
    measured = {"overall": found.scores.overall, "tasks": found.scores.metrics, "data": str(options.input or own.path)}
    parts = {name: asdict(task) for name, task in found.overlap.items()}
    split = {} if options.input else {"split": options.split}
    scores = {**measured, **split, **runtime.describe(), "overlap": parts, "unknown": found.unknown}
    if options.input is not None:
        ending = sum(map(len, suffixes(options.input)))
        scored = f"of-{options.input.name[: -ending or None]}"
    else:
        scored = options.split if own.own else f"{options.split}-{own.path.resolve().stem}"
    output = options.output or _scores_folder(options) / f"evaluation-{scored}.json"
    written = [output]
    # Files come before what is printed, whose reader may end early.
    with replaced_files_named(output, *filter(None, [options.details])):
        write_json(output, scores)
        if options.details is not None:
            written[:0] = write_details(options.details, found.tasks, found.estimates, found.examples)
    print(metrics_table(found.scores.metrics, found.scores.overall))
    print(f"\n{intervals_table(found.answers)}")
    for name, values in found.estimates.items():
        table = class_table(found.tasks[name], values, found.examples[name])
        print(end=f"\n{table}\n" if table else "")
    if any_seen(found.overlap):
        print("", overlap_table(found.overlap), sep="\n")
    for name, examples in found.examples.items():
        warn_of_gaps(found.tasks[name], examples)
    for line in found.unknown:
        print(f"not known: {line}")
    print(*written, sep="\n")


def _scores_folder(options: Evaluate) -> Path:
    """The model's folder, or one for a model that comes from elsewhere."""
    if is_run(options.model):
        return locate_model(options.model, best_on=options.best_on)
    folder = Path(options.model)
    return folder if folder.is_dir() else Path("evaluations", options.model.replace("/", "--"))


def _rows(options: Evaluate, model: "MultitaskModel", data: Path) -> "dict[str, LabelledData]":
    """The rows to score: the tasks' own sets, or those of the file that is given."""
    from multitask.data.tables import RowsFrom, suffixes
    from multitask.models.estimates import load_split, with_files_of
    from multitask.models.multitask_model import tasks_for
    from multitask.tasks.declarations import task_named
    from multitask.tasks.read_examples import read_examples

    names = tasks_for(model, None, options.task)
    if options.input is None:
        return load_split(model, data, options.split, names, labelled=True)
    if len(names) > 1 and (options.label or options.text):
        raise InputError(f"--label and --text need one --task: the model has {', '.join(names)}")
    found = {}
    for task in map(model.tasks.__getitem__, names):
        own, form = task.file_format, task.form
        if options.tasks_file:
            declared = task_named(options.tasks_file, task.name)
            own, form = declared.file_format, declared.form
            task = replace(with_files_of(task, declared), files=task.files)
        text, label = options.text or task.files.text, task.files.label if options.label is None else options.label
        task = replace(task, files=replace(task.files, id=None, text=text, label=label))
        own = own if options.separator is None else replace(own, separator=options.separator)
        file_format = own.of_form(own.form_read(suffixes(options.input)[0]), form)
        file_format = replace(file_format, separator=options.separator or file_format.separator)
        source = RowsFrom(str(options.input), format=file_format)
        rows = read_examples(task, source, labelled=True)
        if options.text:  # its words are a part of the row; the model adds its own
            rows = replace(rows, sentences=tuple(map(list, rows.texts)))
        found[task.name] = model.tokenised(task.name, rows)
    return found


def _evaluate_suite(options: Evaluate) -> None:
    from multitask.evaluation.retrieval import is_retrieval_set
    from multitask.evaluation.suite_pages import suite_text, write_suite
    from multitask.evaluation.suites import evaluate_suites
    from multitask.models.sentence_encoder import load_encoder

    assert options.suite != "multitask" and options.data is not None, "refused above"  # noqa: PT018
    name = options.model
    split = options.split if options.suite == "retrieval" and is_retrieval_set(options.data) else None
    if split is None and options.split != "dev":
        own_sets = "the tasks' own sets and for a retrieval set of your own, which has a corpus.jsonl"
        raise InputError(f"--split is for {own_sets}; leave it out")
    scored = options.suite if split is None else f"{options.suite}-{options.data.resolve().name}-{split}"
    output = options.output or _scores_folder(options) / f"evaluation-{scored}.json"
    files = [output, output.with_suffix(".md"), output.with_suffix(".tex")]
    for path in files if options.output else ():
        refuse_file_of_run(path)
    place = locate_model(name, options.revision, options.best_on) if is_run(name) or options.best_on else name
    encoder = load_encoder(place, options.revision, options.pooling, options.device, options.precision)
    suites, dimensions = [options.suite], options.dimensions
    found = evaluate_suites(suites, encoder, name, options.data, seed=options.seed, dimensions=dimensions, split=split)
    result = found[options.suite]
    with replaced_files_named(*files):
        written = write_suite(result, output)
    print(suite_text(result), *written, sep="\n")


@settings
class Probe(Computing, ModelOption):
    """Show the gradient that an objective gives a model's embeddings: dissipation, weights of negatives, ratio."""

    data: Path = Path("data/sample")
    """Folder with the tasks' files and other sentences."""
    source: str = "unlabelled"
    """What to embed: dropout views of `unlabelled` sentences, of another text file (its name, ending in .txt) or of a
    task's training sentences; or `similar_pairs`, the pairs of the similarity dev set with a gold similarity in
    the top fifth of the range (4 and more of 0 to 5)."""
    objective: ObjectiveConfig = ObjectiveConfig()
    """Loss on sentence pairs, with parameters, e.g. vicreg:dissipation=0.3,weight=0.05. --help-objective all lists the
    losses, --help-objective NAME explains one."""
    batch_size: Annotated[int, Field(ge=2)] = 64
    """Pairs in a batch."""
    batches: Count = 10
    """Most batches to probe."""
    seed: Seed = 0
    """Seed of the choice of rows and of dropout."""
    output: Path | None = None
    """JSON file to write with the values of every batch. Default: none."""


def probe(options: Probe) -> None:
    """Probe; print a table of the means over the batches."""
    from multitask.evaluation.gradient_probe import probe_checkpoint, signs, similar_pairs
    from multitask.evaluation.text_tables import probe_table
    from multitask.models.sentence_encoder import SentenceEncoder
    from multitask.tasks.sources import source_named

    similar = options.source == "similar_pairs"
    rows = (
        similar_pairs(options.data) if similar else source_named(options.source, options.data, "--source").sentences()
    )
    objective = options.objective.build()
    encoder = SentenceEncoder.load(
        options.model,
        options.revision,
        device=options.device,
        precision=options.precision,
        keep_layers=True,  # for their dropout
    )
    sizes = options.batch_size, options.batches, options.seed
    found = probe_checkpoint(encoder, rows.texts, objective, *sizes, rows.long)
    encoder.counts.warn(options.source)
    summaries = [components.summary() for components in found]
    print(f"{objective}, {len(found)} batches of {options.batch_size}")
    print("\n".join([probe_table(summaries), *signs(objective, summaries)]))
    if options.output is not None:
        write_json(options.output, {"objective": str(objective), "source": options.source, "batches": summaries})
        print(options.output)


_EVALUATE = (
    *("model", "data", "tasks_file", "task", "split", "input"),
    *("suite", "details", "output", "best_on", "pooling", "device"),
)
_PROBE = ("model", "data", "source", "objective", "batch_size", "batches", "seed", "output", "device")
COMMANDS = (Command("evaluate", Evaluate, evaluate, common=_EVALUATE), Command("probe", Probe, probe, common=_PROBE))
