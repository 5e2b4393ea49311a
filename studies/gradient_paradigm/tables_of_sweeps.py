"""Tables that vary one parameter: margin, temperature or ratio, batch, data size, domain, negatives, encoder."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import sqrt
from typing import Any

from minbert.config import ModelType
from multitask.experiments.tables import Experiment, GridLine, Node, Row, key_of
from multitask.stages.settings import MlmConfig, PretrainConfig, ShapeConfig
from multitask.training.settings import NegativesConfig, ObjectiveConfig
from studies.engine.recipes import Recipes
from studies.gradient_paradigm.tables_of_losses import LABELS, OBJECTIVES, ROWS, rescaled_intervals, table

DEFAULTS = {"margin": 0.30, "temperature": 0.05, "ratio": 1.0}
"""The gradient form's default parameters."""
SYMBOLS = {"margin": "m", "temperature": "τ", "ratio": "r"}
MEANINGS = {"margin": "margin of the dissipation", "temperature": "temperature of the weight", "ratio": "ratio"}
FIELDS = {"margin": "dissipation", "temperature": "weight", "ratio": "ratio"}
"""The objective names its parameters by their components."""
VARIED = {
    "margin": (0.05, 0.10, 0.20, 0.45, 0.60, 2.00),
    "temperature": (0.003, 0.01, 0.02, 0.10, 0.20, 0.50, 1.00),
    "ratio": (0.25, 0.50, 0.75, 1.25, 1.50, 2.00),
}
DEFAULT_ROW = "defaults"


def component_row(parameter: str, value: float) -> str:
    """The key of the gradient form's row that has this value, and defaults otherwise."""
    return DEFAULT_ROW if value == DEFAULTS[parameter] else key_of({parameter: value})


def swept(parameter: str) -> dict[float, str]:
    """Keys of the gradient form's rows along one parameter, by its value in rising order."""
    values = sorted((*VARIED[parameter], DEFAULTS[parameter]))
    return {value: component_row(parameter, value) for value in values}


def component_label(parameter: str, value: float) -> str:
    """`m 0.30`, `τ 0.05` or `r 1`."""
    return f"{SYMBOLS[parameter]} {value:.2f}" if parameter == "margin" else f"{SYMBOLS[parameter]} {value:.3g}"


def gradient_lines(recipes: Recipes) -> Iterator[GridLine]:
    """The gradient form with one parameter varied and the others at defaults (arXiv 2402.18281, section 3.2)."""
    label = ", ".join(component_label(parameter, value) for parameter, value in DEFAULTS.items())
    yield Row(DEFAULT_ROW, label, DEFAULTS), recipes.self_supervised(ObjectiveConfig("gradient"))
    for parameter, values in VARIED.items():
        for value in values:
            point, label = {**DEFAULTS, parameter: value}, component_label(parameter, value)
            objective = ObjectiveConfig.of("gradient", **{FIELDS[parameter]: value})
            yield Row(component_row(parameter, value), label, point), recipes.self_supervised(objective)


gradient = table("gradient", gradient_lines)
gradient_suites = table("gradient-suites", gradient_lines)  # do all kinds of tasks have the same best values?

COMPARED = ("infonce", "vicreg-modified")
"""The losses that are compared under other conditions."""
CHUNK = 64  # rows that are encoded at a time
LARGEST = 65536  # sentences; checkpoints with all sentences are as far apart as with these
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
    compared = (
        {name: ObjectiveConfig(name) for name in losses} if losses else {name: OBJECTIVES[name] for name in COMPARED}
    )

    def lines(recipes: Recipes) -> Iterator[GridLine]:
        for objective, entry in product(compared, ROWS[key]):
            value = entry.get("key")
            config = replace(changed(recipes.views, value), objective=compared[objective])
            label = f"{(losses or LABELS)[objective]}, {entry['label']}"
            row = Row.at({"objective": objective, parameter: value}, label)
            yield row, recipes.pretrain(recipes.untuned, config)

    return table(key, lines)


