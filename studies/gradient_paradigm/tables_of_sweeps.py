"""Tables in which one parameter varies: margin, temperature, ratio; batch, data, domain, encoder."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import sqrt
from typing import TypeVar

from minbert.config import ModelType
from multitask.data.read_unlabelled_files import CAPTIONS_FILE, NEWS_FILE
from multitask.objectives.config import ObjectiveConfig
from multitask.stages.mlm import MlmConfig, ShapeConfig
from studies.engine.experiments import Experiment, Line, experiment
from studies.engine.recipes import Node, Recipes
from studies.engine.table import Row, key_of
from studies.gradient_paradigm.tables_of_losses import LABELS, OBJECTIVES

V = TypeVar("V", bound=str | int | None)

DEFAULTS = {"margin": 0.30, "temperature": 0.05, "ratio": 1.0}
"""The gradient form's own parameters."""
SYMBOLS = {"margin": "m", "temperature": "τ", "ratio": "r"}
MEANINGS = {"margin": "margin of the dissipation", "temperature": "temperature of the weight", "ratio": "ratio"}
FIELDS = {"margin": "dissipation", "temperature": "weight", "ratio": "ratio"}
"""The objective's names of these parameters: those of the components that they belong to."""
VARIED = {
    "margin": (0.05, 0.10, 0.20, 0.45, 0.60, 2.00),
    "temperature": (0.01, 0.02, 0.10, 0.20, 0.50, 1.00),
    "ratio": (0.25, 0.50, 0.75, 1.25, 1.50, 2.00),
}
DEFAULT_ROW = "defaults"


def component_row(parameter: str, value: float) -> str:
    """The key of the row of the gradient form in which this parameter has this value, the others their defaults."""
    return DEFAULT_ROW if value == DEFAULTS[parameter] else key_of({parameter: value})


def component_label(parameter: str, value: float) -> str:
    """`m 0.30`, `τ 0.05` or `r 1`."""
    return f"{SYMBOLS[parameter]} {value:.2f}" if parameter == "margin" else f"{SYMBOLS[parameter]} {value:.3g}"


DEFAULT_LABEL = ", ".join(component_label(parameter, value) for parameter, value in DEFAULTS.items())


def gradient(recipes: Recipes) -> Experiment:
    """One component of the gradient form varied at a time (arXiv 2402.18281, section 3.2), the others at defaults.

    One encoder that is not tuned contrastively, then the gradient form with each setting on the same sentences.
    """
    default = Row(DEFAULT_ROW, DEFAULT_LABEL, DEFAULTS)
    lines = [(default, recipes.self_supervised(ObjectiveConfig("gradient")))]
    for parameter, values in VARIED.items():
        for value in values:
            point, label = {**DEFAULTS, parameter: value}, component_label(parameter, value)
            row = Row(component_row(parameter, value), label, point)
            objective = ObjectiveConfig.of("gradient", **{FIELDS[parameter]: value})
            lines.append((row, recipes.self_supervised(objective)))
    return experiment(
        "gradient",
        "The gradient form, one component varied at a time",
        "Similarity is the cosine of two embeddings. m: margin of the dissipation; τ: temperature of the weight; r: "
        "ratio. No gap exceeds 2, so m 2 is no dissipation. Each row is trained on "
        "dropout views of the same sentences from the same encoder.",
        lines,
        reference=DEFAULT_ROW,
        columns=("similarity",),
        on_request=True,
    )


COMPARED = ("infonce", "vicreg-modified")
"""The losses that are compared under other conditions."""
SIZES = (16, 32, 64, 128, 256, 512, 1024)
CHUNK = 64  # rows that are encoded at a time


