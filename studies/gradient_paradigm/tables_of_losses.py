"""Tables that compare losses: objectives, decoupled losses, components switched on and off, components mixed."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product, starmap
from pathlib import Path

from multitask.objectives.config import ObjectiveConfig
from multitask.stages.settings.pretrain import PretrainConfig
from studies.engine.experiments import Experiment, Line, experiment, read_tables, suites_experiment
from studies.engine.recipes import Recipes
from studies.engine.table import Row

DESCRIBED = read_tables(__file__)
"""Titles and notes of the tables."""
NON_CONTRASTIVE = ("mhe", "mhs", "barlow_twins", "vicreg")
MODIFIED = {name: f"{name}-modified" for name in NON_CONTRASTIVE}
"""Keys of the non-contrastive losses that have the three components."""
_LOSSES = tomllib.loads(Path(__file__).with_name("losses.toml").read_text(encoding="utf-8"))
LABELS: dict[str, str] = {key: loss["label"] for key, loss in _LOSSES.items()}
OBJECTIVES = {
    key: ObjectiveConfig.of(loss.get("objective", key), **loss.get("parameters", {})) for key, loss in _LOSSES.items()
}
SLOWER = {"mhs": 0.5}
"""Learning rates that differ from the usual one, as shares of it."""


def objective_lines(recipes: Recipes) -> Iterator[Line]:
    """Each objective on the same sentences, from one encoder that is not tuned contrastively.

    Args:
        recipes: with the settings, and with losses that differ from the usual ones.
    """
    for key, usual in OBJECTIVES.items():
        objective = recipes.losses.get(key, usual)
        optimizer = recipes.views.optimizer
        optimizer = replace(optimizer, learning_rate=SLOWER.get(key, 1.0) * optimizer.learning_rate)
        config = replace(recipes.views, objective=objective, optimizer=optimizer)
        yield Row(key, LABELS[key], {"objective": key}), recipes.pretrain(recipes.untuned, config)


def objectives(recipes: Recipes) -> Experiment:
    """Unsupervised pre-training under different objectives (arXiv 2402.18281, section 4), without a trained head.

    Do non-contrastive losses fail on semantic similarity, and do the three components repair them? Batch size,
    projection and length are those of the paper's scripts: 128, linear, 32 tokens.
    """
    return experiment(**DESCRIBED["objectives"], lines=objective_lines(recipes))


LONGER = 10  # times the usual steps
SPARSER = 4  # times the usual steps between evaluations and probes, which would take a third of a long training


def longer(recipes: Recipes) -> Recipes:
    """The recipes with longer training from dropout views, evaluated and probed less often."""
    views = rescaled_intervals(recipes.views, SPARSER)
    return replace(recipes, views=replace(views, epochs=LONGER * views.epochs))


def rescaled_intervals(views: PretrainConfig, times: float) -> PretrainConfig:
    """The training with evaluations and probes this many times as many steps apart, and at least one."""

    def apart(steps: int | None) -> int | None:
        return steps and max(1, round(times * steps))

    return replace(views, evaluate_every=apart(views.evaluate_every), probe_every=apart(views.probe_every))


def objectives_long(recipes: Recipes) -> Experiment:
    """The table of objectives with ten times the steps, so that overfitting and collapse can show."""
    return experiment(**DESCRIBED["objectives-long"], lines=objective_lines(longer(recipes)))


def objectives_suites(recipes: Recipes) -> Experiment:
    """The models of the table of objectives on SentEval's tasks (arXiv 2402.18281, section 4: STS and transfer)."""
    return suites_experiment(recipes, **DESCRIBED["objectives-suites"], lines=objective_lines(recipes))


DECOUPLING = {
    "infonce": "InfoNCE",
    "align_uniform": "Alignment and uniformity",
    "dcl": "Decoupled contrastive loss",
    "dcl_positive": "Decoupled, cut at zero",
    "met": "MET",
    "mat": "MAT",
    "mpt": "MPT",
}
"""Labels of the losses in the table of decoupled losses."""
EPOCHS = 3  # over the same sentences


