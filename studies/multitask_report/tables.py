"""Tables 1 to 10 and Figure 2 of the multi-task report and tables beyond it, as `tables.toml` describes them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from math import isnan
from pathlib import Path
from typing import Any

from minbert.files import read_toml
from minbert.settings import read_as
from multitask.base.runs import Weights
from multitask.experiments.table_definitions import OVERALL, Experiment, Node, Row, evaluation, experiment, row_key
from multitask.stages.settings import REPORT_SETTINGS, FinetuneConfig
from multitask.stages.settings_without_training import EvaluateConfig
from multitask.tasks import MAIN_TASKS
from studies.engine.recipes import Recipes, read_tables

DESCRIBED = read_tables(__file__)
RECIPE = ("finetune", "pretraining", "recipe")  # what `tables.toml` says of the recipes of all rows of a table
TableEntry = Mapping[str, Any]


def changed(config: Any, settings: TableEntry, usual: Sequence[str] = ()) -> Any:
    """A configuration with other settings, and the report's for those in `usual`. Parts keep their other settings."""
    found = {
        name: changed(getattr(config, name), value) if isinstance(value, Mapping) else value
        for name, value in settings.items()
    }
    return replace(config, **{name: getattr(REPORT_SETTINGS, name) for name in usual}, **found)


def _settings_of(name: str) -> FinetuneConfig:
    """Settings of a file next to this one, as `finetune --config` takes them."""
    found = changed(FinetuneConfig(), read_toml(Path(__file__).with_name(name)))
    return read_as(FinetuneConfig, json.dumps(asdict(found)), name)


BEST, BEST_BASE = _settings_of("best.toml"), _settings_of("best-base.toml")


def pretrained(recipes: Recipes, steps: Sequence[TableEntry]) -> Node | None:
    """The recipes' base after pre-trainings, one after the other. None without any."""
    model: Node | None = None
    for step in steps:
        if step["on"] == "quora":
            node = recipes.quora(recipes.supervised)
        else:
            arguments = {name: step[name] for name in ("rate", "epochs") if name in step}
            make: Callable[..., Node] = recipes.nli if step["on"] == "nli" else recipes.given
            node = make(start=model, **arguments)
        settings = {name: value for name, value in step.items() if name not in ("on", "rate", "epochs")}
        model = replace(node, config=changed(node.config, settings))
    return model


def model_of(recipes: Recipes, row: TableEntry) -> Node:
    """The recipe of a row."""
    start: Node | Weights | None = pretrained(recipes, row.get("pretraining", ()))
    base = recipes.multitask
    if isinstance(start, Node) and not row.get("finetuned", True):
        return start
    if row.get("recipe") == "best":  # at the preset's size, on the data of all rows: without phrases
        size = FinetuneConfig(epochs=base.epochs, epoch_size=base.epoch_size, keep_task_bests=False)
        start, base = recipes.start, replace(size, task_weights=BEST.task_weights, optimizer=base.optimizer)
    config = changed(base, row.get("finetune", {}), row.get("usual", ()))
    if row.get("batch_of_all_tasks"):
        config = replace(config, batch_size=len(config.tasks or MAIN_TASKS) * config.batch_size)
    return recipes.finetune(start or recipes.base, config)


def supervised_on_sentiment(recipes: Recipes) -> dict[str, Node]:
    """Table 1's rows."""
    sentiment = recipes.fusion.finetune
    vanilla = recipes.finetune(recipes.base, sentiment)
    contrastive = recipes.pretrain(recipes.base, recipes.unsupervised)
    return {
        "vanilla": vanilla,
        "contrastive-first": recipes.finetune(contrastive, sentiment),
        "supervised-first": recipes.pretrain(vanilla, recipes.unsupervised),
        "fusion": recipes.fuse(recipes.base),
    }


def ensembles(recipes: Recipes) -> dict[str, Node | None]:
    """Table 2's ensembles. Only the report can have the row of the test sets."""
    models = [recipes.finetune(start) for start in (recipes.base, recipes.nli(), recipes.given())]
    single = [recipes.finetune(recipes.given(), replace(recipes.multitask, tasks=(task,))) for task in MAIN_TASKS]
    both = {"given-single-task": recipes.ensemble(*single), "ensemble-dev": recipes.ensemble(*models, *single)}
    return {**both, "ensemble-test": None}


OWN_RECIPES: dict[str, Callable[[Recipes], Mapping[str, Node | None]]] = {
    "1": supervised_on_sentiment,
    "2": ensembles,
    "reviews": lambda recipes: {"reviews": recipes.finetune(recipes.start, recipes.reviews)},
    "defaults": lambda recipes: {"defaults": recipes.finetune(recipes.start, FinetuneConfig())},
    "best": lambda recipes: {"best": recipes.finetune(recipes.start, BEST)},
    "best-base": lambda recipes: {"best-base": recipes.finetune(recipes.start, BEST_BASE)},
    "stages": lambda recipes: {"start": Node("evaluate", EvaluateConfig(), (recipes.base,), recipes.data)},
}
"""Recipes that are more than a fine-tuning after pre-trainings, by table and row."""
WITH_COSINES = ("1", "pairs")
"""Tables with models that score paraphrase by a cosine, which training cannot shift, so that 0 is a bad threshold."""


def report_table(key: str, recipes: Recipes) -> Experiment:
    """A table of `tables.toml` with the recipes of its rows."""
    described: dict[str, Any] = dict(DESCRIBED[key])
    shared = {name: described.pop(name) for name in RECIPE if name in described}
    models, lines = OWN_RECIPES[key](recipes) if key in OWN_RECIPES else {}, []
    for entry in described.pop("rows"):
        row = _row(entry, recipes.supervised.optimizer.learning_rate if key == "10" else None)
        settings = {**shared.get("finetune", {}), **entry.get("finetune", {})}
        model = models[row.key] if row.key in models else model_of(recipes, {**shared, **entry, "finetune": settings})
        lines.append((row, model))
    found = experiment(**described, lines=lines)
    return replace(found, evaluation=evaluation_at_threshold) if key in WITH_COSINES else found


def evaluation_at_threshold(model: Node) -> Node:
    """The scores, of paraphrase also at the best threshold of training rows: that of a cosine is fixed."""
    return replace(evaluation(model), config=EvaluateConfig(thresholds=("paraphrase",)))


def _row(entry: TableEntry, rate: float | None) -> Row:
    """A row. If the report has another learning rate than `rate` times the point's, the label gives both."""
    point, label = entry.get("point", {}), entry["label"]
    if rate is not None:
        own = f"{point['rate'] * rate:.1e}".replace(".0e", "e").replace("e-0", "e-")
        label = label if own == label else f"{own} (report: {label})"
    scores = zip((OVERALL, *MAIN_TASKS), entry.get("published", ()), strict=False)
    return Row(entry.get("key") or row_key(point), label, point, {name: s for name, s in scores if not isnan(s)})


TABLES = tuple(partial(report_table, key) for key in DESCRIBED)
