"""Contrastive pre-training."""

from dataclasses import dataclass, field
from typing import Literal

from multitask.models.config import Pooling
from multitask.objectives.config import ObjectiveConfig
from multitask.runtime.options import check_range
from multitask.stages.mlm import MaskingConfig
from multitask.training.config import OptimizerConfig


@dataclass(frozen=True)
class ContrastiveConfig:
    """What contrastive training compares, and under which objective (report, section 4.1; SimCSE, arXiv 2104.08821)."""

    quora_share: float = 1.0
    """Share of the Quora rows that an epoch takes, different ones each time (the report: 0.06 unsupervised)."""
    negative_pairs: Literal["bounded", "literal", "left_out"] = "bounded"
    """Quora pairs with label 0: pushed apart in the bounded or the report's literal form, or left out."""
    mask_duplicates: bool = True
    """Leave equal sentences within a batch out of the negatives."""
    projection: Literal["mlp", "linear", "none"] = "mlp"
    """Head between embedding and objective, thrown away afterwards."""
    train_limit: int | None = None
    """Use only so many rows of each source, drawn at random but always the same; of unlabelled text the first."""
    max_length: int | None = None
    """Cut sentences to so many tokens; the encoder's limit when left out."""
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)

    def __post_init__(self) -> None:
        check_range(self, 1, ("train_limit",))
        check_range(self, 1e-6, ("quora_share",), most=1)


@dataclass(frozen=True)
class PretrainConfig(ContrastiveConfig):
    """Contrastive pre-training."""

    sources: tuple[str, ...] = ("unlabelled",)
    """What to train on, one after the other within each epoch: dropout views of `unlabelled` sentences, of another
    text file's (its name, ending in .txt) or of a task's, supervised `quora` pairs, `nli` triplets, `pairs` of
    paraphrases. The report's "3 given" procedure is quora sentiment similarity; a sequence of pre-trainings is a run
    that starts from another."""
    epochs: int = 1
    batch_size: int = 16
    """Rows (pairs, triplets, or sentences in two views) in a step."""
    pooling: Pooling = "auto"
    chunk: int | None = None
    """Gradient caching: encode so many rows at a time (on each rank), for batches larger than the memory holds."""
    mlm_weight: float = 0.0
    """Weight of an auxiliary masked-language-model loss on the same sentences (SimCSE: 0.1); 0 for none."""
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    evaluate_every: int | None = None
    """Steps between evaluations; every epoch when left out."""
    select: Literal["similarity", "last"] = "similarity"
    """Keep the state with the best Spearman correlation on the similarity dev set, or the last one."""
    probe_every: int | None = None
    """Steps between decompositions of the anchors' gradient into dissipation, weights and ratio, which metrics.jsonl
    then shows; none when left out. Does not change the training. Sources with labels are not looked at."""
    seed: int = 0
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, 1, ("epochs", "batch_size", "chunk", "evaluate_every", "probe_every"))
        check_range(self, 0, ("seed", "mlm_weight"))
