"""Tables beyond the multi-task report: reviews, pair features, all schedulers, the best recipe and its parts."""

from dataclasses import replace

from multitask.models.config import HeadsConfig
from multitask.schedulers.config import SchedulerConfig
from multitask.stages.finetune import FinetuneConfig
from multitask.training.config import OptimizerConfig
from studies.engine.experiments import Experiment, experiment
from studies.engine.recipes import Node, Recipes
from studies.engine.table import Row


def reviews(recipes: Recipes) -> Experiment:
    """The course's fourth task: long reviews, positive or negative, fine-tuned alone."""
    return experiment(
        "reviews",
        "Long reviews",
        "Not in the report: binary sentiment of whole film reviews, trained alone.",
        [(Row("reviews", "Reviews"), recipes.finetune(recipes.start, recipes.reviews))],
        columns=("reviews",),
    )


def pairs(recipes: Recipes) -> Experiment:
    """Ways to compare the two sentences of a pair. The report transforms each sentence by itself."""
    report = recipes.multitask.heads

    def heads(config: HeadsConfig) -> Node:
        return recipes.finetune(recipes.start, replace(recipes.multitask, heads=config))

    return experiment(
        "pairs",
        "Other ways to compare a pair",
        "Not in the report. Residual transforms begin as the identity. Pair features are |x-y|, x*y and x+y, and an "
        "MLP for each task reads them.",
        (
            (Row("report", "Shared 1st linear layer"), heads(report)),
            (Row("residual", "Shared 1st linear layer, residual"), heads(replace(report, residual=True))),
            (Row("features", "Pair features"), heads(replace(report, sharing="separate", pairs="features"))),
        ),
        reference="report",
    )


SCHEDULERS = {
    "average": "Average loss",
    "uncertainty": "Uncertainty weighting",
    "batch_round_robin": "Batch round robin",
    "epoch_round_robin": "Epoch round robin",
    "proportional": "Sampled by size",
    "annealed": "Sampled by size, annealed",
    "pcgrad": "PCGrad",
    "gradvac": "GradVac",
    "graddrop": "GradDrop",
    "config": "ConFIG",
    "mgda": "MGDA",
    "imtl_g": "IMTL-G",
    "aligned_mtl": "Aligned-MTL",
    "upgrad": "UPGrad",
    "dualproj": "DualProj",
    "cagrad": "CAGrad",
    "nash_mtl": "Nash-MTL",
    "fairgrad": "FairGrad",
    "random": "Random weights",
}


def schedulers(recipes: Recipes) -> Experiment:
    """Tables 6 and 7 for every scheduler: how tasks share the steps, and how their gradients are combined.

    Fine-tuning without pre-training, on the same number of rows of each task.
    """
    base = replace(recipes.multitask, scheduling=SchedulerConfig(reduction="mean"))
    return experiment(
        "schedulers",
        "All schedulers",
        "Beyond the report. Fine-tuned from the start weights on the same number of examples of each task. Round robin "
        "and sampling take an optimizer step for each task's batch; the others take one step for all tasks.",
        (
            (
                Row(name, label, {"scheduler": name}),
                recipes.finetune(recipes.start, replace(base, scheduler=name)),
            )
            for name, label in SCHEDULERS.items()
        ),
        reference="average",
        on_request=True,
    )


BEST = FinetuneConfig(
    epochs=2,
    task_weights=(1.0, 1.0, 5.0),
    encoder_dropout=0.0,
    heads=HeadsConfig("separate", pairs="features", similarity_pairs="embeddings", residual=True),
    optimizer=OptimizerConfig(learning_rate=7e-5, head_learning_rate=1e-3, schedule="linear", warmup=0.1),
)


def best(recipes: Recipes) -> Experiment:
    """The best recipe for all-MiniLM-L6-v2 that we found on the dev sets.

    Fine-tunes the preset's start weights with every example of the smallest set in each epoch.
    """
    return experiment(
        "best",
        "The best recipe",
        "Beyond the report: pair features for paraphrase, transforms that begin as the identity, no dropout within the "
        "encoder, five times the weight on similarity. Selected on the dev sets shown here.",
        [(Row("best", "Best"), recipes.finetune(recipes.start, BEST))],
        on_request=True,
    )


def best_parts(recipes: Recipes) -> Experiment:
    """The best recipe without each of its parts, at the preset's size. Each fine-tuning undoes one choice."""
    size = recipes.multitask
    whole = replace(
        BEST, epochs=size.epochs, epoch_size=size.epoch_size, optimizer=size.optimizer, keep_task_bests=False
    )
    rows = (
        (Row("best", "Best"), whole),
        (Row("weights", "Equal weights"), replace(whole, task_weights=None)),
        (Row("pairs", "Bilinear paraphrase"), replace(whole, heads=replace(whole.heads, pairs="embeddings"))),
        (Row("residual", "Transforms begin at random"), replace(whole, heads=replace(whole.heads, residual=False))),
        (Row("encoder_dropout", "Dropout within the encoder"), replace(whole, encoder_dropout=None)),
    )
    return experiment(
        "best-parts",
        "The best recipe without each of its parts",
        "Beyond the report. Every row changes the best recipe in one place, at the preset's size.",
        ((row, recipes.finetune(recipes.start, config)) for row, config in rows),
        reference="best",
        on_request=True,
    )


TABLES = (reviews, pairs, schedulers, best, best_parts)
