"""How much each word adds to a prediction, by integrated gradients (Captum).

The path leads along a straight line between word embeddings: from a baseline, the row with the padding token in place
of all tokens but the special ones, to the row itself. The effects add up to the difference of the two predictions, but
for the error of the numeric integral ("completeness").

Source: Sundararajan et al. 2017, "Axiomatic Attribution for Deep Networks", arXiv 1703.01365.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call

from minbert.errors import InputError
from minbert.packing import PackedBatch
from multitask.inference.explore.word_effects import Word
from multitask.models.compute_in_batches import TOKENS_PER_BATCH
from multitask.models.multitask_model import MultitaskModel
from multitask.tasks.kinds import Classification, Labelled, PairClassification, Regression
from multitask.tasks.task import Task

STEPS = 50
"""Points of the quadrature (Gauss-Legendre); Captum's default."""


@dataclass(frozen=True)
class Attribution:
    """The effects of a row's words on one number of a prediction.

    Args:
        effects: of each word; None for words that the model does not read, because the text is cut.
        row: the number for the row, computed in fp32.
        baseline: the number for the baseline.
        gap: the sum of the effects minus the difference of the two numbers; without error it is 0.
    """

    effects: list[float | None]
    row: float
    baseline: float
    gap: float


def integrated_gradients(
    model: MultitaskModel, texts: Sequence[str], words: Sequence[Word], explained: Mapping[str, str], steps: int = STEPS
) -> dict[str, Attribution]:
    """Attribute numbers of several tasks' predictions for a row to its words.

    Other threads may use the model meanwhile, because a copy that shares its weights gets the embeddings of the path.

    Args:
        model: in eval mode.
        texts: a sentence, or the two of a pair.
        words: of these texts.
        explained: for each task what to explain, see `word_effects.explained_number`.
        steps: points of the quadrature.

    Raises:
        InputError: Captum is not installed.
    """
    try:
        from captum.attr import IntegratedGradients
    except ModuleNotFoundError:
        raise InputError('integrated gradients need captum; install with: pip install -e ".[explore]"') from None
    kept = chain(model.parameters(), model.buffers(), [model.tokenizer])
    own = copy.deepcopy(model, {id(part): part for part in kept})
    found = {}
    for name, number in explained.items():
        row = _read(model, texts, words, name)
        column = numbers_of(model.tasks[name]).index(number)

        def compute(embeddings: Tensor, name: str = name, row: _Row = row, column: int = column) -> Tensor:
            """[rows, tokens, hidden] -> [rows]."""
            return _numbers_of_embeddings(own, name, row, embeddings)[:, column]

        ends = [own.encoder.embeddings.word(ids.to(own.runtime.device))[None].detach() for ids in (row.ids, row.blank)]
        at_once = max(1, TOKENS_PER_BATCH[own.runtime.device.type] // len(row.ids))
        tokens = IntegratedGradients(compute).attribute(*ends, n_steps=steps, internal_batch_size=at_once)
        with torch.no_grad():
            whole, baseline = compute(torch.cat(ends)).tolist()
        effects = _sums(tokens[0].double().sum(dim=1).tolist(), row.words, len(words))
        gap = sum(effect or 0 for effect in effects) - (whole - baseline)
        found[name] = Attribution(effects, whole, baseline, gap)
    return found


def numbers_of(task: Task) -> tuple[str, ...]:
    """The names of the numbers of a task's predictions: its labels, or "value"."""
    return task.names if isinstance(task, Labelled) else ("value",)


def predicted_numbers(task: Task, outputs: Tensor) -> Tensor:
    """The numbers of a task's predictions, differentiable: probabilities, or values in the unit of the labels.

    Args:
        task: the task.
        outputs: of its head, [rows, outputs] or [rows].

    Returns:
        [rows, numbers] float64, as `numbers_of` names them.
    """
    wide = outputs.reshape(len(outputs), -1).double()
    if isinstance(task, Regression):
        low, high = task.bounds
        return low + (wide.clamp(0, 1) if task.range else wide) * (high - low)
    assert isinstance(task, Labelled)
    scaled = wide / task.temperature
    if isinstance(task, PairClassification) and task.log_odds:
        return torch.cat([1 - scaled.sigmoid(), scaled.sigmoid()], dim=1)
    return scaled.softmax(dim=1) if isinstance(task, Classification) else scaled.sigmoid()


@dataclass(frozen=True)
class _Row:
    """The encoder inputs of a row end to end.

    Args:
        ids: [tokens].
        blank: ids of the baseline, [tokens].
        types: of each input, [its tokens].
        words: the number of each token's word, [tokens]; -1 for special tokens.
    """

    ids: Tensor
    blank: Tensor
    types: list[NDArray[np.int64]]
    words: list[int]


def _read(model: MultitaskModel, texts: Sequence[str], words: Sequence[Word], task: str) -> _Row:
    jointly = model.reads_jointly(task)
    backend = model.tokenizer.backend
    backend.enable_truncation(model.max_length or model.tokenizer.max_length)
    encodings = backend.encode_batch([tuple(texts)] if jointly else list(texts))
    ids: list[int] = []
    blank: list[int] = []
    owners: list[int] = []
    for number, encoding in enumerate(encodings):
        for token, (_, end), sequence in zip(encoding.ids, encoding.offsets, encoding.sequence_ids, strict=True):
            ids.append(token)
            blank.append(token if sequence is None else model.tokenizer.pad_token_id)
            # A token of RoBERTa may begin with the space in front of its word, so its last character decides.
            owners.append(-1 if sequence is None else _word_at(words, sequence if jointly else number, end - 1))
    types = [np.array(encoding.type_ids, np.int64) for encoding in encodings]
    return _Row(torch.tensor(ids), torch.tensor(blank), types, owners)


def _word_at(words: Sequence[Word], column: int, place: int) -> int:
    return next((i for i, word in enumerate(words) if word.column == column and word.start <= place < word.end), -1)


def _numbers_of_embeddings(model: MultitaskModel, task: str, row: _Row, embeddings: Tensor) -> Tensor:
    """The numbers of a task's prediction for copies of a row that differ in their word embeddings.

    Args:
        model: that no other thread uses.
        task: its name.
        row: the row.
        embeddings: of each copy's tokens, [copies, tokens, hidden].
    """
    copies, tokens, _ = embeddings.shape
    starts = np.cumsum([0, *map(len, row.types)])
    # The embeddings take the place of the table of words, and their numbers that of token ids.
    ids = [
        first + start + np.arange(len(types))
        for start, types in zip(starts, row.types, strict=False)
        for first in range(0, copies * tokens, tokens)
    ]
    batch = PackedBatch.from_sequences(ids, [types for types in row.types for _ in range(copies)])
    table = {"encoder.embeddings.word.weight": embeddings.flatten(0, 1)}
    outputs = functional_call(model, table, (batch.to(embeddings.device), {task: copies}))[task]
    return predicted_numbers(model.tasks[task], outputs)


def _sums(of_tokens: Sequence[float], words: Sequence[int], count: int) -> list[float | None]:
    """The sum of its tokens' values for each word; None for words without tokens."""
    found: list[float | None] = [None] * count
    for value, word in zip(of_tokens, words, strict=True):
        if word >= 0:
            found[word] = (found[word] or 0.0) + value
    return found
