"""Two frames that a grid ends with, from which reports, claims and figures are made: scores, and answers by example.

`scores.parquet` has a line for each number: keys of the table and of its row, the row's label, the seed, the step
(missing for the model that was kept), the source (a task; `overall`; `embeddings`; `training` for means over training
batches since the previous evaluation), the measure, and its value. Besides, a line of each run has what is no number,
as JSON (`text`). `answers.parquet` has a line for each answer to a dev example: run, task, example, label, prediction.
Without it, intervals and tests are over seeds alone.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal, Self

import numpy as np
import pandas
import pyarrow
from pyarrow import parquet

from minbert.errors import InputError
from minbert.files import atomic_file, read_arrays, read_optional_json
from minbert.settings import adapter, read_as
from multitask.base.runs import Run
from multitask.evaluation.statistics import DevAnswers
from multitask.evaluation.text_tables import chosen_on_dev
from multitask.experiments.table_definitions import OVERALL, PresetRecord
from multitask.stages.settings_of_pretraining import HELD_OUT

SCORES, ANSWERS = "scores.parquet", "answers.parquet"
FRAME_VERSION = b"1"  # of the file of scores
TRAINING, EMBEDDINGS, MEAN = "training", "embeddings", "mean"
"""Sources that are no tasks, and the measure of a mean over tasks."""
FACTS = "facts"  # the measure of the line that has what is no number
OVERLAP_PREFIX = "overlap: "
"""Begins measures of how many scored examples a model was trained on, and of its score on the others."""
RANDOM_WEIGHTS = "random weights"
"""The start of a row whose first stage trains an encoder from scratch. Settings such as the pooling, and the tokenizer
unless the stage learns one, are those of the preset's start weights."""
_TEXT, _WHOLE = pyarrow.string(), pyarrow.int64()
SCORE_LINE: Final = pyarrow.schema(
    {"table": _TEXT, "row": _TEXT, "label": _TEXT, "seed": _WHOLE, "step": _WHOLE, "source": _TEXT, "measure": _TEXT}
    | {"value": pyarrow.float64(), "text": _TEXT}
)
ANSWER: Final = pyarrow.schema(
    {"run": _TEXT, "task": _TEXT, "example": pyarrow.int32(), "label": pyarrow.float64()}
    | {"prediction": pyarrow.float64()}
)
ProbedAt = Literal["training batches", "held-out sentences"]
"""Where the gradient probe looks: at projected embeddings of training batches, or at plain ones of other sentences."""
Numbers = Mapping[str, Mapping[str, float]]  # by source and measure