def decoupled_lines(recipes: Recipes) -> Iterator[Line]:
    """Losses with and without gradient dissipation on the same sentences, from one encoder.

    Source: the gradient dissipation paper (ICLR 2023). `infonce` has gradient dissipation; `align_uniform` and `dcl`
    have none. `met`, `mat` and `mpt` imitate it by a margin, `dcl_positive` by a loss that ends at zero.
    """
    for name, label in DECOUPLING.items():
        config = replace(recipes.views, objective=ObjectiveConfig(name))
        yield Row(name, label, {"objective": name}), recipes.pretrain(recipes.untuned, config)


def decoupled(recipes: Recipes) -> Experiment:
    """Do decoupled losses overfit where contrastive ones do not? Several epochs over few sentences."""
    views = replace(recipes.views, epochs=EPOCHS)
    return experiment(**DESCRIBED["decoupled"], lines=decoupled_lines(replace(recipes, views=views)))


def decoupled_long(recipes: Recipes) -> Experiment:
    """The table of decoupled losses with as many epochs as the long table of objectives."""
    return experiment(**DESCRIBED["decoupled-long"], lines=decoupled_lines(longer(recipes)))


@dataclass(frozen=True)
class Settings:
    """The paper's settings of the components of a non-contrastive loss."""

    uniformity_weight: float  # if the weight component is off
    ratio: float
    weight: float | None = 0.05


SETTINGS = {
    "mhe": Settings(10.0, 1.75),
    "mhs": Settings(1.0, 1.75, weight=None),  # its weight is on the hardest negative already
    "barlow_twins": Settings(30.0, 1.5),
    "vicreg": Settings(30.0, 1.5),
}
DISSIPATION = 0.30
COMPONENTS = ("dissipation", "weight", "ratio")


def components(recipes: Recipes) -> Experiment:
    """Do the three components act by themselves or together? All their subsets on the four non-contrastive losses.

    arXiv 2402.18281, section 4, adds all three at once. It leaves open which of them matter, and whether they interact.
    The weight component also sets the weight of the uniformity part, as in the paper's scripts: large if all pairs
    count alike, 1 if the closest pairs dominate.
    """
    lines: list[Line] = []
    for loss, usual in SETTINGS.items():
        modified = recipes.losses.get(MODIFIED[loss])
        ratio = usual.ratio if modified is None else dict(modified.parameters)["ratio"]
        assert isinstance(ratio, float), "modified losses have a ratio"
        for on, objective in _subsets(loss, replace(usual, ratio=ratio)):
            row = Row.at({"loss": loss, "components": on}, f"{LABELS[loss]}, {' + '.join(on) or 'plain'}")
            lines.append((row, recipes.self_supervised(objective)))
    return experiment(**DESCRIBED["components"], lines=lines)


def _subsets(loss: str, settings: Settings) -> Iterator[tuple[tuple[str, ...], ObjectiveConfig]]:
    """Every subset of the components that the loss can have, with its objective."""
    weights = (None,) if settings.weight is None else (None, settings.weight)
    for values in product((None, DISSIPATION), weights, (None, settings.ratio)):
        on = {name: value for name, value in zip(COMPONENTS, values, strict=True) if value is not None}
        uniformity_weight = 1.0 if "weight" in on else settings.uniformity_weight
        yield tuple(on), ObjectiveConfig.of(loss, uniformity_weight=uniformity_weight, **on)


MIXED = {"infonce": "InfoNCE", "arccon": "ArcCon", "mpt": "MPT", "met": "MET"}
DISSIPATIONS = ("infonce", "mpt", "met")  # soft, and two gates; arccon's is close to infonce's
WEIGHTS = ("infonce", "met")  # a softmax, or the hardest negative only; the losses have no others
RATIOS = ("infonce", "arccon", "met")  # 1, and two that depend on angles


def mixed(recipes: Recipes) -> Experiment:
    """Do components of different losses go together? Dissipation of one, weight of another, ratio of a third."""

    def line(dissipation: str, weight: str, ratio: str) -> Line:
        objective = ObjectiveConfig.of("mixed", dissipation_of=dissipation, weight_of=weight, ratio_of=ratio)
        label = ", ".join(MIXED[loss] for loss in (dissipation, weight, ratio))
        row = Row.at({"dissipation": dissipation, "weight": weight, "ratio": ratio}, label)
        return row, recipes.self_supervised(objective)

    return experiment(**DESCRIBED["mixed"], lines=starmap(line, product(DISSIPATIONS, WEIGHTS, RATIOS)))


TABLES = (objectives, objectives_long, objectives_suites, decoupled, decoupled_long, components, mixed)
