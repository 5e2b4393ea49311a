"""Decompose the gradient of each anchor under any objective into dissipation, weights of the negatives and ratio.

u_i and v_i are the unit embeddings of an anchor and its positive. g_i = pairs · ∂loss/∂u_i is the gradient of the
anchor, and the gradient of its own loss if the loss is a mean over anchors. On the unit sphere it is split as

    g_i = P_i (α_i v_i + Σ_{j≠i} β_ij x_j),    P_i = 1 − u_i u_iᵀ.

x_j is the sentence of pair j that the objective compares with the anchor: its positive v_j, or its anchor u_j if the
loss spreads each view by itself. If it compares both, β_ij is the sum of both coefficients. Hard negatives are further
x_j. The components are

    dissipation  GD_i = Σ_j |β_ij|, relative to its value if the anchor could not tell positives from negatives,
    weights      W_ij = β_ij / Σ_k β_ik,
    ratio        r_i  = −α_i / Σ_k β_ik.

Sources: "Towards Better Understanding of Contrastive Sentence Representation Learning: A Unified Paradigm for Gradient"
(arXiv 2402.18281, called the paradigm paper below), section 3; for the norms of a gradient's two parts "On the
Inadequacy of Optimizing Alignment and Uniformity in Contrastive Learning of Sentence Representations" (ICLR 2023).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from minbert.config import Long
from minbert.errors import InputError
from multitask.base import logger
from multitask.base.random_streams import generator, torch_seed
from multitask.data.examples import Examples
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.objectives import Objective, unit
from multitask.objectives.geometry import arccos, diagonal_mask, only_negatives
from multitask.tasks.declarations import similarity_task
from multitask.tasks.read_examples import load_rows

LossFunction = Callable[
    ..., Tensor
]  # anchors [pairs, dim], positives [pairs, dim], hard negatives if there are any -> []
Views = Sequence[Tensor]  # the same embeddings as unit vectors in float64, anchors first

DISSIPATED = 0.01
"""An anchor with a smaller GD_i counts as dissipated (the threshold in the paradigm paper's simulations)."""
STEP = 0.01
"""λ in Lemma 1 of the paradigm paper: length of a step along Σ_j W_ij x_j − r_i v_i. If it is small, its value hardly
matters."""
SAME = 2.0**-20
"""Embeddings of the same sentence may be at this angle by rounding in fp32, which is 8 times that of its last step."""
TAG = 1e-12
"""Size of the tags in `_split`. Its square is lost in rounding, so tags change no value."""


@dataclass(frozen=True)
class GradientComponents:
    """The result of a probe, in float64 on the embeddings' device. NaN where a share is undefined: no push at all.

    If an anchor and its negatives are one direction, up to rounding, none of them is the hardest.
    """

    dissipation: Tensor
    """GD_i, [pairs]: near 1 an anchor has its full gradient, at 0 it has none. NaN of an anchor without a
    negative, or if the loss pulls, but its push without dissipation is 0, too."""
    weights: Tensor
    """W_ij, [pairs, pairs + hard_negatives]; 0 on the diagonal."""
    ratio: Tensor
    """r_i, [pairs]."""
    hardest_weight: Tensor
    """W_ij of the negative j that is most similar to the anchor, [pairs]."""
    hardest_push: Tensor
    """The hardest negative's share of the push P_i Σ_j β_ij x_j, measured along the push, [pairs]. The empirical study
    of the paradigm paper calls it the proportion of the hardest negative."""
    alignment_norm: Tensor
    """‖P_i α_i v_i‖, [pairs]: the pull on the positive (ICLR 2023)."""
    uniformity_norm: Tensor
    """‖P_i Σ_j β_ij x_j‖, [pairs]: the push from the negatives (ICLR 2023)."""
    closer: Tensor
    """Whether the condition of the paradigm paper's Lemma 1 holds, [pairs] bool: a step of `STEP` times
    −g_i / |Σ_j β_ij| moves the anchor nearer to its positive."""
    distance_gap: Tensor
    """Mean angle between anchors and other pairs' positives (without false negatives) minus the mean angle within
    pairs, in radians, []."""
    residual: Tensor
    """‖g − its decomposition‖ / ‖g‖ over the batch, []; 0 if the decomposition is exact, or g is rounding alone."""

    def summary(self) -> dict[str, float]:
        """Scalars by name, mostly means. Ratio, weight, push and closeness are averaged over undissipated anchors only.

        If the β of a loss have both signs, its mean ratio says little: a few anchors with Σ_j β_ij near 0 dominate it.
        """
        defined = self.dissipation[~self.dissipation.isnan()]
        kept = self.dissipation >= DISSIPATED

        def mean(values: Tensor) -> float:
            return values.double()[kept].mean().item()  # NaN if all are dissipated

        return {
            "dissipation": defined.mean().item(),
            "dissipated anchors": (defined < DISSIPATED).double().mean().item(),
            "ratio": mean(self.ratio),
            "median ratio": self.ratio[kept].nanmedian().item(),
            "hardest negative weight": mean(self.hardest_weight),
            "hardest negative push": mean(self.hardest_push),
            "closer to positive": mean(self.closer),
            "alignment gradient": self.alignment_norm.mean().item(),
            "uniformity gradient": self.uniformity_norm.mean().item(),
            "distance gap": self.distance_gap.item(),
            "residual": self.residual.item(),
        }


@dataclass(frozen=True)
class Sign:
    """A number of `GradientComponents.summary` that points to a parameter.

    Bounds lie between what was seen where the table `gradient` lost Spearman correlation and where it did not: 32 steps
    of the gradient form on dropout views, 128 sentences in a batch. `docs/how-to/probe.md` has these numbers.
    """

    measure: str
    bound: float
    above: bool  # whether numbers above the bound are the sign, or those below
    parameters: tuple[str, ...]  # the objective's names for what is too high or too low
    says: str  # of the parameter

    def of(self, objective: Objective, value: float) -> str | None:
        """The line about a value; None if it is no sign, or if the objective lacks the parameter or does not use it."""
        values = {field.name: getattr(objective, field.name) for field in fields(objective)}
        if values.get("power") is not None:
            del values["weight"]
        name = next((name for name in self.parameters if values.get(name) is not None), None)
        if name is None or not (value > self.bound if self.above else value < self.bound):
            return None
        compared = f"{value:.3f} is {'above' if self.above else 'below'} {self.bound:g}"
        return f"{self.measure} {compared}: {name}={values[name]:g} is probably {self.says}"


SIGNS = (
    Sign(
        "hardest negative weight",
        0.2,
        False,
        ("weight", "temperature"),
        "too high, as nearly all negatives count alike",
    ),
    Sign("hardest negative weight", 0.2, False, ("scale",), "too low, as nearly all negatives count alike"),
    Sign("dissipated anchors", 0.995, True, ("dissipation", "margin"), "too low, as hardly an anchor gets a gradient"),
    Sign("median ratio", 3.5, True, ("ratio",), "too high"),
)


def signs(objective: Objective, batches: Sequence[Mapping[str, float]]) -> list[str]:
    """What summaries of batches point to, in a line each, from their means."""
    found = []
    for sign in SIGNS:
        values = [batch[sign.measure] for batch in batches if math.isfinite(batch[sign.measure])]
        if values and (line := sign.of(objective, fmean(values))) is not None:
            found.append(line)
    return found


def probe(
    objective: Objective | LossFunction,
    anchors: Tensor,
    positives: Tensor,
    hard_negatives: Tensor | None = None,
    false_negatives: Tensor | None = None,
    false_hard_negatives: Tensor | None = None,
) -> GradientComponents:
    """Decompose an objective's gradient of a batch's anchors. Changes nothing and draws no random numbers.

    α and β are exact for every loss that uses embeddings only in inner products and distances. These are
    the losses of this package and most others. The probe adds one dimension per sentence, in which the sentence has an
    infinitesimal length, and reads the coefficients from the gradient in these dimensions. (Plain `barlow_twins` also
    uses single dimensions; `residual` is the part of its gradient that is not explained.)

    Dissipation is relative to a push Σ_j |β_ij| without dissipation. For an objective with a hinge or gate, it is the
    push with the hinge or gate open. For a cross-entropy it is 1/τ, the limit for a positive that is less similar than
    all negatives, so GD_i = 1 − p_ii. For other losses it is the batch's mean push if every anchor is paired with the
    next pair's positive.

    Args:
        objective: an `Objective`, or any loss of anchors and positives (and hard negatives), differentiable in float64,
            for embeddings of any number of dimensions.
        anchors: [pairs, dim], raw embeddings.
        positives: [pairs, dim].
        hard_negatives: [hard_negatives, dim].
        false_negatives: [pairs, pairs] bool, as an `Objective` takes them.
        false_hard_negatives: [pairs, hard_negatives] bool.

    Raises:
        InputError: shapes do not fit, or the objective learns from labels, so that not all pairs are positives.
    """
    if anchors.ndim != 2 or anchors.shape != positives.shape or len(anchors) == 0:
        shapes = f"{list(anchors.shape)} and {list(positives.shape)}"
        raise InputError(f"anchors and positives have shapes {shapes}; expected [pairs, dim] twice")
    if isinstance(objective, Objective) and objective.takes_labels != "none":
        raise InputError(f"{objective.name} learns from labels; the probe needs an objective whose pairs are positives")
    given = (anchors, positives) if hard_negatives is None else (anchors, positives, hard_negatives)
    views = [unit(view.detach().double()) for view in given]

    def split(form: Objective | LossFunction, embeddings: Views) -> AnchorGradients:
        if isinstance(form, Objective):
            form = partial(form, false_negatives=false_negatives, false_hard_negatives=false_hard_negatives)
        return _split(form, embeddings)

    found = split(objective, views)
    masks = [false_negatives, false_hard_negatives][: len(views) - 1]
    excluded = [
        torch.zeros(len(anchors), len(view), dtype=torch.bool, device=view.device) if mask is None else mask
        for mask, view in zip(masks, views[1:], strict=True)
    ]
    excluded[0] = excluded[0] | diagonal_mask(anchors)
    return _components(views, found, _full_push(objective, views, found, split), torch.cat(excluded, dim=1))


@dataclass(frozen=True)
class AnchorGradients:
    """The gradients of a batch's anchors and their coefficients."""

    gradient: Tensor  # g, [pairs, dim], tangential
    pull: Tensor  # α, [pairs]
    push: tuple[Tensor, ...]  # β on the rows of each view, [pairs, rows of the view]; 0 for an anchor's own pair

    @property
    def negatives(self) -> Tensor:
        """β_ij on other pairs, then on hard negatives  # [pairs, pairs + hard_negatives]."""
        anchors, positives, *hard = self.push
        return torch.cat([anchors + positives, *hard], dim=1)


def _split(loss: LossFunction, views: Views) -> AnchorGradients:
    """Read the coefficients from tags: sentence k gets a dimension of its own, in which its entry is TAG.

    The gradient of anchor i is a linear combination of sentences, so its entry in dimension k is TAG times the
    coefficient of sentence k.
    """
    dim = views[0].shape[1]
    sizes = [len(view) for view in views]
    tags = TAG * torch.eye(sum(sizes), dtype=views[0].dtype, device=views[0].device)
    # A zero vector gets no tag, because the tag would give it a direction.
    tagged = [
        torch.cat([view, tag * view.any(-1, keepdim=True)], dim=1)
        for view, tag in zip(views, tags.split(sizes), strict=True)
    ]
    with torch.enable_grad():
        anchors = tagged[0].requires_grad_()
        value = loss(anchors, *tagged[1:]) + 0 * anchors.sum()  # without an open gate the loss may be constant
        gradient = torch.autograd.grad(value, anchors)[0]
    coefficients = (sizes[0] * (gradient[:, dim:] / TAG)).split(sizes, dim=1)
    own = diagonal_mask(anchors)
    push = [
        coefficient.masked_fill(own, 0) if place < 2 else coefficient for place, coefficient in enumerate(coefficients)
    ]
    return AnchorGradients(_tangential(sizes[0] * gradient[:, :dim], views[0]), coefficients[1].diagonal(), tuple(push))


def _tangential(vectors: Tensor, anchors: Tensor) -> Tensor:
    return vectors - (vectors * anchors).sum(-1, keepdim=True) * anchors


def _full_push(
    objective: Objective | LossFunction,
    views: Views,
    found: AnchorGradients,
    split: Callable[[Objective | LossFunction, Views], AnchorGradients],
) -> Tensor:
    """The push Σ_j |β_ij| on anchors if nothing dissipates their gradient, [pairs] or one number for all."""
    if isinstance(objective, Objective):
        if (full := objective.full_push(found.negatives.abs().sum(-1))) is not None:
            return full
        if (undissipated := objective.undissipated()) is not None:
            return split(undissipated, views).negatives.abs().sum(-1)
    mismatched = [views[0], views[1].roll(1, dims=0), *views[2:]]
    return split(objective, mismatched).negatives.abs().sum(-1).mean()


def _components(views: Views, found: AnchorGradients, full: Tensor, excluded: Tensor) -> GradientComponents:
    """The components of a split; `excluded` is True where a column is not a negative of an anchor."""
    anchors, positives, *hard = views
    columns = [len(positives), *map(len, hard)]
    # The hardest negative is from a view that the loss compares with the anchors: its β are more than rounding errors.
    least = 1e-9 * found.negatives.abs().amax()
    seen = [
        (anchors @ view.T).where(beta.abs().amax() > least, -math.inf)
        for view, beta in zip(views, found.push, strict=True)
    ]
    similarity = torch.cat([torch.maximum(seen[0], seen[1]), *seen[2:]], dim=1)
    hardest = only_negatives(similarity, excluded).argmax(-1, keepdim=True)  # [pairs, 1]
    is_hardest = torch.zeros_like(excluded).scatter_(1, hardest, value=True)

    def push_of(chosen: Tensor) -> Tensor:
        of_pairs, *of_hard = chosen.split(columns, dim=1)
        parts = zip(found.push, (of_pairs, of_pairs, *of_hard), views, strict=True)
        return _tangential(torch.stack([(beta * part) @ view for beta, part, view in parts]).sum(0), anchors)

    negatives = found.negatives
    total = negatives.sum(-1)
    total = total.where(negatives.any(-1), math.nan)
    push, full = negatives.abs().sum(-1), full.expand(len(anchors))
    undefined = ((full == 0) & found.gradient.any()) | (excluded.all(-1) & (push == 0))
    alignment = _tangential(found.pull[:, None] * positives, anchors)
    uniformity = push_of(torch.ones_like(excluded))
    moved = anchors - STEP * found.gradient / total.abs()[:, None]
    angles, others = arccos(anchors @ positives.T), ~excluded[:, : len(positives)]
    differ = only_negatives(-similarity, excluded).amax(-1) > SAME**2 / 2 - 1
    norm = found.gradient.norm()
    rest = (found.gradient - alignment - uniformity).norm()
    return GradientComponents(
        # A loss without any gradient is dissipated: its gate is closed.
        dissipation=(push / full).where(push > 0, 0).masked_fill(undefined, math.nan),
        weights=negatives / total[:, None],
        ratio=-found.pull / total,
        hardest_weight=(negatives.gather(1, hardest)[:, 0] / total).where(differ, math.nan),
        hardest_push=((push_of(is_hardest) * uniformity).sum(-1) / uniformity.square().sum(-1)).where(differ, math.nan),
        alignment_norm=alignment.norm(dim=-1),
        uniformity_norm=uniformity.norm(dim=-1),
        closer=(moved - positives).norm(dim=-1) < (anchors - positives).norm(dim=-1),
        distance_gap=(angles * others).sum() / others.sum().clamp_min(1) - angles.diagonal().mean(),
        residual=(rest / norm).where(norm > TAG * push.norm(), 0),
    )


def probe_checkpoint(
    encoder: SentenceEncoder,
    texts: Sequence[Sequence[str]],
    objective: Objective,
    batch_size: int = 64,
    batches: int = 10,
    seed: int = 0,
    long: Long = "head",
) -> list[GradientComponents]:
    """Decompose an objective's gradient on random batches. Does not change the encoder or torch's random generators.

    The objective compares embeddings directly, because projections are not saved. Raises InputError if there are too
    few different texts for one batch, or the objective weighs hard negatives.

    Args:
        encoder: the model.
        texts: one column of sentences, each paired with itself under another dropout mask (SimCSE), or two columns,
            anchors and positives, embedded without dropout. Repeated texts are left out: they are false negatives.
        objective: an objective without labels.
        batch_size: pairs in a batch, at least 2.
        batches: the largest number of batches; there are fewer if there are too few texts.
        seed: for the choice of rows and for dropout.
        long: how texts with more tokens than the encoder takes are read.
    """
    rows = _without_repetitions(texts)
    if not 2 <= batch_size <= len(rows):
        raise InputError(f"batch_size is {batch_size}; expected 2 to {len(rows)}, the number of different texts")
    if weight := getattr(objective, "hard_negative_weight", 0):
        raise InputError(f"hard_negative_weight is {weight:g}; expected 0, as a probe has no hard negatives")
    if len(texts) == 1 and not encoder.model.has_dropout:
        logger.warning("%s: the two views of a sentence are equal, as the encoder has no dropout", encoder.name)
    order = generator(seed, "probed sentences").permutation(len(rows))
    parts = [order[start : start + batch_size] for start in range(0, len(rows) - batch_size + 1, batch_size)]
    found = []
    with training_mode(encoder, len(texts) == 1, seed):
        for part in parts[:batches]:
            columns = [[rows[i][c] for i in part] for c in range(len(texts))]
            views = (encoder.encode(column, long=long) for column in (columns[0], columns[-1]))
            anchors, positives = map(torch.from_numpy, views)
            found.append(probe(objective, anchors, positives))
    return found


def similar_pairs(folder: Path) -> Examples:
    """Anchors and positives for `probe_checkpoint`: pairs of the similarity dev set that mean the same."""
    task = similarity_task(folder)
    examples = load_rows(task, "dev")
    return examples.take(np.flatnonzero(task.mean_the_same(examples.gold)))


def _without_repetitions(texts: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    seen: set[str] = set()
    rows = []
    for row in zip(*texts, strict=True):
        if seen.isdisjoint(row):
            rows.append(row)
            seen.update(row)
    return rows


@contextmanager
def training_mode(encoder: SentenceEncoder, dropout: bool, seed: int) -> Iterator[None]:
    """Switch dropout on or off, draw it from the seed, and restore mode and random state at the end."""
    was_training = encoder.model.training
    with torch.random.fork_rng():
        torch.manual_seed(torch_seed(seed, "dropout of a probe"))
        encoder.model.train(dropout)
        try:
            yield
        finally:
            encoder.model.train(was_training)