def batches_of(usual: PretrainConfig, size: int) -> PretrainConfig:
    """Training on the same sentences in batches of this size, large ones with gradient caching.

    All rows have their checkpoints after the same numbers of sentences: a row with more of them would choose the best
    of more.
    """
    rate = usual.optimizer.learning_rate * sqrt(size / usual.batch_size)
    optimizer, chunk = replace(usual.optimizer, learning_rate=rate), CHUNK if size > CHUNK else None
    views = rescaled_intervals(usual, usual.batch_size / size)
    return replace(views, batch_size=size, optimizer=optimizer, chunk=chunk)


def limited_to(usual: PretrainConfig, limit: int | None) -> PretrainConfig:
    """Training on so many sentences, each seen once. All sizes up to the largest have equally many checkpoints."""
    views = rescaled_intervals(usual, (limit or LARGEST) / (usual.train_limit or LARGEST))
    return replace(views, train_limit=limit)


def in_domain(usual: PretrainConfig, source: str) -> PretrainConfig:
    """Training on dropout views of the same number of sentences of each domain."""
    return replace(usual, sources=(source,), train_limit=min(SENTENCES, usual.train_limit or SENTENCES))


def few_negatives_of(usual: PretrainConfig, count: int) -> PretrainConfig:
    """Training with so many negatives of each anchor."""
    return replace(usual, sampling=NegativesConfig("random", negatives_kept=count))


DISSIPATING = {
    loss["key"]: loss["label"] for loss in ROWS["decoupled"] if loss["key"] in ("infonce", "align_uniform", "dcl")
}
few_negatives = each_loss("few-negatives", "negatives", few_negatives_of, DISSIPATING)
batch_sizes = each_loss("batch-sizes", "batch_size", batches_of)
data_sizes = each_loss("data-sizes", "limit", limited_to)
domains = each_loss("domains", "source", in_domain)


def negative_lines(recipes: Recipes) -> Iterator[GridLine]:
    """Which other sentences of the batch are negatives: random, hardest, no likely duplicates."""
    for objective, way in product(("infonce", "gradient"), ROWS["negatives"]):
        sampling = NegativesConfig(**{name: value for name, value in way.items() if name not in ("key", "label")})
        config = replace(recipes.views, objective=OBJECTIVES[objective], sampling=sampling)
        row = Row.at({"objective": objective, "negatives": way["key"]}, f"{LABELS[objective]}, {way['label']}")
        yield row, recipes.pretrain(recipes.untuned, config)


negatives = table("negatives", negative_lines)

ARCHITECTURES: dict[ModelType, str] = {"bert": "BERT", "roberta": "RoBERTa"}
DEPTHS = {
    "2x128": ("2 layers of 128", ShapeConfig(128, 2, 2, 512)),
    "4x256": ("4 layers of 256", ShapeConfig(256, 4, 4, 1024)),
    "6x384": ("6 layers of 384", ShapeConfig(384, 6, 6, 1536)),
}
SHAPES = {(a, size): replace(shape, model_type=a) for a in ARCHITECTURES for size, (_, shape) in DEPTHS.items()}


def from_scratch(recipes: Recipes, shape: ShapeConfig) -> Node:
    """Masked language modelling from random weights."""
    return recipes.mlm(recipes.start, replace(recipes.masked or MlmConfig(), from_scratch=True, shape=shape))


def shape_lines(recipes: Recipes) -> Iterator[GridLine]:
    """Do the components have the same effect in BERT and RoBERTa encoders of several sizes?

    Each encoder is trained from scratch with its own vocabulary, then under each objective on the same sentences.
    """
    for (architecture, size), shape in SHAPES.items():
        start = from_scratch(recipes, shape)
        for objective in ("infonce", "vicreg", "vicreg-modified"):
            point = {"architecture": architecture, "size": size, "objective": objective}
            row = Row.at(point, f"{ARCHITECTURES[architecture]}, {DEPTHS[size][0]}, {LABELS[objective]}")
            yield row, recipes.self_supervised(OBJECTIVES[objective], start)


shapes = table("shapes", shape_lines)

TABLES = (gradient, gradient_suites, few_negatives, batch_sizes, data_sizes, domains, negatives, shapes)
