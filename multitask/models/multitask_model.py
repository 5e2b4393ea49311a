"""MultitaskModel: a sentence encoder and one head for each task. Transformers can read the saved encoder."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from minbert.checkpoint import read_tensors, refuse_not_finite, write_tensors
from minbert.config import Long
from minbert.download_checkpoint import most_alike
from minbert.errors import InputError
from minbert.files import atomic_folder, write_json
from multitask.base import logger
from multitask.base.device import Runtime, resolve_runtime
from multitask.base.options import Device, Precision
from multitask.base.progress import OnRows, no_progress
from multitask.base.runs import is_run, last_run, locate_model
from multitask.data.examples import (
    Examples,
    LabelledData,
    RowNumbers,
    TextCounts,
    Tokens,
    sequences_of,
    tokenise_columns,
    total_lengths,
)
from multitask.data.messages import listed, quote
from multitask.data.tables import FRAME, Format, is_frame, table_of
from multitask.data.texts import Template, in_order, in_words, texts_of_rows
from multitask.models.compute_in_batches import compute_in_batches
from multitask.models.model_folder import DESCRIPTION, HEADS, ModelDescription, has_heads, read_description
from multitask.models.prediction_heads import Heads, build_heads, pair_input
from multitask.models.predictions import (
    Prediction,
    Sentence,
    added_columns,
    added_values,
    columns_of,
    grouped,
    interpret,
    warn_of_empty_texts,
)
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.models.sentence_transformers_encoder import beyond_encoder
from multitask.models.settings import HeadsConfig
from multitask.tasks.declarations import stored_task
from multitask.tasks.kinds import Classification, Regression
from multitask.tasks.read_examples import completed
from multitask.tasks.task import Task

if TYPE_CHECKING:
    import pandas

RowsToPredict: TypeAlias = "Sequence[Sentence] | pandas.Series[Any] | pandas.DataFrame"
"""Rows to predict."""
Columns: TypeAlias = Sequence[Sequence[str]]
"""Rows to predict as one column of texts, or two."""


class MultitaskModel(nn.Module):
    """A sentence encoder that all tasks share, and a head for each task."""

    def __init__(self, encoder: SentenceEncoder, tasks: Mapping[str, Task], heads: HeadsConfig) -> None:
        super().__init__()
        self.encoder = encoder
        self.tasks = dict(tasks)
        self.heads_config = heads
        self.heads = build_heads(list(tasks.values()), encoder.width, heads)

    def on(self, runtime: Runtime, keep_layers: bool = True) -> Self:
        """Move to the runtime's device, see `SentenceEncoder.on`."""
        self.encoder.on(runtime, keep_layers)
        return self.to(runtime.device)

    def head(self, task: str, embeddings: Tensor) -> Tensor:
        """A task's outputs in fp32, [rows, classes] or [rows], from its sequences' embeddings.

        These are [rows * sequences_per_row, hidden]; of pairs that are encoded separately all first sentences, then
        all second.
        """
        # Heads are small, and bf16 would round the predictions.
        with torch.autocast(embeddings.device.type, enabled=False):
            return self.heads[task](*embeddings.chunk(self.sequences_per_row(task)))

    def tokenised(self, task: str, examples: Examples, rows: RowNumbers | None = None) -> LabelledData:
        """Examples as token sequences, as the task's rows are encoded; see `LabelledData.tokenised`.

        The words around texts, and how long ones are read, are this model's, whatever the file's own declaration says.
        """
        own = self.tasks[task]
        read = replace(examples, words=own.files.words, long=own.long)
        return self.encoder.tokenised(read, self.reads_jointly(task), rows)

    def sequences_per_row(self, task: str) -> int:
        """How many encoder inputs a row has: 2 for a pair that is encoded separately, otherwise 1."""
        return 2 if self.tasks[task].pair and not self.reads_jointly(task) else 1

    def reads_jointly(self, task: str) -> bool:
        """Whether the task's pairs are encoded as one input of two sentences."""
        return self.tasks[task].pair and pair_input(self.tasks[task], self.heads_config) == "joint"

    def input_form(self, task: str) -> tuple[tuple[Template, ...], bool, Long]:
        """How a task's inputs are made of the same sentences: tasks with equal answers share a pass of the encoder."""
        return self.tasks[task].files.words, self.reads_jointly(task), self.tasks[task].long

    def predict(self, task: str, rows: RowsToPredict) -> list[Prediction]:
        """Predict a task for any rows: a prediction for each, in their order.

        Args:
            task: the task's name.
            rows: sentences; of a task of pairs, pairs of sentences. Or a pandas series of these, or a data frame with
                the columns that the task declares.

        Raises:
            InputError: the model has no such task, or a row is not a sentence or pair.
        """
        return self.predict_all(rows, [task])[task]

    def predict_all(self, rows: RowsToPredict, tasks: Sequence[str] | None = None) -> dict[str, list[Prediction]]:
        """Predict several tasks, by default all that read such rows, in one pass of the encoder.

        Rows and errors are those of `predict`.
        """
        self.encoder.counts = TextCounts()  # earlier ones are of other texts
        if not is_frame(rows):
            texts = columns_of(rows if isinstance(rows, str) else in_order(rows))
            warn_of_empty_texts(texts)
            predicted = predict_columns(self, texts, tasks)
            self.encoder.counts.warn("predicted texts")
            return predicted
        table, named = table_of(rows.rename(columns=str)), tasks_for(self, None, tasks)  # columns are named by texts
        reads = {name: self.tasks[name].files.text_columns for name in named}
        fitting = [name for name in named if tasks is not None or all(map(table.has, reads[name]))]
        if not fitting:
            looked_for = " or ".join(dict.fromkeys(map(listed, reads.values())))
            raise InputError(f"{FRAME}: no column {looked_for}; the columns are {listed(table.columns)}")
        table.require([column for name in fitting for column in reads[name]])
        numbered, found = list(table.rows), dict[str, list[Prediction]]()
        keys = {name: (self.tasks[name].files.contents, self.tasks[name].file_format.missing) for name in fitting}
        for (contents, missing), together in grouped(keys).items():
            made = texts_of_rows(replace(table, format=Format(missing=missing)), numbered, contents)
            texts = list(map(list, zip(*made, strict=True))) or [[]]
            warn_of_empty_texts(texts)
            found |= predict_columns(self, texts, together)
        self.encoder.counts.warn(FRAME)
        return {name: found[name] for name in fitting}

    def predict_frame(
        self,
        frame: "pandas.DataFrame",
        tasks: Sequence[str] | None = None,
        probabilities: bool = False,
        prefix: str = "",
    ) -> "pandas.DataFrame":
        """A data frame with columns of predictions added, as `multitask predict` adds them to files.

        Args:
            frame: with the columns that the tasks declare. Its index, columns and types are kept.
            tasks: names of tasks; by default all tasks whose columns the frame has.
            probabilities: also add a column with the probability of each class.
            prefix: of the names of the added columns.

        Raises:
            InputError: no such task, a missing column, a value that is not text, or an added column that is there.
        """
        import pandas  # whoever has a data frame has imported it

        added: dict[str, pandas.Series[Any]] = {}
        for name, answers in self.predict_all(frame, tasks).items():
            task = self.tasks[name]
            rows = [added_values(task, answer, probabilities) for answer in answers]
            for i, column in enumerate(added_columns(task, prefix, probabilities)):
                if column in added:
                    raise InputError(f"{FRAME}: two predicted columns are called {column}; predict these tasks apart")
                added[column] = pandas.Series([row[i] for row in rows], frame.index)
        if clash := sorted(added.keys() & set(map(str, frame.columns))):
            raise InputError(f"{FRAME}: has the column {clash[0]} already; name the predictions with a prefix")
        return pandas.concat([frame, pandas.DataFrame(added, frame.index)], axis=1)

    def save(self, folder: Path) -> None:
        """Write encoder, tokenizer and heads into a folder, atomically. Transformers can load the encoder from it."""
        with atomic_folder(folder) as temporary:
            encoder = self.encoder
            encoder.model.save(temporary)
            encoder.tokenizer.save(temporary)
            # Heads may share layers. safetensors needs each tensor once; loading restores the sharing.
            write_tensors(dict(self.heads.named_parameters()), temporary / HEADS)
            tasks = {name: task.kept() for name, task in self.tasks.items()}
            length = None if encoder.max_length == encoder.tokenizer.max_length else encoder.max_length
            description = ModelDescription(tasks, encoder.pooling, self.heads_config, length)
            write_json(temporary / DESCRIPTION, asdict(description))

    @classmethod
    def load(
        cls,
        run_or_folder: str | Path,
        device: Device = "auto",
        precision: Precision = "auto",
        keep_layers: bool = False,
    ) -> Self:
        """Load a model in eval mode.

        Args:
            run_or_folder: a run's folder, which stands for its leading model (`last`: the latest one in
                `runs`), or a folder that `save` wrote.
            device: where to predict.
            precision: of the matrix products of predictions. In bf16, the encoder's weights are rounded here.
            keep_layers: keep weights that can be trained and saved, see `SentenceEncoder.load`.

        Raises:
            InputError: the run is not complete or keeps no model, or the folder is no such model or is damaged.
        """
        named = Path(run_or_folder)
        if named == Path("last") and not named.exists():
            named = last_run(Path("runs"))
        if not named.is_dir():
            raise InputError(f"{named}: no such folder{most_alike(named)}")
        folder = locate_model(named) if is_run(named) else named
        path, found = folder / DESCRIPTION, read_description(folder)
        if found is None:
            raise InputError(f"{folder}: not a fine-tuned model, as it has no {DESCRIPTION}; pass a run of finetune")
        tasks = stored_tasks(folder, found)
        encoder = SentenceEncoder.read(folder, found.pooling, found.max_length)
        if encoder.max_length > (most := encoder.tokenizer.max_length):
            raise InputError(f"{path}: max_length is {found.max_length}; the encoder takes 3 to {most}")
        model = cls(encoder, tasks, found.heads)
        load_heads(model.heads, folder)
        return model.eval().on(resolve_runtime(device, precision), keep_layers)


