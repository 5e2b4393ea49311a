"""The random configurations on which conjectures are checked, and how often a statement holds on them.

A configuration is a batch of pairs of unit vectors. For a batch size and a dimension it is drawn as follows.

- ρ, uniform from 0 to 0.95, is the mean cosine between different anchors: u_i = sqrt(ρ) e + sqrt(1 − ρ) w_i, where e is
  one direction for all and w_i is uniform on the unit sphere orthogonal to e. (Before training, sentence embeddings lie
  in such a cone with a large ρ; training spreads them.)
- μ, uniform from π/20 to π/2, is the mean angle between anchor and positive. A pair's angle is normal around μ with
  deviation 0.05, as in the paper's simulations, and clipped to 0.01 and π − 0.01. The direction from the anchor to its
  positive is uniform.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from multitask.objectives import unit
from multitask.runtime.random_streams import generator
from studies.gradient_paradigm.simulation_outcomes import Estimate

SIMILARITIES = (0.0, 0.95)
POSITIVE_ANGLES = (math.pi / 20, math.pi / 2)
DEVIATION = 0.05
CHUNK = 2**20
"""Coordinates that are drawn at once. The configurations of a seed depend on it."""
KEPT = 2
"""Counter-examples that are kept for each statement, case and size."""


@dataclass(frozen=True)
class Configurations:
    """Configurations of one batch size and dimension."""

    u: Tensor  # [trials, pairs, dim] anchors, fp32
    v: Tensor  # [trials, pairs, dim] positives
    similarity: Tensor  # [trials] ρ
    angle: Tensor  # [trials] μ, radians

    @classmethod
    def draw(cls, seed: int, pairs: int, dim: int, chunk: int) -> Self:
        """The configurations with numbers from chunk · size_of_chunk on. Equal arguments give equal configurations."""
        random, size = generator(seed, "random configurations", pairs, dim, chunk), size_of_chunk(pairs, dim)

        def uniform(low: float, high: float) -> Tensor:
            return torch.from_numpy(random.uniform(low, high, size).astype(np.float32))

        def normal(*shape: int) -> Tensor:
            return torch.from_numpy(random.standard_normal(shape, dtype=np.float32))

        similarity, angle = uniform(*SIMILARITIES), uniform(*POSITIVE_ANGLES)
        own = (1 - similarity).sqrt()[:, None, None] * unit(normal(size, pairs, dim - 1))
        u = torch.cat([similarity.sqrt()[:, None, None].expand(-1, pairs, -1), own], -1)
        angles = (angle[:, None] + DEVIATION * normal(size, pairs)).clamp(0.01, math.pi - 0.01)[..., None]
        v = angles.cos() * u + angles.sin() * unit(tangent(normal(size, pairs, dim), u))
        return cls(u, v, similarity, angle)

    def first(self, count: int) -> Self:
        """The first `count` configurations."""
        return type(self)(self.u[:count], self.v[:count], self.similarity[:count], self.angle[:count])

    def describe(self, trial: int) -> dict[str, float]:
        """The parameters of a configuration, as JSON types."""
        return {"similarity": float(self.similarity[trial]), "angle": float(self.angle[trial])}


def configuration(seed: int, pairs: int, dim: int, trial: int) -> Configurations:
    """A single configuration by its number. The first axis of its tensors has length 1."""
    chunk, place = divmod(trial, size_of_chunk(pairs, dim))
    drawn = Configurations.draw(seed, pairs, dim, chunk)
    one = slice(place, place + 1)
    return Configurations(drawn.u[one], drawn.v[one], drawn.similarity[one], drawn.angle[one])


def size_of_chunk(pairs: int, dim: int) -> int:
    """The number of configurations that are drawn at once."""
    return min(1000, max(1, CHUNK // (pairs * dim)))


def tangent(x: Tensor, at: Tensor) -> Tensor:
    """Vectors without their part along unit vectors  # [..., dim]."""
    return x - (x * at).sum(-1, keepdim=True) * at


class Tally:
    """Counts how often statements hold over the configurations of one batch size and dimension."""

    def __init__(self, seed: int, pairs: int, dim: int, trials: int) -> None:
        self.seed, self.pairs, self.dim, self.trials = seed, pairs, dim, trials
        self._drawn: Configurations
        self._begin: int
        self._counts: dict[tuple[str, str], tuple[int, int, list[dict[str, float]]]] = {}

    def __iter__(self) -> Iterator[Configurations]:
        """The configurations in chunks. `count` adds trials of the last chunk."""
        size = size_of_chunk(self.pairs, self.dim)
        for chunk in range(math.ceil(self.trials / size)):
            self._begin = chunk * size
            drawn = Configurations.draw(self.seed, self.pairs, self.dim, chunk)
            self._drawn = drawn.first(self.trials - self._begin)
            yield self._drawn

    def count(
        self, statement: str, case: str, holds: Tensor, applies: Tensor, found: Mapping[str, Tensor] | None = None
    ) -> None:
        """Add the trials of a chunk: where a statement holds and where it applies, [trials] bool each.

        `found` has values to keep of counter-examples if they are finite, [trials] each.
        """
        held, trials, examples = self._counts.get((statement, case), (0, 0, []))
        against = (applies & ~holds).nonzero()[:, 0].tolist()
        for trial in against[: KEPT - len(examples)]:
            values = {name: float(value[trial]) for name, value in (found or {}).items()}
            finite = {name: value for name, value in values.items() if math.isfinite(value)}  # JSON has no others
            examples.append({"trial": self._begin + trial, **self._drawn.describe(trial), **finite})
        self._counts[statement, case] = (held + int((holds & applies).sum()), trials + int(applies.sum()), examples)

    def estimates(self) -> list[Estimate]:
        """An estimate for each statement and case."""
        return [
            Estimate(statement, case, self.pairs, self.dim, *counted)
            for (statement, case), counted in self._counts.items()
        ]
