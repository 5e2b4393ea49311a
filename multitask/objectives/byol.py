"""BYOL: a prediction of the other view's embedding, without negatives."""

from typing import ClassVar

from torch import Tensor

from multitask.objectives.base import Objective, UnitPairs, register


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
