"""Tables beyond the multi-task report: what it left to future work, what it tried without a table, and our recipes."""

from dataclasses import replace
from typing import Literal

from multitask.models.config import HeadsConfig
from multitask.schedulers.config import SchedulerConfig
from multitask.stages.settings.evaluate import EvaluateConfig
from multitask.stages.settings.finetune import FinetuneConfig
from multitask.stages.settings.pretrain import PretrainConfig
from multitask.training.config import OptimizerConfig, RegularisationConfig
from studies.engine.experiments import Experiment
from studies.engine.recipes import Node, Recipes
from studies.engine.table import key_of
from studies.multitask_report.tables_1_to_10 import DESCRIBED, configured, started_from, with_recipes


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


def _best_at_size_of(size: FinetuneConfig) -> FinetuneConfig:
    """The best recipe with the length and the learning rates of another configuration."""
    return replace(
        BEST, epochs=size.epochs, epoch_size=size.epoch_size, optimizer=size.optimizer, keep_task_bests=False
    )


def best_parts(recipes: Recipes) -> Experiment:
    """The best recipe without each of its parts, at the preset's size. Each fine-tuning undoes one choice."""
    whole = _best_at_size_of(recipes.multitask)
    configs = {
        "best": whole,
        "weights": replace(whole, task_weights=None),
        "pairs": replace(whole, heads=replace(whole.heads, pairs="embeddings")),
        "residual": replace(whole, heads=replace(whole.heads, residual=False)),
        "encoder_dropout": replace(whole, encoder_dropout=None),
    }
    return configured("best-parts", recipes, configs)


def regularisation(recipes: Recipes) -> Experiment:
    """Future work 1 of the report (section 7), regularisation: the best recipe plus one method, at the preset's size.

    R-Drop needs dropout within the encoder, which the best recipe does without; the row with dropout alone isolates it.
    """
    whole = _best_at_size_of(recipes.multitask)
    dropout = replace(whole, encoder_dropout=None)
    configs = {
        "best": whole,
        "smart": replace(whole, regularisation=RegularisationConfig(smart_weight=1.0)),
        "encoder_dropout": dropout,
        "r_drop": replace(dropout, regularisation=RegularisationConfig(r_drop_weight=1.0)),
        "ema": replace(whole, optimizer=replace(whole.optimizer, ema_decay=0.95)),
        "layer_decay": replace(whole, optimizer=replace(whole.optimizer, layer_decay=0.85)),
    }
    return configured("regularisation", recipes, configs)


def batches(recipes: Recipes) -> Experiment:
    """Report, sections 5.3 and 6.5: "Different batch sizes are also explored at 32 and 64", without scores.

    The report does not say which training; here the pre-training on the 3 given sets or the fine-tuning changes.
    """

    def model(pretraining: int, finetuning: int) -> Node:
        given = recipes.given()
        start = recipes.pretrain(recipes.start, replace(given.config, batch_size=pretraining))
        return recipes.finetune(start, replace(recipes.multitask, batch_size=finetuning))

    points = [row["point"] for row in DESCRIBED["batches"]["rows"]]
    return with_recipes("batches", {key_of(point): model(**point) for point in points})


def learning_rate_schedule(recipes: Recipes) -> Experiment:
    """Future work 3 of the report (section 7): a schedule of the learning rate and a warm-up, in fine-tuning."""
    base = recipes.multitask
    points = [row["point"] for row in DESCRIBED["learning-rate-schedule"]["rows"]]
    configs = {key_of(point): replace(base, optimizer=replace(base.optimizer, **point)) for point in points}
    return configured("learning-rate-schedule", recipes, configs)


def negative_pairs(recipes: Recipes) -> Experiment:
    """Report, section 4.1: what contrastive pre-training does with Quora's pairs of label 0.

    The report maximises their contrastive loss, which has no bound: that is the row "literal". Our other tables use
    the bounded loss. Settings are those of Table 4.
    """
    forms: tuple[Literal["left_out", "bounded", "literal"], ...] = ("left_out", "bounded", "literal")
    configs: dict[str, PretrainConfig] = {form: replace(recipes.supervised, negative_pairs=form) for form in forms}
    starts = {form: recipes.quora(config) for form, config in configs.items()}
    return started_from("negative-pairs", recipes, starts)


def stages(recipes: Recipes) -> Experiment:
    """Future work 4 of the report (section 7): alignment and uniformity of the embeddings after every stage.

    The models are the start weights and those of Table 5, before and after fine-tuning.
    """
    nli, given = recipes.nli(), recipes.given()
    trained = {"nli": nli, "given": given, "nli-given": recipes.given(start=nli), "given-nli": recipes.nli(start=given)}
    tuned = {f"{key}-finetuned": recipes.finetune(node) for key, node in trained.items()}
    untrained = {
        "start": Node("evaluate", EvaluateConfig(), (recipes.start,), recipes.data),
        "none-finetuned": recipes.finetune(recipes.start),
    }
    return with_recipes("stages", {**untrained, **trained, **tuned})


TABLES = (
    *(reviews, pairs, schedulers, batches, learning_rate_schedule, negative_pairs, stages),
    *(best, best_parts, regularisation),
)
