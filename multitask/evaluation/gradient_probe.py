"""The gradient of each anchor under any objective, decomposed: dissipation, weights of the negatives, ratio.

Source: arXiv 2402.18281, section 3 ("UP" below), and for the norms of a gradient's two parts "On the Inadequacy of
Optimizing Alignment and Uniformity in Contrastive Learning of Sentence Representations" (ICLR 2023).

With u_i and v_i the unit embeddings of an anchor and its positive, the gradient g_i = pairs · ∂loss/∂u_i (that of the
anchor's own loss, where the loss is a mean over anchors) on the unit sphere is split as

    g_i = P_i (α_i v_i + Σ_{j≠i} β_ij x_j),    P_i = 1 − u_i u_iᵀ,

x_j being what pair j gives to compare with: its positive v_j, its anchor u_j (losses that spread each view by itself)
or both, β_ij then being the sum; hard negatives are further x_j. From this follow

    dissipation  GD_i = Σ_j |β_ij| relative to its value when the anchor cannot tell positives from negatives,
    weights      W_ij = β_ij / Σ_k β_ik,
    ratio        r_i  = −α_i / Σ_k β_ik.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from minbert.errors import InputError
from multitask.objectives import Objective, unit
from multitask.objectives.alignment_uniformity import arccos
from multitask.objectives.decoupled import AlignUniform, DecoupledContrastive, DecoupledContrastivePositive
from multitask.objectives.gradient_paradigm import GradientParadigm
from multitask.objectives.infonce import InfoNCE, MultipleNegativesRanking
from multitask.objectives.margin_triplets import MarginAngularTriplet, MarginEuclideanTriplet, MarginProductTriplet
from multitask.objectives.mixed_components import Mixed
from multitask.objectives.negatives import diagonal_mask, only_negatives
from multitask.objectives.noncontrastive import NonContrastive

Loss = Callable[..., Tensor]  # anchors [pairs, dim], positives [pairs, dim] and, if there are any, hard negatives -> []
Views = Sequence[Tensor]  # the same embeddings as unit vectors in float64, anchors first

# Anchors with less of their gradient left than this count as dissipated (the threshold of UP's simulations).
DISSIPATED = 0.01
# Length of the step of Lemma 1 along Σ_j W_ij x_j − r_i v_i: λ in UP. At small λ the condition hardly depends on it.
STEP = 0.01
# Size of the tags of `_exact`; its square is lost in rounding, so that tags change no value.
TAG = 1e-12


@dataclass(frozen=True)
class GradientComponents:
    """What a probe found, in float64 on the embeddings' device. NaN where an anchor has no push to take a share of."""

    dissipation: Tensor
    """GD_i, [pairs]: near 1 an anchor learns, at 0 it gets no gradient."""
    weights: Tensor
    """W_ij, [pairs, pairs + hard_negatives]; 0 on the diagonal."""
    ratio: Tensor
    """r_i, [pairs]."""
    hardest_weight: Tensor
    """W_ij of the negative j that is most similar to the anchor, [pairs]."""
    hardest_push: Tensor
    """How much of the push P_i Σ_j β_ij x_j its hardest negative makes, measured along the push, [pairs]. UP's
    empirical study calls this the proportion of the hardest negative."""
    alignment_norm: Tensor
    """‖P_i α_i v_i‖, [pairs]: the pull on the positive (ICLR 2023)."""
    uniformity_norm: Tensor
    """‖P_i Σ_j β_ij x_j‖, [pairs]: the push from the negatives (ICLR 2023)."""
    closer: Tensor
    """Whether the condition of UP's Lemma 1 holds, [pairs] bool: after a step against g_i / |Σ_j β_ij|, of length
    `STEP` times its norm, the anchor is nearer to its positive than before."""
    distance_gap: Tensor
    """Mean angle between anchors and other pairs' positives, false negatives left out, minus the mean angle between
    pairs, in radians, []."""
    residual: Tensor
    """‖g − its decomposition‖ / ‖g‖ over the batch, []; 0 where the decomposition is exact."""
    unique: bool
    """Whether no other coefficients fit as well. Always so for exact ones."""

    def summary(self) -> dict[str, float]:
        """Scalars by name: means, those of ratio, weight, push and closeness over the anchors not dissipated.

        The mean ratio of a loss whose β have both signs says little: few anchors with Σ_j β_ij near 0 decide it.
        """
        dissipated = self.dissipation < DISSIPATED

        def mean(values: Tensor) -> float:
            return values.double()[~dissipated].mean().item()  # NaN where all are dissipated

        return {
            "dissipation": self.dissipation.mean().item(),
            "dissipated anchors": dissipated.double().mean().item(),
            "ratio": mean(self.ratio),
            "median ratio": self.ratio[~dissipated].nanmedian().item(),
            "hardest negative weight": mean(self.hardest_weight),
            "hardest negative push": mean(self.hardest_push),
            "closer to positive": mean(self.closer),
            "alignment gradient": self.alignment_norm.mean().item(),
            "uniformity gradient": self.uniformity_norm.mean().item(),
            "distance gap": self.distance_gap.item(),
            "residual": self.residual.item(),
        }


