"""Settings and registrations of the stages that pre-train: pretrain and mlm. Free of torch."""

from dataclasses import field
from typing import Annotated

from pydantic import Field

from minbert.config import ModelType
from minbert.errors import InputError
from minbert.settings import AtLeastZero, Count, settings
from multitask.stages.registry import Stage, register
from multitask.training.settings import (
    ContrastiveConfig,
    MaskingConfig,
    MatryoshkaConfig,
    OptimizerConfig,
    SentencesConfig,
    SourceNames,
)

HELD_OUT = "held out"
"""What metrics.jsonl puts before statistics of held-out sentences, in place of a source's name."""
LARGEST_PROBED_QUEUE = 8192
"""A probe's memory grows with the square of the number of negatives."""


@settings
class PretrainConfig(ContrastiveConfig, MatryoshkaConfig, SentencesConfig):
    """Contrastive pre-training."""

    sources: SourceNames = ("unlabelled",)
    """What to train on, one source after the other within each epoch: dropout views of `unlabelled` sentences, of
    another text file (its name, ending in .txt) or of a task's sentences; supervised `quora` pairs; `nli` triplets;
    `pairs` of paraphrases, or a csv or tsv file of such pairs. The report's "3 given" is: quora sentiment
    similarity. With an objective that learns from scores (cosent, cosine), a task of pairs with numbers stands for its
    scored pairs."""
    partners: Count | None = None
    """Pair each row of a task with this many others of its label instead of with itself, which suits few rows (SetFit,
    arXiv 2209.11055). The same ones are drawn every time. Rows with a common label are then no negatives of each other.
    Needs tasks with labels; of pairs, the features of a row's two embeddings are compared."""
    train_limit: Count | None = None
    """Use only this many rows of each source. The same ones are drawn every time; of unlabelled text, the first."""
    epochs: Count = 1
    """Number of epochs."""
    batch_size: Count = 16
    """Rows in a step: pairs, triplets, or sentences in two views."""
    encoder_dropout: Annotated[float, Field(ge=0, le=0.99)] | None = None
    """Dropout within the encoder. Default: the checkpoint's, which makes the two views of a sentence."""
    freeze_embeddings: bool = False
    """Keep the embedding layer of the start weights: its tables and its norm."""
    chunk: Count | None = None
    """Gradient caching: encode this many rows at a time on each rank, for batches that do not fit into memory."""
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Embed positives by a copy of the encoder without gradient, whose weights are a moving average of the trained
    ones: each step's count this many times as much as the next step's, e.g. 0.995 (MoCo v2, arXiv 2003.04297; with
    --objective byol, BYOL, arXiv 2006.07733). Default: no copy."""
    queue_size: Annotated[int, Field(ge=0)] = 1024
    """With momentum: how many of the last batches' positives are further negatives of each anchor, under every loss
    that takes hard negatives. All of them count, so a queue needs `negatives = all`."""
    mlm_weight: AtLeastZero = 0.0
    """Weight of an auxiliary masked-language-model loss on the same sentences (SimCSE: 0.1). 0 switches it off."""
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    evaluate_every: Count | None = None
    """Steps between evaluations. Default: one evaluation an epoch."""
    select: str | None = None
    """Keep the state whose cosines have the best Spearman correlation with the labels of this task's dev set: numbers,
    or the second of two classes. Default: the first task of the kind `cosine`, which is similarity in the course's
    data. Or the name of a folder in the data folder with a retrieval set of your own (corpus.jsonl, queries.jsonl,
    qrels/dev.tsv, as in BEIR), which selects by nDCG at 10. `last` keeps the last state."""
    probe_every: Count | None = None
    """Record the dissipation, weights and ratio of the anchors' gradient every so many steps. Does not change the
    training. Labelled sources are not probed."""
    probe_held_out: Annotated[int, Field(ge=2)] | None = None
    """At the same steps, also probe this many sentences of this dev set (the default's, if the last state is kept), in
    two dropout views each, without the projection. Does not change the training."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)

    def __post_init__(self) -> None:
        self.check_quora(self.sources, ContrastiveConfig())
        if self.probe_held_out is not None and self.probe_every is None:
            raise InputError("probe_held_out has no effect without probe_every; set both")
        if not self.mlm_weight and self.masking != MaskingConfig():
            raise InputError("mask_share has no effect without mlm_weight; set both")
        if self.partners is not None and not self.mask_duplicates:
            raise InputError("partners has no use without mask_duplicates: rows of one label would be negatives")
        if self.momentum is None and self.queue_size != PretrainConfig.queue_size:
            raise InputError("queue_size has no effect without momentum; set both")
        if self.momentum is not None and self.chunk is not None:
            raise InputError("chunk cannot be combined with momentum, whose queue takes the place of large batches")
        if self.momentum is not None and self.probe_every is not None and self.queue_size > LARGEST_PROBED_QUEUE:
            raise InputError(
                f"queue_size is {self.queue_size}; expected at most {LARGEST_PROBED_QUEUE} with probe_every"
            )


PRETRAIN = register(
    Stage(
        "pretrain",
        PretrainConfig,
        "Train an encoder contrastively; other stages can start from it.",
        version=7,
        common=(
            *("sources", "objective", "epochs", "batch_size", "learning_rate"),
            *("train_limit", "max_length", "select", "seed"),
        ),
        distributed=True,
    )
)


@settings
class ShapeConfig:
    """Shape of an encoder that is trained from scratch. The defaults are the values of the start weights."""

    hidden_size: Count | None = None
    """Width of the encoder."""
    num_hidden_layers: Count | None = None
    """Number of layers."""
    num_attention_heads: Count | None = None
    """Attention heads in each layer."""
    intermediate_size: Count | None = None
    """Width of the feed-forward layers. Default: four times hidden_size if that is set, otherwise the start's."""
    model_type: ModelType | None = None
    """`bert` or `roberta`: learn a new vocabulary of that family from the training sentences, about as large as the
    start weights'. Default: keep the start weights' family and tokenizer."""


@settings
class MlmConfig(SentencesConfig):
    """Masked-language-model pre-training on unlabelled text (Devlin et al. 2019), from weights or from scratch."""

    sources: tuple[str, ...] = ("unlabelled",)
    """What to read: `unlabelled` sentences, another text file (its name, ending in .txt), the training sentences of
    tasks (further pre-training on the target domain, Sun et al. 2019, arXiv 1905.05583), or those of a file of pairs or
    triplets that `pretrain` reads."""
    from_scratch: bool = False
    """Begin with random weights. Only the tokenizer and the shape are then those of the start weights, unless options
    set them."""
    shape: ShapeConfig = field(default_factory=ShapeConfig)
    epochs: Count = 1
    """Number of epochs."""
    batch_size: Count = 64
    """Sentences in a step."""
    train_limit: Count | None = None
    """Use only this many sentences of each source. The same ones are drawn every time; of unlabelled text, the
    first."""
    dev_share: Annotated[float, Field(ge=0, le=0.5)] = 0.02
    """Share of all different sentences that is held out to measure the loss."""
    evaluate_every: Count | None = None
    """Steps between evaluations. Default: one evaluation an epoch."""
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    optimizer: OptimizerConfig = OptimizerConfig(1e-4, schedule="linear", warmup=0.1)

    def __post_init__(self) -> None:
        if not self.from_scratch and any(size is not None for size in vars(self.shape).values()):
            raise InputError("start weights have their own shape; a shape can only be given with --from-scratch")


MLM = register(
    Stage(
        "mlm",
        MlmConfig,
        "Train an encoder to predict masked words, from weights or from scratch; other stages can start from it.",
        version=5,
        common=(
            *("sources", "from_scratch", "epochs", "batch_size", "learning_rate"),
            *("train_limit", "max_length", "seed"),
        ),
        distributed=True,
    )
)
