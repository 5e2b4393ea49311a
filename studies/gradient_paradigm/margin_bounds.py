"""How often losses with a margin are above the contrastive loss (gradient dissipation paper, ICLR 2023, section 1).

Batches are pairs of unit vectors. For each batch size and dimension they are drawn as follows.

- ρ, uniform from 0 to 0.95, is the mean cosine between different anchors: u_i = sqrt(ρ) e + sqrt(1 − ρ) w_i, where e is
  one direction for all and w_i is uniform on the unit sphere orthogonal to e. (Before training, sentence embeddings lie
  in such a cone with a large ρ; training spreads them.)
- μ, uniform from π/20 to π/2, is the mean angle between anchor and positive. A pair's angle is normal around μ with
  deviation 0.05, as in the paper's simulations, and clipped to 0.01 and π − 0.01. The direction from the anchor to its
  positive is uniform.
"""

import math
from itertools import product

import numpy as np
import torch
from torch import Tensor

from multitask.base.random_streams import generator
from multitask.objectives import unit
from multitask.objectives.base import Objective, UnitPairs
from multitask.objectives.mixed_components import INFONCE, MAT, MET, MPT

PAIRS, DIMENSIONS = (8, 32, 128), (8, 64, 768)
CHUNK = 2**20
"""Coordinates that are drawn at once. The batches of a seed depend on it."""


def count_batches(seed: int, trials: int) -> dict[str, np.ndarray]:
    """By loss: in how many random batches it is at least τ times InfoNCE, and of how many  # [2].

    `trials` batches are drawn for each batch size and dimension. τ puts InfoNCE on the scale of cosines.
    """
    holds = dict.fromkeys((MPT, MET, MAT), 0)
    for pairs, dim in product(PAIRS, DIMENSIONS):
        size = min(1000, max(1, CHUNK // (pairs * dim)))
        for chunk in range(math.ceil(trials / size)):
            u, v = (of[: trials - chunk * size] for of in draw(seed, pairs, dim, chunk, size))
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
