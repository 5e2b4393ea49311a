"""Masked-language-model pre-training: settings and registration."""

from dataclasses import field
from typing import Annotated

from pydantic import Field

from minbert.config import ModelType
from minbert.errors import InputError
from minbert.settings import Count, settings
from multitask.stages.registry import Stage, register
from multitask.training.config import MaskingConfig, OptimizerConfig, SentencesConfig


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
    """Width of the feed-forward layers."""
    model_type: ModelType | None = None
    """`bert` or `roberta`: learn a new vocabulary of that family from the training sentences, about as large as the
    start weights'. Default: keep the start weights' family and tokenizer."""


@settings
class MlmConfig(SentencesConfig):
    """Masked-language-model pre-training on unlabelled text (Devlin et al. 2019), from weights or from scratch."""

    sources: tuple[str, ...] = ("unlabelled",)
    """What to read: `unlabelled` sentences, another text file (its name, ending in .txt), or the training sentences of
    tasks (further pre-training on the target domain, Sun et al. 2019, arXiv 1905.05583)."""
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
    optimizer: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(learning_rate=1e-4, schedule="linear", warmup=0.1)
    )

    def __post_init__(self) -> None:
        if not self.from_scratch and any(size is not None for size in vars(self.shape).values()):
            raise InputError("start weights have their own shape; a shape can only be given with --from-scratch")


COMMON = ("sources", "from_scratch", "epochs", "batch_size", "learning_rate", "train_limit", "max_length", "seed")
STAGE = register(
    Stage(
        "mlm",
        MlmConfig,
        "multitask.stages.mlm:train_masked",
        "multitask.stages.reads:of_mlm",
        "Train an encoder to predict masked words, from weights or from scratch; other stages can start from it.",
        version=4,
        common=COMMON,
        distributed=True,
    )
)
