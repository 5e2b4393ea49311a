"""Tables that vary one parameter: margin, temperature or ratio, batch, data size, domain, negatives, encoder."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import sqrt
from typing import TypeVar

from minbert.config import ModelType
from multitask.data.read_unlabelled_files import CAPTIONS_FILE, NEWS_FILE
from multitask.objectives.config import ObjectiveConfig
from multitask.stages.settings.mlm import MlmConfig, ShapeConfig
from multitask.training.config import NegativesConfig
from studies.engine.experiments import Experiment, Line, experiment, suites_experiment
from studies.engine.recipes import Node, Recipes
from studies.engine.table import Row, key_of
from studies.gradient_paradigm.tables_of_losses import DESCRIBED, LABELS, OBJECTIVES, rescaled_intervals

V = TypeVar("V", bound=str | int | None)

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


def component_label(parameter: str, value: float) -> str:
    """`m 0.30`, `τ 0.05` or `r 1`."""
    return f"{SYMBOLS[parameter]} {value:.2f}" if parameter == "margin" else f"{SYMBOLS[parameter]} {value:.3g}"


DEFAULT_LABEL = ", ".join(component_label(parameter, value) for parameter, value in DEFAULTS.items())


def gradient(recipes: Recipes) -> Experiment:
    """The gradient form with one parameter varied and the others at defaults (arXiv 2402.18281, section 3.2).

    Each setting is trained on the same sentences, from one encoder that is not tuned contrastively.
    """
    return experiment(**DESCRIBED["gradient"], lines=_gradient_lines(recipes))


def gradient_suites(recipes: Recipes) -> Experiment:
    """The models of the gradient form on SentEval's tasks: do all kinds of tasks have the same best values?"""
    return suites_experiment(recipes, **DESCRIBED["gradient-suites"], lines=_gradient_lines(recipes))


def _gradient_lines(recipes: Recipes) -> Iterator[Line]:
    default = Row(DEFAULT_ROW, DEFAULT_LABEL, DEFAULTS)
    yield default, recipes.self_supervised(ObjectiveConfig("gradient"))
    for parameter, values in VARIED.items():
        for value in values:
            point, label = {**DEFAULTS, parameter: value}, component_label(parameter, value)
            row = Row(component_row(parameter, value), label, point)
            objective = ObjectiveConfig.of("gradient", **{FIELDS[parameter]: value})
            yield row, recipes.self_supervised(objective)


COMPARED = ("infonce", "vicreg-modified")
"""The losses that are compared under other conditions."""
SIZES = (16, 32, 64, 128, 256, 512, 1024)
CHUNK = 64  # rows that are encoded at a time


def batch_sizes(recipes: Recipes) -> Experiment:
    """How losses depend on the number of negatives: the same sentences in batches of 16 to 1,024.

    Large batches use gradient caching. All rows have their checkpoints after the same numbers of sentences: a row with
    more of them would choose the best of more.
    """

    def trained(objective: str, size: int) -> Node:
        views = rescaled_intervals(recipes.views, recipes.views.batch_size / size)
        rate = views.optimizer.learning_rate * sqrt(size / views.batch_size)
        optimizer = replace(views.optimizer, learning_rate=rate)
        config = replace(views, objective=OBJECTIVES[objective], batch_size=size, optimizer=optimizer)
        return recipes.pretrain(recipes.untuned, replace(config, chunk=CHUNK if size > CHUNK else None))

    lines = _each_loss("batch_size", {size: str(size) for size in SIZES}, trained)
    return experiment(**DESCRIBED["batch-sizes"], lines=lines)


LIMITS = {1024: "1,024", 4096: "4,096", 16384: "16,384", 65536: "65,536", None: "all"}
LARGEST = 65536  # sentences; checkpoints with all sentences are as far apart as with these


def data_sizes(recipes: Recipes) -> Experiment:
    """How losses depend on the number of sentences. Each sentence is seen once.

    All sizes up to the largest choose the best of equally many checkpoints.
    """

    def trained(objective: str, limit: int | None) -> Node:
        views = rescaled_intervals(recipes.views, (limit or LARGEST) / (recipes.views.train_limit or LARGEST))
        config = replace(views, objective=OBJECTIVES[objective], train_limit=limit)
        return recipes.pretrain(recipes.untuned, config)

    return experiment(**DESCRIBED["data-sizes"], lines=_each_loss("limit", LIMITS, trained))


