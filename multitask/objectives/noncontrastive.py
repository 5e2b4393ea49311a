"""Losses that do not contrast positives with negatives, optionally modified by dissipation, weight and ratio."""

import math
from dataclasses import replace
from typing import Annotated, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor

from multitask.base.choices_with_parameters import validated
from multitask.objectives.base import LARGEST_WEIGHT, SMALLEST_TEMPERATURE, Objective, UnitPairs, register
from multitask.objectives.geometry import dissipation_gate, only_negatives, ordered, weight_logits, zero_if_empty

Factor = Annotated[float, Field(ge=0, le=LARGEST_WEIGHT)]


@validated
class NonContrastive(Objective):
    """The plain loss has none of the three components. `dissipation`, `weight` and `ratio` each add one.

    With `dissipation`, row i of a view x keeps its gradient only if 1 − max_{j≠i} x_i·x_j < m. Hard negatives are
    further rows that the view of the anchors is pushed away from, also in this maximum.

    The defaults are the paper's settings of the plain losses. With all components, the paper uses uniformity_weight=1,
    dissipation=0.3, weight=0.05 and ratio=1.5 (barlow_twins, vicreg) or ratio=1.75 (mhe, mhs).

    A pair without negatives (a batch of one pair, or all others are false negatives) is not pushed, and its gate is
    closed. Its pull is 0 if a component makes the pull depend on the negatives.

    Source: "Towards Better Understanding of Contrastive Sentence Representation Learning: A Unified Paradigm for
    Gradient" (arXiv 2402.18281), section 4.
    """

    takes_hard_negatives = True
    has_mutual_negatives = True
    uniformity_weight: Factor = 1.0
    """Weight λ of the term that spreads a view."""
    dissipation: Annotated[float | None, Field(ge=0, le=2)] = None
    """Margin m of the dissipation gate; none: no gate."""
    weight: Annotated[float | None, Field(ge=SMALLEST_TEMPERATURE)] = None
    """Temperature τ of softmax weights over negatives; none: the plain loss's weights."""
    ratio: Annotated[float | None, Field(ge=0, le=LARGEST_WEIGHT)] = None
    """Ratio r of the pull on the positive to the push from the negatives in one view; none: the plain pull. Both views
    pull an anchor, but only one pushes it, so `probe` measures about 2r (mhe, mhs: 2r/λ)."""

    def loss(self, pairs: UnitPairs) -> Tensor:
        if self.dissipation is not None:
            u, v = (
                x.where(gate[:, None], x.detach())
                for x, gate in zip((pairs.u, pairs.v), self._gates(pairs), strict=True)
            )
            pairs = replace(pairs, u=u, v=v)
        return self.gated_loss(pairs)

    def gated_loss(self, pairs: UnitPairs) -> Tensor:
        """The formula. Rows that did not pass the gate have no gradient."""
        raise NotImplementedError

    def active(self, pairs: UnitPairs) -> Tensor | None:
        if self.dissipation is None:
            return None
        return torch.cat(self._gates(pairs))

    def undissipated(self) -> Self:
        return replace(self, dissipation=None)

    def _gates(self, pairs: UnitPairs) -> list[Tensor]:
        return [
            dissipation_gate(x.detach() @ others.detach().T, 1.0, excluded, margin=self.dissipation)
            for x, others, excluded in views(pairs)
        ]


