"""Components of gradients where the angles of positives and negatives are drawn at random around two means.

Source: arXiv 2402.18281, section 3.1. An anchor's angle to its positive is normal with mean μ_pos and deviation 0.05.
Its angles to negatives are independent and normal with mean μ_neg and deviation 0.10. μ_pos runs from π/20 to π/2 and
μ_neg from π/20 to π on 100 x 100 values. The batch size is 128, and each value is a mean over 1000 batches.

The paper's script draws every batch of every cell anew. Here one set of standard normals is drawn, then shifted and
scaled for each mean. Every cell has the paper's distribution, and terms that depend on the negatives only are computed
once for each μ_neg. The cells share their draws, so they differ by their means and not by chance.

How often are losses with a margin above the contrastive loss (gradient dissipation paper, ICLR 2023, section 1)?
Batches are pairs of unit vectors. For each batch size and dimension they are drawn as follows.

- ρ, uniform from 0 to 0.95, is the mean cosine between different anchors: u_i = sqrt(ρ) e + sqrt(1 − ρ) w_i, where e is
  one direction for all and w_i is uniform on the unit sphere orthogonal to e. (Before training, sentence embeddings lie
  in such a cone with a large ρ; training spreads them.)
- μ, uniform from π/20 to π/2, is the mean angle between anchor and positive. A pair's angle is normal around μ with
  deviation 0.05, as in the paper's simulations, and clipped to 0.01 and π − 0.01. The direction from the anchor to its
  positive is uniform.
"""

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from multitask.base.options import RunOptions
from multitask.base.random_streams import generator
from multitask.base.runs import Run, Weights
from multitask.evaluation.gradient_probe import DISSIPATED
from multitask.objectives import closed_form_components as closed_forms
from multitask.objectives import unit
from multitask.objectives.base import Objective, UnitPairs
from multitask.objectives.closed_form_components import INFONCE, MAT, MET, MPT, RATIOS, Negatives
from multitask.stages.run_stage import OpenRun, run_stage
from studies.gradient_paradigm.simulation_outcomes import RATIO_MAPS, SIMULATED, TEMPERATURES, Array, Simulations
from studies.gradient_paradigm.stages import SIMULATE, SimulationConfig

USED = (closed_forms.INFONCE, closed_forms.ARCCON, closed_forms.MPT, closed_forms.MET, closed_forms.MAT)
"""Every objective whose defaults affect a simulation."""
DISSIPATION_TERMS = {name: closed_forms.DISSIPATIONS[name] for name in SIMULATED}
"""The dissipation terms of the papers' simulation."""
POSITIVE_MEANS = (math.pi / 20, math.pi / 2)
NEGATIVE_MEANS = (math.pi / 20, math.pi)
WEIGHT_POSITIVE_MEAN = 0.5
"""Mean angle of the positives, in radians, at which batches of the weights keep a gradient or not."""


def simulate(config: SimulationConfig, options: RunOptions) -> Run:
    """Simulate on the CPU, in fp32, unless the run is there already. `Simulations.load` reads it."""
    return run_stage(SIMULATE, [], Path(), config, options)


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
        columns.append({name: _mean_and_error(term(positives, negatives)) for name, term in DISSIPATION_TERMS.items()})
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
        name: torch.stack([DISSIPATION_TERMS[name](positive_means, negatives) for negatives in equal], 1) < DISSIPATED
        for name in RATIO_MAPS
    }
    return ratio, {name: mask.numpy() for name, mask in dissipated.items()}


PAIRS, DIMENSIONS = (8, 32, 128), (8, 64, 768)
COORDINATES_PER_CHUNK = 2**20
"""Coordinates that are drawn at once. The batches of a seed depend on it."""


def count_batches(seed: int, trials: int) -> dict[str, np.ndarray]:
    """By loss: in how many random batches it is at least τ times InfoNCE, and of how many  # [2].

    `trials` batches are drawn for each batch size and dimension. τ puts InfoNCE on the scale of cosines.
    """
    holds = dict.fromkeys((MPT, MET, MAT), 0)
    for pairs, dim in product(PAIRS, DIMENSIONS):
        size = min(1000, max(1, COORDINATES_PER_CHUNK // (pairs * dim)))
        for chunk in range(math.ceil(trials / size)):
            u, v = (vectors[: trials - chunk * size] for vectors in draw(seed, pairs, dim, chunk, size))
            contrastive = INFONCE.temperature * _losses(INFONCE, u, v)
            for objective in holds:
                holds[objective] += int((_losses(objective, u, v) >= contrastive).sum())
    total = trials * len(PAIRS) * len(DIMENSIONS)
    return {objective.name: np.array([count, total]) for objective, count in holds.items()}


def draw(seed: int, pairs: int, dim: int, chunk: int, size: int) -> tuple[Tensor, Tensor]:
    """Anchors and positives of `size` batches. Equal arguments give equal batches  # [size, pairs, dim] each."""
    random = generator(seed, "random configurations", pairs, dim, chunk)

    def uniform(low: float, high: float) -> Tensor:
        return torch.from_numpy(random.uniform(low, high, size).astype(np.float32))

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(random.standard_normal(shape, dtype=np.float32))

    similarity, angle = uniform(0.0, 0.95), uniform(math.pi / 20, math.pi / 2)
    own = (1 - similarity).sqrt()[:, None, None] * unit(normal(size, pairs, dim - 1))
    u = torch.cat([similarity.sqrt()[:, None, None].expand(-1, pairs, -1), own], -1)
    angles = (angle[:, None] + 0.05 * normal(size, pairs)).clamp(0.01, math.pi - 0.01)[..., None]
    direction = normal(size, pairs, dim)
    return u, angles.cos() * u + angles.sin() * unit(direction - (direction * u).sum(-1, keepdim=True) * u)


def _losses(objective: Objective, u: Tensor, v: Tensor) -> Tensor:
    """The loss of each batch  # [batches]."""
    return torch.vmap(lambda anchors, positives: objective.loss(UnitPairs(anchors, positives)))(u, v)
