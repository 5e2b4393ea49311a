"""Settings of trainings: optimiser, schedulers, regularisation, contrastive losses. Free of torch, for `--help`."""

from collections.abc import Collection
from dataclasses import field
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from minbert.errors import InputError
from minbert.settings import AtLeastZero, Count, Seed, Share, settings
from multitask.base.choices_with_parameters import Choice
from multitask.models.settings import Pooling
from multitask.tasks import QUORA_TASK

if TYPE_CHECKING:
    from multitask.objectives.base import Objective


@settings
class ObjectiveConfig(Choice):
    """An objective and its parameters."""

    example: ClassVar[str] = "vicreg:dissipation=0.3,weight=0.05"
    classes: ClassVar[str] = "multitask.objectives:OBJECTIVES"
    name: str = "infonce"

    def build(self) -> "Objective":
        """The objective itself. Imports torch. Errors list the valid names and values."""
        found: Objective = super().build()
        return found


@settings
class SchedulerConfig(Choice):
    """A scheduler and its parameters."""

    example: ClassVar[str] = "cagrad:c=0.4"
    classes: ClassVar[str] = "multitask.training.schedulers:SCHEDULERS"
    name: str = "average"

    def build(self) -> Any:
        """Its parameters. Imports torch. Errors list the valid names and values."""
        if self.name == "fusion":
            raise InputError("scheduler fusion is a stage: run `multitask fuse`")
        return super().build()

    def in_key(self) -> Any:
        """As in runs from before schedulers had parameters."""
        return super().in_key() if self.changed() else self.name


@settings
class SentencesConfig:
    """How a stage reads sentences, and its seed."""

    max_length: int | None = field(default=None, kw_only=True)
    """Cut sentences to this many tokens. Default: the encoder's limit."""
    pooling: Pooling = field(default="auto", kw_only=True)
    """Sentence embedding: the first token (`cls`) or the `mean` of all tokens. `auto` uses what the start weights were
    trained with."""
    seed: Seed = field(default=0, kw_only=True)
    """Seed of new layers, dropout, data order and other random choices."""