DOMAINS = {
    "paraphrase": "questions",
    "sentiment": "snippets of film reviews",
    CAPTIONS_FILE: "captions",
    NEWS_FILE: "news",
    "unlabelled": "unlabelled text",
}
"""Sources of sentences, with their domains."""
SENTENCES = 3000  # the smallest domain of the course's data, captions, has more


def domains(recipes: Recipes) -> Experiment:
    """How losses depend on the domain: dropout views of the same number of sentences of each domain."""
    views = replace(recipes.views, train_limit=min(SENTENCES, recipes.views.train_limit or SENTENCES))

    def trained(objective: str, source: str) -> Node:
        return recipes.pretrain(recipes.untuned, replace(views, sources=(source,), objective=OBJECTIVES[objective]))

    return experiment(**DESCRIBED["domains"], lines=_each_loss("source", DOMAINS, trained))


NEGATIVES = {
    "all": (NegativesConfig(), "all others"),
    "random-64": (NegativesConfig("random", 64), "64 at random"),
    "random-16": (NegativesConfig("random", 16), "16 at random"),
    "hardest-64": (NegativesConfig("hardest", 64), "64 hardest"),
    "hardest-16": (NegativesConfig("hardest", 16), "16 hardest"),
    "unlike-0.9": (NegativesConfig("unlike", false_negative_cosine=0.9), "cosine below 0.9"),
    "unlike-0.7": (NegativesConfig("unlike", false_negative_cosine=0.7), "cosine below 0.7"),
}
"""Ways to choose an anchor's negatives among the other sentences of its batch, with their names."""
SAMPLED = ("infonce", "gradient")
"""Losses that compare each anchor with negatives of its own."""


def negatives(recipes: Recipes) -> Experiment:
    """How losses depend on which other sentences of the batch are negatives: random, hardest, no likely duplicates."""
    lines = [
        (
            Row.at({"objective": objective, "negatives": way}, f"{LABELS[objective]}, {name}"),
            recipes.pretrain(recipes.untuned, replace(recipes.views, objective=OBJECTIVES[objective], sampling=config)),
        )
        for objective in SAMPLED
        for way, (config, name) in NEGATIVES.items()
    ]
    return experiment(**DESCRIBED["negatives"], lines=lines)


def _each_loss(parameter: str, values: Mapping[V, str], trained: Callable[[str, V], Node]) -> Iterator[Line]:
    """Every compared loss at every value of a parameter, given with the values' names."""
    for objective in COMPARED:
        for value, name in values.items():
            row = Row.at({"objective": objective, parameter: value}, f"{LABELS[objective]}, {name}")
            yield row, trained(objective, value)


ARCHITECTURES: dict[ModelType, str] = {"bert": "BERT", "roberta": "RoBERTa"}
DEPTHS = {"2x128": "2 layers of 128", "4x256": "4 layers of 256", "6x384": "6 layers of 384"}
SHAPES = {
    (architecture, size): replace(shape, model_type=architecture)
    for architecture in ARCHITECTURES
    for size, shape in (
        ("2x128", ShapeConfig(128, 2, 2, 512)),
        ("4x256", ShapeConfig(256, 4, 4, 1024)),
        ("6x384", ShapeConfig(384, 6, 6, 1536)),
    )
}


def from_scratch(recipes: Recipes, shape: ShapeConfig) -> Node:
    """Masked language modelling from random weights."""
    return recipes.mlm(recipes.start, replace(recipes.masked or MlmConfig(), from_scratch=True, shape=shape))


def shapes(recipes: Recipes) -> Experiment:
    """Do the components have the same effect in BERT and RoBERTa encoders of several sizes?

    Each encoder is trained from scratch with its own vocabulary, then under each objective on the same sentences.
    """
    lines: list[Line] = []
    for (architecture, size), shape in SHAPES.items():
        start = from_scratch(recipes, shape)
        for objective in ("infonce", "vicreg", "vicreg-modified"):
            point = {"architecture": architecture, "size": size, "objective": objective}
            row = Row.at(point, f"{ARCHITECTURES[architecture]}, {DEPTHS[size]}, {LABELS[objective]}")
            lines.append((row, recipes.self_supervised(OBJECTIVES[objective], start)))
    return experiment(**DESCRIBED["shapes"], lines=lines)


TABLES = (gradient, gradient_suites, batch_sizes, data_sizes, domains, negatives, shapes)
