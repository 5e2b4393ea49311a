"""Objectives that learn from labelled pairs: graded similarity, and duplicate or not."""

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import softplus

from multitask.objectives.base import LARGEST_WEIGHT, SMALLEST_TEMPERATURE, Objective, UnitPairs, register
from multitask.objectives.geometry import only_negatives


@register("cosine")
class CosineRegression(Objective):
    """mean_i (s_ii − y_i)², where y_i in [0, 1] is the gold similarity of pair i.

    Source: Sentence-BERT (Reimers & Gurevych 2019), section 3, regression.
    """

    takes_labels: ClassVar = "similarity from 0 to 1"

    def loss(self, pairs: UnitPairs) -> Tensor:
        assert pairs.labels is not None
        return (pairs.positive - pairs.labels).square().mean()


@register("cosent")
class CoSENT(Objective):
    """log(1 + Σ_{y_i < y_j} e^{scale·(s_ii − s_jj)}), where y_i in [0, 1] is the gold similarity of pair i.

    Only the order of the gold similarities counts. Pairs with equal ones are not compared; if all are equal, the loss
    is 0. It compares the pairs of a batch with each other, so larger batches give it more to learn from.

    Source: Su 2022, "CoSENT" (https://kexue.fm/archives/8847); CoSENTLoss of sentence-transformers.
    """

    scale: Annotated[float, Field(gt=0, le=LARGEST_WEIGHT)] = 20.0
    """Factor of the cosines, 1/τ."""
    takes_labels: ClassVar = "similarity from 0 to 1"

    def loss(self, pairs: UnitPairs) -> Tensor:
        assert pairs.labels is not None
        return self.of_cosines(pairs.positive, pairs.labels)

    def of_cosines(self, cosines: Tensor, labels: Tensor) -> Tensor:
        """The formula on cosines [pairs] and gold similarities [pairs] of any range: a scalar."""
        logits = self.scale * (cosines[:, None] - cosines)
        not_below = labels[:, None] >= labels
        return softplus(only_negatives(logits, not_below).logsumexp((0, 1)))


@register("quora_pairs")
class LabelledPairs(Objective):
    """The mean of a contrastive loss over pairs with label 1 (duplicates) and label 0 (not duplicates).

    ℓ_i = −log softmax_j(s_ij/τ)[i] is the contrastive loss of pair i over the batch, as in `infonce`.
    A pair with label 1 contributes ℓ_i. A pair with label 0 contributes, depending on `form`:

    - "bounded": ½[log(1 + Σ_j e^{(s_ij − 1)/τ}) + log(1 + Σ_j e^{(s_ji − 1)/τ})], j over the whole batch. Each of
      the two sentences is its own positive (similarity 1), and the other sentence of the pair is one of the negatives.
      This loss is at least 0, and its gradient vanishes once s_ii is small.
    - "literal": −ℓ_i, the maximised contrastive loss of the report. It never stops pushing the pair apart. It falls if
      s_ii falls, and also if other pairs come closer.

    The studies' preset `paper` uses "literal", the others "bounded".

    Source: "Contrastive Learning for Generalizable Sentence Embeddings" (the multi-task report), section 4.1, for
    "literal"; the bounded form is not in the report.
    """

    temperature: Annotated[float, Field(ge=SMALLEST_TEMPERATURE)] = 0.05
    """Temperature τ of the softmax."""
    form: Literal["bounded", "literal"] = "bounded"
    """Loss of the pairs with label 0."""
    takes_labels: ClassVar = "0 or 1"

    @property
    def has_mutual_negatives(self) -> bool:
        return self.form == "bounded"

    def loss(self, pairs: UnitPairs) -> Tensor:
        assert pairs.labels is not None
        logits = pairs.u @ pairs.v.T / self.temperature
        if pairs.false_negatives is not None:
            logits = only_negatives(logits, pairs.false_negatives)
        anchors_sum, positives_sum = logits.logsumexp(1), logits.logsumexp(0)
        contrastive = anchors_sum - logits.diagonal()
        if self.form == "literal":
            apart = -contrastive
        else:
            itself = 1 / self.temperature
            apart = (softplus(anchors_sum - itself) + softplus(positives_sum - itself)) / 2
        return torch.where(pairs.labels == 1, contrastive, apart).mean()
