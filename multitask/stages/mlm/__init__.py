"""Masked-language-model pre-training."""

from dataclasses import dataclass, field

from minbert.config import ModelType
from minbert.errors import InputError
from multitask.models.config import Pooling
from multitask.runtime.options import check_range
from multitask.training.config import OptimizerConfig


@dataclass(frozen=True)
class MaskingConfig:
    """Which tokens masked language modelling asks for (Devlin et al. 2019, section 3.1)."""

    mask_share: float = 0.15
    """Share of the tokens to predict; of them 80% are masked, 10% replaced by random ones, 10% left as they are."""

    def __post_init__(self) -> None:
        check_range(self, 1e-6, ("mask_share",), most=1)


@dataclass(frozen=True)
class ShapeConfig:
    """An encoder trained from scratch; what is left out is the start weights' own."""

    hidden_size: int | None = None
    num_hidden_layers: int | None = None
    num_attention_heads: int | None = None
    intermediate_size: int | None = None
    model_type: ModelType | None = None
    """Of which family, with a vocabulary learned from the training sentences in its way, about as large as the
    start's; the start's family and tokenizer when left out."""

    def __post_init__(self) -> None:
        check_range(self, 1, tuple(name for name in vars(self) if name != "model_type"))


@dataclass(frozen=True)
class MlmConfig:
    """Masked-language-model pre-training on unlabelled text (Devlin et al. 2019), from weights or from scratch."""

    sources: tuple[str, ...] = ("unlabelled",)
    """What to read: `unlabelled` sentences, another text file's (its name, ending in .txt), or the training sentences
    of tasks (further pre-training on the target domain, Sun et al. 2019, arXiv 1905.05583)."""
    from_scratch: bool = False
    """Begin with random weights; of the start only the sizes and the tokenizer are taken, where no others are named."""
    shape: ShapeConfig = field(default_factory=ShapeConfig)
    epochs: int = 1
    batch_size: int = 64
    """Sentences in a step."""
    train_limit: int | None = None
    """Use only so many sentences of each source, drawn at random but always the same; of unlabelled text the first."""
    dev_share: float = 0.02
    """Share of all different sentences that is held out, to measure the loss on."""
    pooling: Pooling = "auto"
    """Recorded for the stages that start from the encoder."""
    max_length: int | None = None
    """Cut sentences to so many tokens; the encoder's limit when left out."""
    evaluate_every: int | None = None
    """Steps between evaluations; every epoch when left out."""
    seed: int = 0
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    optimizer: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(learning_rate=1e-4, schedule="linear", warmup=0.1)
    )

    def __post_init__(self) -> None:
        check_range(self, 1, ("epochs", "batch_size", "train_limit", "evaluate_every"))
        check_range(self, 0, ("seed",))
        check_range(self, 0, ("dev_share",), most=0.5)
        if not self.from_scratch and any(size is not None for size in vars(self.shape).values()):
            raise InputError("a shape is given, but the start weights have their own; it goes with --from-scratch")
