"""Components of gradients where the angles of positives and negatives are drawn at random around two means.

Source: arXiv 2402.18281, section 3.1. An anchor's angle to its positive is normal with mean μ_pos and deviation 0.05.
Its angles to negatives are independent and normal with mean μ_neg and deviation 0.10. μ_pos runs from π/20 to π/2 and
μ_neg from π/20 to π on 100 x 100 values. The batch size is 128, and each value is a mean over 1000 batches.

The paper's script draws every batch of every cell anew. Here one set of standard normals is drawn, then shifted and
scaled for each mean. Every cell has the paper's distribution, and terms that depend on the negatives only are computed
once for each μ_neg. The cells share their draws, so they differ by their means and not by chance.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from multitask.base.random_streams import generator
from multitask.base.runs import Weights
from multitask.objectives import mixed_components as closed_forms
from multitask.objectives.mixed_components import RATIOS, Negatives
from multitask.stages.run_stage import OpenRun
from studies.gradient_paradigm.margin_bounds import count_batches
from studies.gradient_paradigm.simulate import SimulationConfig
from studies.gradient_paradigm.simulation_outcomes import (
    DISSIPATED,
    NAMES,
    RATIO_MAPS,
    TEMPERATURES,
    Array,
    Simulations,
)

USED = (closed_forms.INFONCE, closed_forms.ARCCON, closed_forms.MPT, closed_forms.MET, closed_forms.MAT)
"""Every objective whose defaults affect a simulation."""
DISSIPATIONS = {name: closed_forms.DISSIPATIONS[name] for name in NAMES}
"""The dissipation terms of the papers' simulation."""
POSITIVE_MEANS = (math.pi / 20, math.pi / 2)
NEGATIVE_MEANS = (math.pi / 20, math.pi)
WEIGHT_POSITIVE_MEAN = 0.5
"""Mean angle of the positives, in radians, at which batches of the weights keep a gradient or not."""


def reads(_config: SimulationConfig, _data: Path) -> dict[str, list[str]]:
    """The objectives with their parameters, which decide what is simulated."""
    return {"objectives": [str(objective) for objective in USED]}


def compute(_models: Sequence[Weights], _data: Path, config: SimulationConfig, run: OpenRun) -> None:
    """Simulate into a run's folder."""
    run_simulations(config).save(run.folder)


def run_simulations(config: SimulationConfig) -> Simulations:
    """All simulations. Memory grows with batches · (batch size + grid), time with the grid times that."""
    positive_means = torch.linspace(*POSITIVE_MEANS, config.grid)
    negative_means = torch.linspace(*NEGATIVE_MEANS, config.grid)
    positive, negative = standard_normals(config)
    positives = positive_means[:, None] + config.positive_deviation * positive  # [rows, batches]
    fixed = WEIGHT_POSITIVE_MEAN + config.positive_deviation * positive  # [batches]
    columns: list[dict[str, tuple[Tensor, Tensor]]] = []
    weights: list[Tensor] = []
    for mean in negative_means:
        negatives = Negatives.of_cosines((mean + config.negative_deviation * negative).cos())
        columns.append({name: _mean_and_error(term(positives, negatives)) for name, term in DISSIPATIONS.items()})
        weights.append(torch.stack([_weights(negatives, fixed, temperature) for temperature in TEMPERATURES]))
    all_weights, errors, kept = torch.stack(weights, 1).unbind(-1)  # [temperatures, columns] each
    dissipation, dissipation_error = (
        {name: torch.stack([column[name][part] for column in columns], 1).numpy() for name in columns[0]}
        for part in (0, 1)
    )
    return Simulations(
        positive_means.numpy(),
        negative_means.numpy(),
        np.array(TEMPERATURES),
        dissipation,
        dissipation_error,
        all_weights.numpy(),
        errors.numpy(),
        kept.numpy(),
        *_ratio_maps(positive_means, negative_means, config.batch_size),
        count_batches(config.seed, config.trials),
    )


def standard_normals(config: SimulationConfig) -> tuple[Tensor, Tensor]:
    """The draws of the positives' and the negatives' angles  # [batches], [batches, batch_size - 1]."""
    random = generator(config.seed, "simulated angles")
    positive = random.standard_normal(config.batches, dtype=np.float32)
    negative = random.standard_normal((config.batches, config.batch_size - 1), dtype=np.float32)
    return torch.from_numpy(positive), torch.from_numpy(negative)


def _mean_and_error(values: Tensor) -> tuple[Tensor, Tensor]:
    """The mean over batches and its standard error; values [..., batches]."""
    return values.mean(-1), values.std(-1) / math.sqrt(values.shape[-1])


def _weights(negatives: Negatives, positive: Tensor, temperature: float) -> Tensor:
    """Mean hardest weight and its error, share of batches that keep a gradient  # [3]."""
    weight = negatives.hardest_weight(temperature)
    dissipation = torch.sigmoid(negatives.logit(weight, temperature) - positive.cos() / temperature)
    return torch.stack([*_mean_and_error(weight), (dissipation >= DISSIPATED).float().mean()])


def _ratio_maps(
    positive_means: Tensor, negative_means: Tensor, batch_size: int
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The ratio, and whether the gradient is dissipated, with all negatives of an anchor at the same angle."""
    angles = torch.meshgrid(positive_means, negative_means, indexing="ij")  # [rows, columns] twice
    ratio = {name: RATIOS[name](*angles).numpy() for name in RATIO_MAPS}
    equal = [Negatives.of_cosines(mean.cos().expand(batch_size - 1)) for mean in negative_means]
    dissipated = {
        name: torch.stack([DISSIPATIONS[name](positive_means, negatives) for negatives in equal], 1) < DISSIPATED
        for name in RATIO_MAPS
    }
    return ratio, {name: mask.numpy() for name, mask in dissipated.items()}