def probe(
    objective: Objective | Loss,
    anchors: Tensor,
    positives: Tensor,
    hard_negatives: Tensor | None = None,
    false_negatives: Tensor | None = None,
    false_hard_negatives: Tensor | None = None,
    least_squares: Literal["positives", "anchors", "both"] | None = None,
) -> GradientComponents:
    """Decompose an objective's gradient of a batch's anchors. Changes nothing and draws no random numbers.

    By default α and β are exact for every loss that sees its embeddings through inner products and distances, those
    of this package and most others: each sentence gets a dimension of its own, infinitesimally long, from which its
    coefficient is read. (Plain `barlow_twins` also looks at single dimensions; `residual` is what that leaves over.)
    A loss that takes no other number of dimensions, or looks at single ones, is fitted by least squares instead, where
    more sentences than dimensions leave several solutions (`unique` is False) and the shortest is taken.

    What dissipation is relative to: the same gradient with hinge or gate open; for the cross-entropies 1/τ, the limit
    of a positive less similar than all negatives, so that GD_i = 1 − p_ii; for losses not of this package the mean of
    Σ_j |β_ij| over the batch with every anchor beside the next pair's positive.

    Args:
        objective: an `Objective`, or any loss of anchors and positives (and hard negatives), differentiable in float64.
        anchors: [pairs, dim], raw embeddings.
        positives: [pairs, dim].
        hard_negatives: [hard_negatives, dim].
        false_negatives: [pairs, pairs] bool, as an `Objective` takes them.
        false_hard_negatives: [pairs, hard_negatives] bool.
        least_squares: fit the gradient, on other pairs' positives, on other pairs' anchors, or on both, besides the own
            positive and the hard negatives.

    Raises:
        InputError: shapes that do not fit, or an objective that learns from labels, whose pairs are no positives.
    """
    if anchors.ndim != 2 or anchors.shape != positives.shape or len(anchors) == 0:
        shapes = f"{list(anchors.shape)} and {list(positives.shape)}"
        raise InputError(f"anchors and positives have shapes {shapes}; expected [pairs, dim] twice")
    if isinstance(objective, Objective) and objective.takes_labels != "none":
        raise InputError(f"{objective.name} learns from labels; dissipation, weight and ratio are those of positives")
    given = (anchors, positives) if hard_negatives is None else (anchors, positives, hard_negatives)
    views = [unit(view.detach().double()) for view in given]

    def split(form: Objective | Loss, embeddings: Views) -> Split:
        loss: Loss = form
        if isinstance(form, Objective):
            loss = partial(form, false_negatives=false_negatives, false_hard_negatives=false_hard_negatives)
        return _exact(loss, embeddings) if least_squares is None else _fitted(loss, embeddings, least_squares)

    found = split(objective, views)
    masks = [false_negatives, false_hard_negatives][: len(views) - 1]
    excluded = [
        torch.zeros(len(anchors), len(view), dtype=torch.bool, device=view.device) if mask is None else mask
        for mask, view in zip(masks, views[1:], strict=True)
    ]
    excluded[0] = excluded[0] | diagonal_mask(anchors)
    return _components(views, found, _full_push(objective, views, found, split), torch.cat(excluded, dim=1))


@dataclass(frozen=True)
class Split:
    """The gradients of a batch's anchors and their coefficients."""

    gradient: Tensor  # g, [pairs, dim], tangential
    pull: Tensor  # α, [pairs]
    push: tuple[Tensor, ...]  # β on the rows of each view, [pairs, rows of the view]; an anchor's own pair has 0
    unique: bool

    @property
    def negatives(self) -> Tensor:
        """β_ij of other pairs, then of hard negatives  # [pairs, pairs + hard_negatives]."""
        anchors, positives, *hard = self.push
        return torch.cat([anchors + positives, *hard], dim=1)

    @classmethod
    def of(cls, views: Views, gradient: Tensor, coefficients: Sequence[Tensor], unique: bool = True) -> "Split":
        """From ∂loss/∂u [pairs, dim], radial or not, and the coefficients of every view's rows in it."""
        anchors, pairs = views[0], len(views[0])
        own = diagonal_mask(anchors)
        push = [pairs * c.masked_fill(own, 0) if i < 2 else pairs * c for i, c in enumerate(coefficients)]
        return cls(_tangential(pairs * gradient, anchors), pairs * coefficients[1].diagonal(), tuple(push), unique)


def _exact(loss: Loss, views: Views) -> Split:
    """Coefficients read from tags: sentence k is longer by TAG in a dimension of its own.

    The gradient of anchor i is a combination of sentences, so in the dimension of k it is TAG times k's coefficient.
    """
    dim = views[0].shape[1]
    sizes = [len(view) for view in views]
    tags = TAG * torch.eye(sum(sizes), dtype=views[0].dtype, device=views[0].device)
    # A zero vector has no direction, and must not get one from its tag.
    tagged = [
        torch.cat([view, tag * view.any(-1, keepdim=True)], dim=1)
        for view, tag in zip(views, tags.split(sizes), strict=True)
    ]
    gradient = _gradient(loss, tagged)
    return Split.of(views, gradient[:, :dim], (gradient[:, dim:] / TAG).split(sizes, dim=1))


