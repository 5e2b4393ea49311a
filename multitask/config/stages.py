"""One configuration a stage."""

from dataclasses import dataclass, field
from typing import Literal

from minbert.errors import InputError
from multitask.config.parts import (
    HeadsConfig,
    MaskingConfig,
    ObjectiveConfig,
    OptimizerConfig,
    Pooling,
    SchedulerConfig,
    ShapeConfig,
    check_range,
)

Kept = Literal["leading", "all"]


@dataclass(frozen=True)
class FinetuneConfig:
    """Multi-task or single-task fine-tuning."""

    tasks: tuple[str, ...] = ("sentiment", "paraphrase", "similarity")
    """Of sentiment, paraphrase, similarity and reviews. Tasks to train together; one name for single-task training."""
    untrained: tuple[str, ...] = ()
    """Further tasks to score without training them; meant for sharing=none, where pairs need no trained head."""
    epochs: int = 10
    batch_size: int = 16
    """Examples of each task in a step."""
    epoch_size: int | None = None
    """Examples of each task in an epoch; the smallest task's training set when left out."""
    train_limit: int | None = None
    """Use only so many training rows of each task, drawn at random but always the same."""
    scheduler: str = "average"
    """How the tasks' losses make steps: average, batch_round_robin, epoch_round_robin, single, proportional, annealed,
    uncertainty, or an aggregator of gradients such as pcgrad (a wrong name lists them all)."""
    weights: tuple[float, ...] | None = None
    """Weight of each task's loss, in the order of the tasks; all 1 when left out."""
    pooling: Pooling = "auto"
    """Sentence embedding from the first token or the mean; `auto` takes what the start weights were tuned with."""
    max_length: int | None = None
    """Cut sentences to so many tokens; the encoder's limit when left out (padding costs nothing here)."""
    encoder_dropout: float | None = None
    """Dropout within the encoder; the checkpoint's when left out. Dropout moves the two embeddings of a pair apart, in
    training only, so heads that compare them may find pairs more alike in evaluation than they learned."""
    patience: int | None = None
    """Stop after so many epochs without a better dev score."""
    keep_task_bests: bool = True
    """Keep each task's best checkpoint besides the best overall one, for ensembles."""
    conflicts_every: int | None = None
    """Steps between looks at the cosines between the tasks' gradients and their norms, which metrics.jsonl and the
    report then show; none when left out. Does not change the training."""
    seed: int = 0
    heads: HeadsConfig = field(default_factory=HeadsConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    scheduling: SchedulerConfig = field(default_factory=SchedulerConfig)

    def __post_init__(self) -> None:
        check_range(self, 1, ("epochs", "batch_size", "epoch_size", "train_limit", "patience", "conflicts_every"))
        check_range(self, 0, ("seed",))
        check_range(self, 0, ("encoder_dropout",), most=0.99)
        if self.weights is not None and (len(self.weights) != len(self.tasks) or not all(w > 0 for w in self.weights)):
            raise InputError(
                f"weights are {self.weights}; expected {len(self.tasks)} positive numbers, one for each task"
            )
        named = (*self.tasks, *self.untrained)
        if not self.tasks or len(set(named)) < len(named):
            raise InputError(f"tasks are {', '.join(named) or 'none'}; expected one or more to train, each named once")


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


@dataclass(frozen=True)
class FuseConfig(FinetuneConfig, ContrastiveConfig):
    """Fusion training: each batch against its labels, then the same sentences against the contrastive objective.

    Source: report, section 4.2. The defaults are the report's: sentiment is the task, pairs need no head.
    """

    tasks: tuple[str, ...] = ("sentiment",)
    untrained: tuple[str, ...] = ("paraphrase", "similarity")
    unlabelled: tuple[str, ...] = ("paraphrase", "similarity")
    """Sources that are only trained contrastively, one after the other at the end of each epoch: tasks, `unlabelled`
    sentences, text files by name."""
    steps: Literal["two", "one"] = "two"
    """One optimizer step for each loss of a batch, or one on their sum."""
    contrastive_weight: float = 1.0
    """Weight of the contrastive losses."""
    quora_share: float = 0.06
    heads: HeadsConfig = field(default_factory=lambda: HeadsConfig(sharing="none"))

    def __post_init__(self) -> None:
        FinetuneConfig.__post_init__(self)
        ContrastiveConfig.__post_init__(self)
        check_range(self, 0, ("contrastive_weight",))


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


@dataclass(frozen=True)
class PruneConfig:
    """Which heads and feed-forward neurons to remove (Michel et al. 2019, arXiv 1905.10650; SparseCSE, 2311.03881)."""

    share: float = 0.1
    """Share of the heads and of the neurons to remove, 0.01 to 0.99; each layer keeps a head."""
    what: Literal["heads", "neurons", "both"] = "both"
    score: Literal["align_uniform", "task", "magnitude", "random"] = "align_uniform"
    """What is removed first: units with the smallest gradient of alignment and uniformity, or of a task's loss, with
    respect to a factor on their result; the smallest weights; or a random draw."""
    signed: bool = False
    """Keep the sign: first goes what lowers the loss most by its removal, not what changes it least. A gradient speaks
    of small changes, which the removal of many units at once is not: use several rounds."""
    uniformity_weight: float = 0.5
    """λ of (1 - λ) alignment + λ uniformity, on the similarity training pairs; those from 4.0 on are aligned."""
    task: str = "similarity"
    """The task of score=task. Other tasks than pairs need start weights that were fine-tuned on them."""
    scope: Literal["global", "layer"] = "global"
    """Remove the lowest of all layers together, or the same share of each layer."""
    normalize: bool = False
    """Divide the scores by their norm within each layer, heads and neurons apart."""
    rounds: int = 1
    """Remove in so many steps, and score what is left anew for each."""
    batch_size: int = 64
    """Rows of a scored batch; uniformity is that of a batch, and its absolute gradients are averaged over batches."""
    train_limit: int | None = None
    """Score on so many rows only, drawn at random but always the same."""
    max_length: int | None = None
    """Cut sentences to so many tokens; the encoder's limit when left out."""
    pooling: Pooling = "auto"
    seed: int = 0
    """Of the batches, and of random scores."""

    def __post_init__(self) -> None:
        check_range(self, 0.01, ("share",), most=0.99)
        check_range(self, 0, ("uniformity_weight",), most=1)
        check_range(self, 1, ("rounds", "batch_size", "train_limit"))
        check_range(self, 0, ("seed",))
        if self.signed and self.score in ("magnitude", "random"):
            raise InputError(f"signed goes with gradients; scores by {self.score} have no sign")


@dataclass(frozen=True)
class EnsembleConfig:
    """How fine-tuned models are combined."""

    method: Literal["best_per_task", "average", "greedy", "soup", "greedy_soup"] = "best_per_task"
    """The best member on each task's dev set (the report); the `average` of all members' probabilities or similarities,
    or of those that a `greedy` selection takes for each task, some several times; or one model with the mean of all
    members' weights, a `soup`, or of those that do not lower its dev score."""
    rounds: int = 20
    """How many members the greedy selection takes, with repetition; it keeps the best of its rounds."""

    def __post_init__(self) -> None:
        check_range(self, 1, ("rounds",))


@dataclass(frozen=True)
class SuitesConfig:
    """Which of SentEval's tasks a model's frozen embeddings are scored on."""

    suites: tuple[Literal["sts", "transfer"], ...] = ("sts", "transfer")
    limit: int | None = None
    """Score at most so many pairs of each similarity task, and of each transfer task learn from and score about so many
    rows, always the same; all when left out."""

    def __post_init__(self) -> None:
        check_range(self, 100, ("limit",))


@dataclass(frozen=True)
class SimulationConfig:
    """Simulated embeddings of the gradient study (arXiv 2402.18281, section 3.1).

    The defaults of what the paper simulates, down to the deviations, are the paper's.
    """

    grid: int = 100
    """Values of the mean angle of positives, and of negatives, in each map."""
    batches: int = 1000
    """Simulated batches for each value."""
    batch_size: int = 128
    """An anchor's positive and its negatives."""
    positive_deviation: float = 0.05
    """Standard deviation of the angle between an anchor and its positive, in radians."""
    negative_deviation: float = 0.10
    """The same for negatives."""
    trials: int = 1000
    """Random configurations of each batch size and dimension on which conjectures are checked."""
    training_trials: int = 200
    """The same for the conjecture that is about training; each is trained with and without every dissipation."""
    steps: int = 50
    """Gradient steps of such a training."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_range(self, 10, ("grid",))
        check_range(self, 2, ("batch_size",))
        check_range(self, 1, ("batches", "trials", "training_trials", "steps"))
        check_range(self, 0, ("positive_deviation", "negative_deviation", "seed"))
