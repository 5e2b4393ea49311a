"""Settings of every stage that trains contrastively. `dropout_views_and_pairs.py` acts on them."""

from dataclasses import field
from typing import Annotated, Literal

from pydantic import Field

from minbert.settings import Count, settings
from multitask.objectives.config import ObjectiveConfig


@settings
class NegativesConfig:
    """Which other sentences of a batch are an anchor's negatives."""

    negatives: Literal["all", "random", "hardest", "unlike"] = "all"
    """Negatives of an anchor: `all` other sentences of the batch, a number of `random` ones, the `hardest`, or those
    `unlike` it, which leaves out likely false negatives. Losses that compare sentences within a view leave out a pair
    if either sentence of it does. The hard negatives of triplets always count."""
    negatives_kept: Count = 16
    """How many negatives an anchor keeps. For random and hardest."""
    false_negative_cosine: Annotated[float, Field(ge=-1, le=1)] = 0.9
    """A cosine from which a sentence may be a false negative (arXiv 2205.00656). For unlike."""


@settings
class ContrastiveConfig:
    """What contrastive training compares, and under which objective (report, section 4.1; SimCSE, arXiv 2104.08821)."""

    quora_share: Annotated[float, Field(ge=1e-6, le=1)] = 1.0
    """Share of the Quora rows that an epoch uses, different rows each time. The report's unsupervised runs use 0.06."""
    negative_pairs: Literal["bounded", "literal", "left_out"] = "bounded"
    """What to do with Quora pairs of label 0: push them apart in the `bounded` form, in the report's `literal` form, or
    leave them out."""
    mask_duplicates: bool = True
    """Do not count equal sentences in a batch as negatives of each other."""
    sampling: NegativesConfig = field(default_factory=NegativesConfig)
    projection: Literal["mlp", "linear", "none"] = "mlp"
    """Projection head between embedding and objective. It is discarded after training."""
    objective: ObjectiveConfig = ObjectiveConfig()
    """Loss on sentence pairs, with parameters, e.g. vicreg:dissipation=0.3,weight=0.05. One of: infonce, mnrl, arccon,
    mpt, met, mat, dcl, dcl_positive, align_uniform, gradient, mhe, mhs, barlow_twins, vicreg, mixed; with labels cosine
    and quora_pairs. --help-objective NAME explains one."""
