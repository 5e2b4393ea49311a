"""Tables beyond the multi-task report: reviews, pair features, all schedulers, the best recipe and its parts."""

from dataclasses import replace

from multitask.models.config import HeadsConfig
from multitask.schedulers.config import SchedulerConfig
from multitask.stages.finetune import FinetuneConfig
from multitask.training.config import OptimizerConfig
from studies.engine.experiments import Experiment
from studies.engine.recipes import Recipes
from studies.multitask_report.tables_1_to_10 import DESCRIBED, configured, with_recipes


def reviews(recipes: Recipes) -> Experiment:
    """The course's fourth task: long reviews, positive or negative, fine-tuned alone."""
    return with_recipes("reviews", {"reviews": recipes.finetune(recipes.start, recipes.reviews)})


def pairs(recipes: Recipes) -> Experiment:
    """Ways to compare the two sentences of a pair. The report transforms each sentence by itself."""
    report = recipes.multitask.heads
    heads = {
        "report": report,
        "residual": replace(report, residual=True),
        "features": replace(report, sharing="separate", pairs="features"),
    }
    return configured("pairs", recipes, {row: replace(recipes.multitask, heads=of) for row, of in heads.items()})


def schedulers(recipes: Recipes) -> Experiment:
    """Tables 6 and 7 for every scheduler: how tasks share the steps, and how their gradients are combined.

    Fine-tuning without pre-training, on the same number of rows of each task.
    """
    base = replace(recipes.multitask, scheduling=SchedulerConfig(reduction="mean"))
    names = [row["key"] for row in DESCRIBED["schedulers"]["rows"]]
    return configured("schedulers", recipes, {name: replace(base, scheduler=name) for name in names})


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
    return configured("best", recipes, {"best": BEST})


def best_parts(recipes: Recipes) -> Experiment:
    """The best recipe without each of its parts, at the preset's size. Each fine-tuning undoes one choice."""
    size = recipes.multitask
    whole = replace(
        BEST, epochs=size.epochs, epoch_size=size.epoch_size, optimizer=size.optimizer, keep_task_bests=False
    )
    configs = {
        "best": whole,
        "weights": replace(whole, task_weights=None),
        "pairs": replace(whole, heads=replace(whole.heads, pairs="embeddings")),
        "residual": replace(whole, heads=replace(whole.heads, residual=False)),
        "encoder_dropout": replace(whole, encoder_dropout=None),
    }
    return configured("best-parts", recipes, configs)


TABLES = (reviews, pairs, schedulers, best, best_parts)
