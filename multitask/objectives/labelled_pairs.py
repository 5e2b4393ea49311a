"""Objectives that learn from labelled pairs: graded similarity, and duplicate or not."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from multitask.objectives.base import Objective, Pairs, register
from multitask.objectives.negatives import only_negatives
from multitask.objectives.parameters import number


@register("cosine")
@dataclass(frozen=True)
class CosineRegression(Objective):
    """mean_i (s_ii − y_i)², y in [0, 1] the gold similarity (Reimers & Gurevych 2019, section 3, regression)."""

    takes_labels: ClassVar = "similarity from 0 to 1"

    def loss(self, pairs: Pairs) -> Tensor:
        assert pairs.labels is not None
        return (pairs.positive - pairs.labels).square().mean()


@register("quora_pairs")
@dataclass(frozen=True)
class LabelledPairs(Objective):
    """Contrastive learning from pairs with label 1 (duplicates) and label 0 (not duplicates, often close in words).

    ℓ_i = −log softmax_j(s_ij/τ)[i] is the contrastive loss of a pair over the batch, as in `infonce`.
    Pairs with label 1 contribute ℓ_i to the mean. Pairs with label 0 contribute, by `form`:

    - "bounded": ½[log(1 + Σ_j e^{(s_ij − 1)/τ}) + log(1 + Σ_j e^{(s_ji − 1)/τ})], j over the whole batch. Each of
      the two sentences has only itself as positive (similarity 1) and gets the pair's own similarity s_ii as one
      more negative logit beside the batch's. Bounded below by 0, and its gradient fades once s_ii is small.
    - "literal": −ℓ_i, the contrastive loss maximised, as the multi-task report words it. It never stops pushing, and
      what lowers it is not only a smaller s_ii but also any other pair that comes closer.

    The tables of this repository use "bounded" where they do not say otherwise.

    Args:
        temperature: τ.
        form: of the pairs with label 0.
    """

    temperature: float = number(0.05, above=0)
    form: Literal["bounded", "literal"] = "bounded"
    takes_labels: ClassVar = "0 or 1"

    def loss(self, pairs: Pairs) -> Tensor:
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
