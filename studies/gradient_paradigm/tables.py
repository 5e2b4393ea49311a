"""Tables of losses and of their components: which ones, together or alone, and with which parameters."""

import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from multitask.experiments.table_definitions import Experiment, GridLine, Row, experiment, row_key
from multitask.stages.settings_of_pretraining import PretrainConfig
from multitask.training.settings import ObjectiveConfig
from studies.engine.recipes import Recipes, read_tables, suites_experiment

DESCRIBED = read_tables(__file__)  # titles and notes of the tables
ROWS: dict[str, list[dict[str, Any]]] = {
    key: about.pop(name) for key, about in DESCRIBED.items() for name in ("losses", "ways", "values") if name in about
}
"""What their rows differ in, with names for readers."""
NON_CONTRASTIVE = ("mhe", "mhs", "barlow_twins", "vicreg")
MODIFIED = {name: f"{name}-modified" for name in NON_CONTRASTIVE}
"""Keys of the non-contrastive losses that have the three components."""
_ENTRIES = tomllib.loads(Path(__file__).with_name("losses.toml").read_text(encoding="utf-8"))
LOSS_NAMES: dict[str, str] = {key: loss["label"] for key, loss in _ENTRIES.items()}
LOSSES = {
    key: ObjectiveConfig.of(loss.get("objective", key), **loss.get("parameters", {})) for key, loss in _ENTRIES.items()
}


METRICS = {"similarity": ("spearman", "pearson")}
"""Losses are compared by what chooses their checkpoints, the Spearman correlation, as in the authors' scripts."""


def described_table(key: str, lines: Callable[[Recipes], Iterable[GridLine]]) -> Callable[[Recipes], Experiment]:
    """The table of tables.toml with these rows, from one encoder that is not tuned contrastively."""
    if key.endswith("-suites"):
        return lambda recipes: suites_experiment(recipes, **DESCRIBED[key], lines=lines(recipes))
    metrics = METRICS if DESCRIBED[key].get("columns") else {}
    return lambda recipes: experiment(**DESCRIBED[key], lines=lines(recipes), metrics=metrics)


def objective_lines(recipes: Recipes) -> Iterator[GridLine]:
    """Each objective on the same sentences (arXiv 2402.18281, section 4), without a trained head.

    Do non-contrastive losses fail on semantic similarity, and do the three components repair them? Batch size,
    projection, length and the halved learning rate of plain MHS are those of the paper's scripts. `recipes.losses` and
    `recipes.rates` have losses and learning rates that differ from the usual ones.
    """
    for key in LOSSES:
        config = under(key, recipes.views, recipes)
        yield Row(key, LOSS_NAMES[key], {"objective": key}), recipes.pretrain(recipes.untuned, config)


def under(key: str, training: PretrainConfig, recipes: Recipes) -> PretrainConfig:
    """A training under one of the losses, plain MHS at half of the rate, as in the paper's scripts."""
    rate = training.optimizer.learning_rate * (0.5 if key == "mhs" else 1.0)
    optimizer = replace(training.optimizer, learning_rate=recipes.rates.get(key, rate))
    return replace(training, objective=recipes.losses.get(key, LOSSES[key]), optimizer=optimizer)


def supervised_lines(recipes: Recipes) -> Iterator[GridLine]:
    """Each objective on Quora's labelled pairs and on NLI's triplets, then fine-tuned on the three tasks."""
    yield Row.at({"source": "none", "objective": "none"}, "Fine-tuned only"), recipes.finetune(recipes.base)
    for source, key in product(ROWS["objectives-supervised"], LOSSES):
        usual = recipes.nli() if source["key"] == "nli" else recipes.quora(recipes.supervised)
        assert isinstance(usual.config, PretrainConfig)
        config = replace(under(key, usual.config, recipes), negative_pairs="bounded")
        row = Row.at({"source": source["key"], "objective": key}, f"{source['label']}, {LOSS_NAMES[key]}")
        yield row, recipes.finetune(replace(usual, config=config))


LONGER, LONGEST = 10, 30  # times the usual steps
SPARSER = 4  # times the usual steps between evaluations and probes, which would take a third of a long training


def longer(recipes: Recipes, times: int = LONGER) -> Recipes:
    """The recipes with longer training from dropout views, evaluated and probed less often."""
    views = rescaled_intervals(recipes.views, SPARSER)
    return replace(recipes, views=replace(views, epochs=times * views.epochs))


def rescaled_intervals(views: PretrainConfig, times: float) -> PretrainConfig:
    """The training with evaluations and probes this many times as many steps apart, and at least one."""

    def apart(steps: int | None) -> int | None:
        return steps and max(1, round(times * steps))

    return replace(views, evaluate_every=apart(views.evaluate_every), probe_every=apart(views.probe_every))


objectives = described_table("objectives", objective_lines)
objectives_long = described_table("objectives-long", lambda recipes: objective_lines(longer(recipes)))
objectives_suites = described_table("objectives-suites", objective_lines)
objectives_supervised = described_table("objectives-supervised", supervised_lines)

SHORT_EPOCHS = 3  # over the same sentences


def decoupled_lines(recipes: Recipes) -> Iterator[GridLine]:
    """Losses with and without gradient dissipation: do decoupled losses overfit where contrastive ones do not?

    Source: the gradient dissipation paper (ICLR 2023). `infonce` has gradient dissipation; `align_uniform` and `dcl`
    have none. `met`, `mat` and `mpt` imitate it by a margin, `dcl_positive` by a loss that ends at zero.
    """
    for loss in ROWS["decoupled"]:
        name = loss["key"]
        yield Row(name, loss["label"], {"objective": name}), recipes.self_supervised(ObjectiveConfig(name))


