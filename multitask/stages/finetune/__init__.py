"""Multi-task or single-task fine-tuning."""

from dataclasses import dataclass, field

from minbert.errors import InputError
from multitask.models.config import HeadsConfig, Pooling
from multitask.runtime.options import check_range
from multitask.schedulers.config import SchedulerConfig
from multitask.training.config import OptimizerConfig


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