def _fitted(loss: Loss, views: Views, others: Literal["positives", "anchors", "both"]) -> Split:
    """Least squares of smallest norm: the gradient of anchor i on its positive and on other pairs' sentences.

    All anchors are fitted on the same rows, which are inverted once, and on at most one row of their own: their
    positive, or the anchor itself, in whose direction any coefficient is free because it is not tangential.
    """
    anchors, positives, *hard = views
    gradient = _gradient(loss, views)
    shared = {"positives": [positives], "anchors": [anchors], "both": [anchors, positives]}[others]
    rows = torch.cat([*shared, *hard])  # [rows, dim]
    inverse = torch.linalg.pinv(rows)  # [dim, rows]
    unique = bool(torch.linalg.matrix_rank(rows) == len(rows))
    target = _tangential(gradient, anchors)
    own = anchors.new_zeros(len(anchors))
    if others != "both":
        extra = anchors if others == "positives" else positives
        outside = extra - extra @ inverse @ rows
        new = outside.norm(dim=-1) > 1e-9
        own = ((outside * target).sum(-1) / outside.square().sum(-1)).where(new, 0)
        unique = unique and bool(new.all())
        target = target - own[:, None] * extra
    fit = (target @ inverse).split([len(view) for view in (*shared, *hard)], dim=1)
    nothing = anchors.new_zeros(len(anchors), len(anchors))
    first = {"positives": [nothing, fit[0]], "anchors": [fit[0], own.diag()], "both": [*fit[:2]]}[others]
    return Split.of(views, gradient, [*first, *fit[len(shared) :]], unique)


@torch.enable_grad()
def _gradient(loss: Loss, views: Views) -> Tensor:
    """∂loss/∂(first view), the others fixed."""
    anchors = views[0].detach().requires_grad_()
    value = loss(anchors, *views[1:]) + 0 * anchors.sum()  # a loss may be a constant where nothing passes its gate
    return torch.autograd.grad(value, anchors)[0]


def _tangential(vectors: Tensor, anchors: Tensor) -> Tensor:
    return vectors - (vectors * anchors).sum(-1, keepdim=True) * anchors


def _full_push(
    objective: Objective | Loss, views: Views, found: Split, split: Callable[[Objective | Loss, Views], Split]
) -> Tensor:
    """Σ_j |β_ij| of anchors that cannot tell positives from negatives, [pairs] or one number for all."""
    push = found.negatives.abs().sum(-1)
    match objective:
        case InfoNCE() | DecoupledContrastivePositive():
            return push.new_tensor(1 / objective.temperature)
        case MultipleNegativesRanking():
            return push.new_tensor(objective.scale)
        case Mixed():  # its weights sum to 1
            return push.new_tensor(1.0)
        case GradientParadigm():  # the open rows share one normaliser, and each row's weights sum to 1
            return push.amax()
        case MarginProductTriplet() | MarginEuclideanTriplet():
            undissipated: Objective = replace(objective, margin=2.0)
        case MarginAngularTriplet():
            undissipated = replace(objective, margin=1.0)
        case NonContrastive():
            undissipated = replace(objective, dissipation=None)
        case DecoupledContrastive() | AlignUniform():  # nothing in them can dissipate
            return push
        case _:
            mismatched = [views[0], views[1].roll(1, dims=0), *views[2:]]
            return split(objective, mismatched).negatives.abs().sum(-1).mean()
    return split(undissipated, views).negatives.abs().sum(-1)


def _components(views: Views, found: Split, full: Tensor, excluded: Tensor) -> GradientComponents:
    """What follows from a split; `excluded` is True where a column is no negative of an anchor."""
    anchors, positives, *hard = views
    columns = [len(positives), *map(len, hard)]
    # An anchor's hardest negative is sought in the views that the loss compares it with; rounding is no comparison.
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
    alignment = _tangential(found.pull[:, None] * positives, anchors)
    uniformity = push_of(torch.ones_like(excluded))
    moved = anchors - STEP * found.gradient / total.abs()[:, None]
    angles, others = arccos(anchors @ positives.T), ~excluded[:, : len(positives)]
    norm = found.gradient.norm()
    rest = (found.gradient - alignment - uniformity).norm()
    return GradientComponents(
        dissipation=(push / full).where(push > 0, 0),
        weights=negatives / total[:, None],
        ratio=-found.pull / total,
        hardest_weight=(negatives.gather(1, hardest)[:, 0]) / total,
        hardest_push=(push_of(is_hardest) * uniformity).sum(-1) / uniformity.square().sum(-1),
        alignment_norm=alignment.norm(dim=-1),
        uniformity_norm=uniformity.norm(dim=-1),
        closer=(moved - positives).norm(dim=-1) < (anchors - positives).norm(dim=-1),
        distance_gap=(angles * others).sum() / others.sum().clamp_min(1) - angles.diagonal().mean(),
        residual=(rest / norm).where(norm > 0, 0),
        unique=found.unique,
    )