def load_heads(heads: Heads, folder: Path) -> None:
    """Read the weights of all heads of a model's folder. Raises InputError if they do not fit its description."""
    state, own = read_tensors(folder / HEADS), dict(heads.named_parameters())  # each once even if heads share it
    if set(state) != set(own) or any(state[name].shape != own[name].shape for name in state):
        raise InputError(f"{folder / HEADS}: its tensors do not fit {DESCRIPTION}")
    refuse_not_finite(state, folder / HEADS)
    heads.load_state_dict(state, strict=False)


def tasks_to_score(model: MultitaskModel, folder: Path) -> dict[str, Task]:
    """The model's tasks by name, as its outputs are scored: cosines of an encoder without heads are not cut to a range.

    They are not cut in pre-training and on the STS tasks either.
    """
    if has_heads(folder):
        return model.tasks
    return {
        name: replace(task, range=None, learned_range=task.bounds) if isinstance(task, Regression) else task
        for name, task in model.tasks.items()
    }


def stored_tasks(folder: Path, description: ModelDescription) -> dict[str, Task]:
    """The tasks of the description in a model's folder. Raises InputError if one is not valid."""
    try:
        return {name: stored_task(name, kept) for name, kept in description.tasks.items()}
    except InputError as error:
        raise InputError(f"{folder / DESCRIPTION}: {error}") from None


