"""A source for contrastive training: paired sentences, the objective, the projection, and who is a negative."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from minbert.errors import InputError
from minbert.packing import send
from multitask.base import distributed, logger
from multitask.base.device import generator_states, restore_generators
from multitask.base.random_streams import torch_seed
from multitask.data.contamination import hash_sentences
from multitask.data.examples import Examples, RowNumbers, epoch_rows, sequences_of, total_lengths
from multitask.models.compute_in_batches import leading
from multitask.models.prediction_heads import pair_features
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.objectives import Objective, alignment, uniformity, unit
from multitask.objectives.geometry import diagonal_mask, only_negatives
from multitask.objectives.infonce import InfoNCE, MultipleNegativesRanking
from multitask.objectives.labelled_pairs import LabelledPairs
from multitask.tasks import QUORA_TASK
from multitask.tasks.declarations import load_tasks
from multitask.tasks.sources import TaskTexts, pairs_of_labels, scored_pairs, source_named
from multitask.training.settings import ContrastiveConfig, NegativesConfig
from multitask.training.source import BatchLoss, Inputs, TrainingSource, labels_to_tensor

Compared = tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]
"""What an objective compares: anchors, positives, hard negatives, and the masks of their false negatives."""


class ContrastiveSource(TrainingSource):
    """Rows of two or three sentences: an anchor, its positive and optionally a hard negative.

    A single column of sentences gives two views of each that differ by dropout (SimCSE). The projection maps embeddings
    to the vectors that the objective compares, and `config` says which other sentences are negatives. If there are
    sizes, the loss is the mean of those of each embedding's first so many numbers.

    Rows with labels are for objectives that learn from them. For other objectives, a row of label 0 stands for two
    pairs, each of one of its sentences with itself. So its sentences are negatives of each other, as further negatives
    of an anchor that has no other positive, and always count as such.

    `groups` [rows, labels] say which labels both sentences of a row have; those with a common one are no negatives of
    each other. A row of four sentences is then a pair and its partner, and what is compared are the features of pairs
    that heads read.
    """

    def __init__(
        self,
        paired: Examples,
        groups: NDArray[np.bool_] | None,
        objective: Objective,
        projection: nn.Module,
        encoder: SentenceEncoder,
        config: ContrastiveConfig,
        sizes: tuple[int, ...] = (),
        share: float = 1.0,
    ) -> None:
        self.objective = objective
        self.share = share  # of the rows, in an epoch
        self.projection = projection
        self.config = config
        self.sizes: tuple[int | None, ...] = sizes or (None,)
        self.labels = paired.labels
        # Hashes [rows] of the sentences of each distinct column, to record the training data.
        self.sentences = tuple(hash_sentences(column) for column in paired.sentences[: 2 if groups is not None else 3])
        columns = [*encoder.tokenised(paired).columns]
        numbers: dict[str, int] = {}
        # One number per row for each column; equal sentences have equal numbers, also across columns.
        identities = [
            np.array([numbers.setdefault(text, len(numbers)) for text in texts]) for texts in paired.sentences
        ]
        self.groups, self.of_pairs = groups, groups is not None and len(columns) == 4
        if groups is not None:
            identities = [np.unique(groups, axis=0, return_inverse=True)[1].reshape(-1)] * 2
        views = 2 if len(columns) == 1 else 1
        if views == 2 and not encoder.model.has_dropout:
            logger.warning("%s: the two views of a sentence are equal, as the encoder has no dropout", paired.source)
        self.columns, self.identities = columns * views, identities * views
        self.lengths = total_lengths(self.columns)
        self.compared: Compared | None = None  # of the last batch, without gradients

    def inputs(self, rows: RowNumbers) -> Inputs:
        return Inputs(*sequences_of(self.columns, rows), None)

    def loss(self, hidden: Tensor, embeddings: Tensor, targets: Any, rows: RowNumbers) -> BatchLoss:
        return BatchLoss(*self.loss_of_views(self.project(embeddings), rows))

    def project(self, embeddings: Tensor) -> Tensor:
        """[columns * rows, hidden] -> [columns, rows, sizes * dim] fp32.

        Without a projection, vectors of smaller sizes end in zeros, which change no product of two vectors.
        """
        return self._project(embeddings, self.projection, len(self.columns))

    def _project(self, embeddings: Tensor, projection: nn.Module, columns: int) -> Tensor:
        sized = [projection(leading(embeddings, size)).float().unflatten(0, (columns, -1)) for size in self.sizes]
        if self.of_pairs:
            sized = [pair_features(vectors[::2], vectors[1::2]) for vectors in sized]
        return torch.cat(sized, dim=2)

    def loss_of_views(self, views: Tensor, rows: RowNumbers) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss on projected embeddings [columns, own rows, sizes * dim] of a batch, and values to monitor.

        What is monitored and kept as `compared` is of the largest size.
        """
        return self.loss_of_batch(distributed.gather(views, len(rows), dim=1), rows)

    def loss_of_batch(
        self, views: Tensor, rows: RowNumbers, further: Tensor | None = None, excluded: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The same of all ranks' embeddings [columns, rows, sizes * dim].

        `further` are more hard negatives [further, sizes * dim], except where `excluded` [rows, further] is True.
        """
        duplicates, hard_duplicates = self._duplicates(rows, views.device)
        if excluded is not None:
            own = excluded.new_zeros(len(rows), (len(views) - 2) * len(rows))
            hard_duplicates = torch.cat([own if hard_duplicates is None else hard_duplicates, excluded], dim=1)
        if (places := self.places(rows)) is not None:
            views = views.flatten(0, 1)[send(torch.from_numpy(places), views.device)]
            rows = rows[places[0] % len(rows)]  # of each pair
        hard = [*views[2:], *([] if further is None else [further])]
        compared = [*views[:2], *([torch.cat(hard)] if hard else [])]
        sized = zip(*(part.chunk(len(self.sizes), dim=1) for part in compared), strict=True)
        found = [self._loss_of_size(parts, rows, duplicates, hard_duplicates) for parts in reversed([*sized])]
        return torch.stack([loss for loss, _ in found]).mean(), found[-1][1]

    def _loss_of_size(
        self, parts: tuple[Tensor, ...], rows: RowNumbers, duplicates: Tensor | None, hard_duplicates: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The same of the vectors of one size: anchors and positives [rows, dim], maybe hard negatives [hard, dim]."""
        anchors, positives, *more = parts
        hard = more[0] if more else None
        with torch.no_grad(), torch.autocast(anchors.device.type, enabled=False):
            u, v = unit(anchors), unit(positives)
            cosines = u @ v.T
        excluded = excluded_negatives(cosines, rows, duplicates, self.config.sampling)
        learns = self.objective.takes_labels != "none"
        labels = labels_to_tensor(self.labels[rows], anchors.device) if learns and self.labels is not None else None
        loss = self.objective(anchors, positives, hard, labels, excluded, hard_duplicates)
        anchors, positives = anchors.detach(), positives.detach()
        self.compared = anchors, positives, None if hard is None else hard.detach(), excluded, hard_duplicates
        with torch.no_grad(), torch.autocast(anchors.device.type, enabled=False):
            count = len(u)
            watched = {
                "alignment": alignment(u, v),
                "uniformity": uniformity(u),
                "positive cosine": cosines.diagonal().mean(),
                "negative cosine": (cosines.sum() - cosines.trace()) / max(count * (count - 1), 1),
                "duplicates": cosines.new_zeros(()) if duplicates is None else duplicates.any(dim=1).float().mean(),
            }
        gate = self.objective.gate_rate(*self.compared)
        return loss, watched if gate is None else {**watched, "gate rate": gate}

    def places(self, rows: RowNumbers) -> RowNumbers | None:
        """Where anchors and positives are among the rows' first, then second sentences, [2, pairs]; None: in order."""
        if self.labels is None or self.objective.takes_labels != "none":
            return None
        same, apart = (np.flatnonzero(self.labels[rows] == label) for label in (1, 0))
        return np.stack([np.concatenate([start, apart, apart + len(rows)]) for start in (same, same + len(rows))])

    def _duplicates(self, rows: RowNumbers, device: torch.device) -> tuple[Tensor | None, Tensor | None]:
        """Masks [rows, rows] of false negatives among positives and among hard negatives; None for an empty mask.

        Positive j is a false negative of row i if it equals one of i's two sentences or has the same anchor.
        """

        def mask(found: NDArray[np.bool_]) -> Tensor | None:
            return send(torch.from_numpy(found), device) if found.any() else None

        if not self.config.mask_duplicates:
            return None, None
        if self.groups is not None:
            labels = self.groups[rows].astype(np.float32)
            alike = labels @ labels.T > 0
            np.fill_diagonal(alike, val=False)
            return mask(alike), None
        anchor, positive, *hard = (identity[rows] for identity in self.identities)
        if (places := self.places(rows)) is not None:
            anchor, positive = np.concatenate([anchor, positive])[places]
        own = [anchor[:, None], positive[:, None]]
        among_positives = (positive == own[0]) | (positive == own[1]) | (anchor == own[0])
        np.fill_diagonal(among_positives, val=False)
        among_hard = (hard[0] == own[0]) | (hard[0] == own[1]) if hard else np.zeros((0, 0), bool)
        return mask(among_positives), mask(among_hard)


def excluded_negatives(
    cosines: Tensor, rows: RowNumbers, excluded: Tensor | None, config: NegativesConfig
) -> Tensor | None:
    """Which positives j are no negatives of row i, besides those that are excluded already: [rows, rows] bool, or None.

    `cosines` are of anchors i and positives j. `rows` are the numbers of the pairs' rows, which decide what is random,
    on every rank alike. Two pairs of one row are negatives of each other, unless they are excluded already.
    """
    if config.negatives == "all":
        return excluded
    diagonal = diagonal_mask(cosines)
    known = diagonal if excluded is None else diagonal | excluded
    count = min(config.negatives_kept, len(cosines) - 1)
    if config.negatives == "unlike":  # may be a false negative (DCLR, arXiv 2205.00656, section 3.2)
        left_out = cosines >= config.false_negative_cosine
    elif config.negatives == "random":
        draws = torch.Generator().manual_seed(torch_seed(0, "random negatives", *map(int, rows)))
        left_out = ~regular_graph(len(cosines), count, draws).to(cosines.device)
    else:  # The hardest are the most similar to the anchor now (Robinson et al. 2021, arXiv 2010.04592).
        kept = only_negatives(cosines, known).topk(count, dim=1).indices
        left_out = torch.ones_like(known).scatter(1, kept, value=False)
    left_out &= send(torch.from_numpy(rows[:, None] != rows), cosines.device)
    return left_out if excluded is None else left_out | (excluded & ~diagonal)


def regular_graph(nodes: int, degree: int, draws: torch.Generator) -> Tensor:
    """Random symmetric choice of `degree` others for each of `nodes`: [nodes, nodes] bool, False on the diagonal.

    Nodes take random places on a circle and choose those at random distances, in both directions. The choice is
    symmetric because losses that compare sentences within a view use a pair for both of its sentences. If `nodes` and
    `degree` are both odd, which no symmetric choice can satisfy, one node has one other fewer.
    """
    place = torch.randperm(nodes, generator=draws)
    around = (place[:, None] - place).abs()
    distance = torch.minimum(around, nodes - around)
    single = degree % 2 == 1  # one other at a distance of which each node uses one direction alone
    reserved = int(single and nodes % 2 == 1)
    chosen = torch.randperm((nodes - 1) // 2 - reserved, generator=draws)[: degree // 2] + 1 + reserved
    graph = torch.isin(distance, chosen)
    if single and nodes % 2 == 0:
        graph |= distance == nodes // 2
    elif single:
        graph |= (distance == 1) & (place[:, None] // 2 == place // 2)
    return graph


def load_contrastive(
    name: str,
    data: Path,
    config: ContrastiveConfig,
    encoder: SentenceEncoder,
    projection: nn.Module,
    train_limit: int | None,
    partners: int | None = None,
    sizes: tuple[int, ...] = (),
    option: str = "--sources",
    make: Callable[..., ContrastiveSource] = ContrastiveSource,
) -> ContrastiveSource:
    """A contrastive source by name, read up to `train_limit` rows; see `ContrastiveSource` and `source_named`.

    With `partners`, a task's rows are paired with so many others of the same label instead of with themselves. `make`
    takes the arguments of `ContrastiveSource`, and makes a source with a momentum encoder. Raises InputError if a file
    is missing or malformed, or the objective cannot use the source.
    """
    objective = config.objective.build()
    if config.negative_pairs == "literal" and isinstance(objective, LabelledPairs) and objective.form != "literal":
        raise InputError(f"negative_pairs is literal, but the objective is {objective}; take quora_pairs:form=literal")
    source, groups = source_named(name, data, option), None
    if partners is not None:
        if not isinstance(source, TaskTexts) or source.labelled:
            there = ", ".join(load_tasks(data))
            raise InputError(f'--partners needs sources that are tasks, not "{name}"; there are {there}')
        paired, groups = pairs_of_labels(source.task, partners, train_limit)
    elif objective.takes_labels == "similarity from 0 to 1" and isinstance(source, TaskTexts) and not source.labelled:
        paired = scored_pairs(source.task, train_limit)
    else:
        paired = source.rows(train_limit, config.negative_pairs != "left_out")
    if paired.labels is not None and config.negative_pairs != "left_out" and not isinstance(objective, LabelledPairs):
        if type(objective) is InfoNCE or isinstance(objective, MultipleNegativesRanking):
            objective = LabelledPairs(objective.temperature, config.negative_pairs)
        elif config.negative_pairs == "literal":
            raise InputError(
                f"negative_pairs is literal, but the objective is {objective.name}; take bounded, or infonce"
            )
    if paired.labels is None and objective.takes_labels != "none":
        if isinstance(source, TaskTexts) and source.labelled:
            why = f"negative_pairs is left_out, but {objective.name} learns from labels"
            raise InputError(f"{why}; take bounded, or another objective")
        raise InputError(f"{objective.name} learns from labels, which {name} does not have; choose another objective")
    if len(paired.sentences) > 2 and groups is None and not objective.takes_hard_negatives:
        raise InputError(f"{objective.name} cannot use the hard negatives of {name}; choose another, e.g. infonce")
    _check_negatives(config.sampling.negatives, objective)
    if objective.predicts and make is ContrastiveSource:
        raise InputError(f"{objective.name} compares with a momentum encoder; add --momentum 0.995 to `pretrain`")
    share = config.quora_share if isinstance(source, TaskTexts) and source.task.name == QUORA_TASK else 1.0
    return make(paired, groups, objective, projection, encoder, config, sizes, share)


def _check_negatives(negatives: str, objective: Objective) -> None:
    """Raise InputError if the objective cannot have these negatives, or has none."""
    if negatives == "hardest" and objective.has_mutual_negatives:
        raise InputError(
            f"negatives is hardest, but those of {objective.name} are mutual: i is one of j's if j is one of i's; "
            "choose random, or another objective, e.g. infonce (with labelled pairs, --negative-pairs left_out)"
        )
    if negatives != "all" and (objective.predicts or objective.takes_labels == "similarity from 0 to 1"):
        raise InputError(f"negatives has no effect with {objective.name}, which has no negatives; leave it out")


def check_hard_negatives(config: ContrastiveConfig, sources: Iterable[ContrastiveSource]) -> None:
    """Raise InputError if the objective weighs hard negatives, and no source has one for each pair."""
    weight = getattr(config.objective.build(), "hard_negative_weight", 0)
    if weight and all(len(source.columns) != 3 for source in sources):
        raise InputError(
            f"hard_negative_weight is {weight}; expected 0, as no source has a hard negative of each pair, as nli has"
        )


def build_projection(kind: Literal["mlp", "linear", "tanh", "none"], width: int) -> nn.Module:
    """The head between embedding and objective; it is discarded after the stage (report, section 4.1, after SimCLR)."""
    if kind == "none":
        return nn.Identity()
    if kind == "linear":
        return nn.Linear(width, width)
    if kind == "tanh":
        return nn.Sequential(nn.Linear(width, width), nn.Tanh())
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))


def contrastive_batches(name: str, size: int, epoch: int, batch_size: int, share: float, seed: int) -> list[RowNumbers]:
    """A source's batches for one epoch (from 0) of a share of its rows, in random order and with mixed lengths.

    Sorting by length would give hard negatives similar lengths. Raises InputError for batches of one row.
    """
    if min(size, batch_size) < 2:
        raise InputError(f"{name}: batches of one row; expected two rows or more, as the others are a row's negatives")
    rows = epoch_rows(size, max(round(share * size), 2), epoch, seed, f"{name} views")
    # A last batch of one row has no negatives, so it is dropped; other epochs use its row.
    return [rows[s : s + batch_size] for s in range(0, len(rows), batch_size) if len(rows) - s > 1]


Chunk = TypeVar("Chunk")
Extra = TypeVar("Extra")


def backward_in_chunks(
    chunks: Sequence[Chunk],
    encode: Callable[[Chunk], Tensor],
    loss: Callable[[Tensor], tuple[Tensor, Extra]],
    device: torch.device,
) -> tuple[Tensor, Extra]:
    """Add the gradient of the whole batch's loss to the parameters; return the loss, detached, and the other value.

    `encode` maps a chunk to its embeddings [columns, rows of the chunk, dim] and draws its dropout on `device`. `loss`
    maps all embeddings [columns, rows, dim] to a scalar and one more value. Random generators end in the state that a
    single pass over the chunks would leave them in.
    """
    states, parts = [], []
    with torch.no_grad():
        for chunk in chunks:
            states.append(generator_states(device))
            parts.append(encode(chunk))
    after = generator_states(device)
    embeddings = torch.cat(parts, dim=1).requires_grad_()
    value, extra = loss(embeddings)
    (gradient,) = torch.autograd.grad(value, embeddings)
    shares = gradient.split([part.shape[1] for part in parts], dim=1)
    for chunk, state, share in zip(chunks, states, shares, strict=True):
        restore_generators(state)
        encode(chunk).backward(share)
    restore_generators(after)
    return value.detach(), extra