def views(pairs: UnitPairs) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Each view, anchors first: its rows [pairs, dim], what they are pushed away from, and a mask of exceptions.

    A view's rows are pushed away from each other, and anchors also from hard negatives.
    """
    excluded = pairs.excluded_within
    return [(pairs.u, pairs.with_hard(pairs.u), excluded), (pairs.v, pairs.v, excluded[:, : len(pairs.v)])]


@register("mhe")
class MinimumHypersphericalEnergy(NonContrastive):
    """λ(U_u + U_v) + r Σ_i a_i (c^u_i + c^v_i)/2, with a_i = 2 − 2 u_i·v_i.

    U_x = logsumexp over the unordered pairs i, j of x_i·x_j, or of x_i·x_j/τ with `weight`. U_u also has all u_i·w_k.
    c^x_i = 1/N, or with `weight` the share of row i in the push on view x: sg(exp(logsumexp_{j≠i}(x_i·x_j/τ) − U_x))/τ.
    Without `ratio`, r = 1.
    """

    uniformity_weight: Factor = 10.0

    def gated_loss(self, pairs: UnitPairs) -> Tensor:
        distance = 2 - 2 * pairs.positive
        (energy_u, pull_u), (energy_v, pull_v) = (self._energy(*view) for view in views(pairs))
        ratio = 1.0 if self.ratio is None else self.ratio
        return self.uniformity_weight * (energy_u + energy_v) + ratio * (distance * (pull_u + pull_v) / 2).sum()

    def _energy(self, x: Tensor, others: Tensor, excluded: Tensor) -> tuple[Tensor, Tensor]:
        temperature = 1.0 if self.weight is None else self.weight
        logits = only_negatives(x @ others.T / temperature, excluded)
        rows = logits.logsumexp(-1)  # [pairs]
        twice = rows if others is x else ordered(logits).logsumexp(-1)  # counts each unordered pair twice
        energy = zero_if_empty(twice.logsumexp(-1) - math.log(2))
        if self.weight is None:
            return energy, torch.full_like(rows, 1 / len(x))
        return energy, (rows - energy).detach().exp() / temperature


@register("mhs")
class MaximumHypersphericalSeparation(NonContrastive):
    """−λ(mean h^u + mean h^v) + mean_i a_i (c^u_i + c^v_i)/2, with a_i = 2 − 2 u_i·v_i.

    h^u_i = min_{j≠i} d(u_i, v_j) and h^v_i = min_{j≠i} d(v_i, u_j), where d(x, y) = sqrt(‖x − sg(y)‖² + 1e-4).
    h^u_i is also the minimum over the hard negatives, of sqrt(‖u_i − w_k‖² + 1e-4).
    c^x_i = 1, or with `ratio` r/sg(h^x_i). There is no `weight`: only the hardest negative has one.
    """

    weight: ClassVar[None] = None  # type: ignore[misc]  # no parameter here

    def gated_loss(self, pairs: UnitPairs) -> Tensor:
        distance = 2 - 2 * pairs.positive
        separation_u, pull_u = self._separation(pairs.u, pairs.with_hard(pairs.v.detach()), pairs.excluded)
        of_positives = pairs.excluded[:, : len(pairs.v)].T
        separation_v, pull_v = self._separation(pairs.v, pairs.u.detach(), of_positives)
        spreading = -self.uniformity_weight * (separation_u + separation_v).mean()
        return spreading + (distance * (pull_u + pull_v) / 2).mean()

    def _separation(self, x: Tensor, y: Tensor, excluded: Tensor) -> tuple[Tensor, Tensor]:
        # 2 x_i·y_j − ‖y_j‖² is ‖x_i‖² − ‖x_i − y_j‖²: it finds the nearest, whose distance is then computed exactly.
        fixed = y.detach()
        closeness = only_negatives(2 * x.detach() @ fixed.T - fixed.square().sum(-1), excluded)
        nearest = y[closeness.argmax(-1)]  # [pairs, dim]
        separation = ((x - nearest).square().sum(-1) + 1e-4).sqrt()
        alone = excluded.all(-1)
        pull = (
            torch.ones_like(separation)
            if self.ratio is None
            else (self.ratio / separation.detach()).masked_fill(alone, 0)
        )
        return separation.masked_fill(alone, 0), pull


@validated
class GradientForm(NonContrastive):
    """V(u, v) + V(v, u) with V(x, y) = Σ_i [pos_i + λ Σ_j W_ij x_i·sg(x_j)]. Only its gradient has a meaning.

    The sum over j includes i. The weights W have no gradient and are computed from a reference view z:
    plain, W_ij = (2/N²) z_i·z_j;
    with `weight`, W_ij = e^{z_i·z_j/τ} / Σ_{k≠l} e^{z_k·z_l/τ}, where only the numerator includes the diagonal;
    with `power`, the same with max(z_i·z_j, 1e-4)^p instead of e^{z_i·z_j/τ}.
    With `ratio`, pos_i = −λ r (Σ_{j≠i} W_ij) x_i·y_i.
    Hard negatives are further columns of the first V alone: + λ Σ_k W_ik u_i·w_k, where z_i·w_k is in place of z_i·z_j.
    """

    uniformity_weight: Factor = 30.0
    power: Annotated[float | None, Field(ge=0, le=LARGEST_WEIGHT)] = None
    """Exponent p of power weights over negatives, instead of `weight`; 0: uniform; none: off."""

    def __post_init__(self) -> None:
        if self.weight is not None and self.power is not None:
            raise ValueError("weight and power are two forms of one component; give one of them")

    def reference(self, x: Tensor, y: Tensor) -> Tensor:
        """The view z from which V(x, y) takes its weights  # [pairs, dim]."""
        raise NotImplementedError

    def plain_pull(self, x: Tensor, y: Tensor) -> Tensor:
        """The direction_i in pos_i = −x_i·direction_i without `ratio`  # [pairs, dim]."""
        raise NotImplementedError

    def gated_loss(self, pairs: UnitPairs) -> Tensor:
        excluded = pairs.excluded_within
        of_anchors = self._view(pairs.u, pairs.v, pairs.hard, excluded)
        return of_anchors + self._view(pairs.v, pairs.u, None, excluded[:, : len(pairs.v)])

    def _view(self, x: Tensor, y: Tensor, hard: Tensor | None, excluded: Tensor) -> Tensor:
        fixed = x.detach()
        others = fixed if hard is None else torch.cat([fixed, hard])
        z = self.reference(fixed, y.detach())
        weights, own_weight = self._weights(z, z if hard is None else torch.cat([z, hard.detach()]), excluded)
        # The diagonal's gradient is parallel to x_i, so normalisation removes it. With small τ it is huge, and
        # rounding would leave some of it. Hence only its value is kept.
        spreading = (x * (weights @ others)).sum() + (own_weight * fixed.square().sum(-1)).sum()
        if self.ratio is None:
            pull = (x * self.plain_pull(fixed, y.detach())).sum()
        else:
            pull = self.uniformity_weight * self.ratio * (weights.sum(-1) * (x * y).sum(-1)).sum()
        return self.uniformity_weight * spreading - pull

    def _weights(self, z: Tensor, others: Tensor, excluded: Tensor) -> tuple[Tensor, Tensor]:
        """W of z's rows and others off the diagonal [pairs, pairs + hard], and on it [pairs]."""
        similarity = z @ others.T
        if self.weight is None and self.power is None:
            weights = similarity * (2 / len(z) ** 2)
            return weights.masked_fill(excluded, 0), weights.diagonal()
        logits = weight_logits(similarity, temperature=self.weight or 1.0, power=self.power)
        negatives = only_negatives(logits, excluded)
        weights = negatives.flatten().softmax(0).view_as(logits).masked_fill(excluded, 0)
        normaliser = negatives.logsumexp((0, 1))
        largest = math.log(torch.finfo(z.dtype).max) / 2  # above it the loss would overflow
        own_weight = (logits.diagonal() - normaliser).clamp_max(largest).exp()
        return weights, own_weight.masked_fill(excluded.all(), 0)


