"""Settings and registrations of the stages that train nothing: prune, ensemble and two that score. Free of torch."""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from minbert.errors import InputError
from minbert.settings import Count, Share, settings
from multitask.stages.registry import SCORING, START, ModelInput, Stage, register
from multitask.training.settings import SentencesConfig


@settings
class PruneConfig(SentencesConfig):
    """Which heads and feed-forward neurons to remove (Michel et al. 2019, arXiv 1905.10650; SparseCSE, 2311.03881)."""

    share: Annotated[float, Field(ge=0.01, le=0.99)] = 0.1
    """Share of the heads and of the neurons to remove, 0.01 to 0.99. Each layer keeps at least one head."""
    what: Literal["heads", "neurons", "both"] = "both"
    """Which units to remove."""
    score: Literal["align_uniform", "task", "magnitude", "random"] = "align_uniform"
    """Which units to remove first: those with the smallest gradient, with respect to a factor on their output, of
    alignment and uniformity (`align_uniform`) or of a task's loss (`task`); those with the smallest weights
    (`magnitude`); or `random` ones. The last two read no rows: batch_size, train_limit and max_length then change
    nothing, and with `magnitude` nor does the seed."""
    signed: bool = False
    """Keep the gradient's sign: remove first the units whose removal lowers the loss most, not those that change it
    least. A gradient only describes small changes, so use several rounds."""
    uniformity_weight: Share = 0.5
    """λ of (1 - λ) alignment + λ uniformity on the similarity training pairs. Pairs with a similarity in the top fifth
    of the task's range are aligned: 4 and more of 0 to 5."""
    task: str | None = None
    """The task of `--score task`. Default: the first one of the kind `cosine`, such as similarity. Tasks other than
    pairs need start weights that were fine-tuned on them."""
    order: Literal["lowest", "highest"] = "lowest"
    """Which scores to remove first. `highest` removes what the score calls most useful, as a test of the score."""
    scope: Literal["global", "layer"] = "global"
    """Remove the share of all units of the encoder (`global`), or the same share in each `layer`."""
    normalize_scores: bool = False
    """In each layer, divide the scores of the heads by their norm, and those of the neurons by theirs."""
    rounds: Count = 1
    """Remove the share in this many steps, and compute new scores before each."""
    batch_size: Count = 64
    """Rows in a batch. Uniformity is computed within a batch; absolute gradients are averaged over batches."""
    train_limit: Count | None = None
    """Compute scores on this many rows only. The same rows are drawn every time."""

    def __post_init__(self) -> None:
        if self.signed and self.score in ("magnitude", "random"):
            raise InputError(f"signed is for scores that are gradients; scores by {self.score} have no sign")
        if self.task is not None and self.score != "task":
            raise InputError(f"task has no effect with the score {self.score}; add --score task")
        if self.score != "align_uniform" and self.uniformity_weight != PruneConfig.uniformity_weight:
            raise InputError(f"uniformity_weight has no effect with the score {self.score}; leave it out")


REWIND = ModelInput(
    "rewind_to",
    "rewind_revision",
    "Give the remaining units the weights of this model, an earlier state of the start's training (what it started "
    "from, or a shorter run of it). Default: the start's own weights.",
)
PRUNE = register(
    Stage(
        "prune",
        PruneConfig,
        "Remove the attention heads and neurons that matter least; other stages can start from what remains.",
        version=4,
        inputs=(START, REWIND),
        computing=("device", "threads"),
        common=("rewind_to", "share", "what", "score", "signed", "rounds", "train_limit", "seed"),
    )
)


SOUPS = ("soup", "greedy_soup")


@settings
class EnsembleConfig:
    """How fine-tuned models are combined."""

    method: Literal["best_per_task", "average", "greedy", "soup", "greedy_soup"] = "best_per_task"
    """`best_per_task` takes the member with the best dev score of each task (the report); `average` averages the
    probabilities or similarities of all members; `greedy` averages members that are selected for each task, some
    several times; `soup` is one model with the mean of all members' weights; `greedy_soup` leaves out members that
    lower its dev score."""
    rounds: Count = 20
    """How many members the greedy selection takes, some several times. It keeps the best of its rounds."""
    kept: Literal["leading", "all"] = "leading"
    """Take each run's `leading` model, or `all` that it keeps (best overall and best on each task)."""
    keep_start: Share = 0.0
    """For soups: mix this share of the start weights into the encoder (LM-Cocktail, arXiv 2311.13534), so that it keeps
    more of what it could do before, e.g. 0.3. The heads stay those of the soup. A soup may have one member."""

    def __post_init__(self) -> None:
        if self.method != "greedy" and self.rounds != EnsembleConfig.rounds:
            raise InputError(f"rounds has no effect with the method {self.method}; take greedy")
        if self.keep_start and self.method not in SOUPS:
            raise InputError(f"keep_start is for the methods {' and '.join(SOUPS)}, not for {self.method}")


ENSEMBLE = register(
    Stage(
        "ensemble",
        EnsembleConfig,
        "Combine fine-tuned models into one; its folder has the course's prediction files.",
        version=3,
        with_seed=None,
        inputs=(),
        computing=SCORING,
        common=("method", "rounds", "kept", "keep_start"),
        scores=True,
        gpu_share=0.5,
    )
)


@settings
class EvaluateConfig:
    """What a run's leading model, or a checkpoint, is scored on."""

    split: Literal["dev"] = "dev"
    thresholds: tuple[str, ...] = ()
    """Classifications of two classes that are also scored with the threshold that is best on training rows."""


@settings
class SuitesConfig:
    """Which of SentEval's tasks a model's frozen embeddings are scored on."""

    suites: tuple[Literal["sts", "transfer", "retrieval"], ...] = ("sts", "transfer", "retrieval")
    """The suites."""
    limit: Annotated[int, Field(ge=100)] | None = None
    """Score at most this many pairs of each similarity task and queries of each retrieval task; let each transfer task
    train on and score about this many rows. They are the same rows every time."""
    geometry: bool = False
    """Also measure alignment, uniformity and so on of the embeddings of the STS Benchmark's scored sentences."""


ON_DEV = register(
    Stage(
        "evaluate",
        EvaluateConfig,
        "Score a run's best model, or a checkpoint, on the dev sets.",
        version=7,
        with_seed=None,
        computing=SCORING,
        command=False,
        scores=True,
        gpu_share=0.5,
    )
)
ON_SUITES = register(
    replace(
        ON_DEV,
        name="suites",
        config=SuitesConfig,
        help="Score a model's frozen embeddings on SentEval's tasks.",
        version=6,
    )
)
