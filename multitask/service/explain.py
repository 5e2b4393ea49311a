"""What moves a model: the words that matter to a prediction, and a step of a contrastive loss.

Words matter by occlusion, or by integrated gradients.

Occlusion: how much the prediction changes without each word, which everyone can check. Source: Li et al. 2016,
"Understanding Neural Networks through Representation Erasure", arXiv 1612.08220.

Integrated gradients: along a straight line between word embeddings, from a baseline, the row with the padding token in
place of all tokens but the special ones, to the row itself. The effects add up to the difference of the predictions for
both, but for the error of the numeric integral ("completeness"). Source: Sundararajan et al. 2017, "Axiomatic
Attribution for Deep Networks", arXiv 1703.01365.
"""

import copy
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from minbert.errors import InputError
from minbert.settings import help_texts
from multitask.base.choices_with_parameters import bounds, choices, optional, parameters, text_of
from multitask.data.texts import in_words
from multitask.evaluation.gradient_probe import GradientComponents, probe, training_mode
from multitask.models.compute_in_batches import TOKENS_PER_BATCH
from multitask.models.multitask_model import MultitaskModel
from multitask.models.predictions import Prediction, Sentence
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.objectives import OBJECTIVES, Objective, unit
from multitask.objectives.closed_form_components import Mixed
from multitask.objectives.gradient_paradigm import GradientParadigm
from multitask.objectives.noncontrastive import GradientForm
from multitask.tasks.labels import Labelled
from multitask.training.settings import ObjectiveConfig

MOST_WORDS = 120
"""By occlusion, each word costs a prediction. Words after these are shown without an effect."""
QUADRATURE_POINTS = 50
"""Points of the quadrature (Gauss-Legendre)."""

Module = TypeVar("Module", bound=nn.Module)
Word = tuple[int, re.Match[str]]
"""A word of a row: its column, which is 1 in the second sentence of a pair, and its place there."""


@dataclass(frozen=True)
class Effects:
    """The effects of a row's words on one number of a prediction."""

    number: str  # the class or label whose probability it is, or "value"
    words: list[float | None]  # None for words that are not computed, or that the model does not read
    ends: tuple[float, float] | None = None  # of integrated gradients: the number for the row and for the baseline


def words_of(texts: Sequence[str]) -> list[Word]:
    """The words of a row's texts in order, as they are separated by spaces."""
    return [(column, found) for column, text in enumerate(texts) for found in re.finditer(r"\S+", text)]


def without(texts: Sequence[str], word: Word) -> Sentence:
    """The row without a word: a sentence, or the two of a pair."""
    (column, found), left = word, list(texts)
    left[column] = f"{left[column][: found.start()].rstrip()} {left[column][found.end() :].lstrip()}".strip()
    return left[0] if len(left) == 1 else (left[0], left[1])


def explained_number(whole: Prediction) -> str:
    """The name of the number that effects are on: the class or label whose probability it is, or "value"."""
    if whole.value is not None:
        return "value"
    return whole.label or max(whole.probabilities, key=lambda label: whole.probabilities[label])


def occlusion(whole: Prediction, partial: Sequence[Prediction], words: int) -> Effects:
    """What a prediction loses without each of the first words, given the predictions for the row without them."""
    name = explained_number(whole)

    def number(found: Prediction) -> float:
        return found.probabilities[name] if found.value is None else found.value

    effects: list[float | None] = [number(whole) - number(part) for part in partial]
    return Effects(name, effects + [None] * (words - len(effects)))