def _different(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError(f"{', '.join(names)}; expected each named once")
    return names


SourceNames = Annotated[tuple[str, ...], AfterValidator(_different)]


def _falling(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if any(first <= second for first, second in pairwise(sizes)):
        raise ValueError(f"the sizes are {' '.join(map(str, sizes))}; expected the largest first, each once")
    return sizes


@settings
class MatryoshkaConfig:
    """Which sizes of embeddings are trained."""

    matryoshka: Annotated[tuple[Count, ...], AfterValidator(_falling)] = field(default=(), kw_only=True)
    """Sizes of embeddings to train, the largest first, such as 384 192 96: so many first numbers of an embedding can
    then be used alone (arXiv 2205.13147). Contrastive losses, and those of heads that compare embeddings by cosine,
    become means over the sizes. A projection or head reads the other numbers as zeros. Default: only whole
    embeddings."""


@settings
class OptimizerConfig:
    """AdamW, its learning rates, gradient clipping and averaging of weights."""

    learning_rate: AtLeastZero = 1e-5
    """Peak learning rate of the encoder."""
    head_learning_rate: AtLeastZero | None = None
    """Peak learning rate of the heads and all other layers outside the encoder; `none`: the encoder's."""
    schedule: Literal["constant", "linear"] = "constant"
    """After the warm-up, `constant` keeps the peak learning rate and `linear` lowers it step by step, so that it would
    be zero after the last one."""
    warmup: Share = 0.0
    """Warm-up: share of all steps in which the learning rate rises to its peak, 0 to 1."""
    weight_decay: AtLeastZero = 0.01
    """Decoupled weight decay. Biases and norms are never decayed."""
    clip: Annotated[float, Field(ge=1e-9)] | None = 1.0
    """Largest norm of the gradient; a larger gradient is scaled down to it. `none` switches clipping off."""
    layer_decay: Annotated[float, Field(ge=0.01, le=1)] = 1.0
    """Learning rate of each layer of the encoder as a share of that of the layer above it. The embeddings count as
    the lowest layer."""
    ema_decay: Annotated[float, Field(ge=0, le=0.999999)] | None = None
    """Evaluate and keep models with a moving average of the weights. Each step's weights count this many times as much
    as the next step's, e.g. 0.95. Default: no average."""

    @property
    def needs_total_steps(self) -> bool:
        """Whether the learning rate of a step depends on the number of all steps."""
        return self.schedule != "constant" or self.warmup > 0


@settings
class RegularisationConfig:
    """Regularisation of the tasks' losses."""

    smart_weight: AtLeastZero = 0.0
    """SMART (arXiv 1911.03437): weight of how far the outputs move if the word embeddings move a little, in the
    direction that moves the outputs most. 0 switches it off; the paper uses 1 to 5."""
    smart_radius: Annotated[float, Field(ge=1e-9)] = 1e-3
    """For SMART: largest move of each component of a word embedding. With bf16, moves this small are partly lost to
    rounding."""
    r_drop_weight: AtLeastZero = 0.0
    """R-Drop (arXiv 2106.14448): weight of how far apart the outputs of two passes with different dropout are. 0
    switches it off. It needs dropout, in the heads or within the encoder."""

    def __post_init__(self) -> None:
        if self.smart_weight == 0 and self.smart_radius != RegularisationConfig.smart_radius:
            raise InputError("smart_radius has no effect with smart_weight = 0; set smart_weight, too")


@settings
class MaskingConfig:
    """Which tokens are masked (Devlin et al. 2019, section 3.1)."""

    mask_share: Annotated[float, Field(ge=1e-6, le=1)] = 0.15
    """Share of the tokens to predict. Of these, 80% are masked, 10% replaced by random tokens, 10% left unchanged."""


@settings
class NegativesConfig:
    """Which other sentences of a batch are an anchor's negatives."""

    negatives: Literal["all", "random", "hardest", "unlike"] = "all"
    """Negatives of an anchor: `all` other sentences of the batch, a number of `random` ones, the `hardest`, or those
    `unlike` it, which leaves out likely false negatives. Random negatives are mutual, so that losses that compare
    sentences within a view, or both ways, have as many as others. Hard negatives of triplets always count."""
    negatives_kept: Count = 16
    """How many negatives an anchor keeps, for random and hardest. Duplicates among random ones do not count, so a few
    anchors have fewer; if this number and the batch's rows are both odd, one anchor has one fewer."""
    false_negative_cosine: Annotated[float, Field(ge=-1, le=1)] = 0.9
    """Sentences with at least this cosine may be false negatives (arXiv 2205.00656). For unlike."""

    def __post_init__(self) -> None:
        for name, kinds in {"negatives_kept": ("random", "hardest"), "false_negative_cosine": ("unlike",)}.items():
            if self.negatives not in kinds and getattr(self, name) != getattr(NegativesConfig, name):
                raise InputError(f"{name} has no effect with negatives = {self.negatives}; choose {' or '.join(kinds)}")


@settings
class ContrastiveConfig:
    """What contrastive training compares, and under which objective (report, section 4.1; SimCSE, arXiv 2104.08821)."""

    quora_share: Annotated[float, Field(ge=1e-6, le=1)] = 1.0
    """Share of the Quora rows that an epoch uses, different rows each time. The report's unsupervised runs use 0.06."""
    negative_pairs: Literal["bounded", "literal", "left_out"] = "bounded"
    """What to do with Quora pairs of label 0: push them apart until they are unlike (`bounded`), without a bound as the
    report does (`literal`, for infonce and mnrl), or leave them out."""
    mask_duplicates: bool = True
    """Do not count equal sentences in a batch as negatives of each other."""
    sampling: NegativesConfig = field(default_factory=NegativesConfig)
    projection: Literal["mlp", "linear", "tanh", "none"] = "mlp"
    """Projection head between embedding and objective, discarded after training. `tanh`: a linear layer and tanh, as in
    SimCSE's scripts."""
    objective: ObjectiveConfig = ObjectiveConfig()
    """Loss on sentence pairs, with parameters, e.g. vicreg:dissipation=0.3,weight=0.05. --help-objective all lists the
    losses, --help-objective NAME explains one."""

    def check_quora(self, sources: Collection[str], default: "ContrastiveConfig") -> None:
        """Raise InputError if a setting is for Quora's pairs, and no source has them.

        A setting counts if it is neither this class's default nor that of the stage.
        """
        for name, used_by in {"negative_pairs": ("quora",), "quora_share": ("quora", QUORA_TASK)}.items():
            usual = getattr(ContrastiveConfig, name), getattr(default, name)
            if getattr(self, name) not in usual and not {*used_by} & {*sources}:
                raise InputError(
                    f"{name} has no effect without the source {' or '.join(used_by)}; leave it out, or name this source"
                )


@settings
class ScheduledTraining(SentencesConfig):
    """Which tasks are trained together, and how they share the training steps."""

    tasks: tuple[str, ...] = ()
    """Tasks to train together. Name one for single-task training. Empty: all of the tasks file; of the course's tasks
    (sentiment, paraphrase, similarity, reviews) the first three."""
    epochs: Count = 3
    """Number of epochs."""
    batch_size: Count = 16
    """Examples of each task in a step."""
    accumulate: Count = 1
    """Gradient accumulation: a step takes this many batches of each task, one after the other, and has the gradient of
    one batch of so many times the size. For losses that are means over rows."""
    epoch_size: Annotated[int, Field(ge=1, le=100_000_000)] | None = None  # an epoch is planned in memory
    """Examples of each task in an epoch. Default: the size of the smallest task's training set."""
    scheduler: SchedulerConfig = SchedulerConfig()
    """How the tasks share training steps, with parameters, e.g. proportional:alpha=0.5 or the gradient aggregator
    cagrad:c=0.4. --help-scheduler all lists the schedulers, --help-scheduler NAME explains one."""
    task_weights: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    """Weight of each task's loss, in the order of the tasks. Default: the weights in the tasks' declarations (1)."""

    @property
    def step_size(self) -> int:
        """Examples of each task in a step."""
        return self.batch_size * self.accumulate
