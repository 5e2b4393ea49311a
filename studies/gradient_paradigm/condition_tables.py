"""Tables of losses under other conditions: rate, batch, amount and kind of sentences, negatives, and encoder."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import sqrt
from typing import Any

from minbert.config import ModelType
from multitask.experiments.table_definitions import Experiment, GridLine, Node, Point, Row
from multitask.stages.settings_of_pretraining import MlmConfig, PretrainConfig, ShapeConfig
from multitask.training.settings import NegativesConfig, ObjectiveConfig
from studies.engine.recipes import Recipes
from studies.gradient_paradigm.stages import RandomEncoderConfig
from studies.gradient_paradigm.tables import (
    FIELDS,
    LOSS_NAMES,
    LOSSES,
    ROWS,
    WITH_AND_WITHOUT,
    component_label,
    described_table,
    rescaled_intervals,
    with_components,
)

COMPARED = ("infonce", "vicreg-modified")  # the losses that are compared under other conditions
ROWS_PER_CHUNK = 64  # rows that are encoded at a time
ALL_SENTENCES = 65536  # sentences; checkpoints with all sentences are as far apart as with these
SENTENCES = 3000  # of a domain; the smallest domain of the course's data, captions, has more


def each_loss(
    key: str,
    parameter: str,
    changed: Callable[[PretrainConfig, Any], PretrainConfig],
    losses: Mapping[str, str] | None = None,
) -> Callable[[Recipes], Experiment]:
    """A table with every compared loss at every value of a parameter.

    `changed` makes a row's training of the usual one and the value. `losses` have default settings and these labels.
    """
    compared = {name: ObjectiveConfig(name) for name in losses} if losses else {name: LOSSES[name] for name in COMPARED}

    def lines(recipes: Recipes) -> Iterator[GridLine]:
        for objective, entry in product(compared, ROWS[key]):
            value = entry.get("key")
            config = replace(changed(recipes.views, value), objective=compared[objective])
            label = f"{(losses or LOSS_NAMES)[objective]}, {entry['label']}"
            row = Row.at({"objective": objective, parameter: value}, label)
            yield row, recipes.pretrain(recipes.untuned, config)

    return described_table(key, lines)


def batches_of(usual: PretrainConfig, size: int) -> PretrainConfig:
    """Training on the same sentences in batches of this size, large ones with gradient caching.

    All rows have their checkpoints after the same numbers of sentences: a row with more of them would choose the best
    of more.
    """
    rate = usual.optimizer.learning_rate * sqrt(size / usual.batch_size)
    optimizer, chunk = replace(usual.optimizer, learning_rate=rate), ROWS_PER_CHUNK if size > ROWS_PER_CHUNK else None
    views = rescaled_intervals(usual, usual.batch_size / size)
    return replace(views, batch_size=size, optimizer=optimizer, chunk=chunk)


def limited_to(usual: PretrainConfig, limit: int | None) -> PretrainConfig:
    """Training on so many sentences, each seen once. All sizes up to the largest have equally many checkpoints."""
    views = rescaled_intervals(usual, (limit or ALL_SENTENCES) / (usual.train_limit or ALL_SENTENCES))
    return replace(views, train_limit=limit)


def in_domain(usual: PretrainConfig, source: str) -> PretrainConfig:
    """Training on dropout views of the same number of sentences of each domain."""
    return replace(usual, sources=(source,), train_limit=min(SENTENCES, usual.train_limit or SENTENCES))


def few_negatives_of(usual: PretrainConfig, count: int) -> PretrainConfig:
    """Training with so many negatives of each anchor."""
    return replace(usual, sampling=NegativesConfig("random", negatives_kept=count))


few_negatives = each_loss("few-negatives", "negatives", few_negatives_of, WITH_AND_WITHOUT)
batch_sizes = each_loss("batch-sizes", "batch_size", batches_of)
data_sizes = each_loss("data-sizes", "limit", limited_to)
domains = each_loss("domains", "source", in_domain)


def negative_lines(recipes: Recipes) -> Iterator[GridLine]:
    """Which other sentences of the batch are negatives: random, hardest, no likely duplicates."""
    for objective, way in product(("infonce", "gradient"), ROWS["negatives"]):
        sampling = NegativesConfig(**{name: value for name, value in way.items() if name not in ("key", "label")})
        config = replace(recipes.views, objective=LOSSES[objective], sampling=sampling)
        row = Row.at({"objective": objective, "negatives": way["key"]}, f"{LOSS_NAMES[objective]}, {way['label']}")
        yield row, recipes.pretrain(recipes.untuned, config)


negatives = described_table("negatives", negative_lines)

SLOWER = 50  # times smaller than the usual learning rate


def break_condition_lines(recipes: Recipes) -> Iterator[GridLine]:
    """Where a component should stop mattering: the ratio at a tiny learning rate, the weight among hard negatives only.

    Each with and without the condition, and with a small and a large value of the component's parameter.
    """
    usual = recipes.views
    rate = usual.optimizer.learning_rate / SLOWER
    conditions = {
        "ratio": {"none": usual, "tiny-rate": replace(usual, optimizer=replace(usual.optimizer, learning_rate=rate))},
        "temperature": {"none": usual, "hardest": replace(usual, sampling=NegativesConfig("hardest"))},
    }
    for entry in ROWS["break-conditions"]:
        parameter, condition = entry["parameter"], entry["condition"]
        for value in entry["values"]:
            objective = ObjectiveConfig.of("gradient", **{FIELDS[parameter]: value})
            label = f"{component_label(parameter, value)}{entry['label']}"
            config = replace(conditions[parameter][condition], objective=objective)
            yield Row.at({"condition": condition, parameter: value}, label), recipes.pretrain(recipes.untuned, config)


break_conditions = described_table("break-conditions", break_condition_lines)

ARCHITECTURE_NAMES: dict[ModelType, str] = {"bert": "BERT", "roberta": "RoBERTa"}
DEPTHS = {
    "2x128": ("2 layers of 128", ShapeConfig(128, 2, 2, 512)),
    "4x256": ("4 layers of 256", ShapeConfig(256, 4, 4, 1024)),
    "6x384": ("6 layers of 384", ShapeConfig(384, 6, 6, 1536)),
}
SHAPES = {(a, size): replace(shape, model_type=a) for a in ARCHITECTURE_NAMES for size, (_, shape) in DEPTHS.items()}


def encoder_from_scratch(recipes: Recipes, shape: ShapeConfig) -> Node:
    """Masked language modelling from random weights."""
    return recipes.mlm(recipes.start, replace(recipes.masked or MlmConfig(), from_scratch=True, shape=shape))


def shape_lines(recipes: Recipes) -> Iterator[GridLine]:
    """Do the components have the same effect in BERT and RoBERTa encoders of several sizes?

    Each encoder is trained from scratch with its own vocabulary, then under each objective on the same sentences.
    """
    for (architecture, size), shape in SHAPES.items():
        start = encoder_from_scratch(recipes, shape)
        for objective in ("infonce", "vicreg", "vicreg-modified"):
            point = {"architecture": architecture, "size": size, "objective": objective}
            row = Row.at(point, f"{ARCHITECTURE_NAMES[architecture]}, {DEPTHS[size][0]}, {LOSS_NAMES[objective]}")
            yield row, recipes.self_supervised(LOSSES[objective], start)


shapes = described_table("shapes", shape_lines)


def architecture_lines(recipes: Recipes) -> Iterator[GridLine]:
    """Do the components have the same effect in encoders of other architectures, from random weights?

    ModernBERT has no dropout of its own, which makes the two views of a sentence; all have the same here.
    """
    size = {name: value for name, value in vars(SHAPES["bert", "4x256"]).items() if name != "model_type"}
    views = replace(recipes.views, pooling="mean", encoder_dropout=0.1, freeze_embeddings=False)
    losses: list[tuple[Point, str, ObjectiveConfig]] = [({"loss": "infonce"}, LOSS_NAMES["infonce"], LOSSES["infonce"])]
    losses += [
        ({"components": on}, f"{LOSS_NAMES['vicreg']}, {' + '.join(on) or 'plain'}", objective)
        for on, objective in with_components(recipes, "vicreg")
    ]
    for way, (point, label, objective) in product(ROWS["architectures"], losses):
        config = RandomEncoderConfig(way.get("architecture", way["key"]), **size)
        start = Node("random_encoder", config, (recipes.start,), recipes.data)
        row = Row.at({"architecture": way["key"], **point}, f"{way['label']}, {label}")
        yield row, recipes.pretrain(start, replace(views, objective=objective))


architectures = described_table("architectures", architecture_lines)

TABLES = (break_conditions, few_negatives, batch_sizes, data_sizes, domains, negatives, shapes, architectures)