@dataclass(frozen=True)
class RunFacts:
    """One seed of one row, without its numbers."""

    table: str
    row: str
    seed: int
    model: str  # name of the run with the final model: a training or an ensemble
    evaluated: str  # name of the run with its scores and predictions
    start: str = ""  # the start weights of its first stage, or `RANDOM_WEIGHTS`
    chain: tuple[str, ...] = ()  # names of all its runs, parents first
    # seconds of wall time and the machine of each of its runs, the evaluation included. Rows may share runs
    costs: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    sources: tuple[str, ...] = ()  # what a pre-training reads; nothing of other stages
    measures: Mapping[str, str] = field(default_factory=dict)  # the metric of each scored task that the table compares
    classes: Mapping[str, int] = field(default_factory=dict)  # how many classes a classification has
    # of each task that is scored by accuracy, that of always answering the most frequent label of the dev set
    majorities: Mapping[str, float] = field(default_factory=dict)
    asked: Mapping[str, str] = field(default_factory=dict)  # the member whose model alone answers a task of an ensemble
    # whether it is an ensemble that selected a task's model among several by their dev scores
    chosen_on_dev: bool = False
    # whether its folder has a model, which ensembles of predictions and published runs do not
    keeps_model: bool = False
    unknown: tuple[str, ...] = ()  # what is not known of the sentences that the model was trained on
    # of each task's answers: the types of labels and of predictions, and how many of them an example has
    kinds: Mapping[str, tuple[str, str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class RunResult(RunFacts):
    """One seed of one row, with its numbers and answers."""

    numbers: Numbers = field(default_factory=dict)  # of the model that was kept
    # `step` and `numbers` of each evaluation in training; none for an ensemble, which trains nothing
    history: Sequence[Mapping[str, Any]] = ()
    answers: Mapping[str, DevAnswers] = field(default_factory=dict)  # the answers to the dev set of each scored task

    @property
    def scores(self) -> dict[str, float]:
        """The score of each task, by its metric that the table compares."""
        return {
            task: self.numbers[task][metric]
            for task, metric in self.measures.items()
            if metric in self.numbers.get(task, ())
        }

    @property
    def overall(self) -> float:
        """The mean of the tasks' own scores; NaN if it is undefined."""
        return self.numbers.get(OVERALL, {}).get(MEAN, np.nan)

    def overlap(self, task: str) -> dict[str, float]:
        """How many `rows` of a task are scored, how many of them were trained on (`rows_seen`), and the score on the
        others (`clean`; missing if too few are left). Empty if that is not known.
        """
        found = self.numbers.get(task, {}).items()
        return {name.removeprefix(OVERLAP_PREFIX): value for name, value in found if name.startswith(OVERLAP_PREFIX)}

    @property
    def steps(self) -> int | None:
        """Updates of its last training."""
        return self.history[-1]["step"] if self.history else None

    def answering(self, task: str) -> str:
        """The run whose model answers a task: the one member that an ensemble asks, otherwise this run."""
        return self.asked.get(task, self.model)

    def curve(self, column: str) -> list[float]:
        """The dev score at every evaluation in training; empty if training did not measure it."""
        measure = MEAN if column == OVERALL else self.measures.get(column, "")
        scores = [line["numbers"].get(column, {}).get(measure) for line in self.history]
        return [] if None in scores else scores

    def curve_by_step(self, column: str) -> list[tuple[int, float]]:
        """The same with the step of each evaluation."""
        return [(line["step"], score) for line, score in zip(self.history, self.curve(column), strict=False)]

    def probed(self, statistic: str, place: ProbedAt = "training batches") -> list[tuple[int, float]]:
        """A statistic of the gradient probe: the step of each evaluation, the mean since the previous evaluation.

        metrics.jsonl calls it `SOURCE STATISTIC`; the sources are those of the run's configuration, or held-out
        sentences.
        """
        sources = (HELD_OUT,) if place == "held-out sentences" else self.sources
        names = [f"{source} {statistic}" for source in sources]
        seen = ((line["step"], line["numbers"].get(TRAINING, {})) for line in self.history)
        return [(step, measured[name]) for step, measured in seen for name in names if name in measured]

    @classmethod
    def read(cls, folder: Path, run_facts: RunFacts, metrics: Mapping[str, str] | None = None) -> Self:
        """Read it from its runs in a folder. `metrics` are those of tasks that a table compares by another one."""
        model, evaluated = folder / run_facts.model, folder / run_facts.evaluated
        evaluation, config = Run(evaluated).evaluation(), read_optional_json(model / "config.json")
        measures = {task: (metrics or {}).get(task, evaluation["measures"][task]) for task in evaluation["scores"]}
        numbers = {task: _numbers(evaluation["metrics"].get(task, {})) for task in measures}
        for task, score in evaluation["scores"].items():
            numbers[task][evaluation["measures"][task]] = score  # of suites it is the only number
        numbers |= {OVERALL: {MEAN: evaluation["overall"]}}
        if geometry := _numbers(evaluation.get("geometry") or {}):
            numbers[EMBEDDINGS] = geometry
        for task, overlap in evaluation.get("overlap", {}).items():
            same = measures[task] == evaluation["measures"][task]  # `clean` is a score by the evaluation's own measure
            found = {name: value for name, value in _numbers(overlap).items() if same or name != "clean"}
            numbers[task] |= {f"{OVERLAP_PREFIX}{name}": value for name, value in found.items()}
        tables = {task: len(measured.get("confusion", ())) for task, measured in evaluation["metrics"].items()}
        weights = evaluation.get("weights", {})
        facts = replace(
            run_facts,
            sources=tuple(config.get("sources", ())),
            measures=measures,
            classes={task: count for task, count in tables.items() if count},
            # RUN/checkpoints/MODEL
            asked={task: Path(*asked).parent.parent.name for task, asked in weights.items() if len(asked) == 1},
            chosen_on_dev=chosen_on_dev(evaluation),
            keeps_model=bool(Run(model).kept_models()),
            unknown=tuple(evaluation.get("unknown", ())),
        )
        history = tuple(map(_line, Run(model).history())) if (model / "metrics.jsonl").is_file() else ()
        result = cls(**vars(facts), numbers=numbers, history=history)
        names = [f"{task}_{kind}" for task in result.scores for kind in ("labels", "predictions")]
        arrays = read_arrays(evaluated / "predictions.npz", *names)
        return result.with_answers({t: (arrays[f"{t}_labels"], arrays[f"{t}_predictions"]) for t in result.scores})

    def with_answers(self, arrays: Mapping[str, tuple[Any, Any]]) -> Self:
        """The result with labels and predictions of each task."""
        answers = {
            task: DevAnswers(*arrays[task], self.measures[task], self.classes.get(task), score)  # type: ignore[arg-type]
            for task, score in self.scores.items()
            if task in arrays
        }
        kinds = {
            task: (str(answered.labels.dtype), str(answered.predictions.dtype), answered.labels[0].size)
            for task, answered in answers.items()
        }
        majorities = {
            task: float(np.unique(answered.labels, axis=0, return_counts=True)[1].max() / len(answered.labels))
            for task, answered in answers.items()
            if answered.metric == "accuracy"
        }
        return replace(self, answers=answers, kinds=kinds, majorities={**self.majorities, **majorities})


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a mapping, without tables such as a confusion matrix."""
    return {name: value for name, value in values.items() if isinstance(value, int | float)}


def _line(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of metrics.jsonl."""
    numbers = {source: _numbers(measured) for source, measured in {TRAINING: line["training"], **line["dev"]}.items()}
    overall = {OVERALL: {MEAN: line["scores"][OVERALL]}} if OVERALL in line["scores"] else {}
    return {"step": line["step"], "numbers": numbers | overall}


@dataclass(frozen=True)
class GridFrames:
    """All that a grid found.

    Attributes:
        record: what was run. Of its runs, those with scores may be missing.
        runs: the runs with scores, in the order of tables, rows and seeds.
    """

    record: PresetRecord
    runs: tuple[RunResult, ...]

    @classmethod
    def of_runs(cls, folder: Path, preset: str) -> Self:
        """Read a preset's record and its runs. Raises InputError when it was never run, or a run is damaged."""
        record = PresetRecord.read(folder, preset)
        for name in sorted(record.artefacts()):
            Run(folder / name).check()
        return cls(record, tuple(_results_of(record, folder)))

    @classmethod
    def load(cls, scores: Path, answers: Path | None = None) -> Self:
        """Read the frames; answers that are not there are left out.

        Raises InputError for no scores, a damaged file, or one of another version.
        """
        found = _read_frame(scores, SCORE_LINE)
        about = found.schema.metadata or {}
        if about.get(b"version") != FRAME_VERSION:
            raise InputError(f"{scores}: written by another version")
        record: PresetRecord = read_as(PresetRecord, about[b"record"].decode(), scores)
        arrays = read_answers(answers) if answers is not None and answers.is_file() else {}
        return cls(record, tuple(_read_runs(found, arrays, scores)))

    def save(self, folder: Path) -> None:
        """Write both frames, atomically."""
        self.save_scores(folder / SCORES)
        seen = {(run.evaluated, task): found for run in self.runs for task, found in run.answers.items()}
        frames = (answer_frame(*key, found.labels, found.predictions) for key, found in seen.items())
        write_answers(folder / ANSWERS, frames)

    def save_scores(self, file: Path) -> None:
        """Write the frame of scores, atomically."""
        scored = {(run.table, run.row, run.seed) for run in self.runs}
        others = tuple(run for run in self.record.runs if (run.table, run.row, run.seed) not in scored)
        record = adapter(PresetRecord).dump_json(replace(self.record, runs=others))
        labels = {(table.key, row.key): row.label for table in self.record.tables for row in table.rows}
        lines = [line for run in self.runs for line in _lines(run, labels[run.table, run.row])]
        columns = list(zip(*lines, strict=True)) or [()] * len(SCORE_LINE)
        table = pyarrow.table(
            [pyarrow.array(column, line.type) for column, line in zip(columns, SCORE_LINE, strict=True)],
            schema=SCORE_LINE,
        )
        with atomic_file(file) as temporary:
            table = table.replace_schema_metadata({b"version": FRAME_VERSION, b"record": record})
            parquet.write_table(table, temporary, compression="zstd", compression_level=9)

    def of_table(self, key: str) -> dict[str, tuple[RunResult, ...]]:
        """The runs of each row of a table, one for each seed."""
        (table,) = (table for table in self.record.tables if table.key == key)
        runs = [run for run in self.runs if run.table == key]
        return {row.key: tuple(run for run in runs if run.row == row.key) for row in table.rows}

    def of_tables(self, keys: Collection[str]) -> Self:
        """The same of some tables."""
        return replace(
            self, record=self.record.of_tables(keys), runs=tuple(run for run in self.runs if run.table in keys)
        )


def _results_of(record: PresetRecord, folder: Path) -> Iterator[RunResult]:
    """The runs of a folder that are scored."""
    for table in record.tables:
        metrics = {task: first for task, (first, *_) in table.metrics.items()}
        for run in (run for row in table.rows for run in record.of_row(table.key, row.key)):
            if run.model is not None and run.evaluation is not None:
                configs = (read_optional_json(folder / name / "config.json") for name in run.chain)
                scratch = any(config.get("from_scratch") for config in configs)
                start = RANDOM_WEIGHTS if scratch else record.start
                needed = map(Run, (folder / name for name in dict.fromkeys((*run.chain, run.evaluation))))
                costs = {one.folder.name: (one.seconds, one.machine) for one in needed}
                facts = RunFacts(table.key, run.row, run.seed, run.model, run.evaluation, start, run.chain, costs)
                yield RunResult.read(folder, facts, metrics)


def _lines(run: RunResult, label: str) -> Iterator[tuple[Any, ...]]:
    """The lines of a run, those of the model that was kept last."""
    place = (run.table, run.row, label, run.seed)
    for step, numbers in [*((line["step"], line["numbers"]) for line in run.history), (None, run.numbers)]:
        for source, measured in numbers.items():
            yield from ((*place, step, source, measure, value, None) for measure, value in measured.items())
    facts = RunFacts(**{one.name: getattr(run, one.name) for one in fields(RunFacts)})
    yield (*place, None, FACTS, FACTS, None, adapter(RunFacts).dump_json(facts).decode())


def _read_frame(file: Path, schema: pyarrow.Schema) -> pyarrow.Table:
    if not file.is_file():
        raise InputError(f"{file}: no such file; `multitask experiments run` writes {SCORES} and {ANSWERS}")
    try:
        found = parquet.read_table(file, read_dictionary=["run", "task"])
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{file}: not a Parquet file ({str(error).splitlines()[0]:.80})") from None
    if found.schema.names != schema.names:
        raise InputError(f"{file}: another file; expected the columns {', '.join(schema.names)}")
    return found


def _read_runs(found: pyarrow.Table, arrays: Mapping[tuple[str, str], Any], path: Path) -> Iterator[RunResult]:
    columns = zip(*(found.column(name).to_pylist() for name in SCORE_LINE.names), strict=True)
    for _, lines in groupby(columns, key=lambda line: (*line[:2], line[3])):
        numbers: dict[int | None, dict[str, dict[str, float]]] = {}
        for *_, step, source, measure, value, text in lines:
            if source == FACTS:
                facts: RunFacts = read_as(RunFacts, text, path)
            else:
                numbers.setdefault(step, {}).setdefault(source, {})[measure] = value
        own = numbers.pop(None, {})
        history = tuple({"step": step, "numbers": measured} for step, measured in numbers.items())
        result = RunResult(**vars(facts), numbers=own, history=history)
        answered = {}
        for task, (*kinds, _) in result.kinds.items():
            if (facts.evaluated, task) in arrays:
                both = zip(arrays[facts.evaluated, task], kinds, strict=True)
                answered[task] = tuple(values.astype(kind) for values, kind in both)
        yield result.with_answers(answered) if answered else result


def answer_frame(run: str, task: str, labels: Any, predictions: Any) -> pandas.DataFrame:
    """The lines of a run's answers to a task; several for an example that has several labels."""
    labels, predictions = np.asarray(labels), np.asarray(predictions)
    places = np.repeat(np.arange(len(labels)), labels[0].size if len(labels) else 1)
    return pandas.DataFrame(
        {"run": run, "task": task, "example": places, "label": labels.ravel(), "prediction": predictions.ravel()}
    )


def write_answers(file: Path, frames: Iterable[pandas.DataFrame], **pages: int) -> None:
    """Write the frame of answers, atomically. `pages` are further settings of `pyarrow.parquet.write_table`."""
    tables = [pyarrow.Table.from_pandas(frame, ANSWER, preserve_index=False) for frame in frames]
    table = pyarrow.concat_tables([ANSWER.empty_table(), *tables]).replace_schema_metadata(None)
    encoding = {"prediction": "BYTE_STREAM_SPLIT", "example": "DELTA_BINARY_PACKED"}
    how: dict[str, Any] = {"use_dictionary": ["run", "task", "label"], "column_encoding": encoding}
    with atomic_file(file) as temporary:
        parquet.write_table(table, temporary, compression="zstd", **{"compression_level": 9, **how, **pages})


def read_answers(file: Path) -> dict[tuple[str, str], tuple[Any, Any]]:
    """Labels and predictions by run and task, [examples] or [examples, labels]. Raises InputError for another file."""
    found = {}
    for key, answers in _read_frame(file, ANSWER).to_pandas().groupby(["run", "task"], observed=True, sort=False):
        width = len(answers) // answers.example.nunique()
        shape = -1 if width == 1 else (-1, width)
        found[key] = (answers.label.to_numpy().reshape(shape), answers.prediction.to_numpy().reshape(shape))
    return found