def batch_sizes(recipes: Recipes) -> Experiment:
    """How losses depend on the number of negatives: batches of 16 to 1,024 of the same sentences.

    Gradient caching makes large batches fit.
    """

    def trained(objective: str, size: int) -> Node:
        views = recipes.views
        rate = views.optimizer.learning_rate * sqrt(size / views.batch_size)
        optimizer = replace(views.optimizer, learning_rate=rate)
        config = replace(views, objective=OBJECTIVES[objective], batch_size=size, optimizer=optimizer)
        return recipes.pretrain(recipes.untuned, replace(config, chunk=CHUNK if size > CHUNK else None))

    return experiment(
        "batch-sizes",
        "Batch size of unsupervised pre-training",
        "Beyond the papers. The same number of sentences, so larger batches take fewer steps; the learning rate grows "
        "with the square root of the batch.",
        _each_loss("batch_size", {size: str(size) for size in SIZES}, trained),
        reference=key_of({"objective": "infonce", "batch_size": 128}),  # the papers' size
        columns=("similarity",),
        on_request=True,
    )


LIMITS = {1024: "1,024", 4096: "4,096", 16384: "16,384", 65536: "65,536", None: "all"}


def data_sizes(recipes: Recipes) -> Experiment:
    """How losses depend on the number of sentences: the first so many, each seen once."""

    def trained(objective: str, limit: int | None) -> Node:
        config = replace(recipes.views, objective=OBJECTIVES[objective], train_limit=limit)
        return recipes.pretrain(recipes.untuned, config)

    return experiment(
        "data-sizes",
        "Data size of unsupervised pre-training",
        "Beyond the papers. One pass over the first so many sentences; more sentences are more steps.",
        _each_loss("limit", LIMITS, trained),
        reference=key_of({"objective": "infonce", "limit": 4096}),
        columns=("similarity",),
        on_request=True,
    )


DOMAINS = {
    "paraphrase": "questions",
    "sentiment": "snippets of film reviews",
    CAPTIONS_FILE: "captions",
    NEWS_FILE: "news",
    "unlabelled": "unlabelled text",
}
"""Sources of sentences and what they are about."""
SENTENCES = 3000  # fewer than the smallest domain of the course's data has, the captions


def domains(recipes: Recipes) -> Experiment:
    """How losses depend on what the sentences are about: dropout views of as many sentences of each domain."""
    views = replace(recipes.views, train_limit=min(SENTENCES, recipes.views.train_limit or SENTENCES))

    def trained(objective: str, source: str) -> Node:
        return recipes.pretrain(recipes.untuned, replace(views, sources=(source,), objective=OBJECTIVES[objective]))

    return experiment(
        "domains",
        "Domain of unsupervised pre-training",
        f"Beyond the papers. At most {SENTENCES:,} sentences of each. Similarity is tested on other captions, news and "
        "forum posts.",
        _each_loss("source", DOMAINS, trained),
        reference=key_of({"objective": "infonce", "source": "unlabelled"}),
        columns=("similarity",),
        on_request=True,
    )


def _each_loss(parameter: str, values: Mapping[V, str], trained: Callable[[str, V], Node]) -> Iterator[Line]:
    """Every compared loss at every value of a parameter, by the value's name."""
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
    """Do the components act alike in encoders of other sizes, BERT's and RoBERTa's?

    Each is trained from scratch with a vocabulary of its own, then under each objective on dropout views of the same
    sentences.
    """
    starts = {name: from_scratch(recipes, shape) for name, shape in SHAPES.items()}
    return experiment(
        "shapes",
        "Family and size of the encoder in unsupervised pre-training",
        "Beyond the papers. Each encoder is trained from random weights by masked language modelling on the sentences, "
        "then on dropout views of them. BERT has an uncased WordPiece vocabulary, RoBERTa one of byte pairs, both "
        "learned from the sentences.",
        (
            (
                Row.at(
                    {"architecture": architecture, "size": size, "objective": objective},
                    f"{ARCHITECTURES[architecture]}, {DEPTHS[size]}, {LABELS[objective]}",
                ),
                recipes.self_supervised(OBJECTIVES[objective], start),
            )
            for (architecture, size), start in starts.items()
            for objective in ("infonce", "vicreg", "vicreg-modified")
        ),
        columns=("similarity",),
        on_request=True,
    )


TABLES = (gradient, batch_sizes, data_sizes, domains, shapes)