def load_model(folder: Path, pairs: Mapping[str, Task]) -> MultitaskModel:
    """Load a multi-task model, or make one from an encoder without heads: it scores pairs by their embeddings' cosine.

    `pairs` are the tasks that an encoder without heads is scored on; those that need a trained head are left out.
    Training rows decide labels or a range that are not declared; a task without such rows is left out with a warning.
    Texts are cut to the length that the folder records, as `SentenceEncoder.load` cuts them.

    Raises InputError if an encoder's embeddings need more than this library computes.
    """
    if has_heads(folder):
        return MultitaskModel.load(folder, keep_layers=True)
    if (reason := beyond_encoder(folder)) is not None:
        raise InputError(
            f"{reason}, so the encoder alone is not the model: it scores no tasks (`evaluate --suite` computes all)"
        )
    scored: dict[str, Task] = {}
    for name, declared in pairs.items():
        if not declared.pair:
            continue
        try:
            task = completed(declared)
        except InputError as error:
            logger.warning("%s; %s is left out, as its training rows decide its labels or range", error, name)
            continue
        if task.outputs == 1:
            warn_of_alike_label(name, task)
            scored[name] = task
    return MultitaskModel(SentenceEncoder.read_as_stored(folder), scored, HeadsConfig(sharing="none")).eval()


def warn_of_alike_label(name: str, task: Task) -> None:
    """Log which of two classes a high cosine counts as, unless they are called 0 and 1."""
    if isinstance(task, Classification) and task.names != ("0", "1"):
        logger.warning("%s: alike pairs count as %s, the second label", name, quote(task.names[1]))