decoupled = described_table(
    "decoupled", lambda recipes: decoupled_lines(replace(recipes, views=replace(recipes.views, epochs=SHORT_EPOCHS)))
)
decoupled_long = described_table("decoupled-long", lambda recipes: decoupled_lines(longer(recipes)))

WITH_AND_WITHOUT = {
    loss["key"]: loss["label"] for loss in ROWS["decoupled"] if loss["key"] in ("infonce", "align_uniform", "dcl")
}
"""The contrastive loss and those that lack its dissipation."""
decoupled_longest = described_table(
    "decoupled-longest",
    lambda recipes: (
        (row, node) for row, node in decoupled_lines(longer(recipes, LONGEST)) if row.key in WITH_AND_WITHOUT
    ),
)

COMPONENTS = ("dissipation", "weight", "ratio")
COMPONENT_SETTINGS: dict[str, tuple[float, float | None, float]] = {
    "mhe": (10.0, 0.05, 1.75),
    "mhs": (1.0, None, 1.75),  # its weight is on the hardest negative already
    "barlow_twins": (30.0, 0.05, 1.5),
    "vicreg": (30.0, 0.05, 1.5),
}
"""The paper's weight of the uniformity part if the weight component is off, then weight and ratio."""
DISSIPATION = 0.30


def component_lines(recipes: Recipes) -> Iterator[GridLine]:
    """Do the three components act by themselves or together? All their subsets on the four non-contrastive losses.

    arXiv 2402.18281, section 4, adds all three at once. It leaves open which of them matter, and whether they interact.
    The weight component also sets the weight of the uniformity part, as in the paper's scripts: large if all pairs
    count alike, 1 if the closest pairs dominate.
    """
    for loss in COMPONENT_SETTINGS:
        for on, objective in with_components(recipes, loss):
            row = Row.at({"loss": loss, "components": on}, f"{LOSS_NAMES[loss]}, {' + '.join(on) or 'plain'}")
            yield row, recipes.self_supervised(objective)


def with_components(recipes: Recipes, loss: str) -> Iterator[tuple[tuple[str, ...], ObjectiveConfig]]:
    """A non-contrastive loss with every subset of the components, by the names of those that are on."""
    uniformity, weight, usual = COMPONENT_SETTINGS[loss]
    modified = dict(recipes.losses.get(MODIFIED[loss], ObjectiveConfig(loss)).parameters)
    margin, ratio = modified.get("dissipation", DISSIPATION), modified.get("ratio", usual)
    weights = (None,) if weight is None else (None, weight)
    for values in product((None, margin), weights, (None, ratio)):
        on = {name: value for name, value in zip(COMPONENTS, values, strict=True) if value is not None}
        yield tuple(on), ObjectiveConfig.of(loss, uniformity_weight=1.0 if "weight" in on else uniformity, **on)


components = described_table("components", component_lines)
components_suites = described_table("components-suites", component_lines)


def coefficient_lines(recipes: Recipes) -> Iterator[GridLine]:
    """Is it the weight component that helps, or the smaller coefficient? Both change, one after the other."""
    for loss, (uniformity, weight, _) in COMPONENT_SETTINGS.items():
        if weight is None:
            continue
        for coefficient, on in ((uniformity, None), (1.0, None), (1.0, weight)):
            objective = ObjectiveConfig.of(
                loss, uniformity_weight=coefficient, **({} if on is None else {"weight": on})
            )
            row = Row.at(
                {"loss": loss, "coefficient": coefficient, "weight": "on" if on else "off"},
                f"{LOSS_NAMES[loss]}, λ {coefficient:g}{', weight' if on else ''}",
            )
            yield row, recipes.self_supervised(objective)


coefficients = described_table("coefficients", coefficient_lines)

MIXED = {"infonce": "InfoNCE", "arccon": "ArcCon", "mpt": "MPT", "met": "MET"}
_MIXTURES = tuple(
    product(
        ("infonce", "mpt", "met"),  # dissipation: soft, and two gates; arccon's is close to infonce's
        ("infonce", "met"),  # weight: a softmax, or the hardest negative only; the losses have no others
        ("infonce", "arccon", "met"),  # ratio: 1, and two that depend on angles
    )
)


def mixed_lines(recipes: Recipes) -> Iterator[GridLine]:
    """Do components of different losses go together? Dissipation of one, weight of another, ratio of a third."""
    for losses in _MIXTURES:
        objective = ObjectiveConfig.of("mixed", **{f"{c}_of": loss for c, loss in zip(COMPONENTS, losses, strict=True)})
        point = dict(zip(COMPONENTS, losses, strict=True))
        yield Row.at(point, ", ".join(MIXED[loss] for loss in losses)), recipes.self_supervised(objective)


mixed = described_table("mixed", mixed_lines)


DEFAULTS = {"margin": 0.30, "temperature": 0.05, "ratio": 1.0}  # the gradient form's default parameters
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
    return DEFAULT_ROW if value == DEFAULTS[parameter] else row_key({parameter: value})


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


gradient = described_table("gradient", gradient_lines)
gradient_suites = described_table("gradient-suites", gradient_lines)  # do all kinds of tasks have the same best values?

TABLES = (
    *(objectives, objectives_long, objectives_suites, objectives_supervised),
    *(decoupled, decoupled_long, decoupled_longest),
    *(components, components_suites, coefficients, mixed, gradient, gradient_suites),
)