def integrated_gradients(
    model: MultitaskModel, texts: Sequence[str], task: str, number: str, steps: int = QUADRATURE_POINTS
) -> Effects:
    """Attribute a number of a task's prediction for a sentence or pair to its words; see `explained_number`.

    The model is in eval mode; other threads may use it meanwhile.
    """
    model = with_shared_weights(model)
    ids, blank, types, owners = _tokens(model, texts, task)
    device, embeddings = model.encoder.runtime.device, model.encoder.bert.embeddings
    row, baseline = (embeddings.word(part.to(device)).detach() for part in (ids, blank))
    # RoBERTa's positions do not count padding tokens, which a text may contain.
    padding = np.zeros(len(ids), np.bool_) if embeddings.uncounted is None else (ids == embeddings.uncounted).numpy()
    places, weights = (torch.from_numpy(part).to(row) / 2 for part in np.polynomial.legendre.leggauss(steps))
    total = torch.zeros_like(row)
    at_once = max(1, TOKENS_PER_BATCH[device.type] // len(ids))
    for share, weight in zip((places + 0.5).split(at_once), weights.split(at_once), strict=True):
        points = baseline + share[:, None, None] * (row - baseline)
        with torch.enable_grad():
            numbers = _numbers_of_embeddings(model, task, number, types, padding, points)
            (gradients,) = torch.autograd.grad(numbers @ weight.cpu().double(), embeddings.word.weight)
        total += gradients.view_as(points).sum(dim=0)
    with torch.no_grad():
        ends = _numbers_of_embeddings(model, task, number, types, padding, torch.stack([row, baseline])).tolist()
    effects: list[float | None] = [None] * len(words_of(texts))
    for value, word in zip((total * (row - baseline)).cpu().double().sum(dim=1).tolist(), owners, strict=True):
        if word >= 0:
            effects[word] = (effects[word] or 0.0) + value
    return Effects(number, effects, (ends[0], ends[1]))


def with_shared_weights(module: Module) -> Module:
    """A copy that other threads do not see, but with the same weights and tokenizer."""
    tokenizers = (part.tokenizer for part in module.modules() if isinstance(part, SentenceEncoder))
    kept = chain(module.parameters(), module.buffers(), tokenizers)
    return copy.deepcopy(module, {id(part): part for part in kept})


def _tokens(
    model: MultitaskModel, texts: Sequence[str], task: str
) -> tuple[Tensor, Tensor, list[list[int]], list[int]]:
    """The encoder inputs of a row end to end: ids, the baseline's ids, types of each input, each token's word or -1."""
    jointly, words = model.reads_jointly(task), words_of(texts)
    tokenizer = model.encoder.tokenizer
    around = model.tasks[task].files.words
    whole = [text for (text,) in in_words(around, [[text] for text in texts])]
    before = [len(made.words[0].lstrip()) for made in around]  # characters that no one typed
    with tokenizer.cutting(model.encoder.max_length):
        encodings = tokenizer.backend.encode_batch([tuple(whole)] if jointly else whole)
    if model.tasks[task].long != "head" and any(encoding.overflowing for encoding in encodings):
        most = model.encoder.max_length
        raise InputError(
            f"a text has more than {most} tokens; integrated gradients cover only texts that fit; shorten the text or "
            "use occlusion"
        )
    ids, blank, owners = [], [], []
    for number, encoding in enumerate(encodings):
        for token, (_, end), sequence in zip(encoding.ids, encoding.offsets, encoding.sequence_ids, strict=True):
            column = sequence if jointly else number
            # A token of RoBERTa may begin with the space in front of its word, so its last character decides.
            last = -1 if column is None else end - before[column]
            inside = (i for i, (own, word) in enumerate(words) if own == column and word.start() < last <= word.end())
            ids.append(token)
            owners.append(next(inside, -1))
            blank.append(token if owners[-1] < 0 else tokenizer.pad_token_id)
    return torch.tensor(ids), torch.tensor(blank), [encoding.type_ids for encoding in encodings], owners


def _numbers_of_embeddings(
    model: MultitaskModel,
    task: str,
    number: str,
    types: list[list[int]],
    padding: NDArray[np.bool_],
    embeddings: Tensor,
) -> Tensor:
    """A number of the prediction for copies of a row with other word embeddings [copies, tokens, hidden].

    `padding` are the tokens [tokens] that positions do not count.
    """
    copies, tokens, _ = embeddings.shape
    # The embeddings take the place of the word table, and their row numbers the place of token ids.
    rows = np.arange(copies * tokens).reshape(copies, tokens)
    rows[:, padding] = uncounted = int(padding.argmax())  # which all have one embedding
    ids = np.split(rows, np.cumsum([*map(len, types)])[:-1], axis=1)
    sequences = [row for each in ids for row in each], [np.array(each) for each in types for _ in range(copies)]
    model.encoder.bert.embeddings.word.weight = nn.Parameter(embeddings.flatten(0, 1))
    model.encoder.bert.embeddings.uncounted = uncounted if padding.any() else None
    with model.encoder.runtime.autocast():  # as predictions are computed
        outputs = model.head(task, model.encoder.embed(*sequences))
    declared, shown = model.tasks[task], model.tasks[task].readable(outputs.cpu().double())  # MPS has no float64
    return shown[:, declared.names.index(number)] if isinstance(declared, Labelled) else shown


MOST_SENTENCES = 12
ONLY_GRADIENTS = (GradientParadigm, GradientForm, Mixed)
"""Objectives whose values have no meaning."""


def dropout_views(
    encoder: SentenceEncoder, sentences: Sequence[str], dropout: float, seed: int
) -> tuple[Tensor, Tensor]:
    """Embeddings of sentences under two dropout masks, as SimCSE's anchors and positives: [sentences, hidden] twice.

    `dropout` is the probability of each dropout layer. Other threads may use the encoder meanwhile.
    """
    viewer = with_shared_weights(encoder)
    viewer.model.set_dropout(dropout)
    with training_mode(viewer, dropout=True, seed=seed):
        first, second = (torch.from_numpy(viewer.encode(sentences)) for _ in range(2))
    return first, second


class Contrast(NamedTuple):
    """What an objective does to a batch: cosines of anchors (rows) with positives (columns) before and after a step."""

    before: Tensor  # [pairs, pairs]
    after: Tensor
    losses: tuple[float, float] | None  # before and after; None if only the objective's gradient has a meaning
    components: GradientComponents  # of the gradient before the step


def contrastive_step(objective: Objective, anchors: Tensor, positives: Tensor, length: float) -> Contrast:
    """What an objective without labels does to raw embeddings, [pairs, dim] each; `length` of the step as in `step`."""
    views = unit(anchors.double()), unit(positives.double())
    moved = step(objective, anchors, positives, length)
    losses = None if isinstance(objective, ONLY_GRADIENTS) else (objective(*views).item(), objective(*moved).item())
    return Contrast(views[0] @ views[1].T, moved[0] @ moved[1].T, losses, probe(objective, anchors, positives))


def step(objective: Objective, anchors: Tensor, positives: Tensor, length: float) -> tuple[Tensor, Tensor]:
    """Unit embeddings after a step of gradient descent on the embeddings themselves (not on the encoder's weights).

    The raw embeddings, [pairs, dim] each, stay as they are if there is no gradient. The one with the largest gradient
    moves by `length` before it is scaled back to length 1. The others move in proportion to their gradients, so that
    steps of different objectives can be compared.
    """
    views = [unit(view.detach().double()).requires_grad_() for view in (anchors, positives)]
    with torch.enable_grad():
        value = objective(*views) + 0 * (views[0].sum() + views[1].sum())  # without an open gate it may be constant
        gradients = torch.autograd.grad(value, views)
    largest = max(float(gradient.norm(dim=-1).max()) for gradient in gradients)
    factor = length / largest if largest > 0 else 0.0
    first, second = (unit(view.detach() - factor * gradient) for view, gradient in zip(views, gradients, strict=True))
    return first, second


def fields_of(kind: type[Objective]) -> list[dict[str, Any]]:
    """The parameters as the page asks for them: choices, or a number with its bounds and a step for the arrow keys.

    The weight of hard negatives is none of them: the page has no hard negatives.
    """
    texts, found = help_texts(kind), []
    for name, parameter in parameters(kind).items():
        limits = bounds(parameter)
        low, default = limits.get("gt", limits.get("ge")), parameter.default
        if name != "hard_negative_weight":
            size = default if isinstance(default, float) and default > 0 else 0.1
            step = 10.0 ** math.floor(math.log10(size))
            number = {"low": low, "high": limits.get("le"), "step": step, "optional": optional(parameter)}
            start = "" if default is None else text_of(default)
            found.append(
                {"name": name, "help": texts.get(name, ""), "default": start, "choices": choices(parameter), **number}
            )
    return found


def without_labels() -> dict[str, type[Objective]]:
    """The objectives whose gradient the probe can decompose."""
    return {name: kind for name, kind in OBJECTIVES.items() if kind.takes_labels == "none"}


def objective_of(name: str, texts: Mapping[str, str]) -> Objective:
    """An objective without labels, from texts; a blank one switches a parameter off. Raises InputError."""
    given = ",".join(f"{key}={text.strip() or 'none'}" for key, text in texts.items())
    objective = ObjectiveConfig.parse(f"{name}:{given}" if given else name).build()
    if objective.takes_labels != "none":
        raise InputError(f"{name} learns from labels; choose one of: {', '.join(without_labels())}")
    return objective