def predict_columns(
    model: MultitaskModel, columns: Columns, tasks: Sequence[str] | None = None, on_rows: OnRows = no_progress
) -> dict[str, list[Prediction]]:
    """`MultitaskModel.predict_all` of one or two columns of texts, as `columns_of` gives them."""
    estimates = estimate_columns(model, columns, tasks, on_rows)
    return {name: interpret(model.tasks[name], values) for name, values in estimates.items()}


def estimate_columns(
    model: MultitaskModel, columns: Columns, tasks: Sequence[str] | None = None, on_rows: OnRows = no_progress
) -> dict[str, NDArray[np.float64]]:
    """Estimates (see `Task.estimate`) of several tasks for the same rows, as `predict_columns` predicts them.

    Tasks with equal inputs (see `MultitaskModel.input_form`) share one pass of the encoder. `encoder.counts` counts
    texts that are too long, or that the tokenizer cannot read.
    """
    # Nothing tells whether an empty list is one of pairs, so all tasks take it.
    names, encoder = tasks_for(model, len(columns) if columns[0] else None, tasks), model.encoder
    if not columns[0]:
        return {name: np.empty((0, *([model.tasks[name].outputs] * (model.tasks[name].outputs > 1)))) for name in names}
    found: dict[str, NDArray[np.float64]] = {}
    groups = grouped({name: model.input_form(name) for name in names})
    order = sorted(groups, key=lambda read: read[1])
    for words, joint, long in order:
        read = tokenise_columns(in_words(words, columns), encoder.tokenizer, encoder.max_length, joint, long)
        for column in read:
            if (words, joint, long) == order[0]:  # other passes read the same texts; by themselves they are first
                encoder.counts.add(len(column), column.unread)
            encoder.counts.add_long(len(column), column.cut, encoder.max_length, long)
        raw = outputs(model, groups[words, joint, long], read, on_rows)
        found |= {name: model.tasks[name].estimate(values) for name, values in raw.items()}
    return {name: found[name] for name in names}


def tasks_for(model: MultitaskModel, width: int | None, tasks: Sequence[str] | None) -> list[str]:
    """The names of tasks, or of all tasks that read so many columns (None: any number).

    Raises InputError if one of them does not.
    """
    if isinstance(tasks, str):
        raise InputError(f'tasks is "{tasks}"; expected a list of names')
    kind = "pairs of sentences" if width == 2 else "sentences"
    fitting = [name for name, task in model.tasks.items() if width in (None, len(task.files.text))]
    for name in tasks or ():
        if name not in model.tasks:
            raise InputError(f'the model has no task "{name}"; it has {", ".join(model.tasks)}')
        if name not in fitting:
            raise InputError(f"{name} reads {'sentences' if width == 2 else 'pairs of sentences'}, not {kind}")
    if not fitting:
        raise InputError(f"no task of the model reads {kind}; it has {', '.join(model.tasks) or 'no tasks'}")
    return list(tasks or fitting)


def outputs(
    model: MultitaskModel,
    tasks: Sequence[str],
    read: Sequence[Tokens],
    on_rows: OnRows = no_progress,
    known: Callable[[RowNumbers], Tensor] | None = None,
) -> dict[str, NDArray[np.float32]]:
    """Each head's outputs for every row, [rows, classes] or [rows], in file order, from one pass of the encoder.

    The model must be in eval mode, and the tasks must read the same sequences: the columns that were `read`. `known`
    gives embeddings of rows that the encoder need not compute. Raises InputError if outputs are not finite.
    """

    def compute(rows: RowNumbers) -> Tensor:
        embeddings = known(rows) if known else model.encoder.embed(*sequences_of(read, rows))
        return torch.cat([model.head(name, embeddings).reshape(len(rows), -1) for name in tasks], dim=1)

    cuts = np.cumsum([model.tasks[name].outputs for name in tasks])[:-1]
    computed = compute_in_batches(total_lengths(read), compute, model.encoder.runtime, on_rows=on_rows)
    parts = np.split(computed, cuts, axis=1)
    for name, part in zip(tasks, parts, strict=True):
        if not np.isfinite(part).all():
            source = model.encoder.name
            raise InputError(f"{source}: the model's outputs for {name} are not finite; its weights are damaged")
    return {name: part[:, 0] if part.shape[1] == 1 else part for name, part in zip(tasks, parts, strict=True)}