@register("vicreg")
class VICReg(GradientForm):
    """VICReg in gradient form: the reference view is x, and plain pos_i = −(2/N) x_i·sg(y_i).

    The plain form has the gradient of mean_i‖x_i − y_i‖² + λ/2 (‖C_xx‖² + ‖C_yy‖²) with C_xx = xᵀx/N. Hard negatives
    enter the anchors' second moment: ‖C_uu + C_ww‖² − ‖C_ww‖² with C_ww = wᵀw/N is in place of ‖C_uu‖².
    """

    def reference(self, x: Tensor, y: Tensor) -> Tensor:
        return x

    def plain_pull(self, x: Tensor, y: Tensor) -> Tensor:
        return y * (2 / len(x))


@register("barlow_twins")
class BarlowTwins(GradientForm):
    """Barlow Twins in gradient form: the reference view is y.

    Plain pos_i = −Σ_d (2/N)(1 − (1−λ)·C_dd) x_id sg(y_id) with C = sg(xᵀy)/N.
    The plain form has the gradient of Σ_d (1 − C_dd)² + λ Σ_{d≠e} C_de². Hard negatives enter the correlation as pairs
    of a sentence with itself, without a pull: anchors get the gradient of that and λ (‖C + wᵀw/N‖² − ‖C‖²).
    """

    def reference(self, x: Tensor, y: Tensor) -> Tensor:
        return y

    def plain_pull(self, x: Tensor, y: Tensor) -> Tensor:
        correlation = (x * y).mean(0)  # [dim], C_dd
        return y * (1 - (1 - self.uniformity_weight) * correlation) * (2 / len(x))


@register("byol")
class BYOL(Objective):
    """mean_i (2 − 2 u_i·sg(v_i)), where u_i is predicted from one view and v_i is the momentum encoder's of the other.

    `pretrain --momentum` adds the same loss with the two views swapped. A further head, discarded after training, makes
    the predictions. With momentum 0, it is SimSiam (Chen & He 2021).

    Source: Bootstrap Your Own Latent (Grill et al. 2020, arXiv 2006.07733), equation 2.
    """

    predicts: ClassVar[bool] = True

    def loss(self, pairs: UnitPairs) -> Tensor:
        return (2 - 2 * (pairs.u * pairs.v.detach()).sum(-1)).mean()
