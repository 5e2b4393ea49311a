"""Settings of trainings: optimiser, schedulers, regularisation, contrastive losses. Free of torch, for `--help`."""

from dataclasses import field
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from minbert.errors import InputError, did_you_mean
from minbert.settings import AtLeastZero, Count, Seed, Share, settings
from multitask import objectives  # which imports torch on first use
from multitask.models.settings import Pooling
from multitask.objectives.parameters import parameters, text_of

if TYPE_CHECKING:
    from multitask.objectives.base import Objective

Value = Annotated[float, Field(allow_inf_nan=True)] | str | None  # objectives say what is wrong with their values


@settings
class ObjectiveConfig:
    """The name of an objective and the parameters given for it. All others keep the defaults of the objective's class.

    `parse`, `build` and `changed` check names and values and raise InputError; the constructor does not, because it
    would import torch.
    """

    form: ClassVar[str] = "NAME[:PARAMETER=VALUE,...]"
    """What `parse` reads, for help pages."""

    name: str = "infonce"
    """A name from `OBJECTIVES`."""
    parameters: tuple[tuple[str, Value], ...] = ()
    """(name, value) of each given parameter, sorted by name; None switches a component off. Lists, as JSON has them,
    become tuples: `ObjectiveConfig(**dataclasses.asdict(config))` equals `config`."""

    def __post_init__(self) -> None:
        given = dict(self.parameters)
        if len(given) < len(self.parameters):
            raise InputError(f"{self.name}: a parameter is given twice; expected each once")
        object.__setattr__(self, "parameters", tuple(sorted(given.items())))  # the class is frozen

    @model_validator(mode="before")
    @classmethod
    def _of_text_or_json(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(given := value.get("parameters"), list):
            return value | {"parameters": tuple(tuple(pair) if isinstance(pair, list) else pair for pair in given)}
        if not isinstance(value, str):
            return value
        try:
            return vars(cls.parse(value))
        except InputError as error:
            raise ValueError(str(error)) from None

    @classmethod
    def of(cls, name: str, /, **parameters: Value) -> Self:
        """An objective by name, e.g. `ObjectiveConfig.of("vicreg", dissipation=0.3, weight=0.05)`."""
        return cls(name, tuple(parameters.items()))

    @classmethod
    def parse(cls, text: str) -> Self:
        """An objective from a text such as `vicreg:dissipation=0.3,weight=0.05`; `none` switches a component off."""
        name, colon, rest = text.partition(":")
        given: list[tuple[str, Value]] = []
        for part in rest.split(",") if colon else ():
            parameter, _, value = (word.strip() for word in part.partition("="))
            if not parameter or not value:
                raise InputError(
                    f'objective "{text}": "{part}" is not PARAMETER=VALUE; '
                    "expected, for example, vicreg:dissipation=0.3,weight=0.05"
                )
            given.append((parameter, _value(value)))
        config = cls(name.strip(), tuple(given))
        config.build()
        return config

    def __str__(self) -> str:
        """The text that `parse` reads."""
        given = ",".join(f"{name}={text_of(value)}" for name, value in self.parameters)
        return f"{self.name}:{given}" if given else self.name

    @staticmethod
    def explain(name: str) -> str:
        """The description of an objective, as plain text. Imports torch. Raises InputError for an unknown name."""
        if name != "all":
            ObjectiveConfig(name).build()
        return objectives.describe(name)

    def build(self) -> "Objective":
        """The objective itself. Imports torch. Errors list the valid names and values."""
        try:
            return objectives.build_objective(self.name, **dict(self.parameters))
        except ValueError as error:
            unknown = self.name not in objectives.OBJECTIVES
            hint = did_you_mean(self.name, objectives.OBJECTIVES) if unknown else ""
            raise InputError(f"{error}{hint}") from None

    def changed(self) -> dict[str, Value]:
        """The parameters that differ from the defaults of the objective's class, by name in order. Imports torch."""
        declared = parameters(type(self.build()))
        return {name: value for name, value in self.parameters if value != declared[name].default}


def _value(text: str) -> Value:
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        return text


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
    """After the warm-up, `constant` keeps the peak learning rate and `linear` lowers it to zero at the last step."""
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
    sentences within a view have as many as others. Hard negatives of triplets always count."""
    negatives_kept: Count = 16
    """How many negatives an anchor keeps, for random and hardest. Duplicates among random ones do not count, so a few
    anchors have fewer; if this number and the batch's rows are both odd, one anchor has one fewer."""
    false_negative_cosine: Annotated[float, Field(ge=-1, le=1)] = 0.9
    """Sentences with at least this cosine may be false negatives (arXiv 2205.00656). For unlike."""


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
    projection: Literal["mlp", "linear", "tanh", "none"] = "mlp"
    """Projection head between embedding and objective, discarded after training. `tanh`: a linear layer and tanh, as in
    SimCSE's scripts."""
    objective: ObjectiveConfig = ObjectiveConfig()
    """Loss on sentence pairs, with parameters, e.g. vicreg:dissipation=0.3,weight=0.05. --help-objective all lists the
    losses, --help-objective NAME explains one."""


@settings
class SchedulerConfig:
    """Options of particular schedulers."""

    sampling_alpha: AtLeastZero = 1.0
    """For proportional: draw a task with probability proportional to size^alpha; 0 draws all equally often."""
    reduction: Literal["sum", "mean"] = "sum"
    """For aggregators that add up gradients (pcgrad, gradvac, graddrop, config, nash_mtl, fairgrad): the `sum`, as in
    their papers, or the `mean` over tasks, which has the same scale as the scheduler average."""
    cagrad_c: AtLeastZero = 0.5
    """For cagrad: how far the update may be from the average gradient, in units of its norm. 0: the average itself."""
    gradvac_beta: Share = 0.01
    """For gradvac: how fast the target cosines follow the observed ones, 0 to 1."""
    fairgrad_alpha: Annotated[float, Field(ge=0.01)] = 1.0
    """For fairgrad: the kind of fairness. 1: proportional fairness; large values approach max-min fairness."""
    stch_mu: Annotated[float, Field(ge=0.01)] = 0.1
    """For stch: how smooth the maximum is. Small values train on the task with the largest loss."""


@settings
class ScheduledTraining(SentencesConfig):
    """Which tasks are trained together, and how they share the training steps."""

    tasks: tuple[str, ...] = ()
    """Tasks to train together. Name one for single-task training. None named: all of the tasks file; of the course's
    tasks (sentiment, paraphrase, similarity, reviews) the first three."""
    epochs: Count = 3
    """Number of epochs."""
    batch_size: Count = 16
    """Examples of each task in a step."""
    accumulate: Count = 1
    """Gradient accumulation: a step takes this many batches of each task, one after the other, and has the gradient of
    one batch of so many times the size. For losses that are means over rows."""
    epoch_size: Count | None = None
    """Examples of each task in an epoch. Default: the size of the smallest task's training set."""
    scheduler: str = "average"
    """How the tasks share training steps: average, batch_round_robin, epoch_round_robin, single, proportional,
    annealed, uncertainty, or a gradient aggregator such as pcgrad. A wrong name lists them all."""
    task_weights: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    """Weight of each task's loss, in the order of the tasks. Default: the weights in the tasks' declarations (1)."""
    scheduling: SchedulerConfig = field(default_factory=SchedulerConfig)

    @property
    def step_size(self) -> int:
        """Examples of each task in a step."""
        return self.batch_size * self.accumulate
