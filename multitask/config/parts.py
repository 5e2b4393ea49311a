"""What the stages' configurations are put together from, and where a run computes."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from minbert.config import ModelType
from minbert.errors import InputError

Pooling = Literal["auto", "cls", "mean"]
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "fp32", "bf16"]
Sharing = Literal["separate", "shared_first_layer", "shared", "none"]
PairInput = Literal["embeddings", "features", "joint"]


def check_range(config: object, least: float, names: tuple[str, ...], most: float = math.inf) -> None:
    """Refuse numbers out of range; None stands for a setting that is left out."""
    for name in names:
        if (value := getattr(config, name)) is not None and not least <= value <= most:
            expected = f"at least {least}" if most == math.inf else f"{least} to {most}"
            raise InputError(f"{name} is {value}; expected {expected}")


@dataclass(frozen=True)
class RunOptions:
    """Where a run computes and what it leaves behind; none of it changes the result beyond device and precision."""

    device: Device = "auto"
    """Where to compute; `auto` takes CUDA when there is one."""
    precision: Precision = "auto"
    """Autocast precision; `auto` takes bf16 where the processor multiplies in it natively."""
    runs: Path = Path("runs")
    """Folder of all artefacts."""
    name: str = "run"
    """A label in the artefact's folder name."""
    save_every: float = 120.0
    """Seconds between saved states, the most that a kill can cost."""
    tensorboard: bool = False
    """Write TensorBoard event files beside metrics.jsonl."""


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW and its learning rate."""

    learning_rate: float = 1e-5
    """Peak learning rate of the encoder."""
    head_learning_rate: float | None = None
    """Peak learning rate of the heads; the encoder's when left out."""
    schedule: Literal["constant", "linear"] = "constant"
    """After the warm-up: stay, or fall to zero at the last step."""
    warmup: float = 0.0
    """Share of all steps over which the learning rate rises."""
    weight_decay: float = 0.01
    """Decoupled weight decay; never on biases and norms."""
    clip: float | None = 1.0
    """Largest gradient norm; None for no clipping."""

    def __post_init__(self) -> None:
        check_range(self, 0, ("learning_rate", "head_learning_rate", "weight_decay"))
        check_range(self, 0, ("warmup",), most=1)
        check_range(self, 1e-9, ("clip",))


@dataclass(frozen=True)
class HeadsConfig:
    """Prediction heads on the sentence embeddings (report, section 4.2)."""

    sharing: Sharing = "shared_first_layer"
    """What paraphrase and similarity share where both compare embeddings; `none` predicts straight from them."""
    pairs: PairInput = "embeddings"
    """How a pair is read: two `embeddings` compared (the report), an MLP on their `features` |x-y|, x*y, x+y, or one
    `joint` input [CLS] a [SEP] b [SEP]."""
    similarity_pairs: PairInput | None = None
    """How similarity reads its pairs, where that differs from paraphrase."""
    residual: bool = False
    """Add the embedding to its transform, which starts at zero: pair heads then begin with the start weights' own
    geometry instead of a random one. For start weights that are already tuned for similarity."""
    hidden_size: int | None = None
    """Width of the MLPs; the encoder's when left out (768 for bert-base, as in the report)."""
    dropout: float = 0.3
    """Dropout before each linear layer."""

    def __post_init__(self) -> None:
        check_range(self, 1, ("hidden_size",))
        check_range(self, 0, ("dropout",), most=0.99)


@dataclass(frozen=True)
class SchedulerConfig:
    """Parameters of single schedulers."""

    sampling_alpha: float = 1.0
    """proportional draws tasks by their size to this power; 0 draws all alike."""
    reduction: Literal["sum", "mean"] = "sum"
    """Aggregators that add up gradients (pcgrad, gradvac, graddrop, config, nash_mtl, fairgrad): the sum as in their
    papers, or divided by the number of tasks, on the scale of average."""
    cagrad_c: float = 0.5
    """cagrad: how far the update may be from the average gradient, in units of its norm; 0 is average."""
    gradvac_beta: float = 0.01
    """gradvac: how fast the cosines that it aims at follow those that it sees."""
    fairgrad_alpha: float = 1.0
    """fairgrad: which fairness; 1 is proportional, towards infinity max-min."""

    def __post_init__(self) -> None:
        check_range(self, 0, ("sampling_alpha", "cagrad_c"))
        check_range(self, 0.01, ("fairgrad_alpha",))
        check_range(self, 0, ("gradvac_beta",), most=1)


@dataclass(frozen=True)
class ObjectiveConfig:
    """A contrastive or non-contrastive objective by name; a parameter left out takes the objective's own default."""

    objective: str = "infonce"
    """infonce, mnrl, arccon, mpt, met, mat, dcl, dcl_positive, align_uniform, gradient, mhe, mhs, barlow_twins,
    vicreg or mixed."""
    temperature: float | None = None
    scale: float | None = None
    angle: float | None = None
    margin: float | None = None
    alpha: float | None = None
    t: float | None = None
    hard_negative_weight: float | None = None
    uniformity_weight: float | None = None
    power: float | None = None
    dissipation: float | None = None
    weight: float | None = None
    ratio: float | None = None
    dissipation_of: str | None = None
    """mixed takes this component from infonce, arccon, mpt, met or mat; the next two likewise."""
    weight_of: str | None = None
    ratio_of: str | None = None


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
