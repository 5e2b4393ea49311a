"""The gradient that an objective would give to sentences that are not trained on, while others are trained on.

Training batches are probed as the objective sees them: projected, and after the encoder has been fitted to them. Here
the embeddings are the encoder's own, which are what a user gets, of sentences of the similarity dev set.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from minbert.errors import InputError
from minbert.model import BertModel
from minbert.packing import PackedBatch
from multitask.data.labelled_data import LabelledData
from multitask.evaluation.gradient_probe import probe
from multitask.models.pooling import PoolingMethod, pool
from multitask.objectives import Objective, alignment, uniformity, unit
from multitask.runtime.device import Runtime, generator_states, restore_generators
from multitask.runtime.random_streams import generator, torch_seed

if TYPE_CHECKING:
    from multitask.stages.pretrain import PretrainConfig


@dataclass(frozen=True)
class HeldOut:
    """Held-out sentences, and the objective whose gradient is probed.

    Args:
        tokens: of each sentence; all sentences differ.
        objective: an objective without labels.
    """

    tokens: Sequence[NDArray[Any]]
    objective: Objective

    @classmethod
    def of(cls, dev: LabelledData, config: "PretrainConfig") -> Self:
        """As many different first sentences of the similarity dev set as the configuration wants, always the same.

        Raises:
            InputError: the set has fewer, or the objective learns from labels.
        """
        wanted, objective = config.probe_held_out, config.objective.build()
        assert wanted is not None, "the configuration asks for held-out sentences"
        if objective.takes_labels != "none":
            raise InputError(f"{objective.name} learns from labels; leave out --probe-held-out")
        rows = list({text: row for row, text in enumerate(dev.examples.sentences[0])}.values())
        if len(rows) < wanted:
            raise InputError(
                f"{dev.examples.source}: has {len(rows)} different sentences; expected --probe-held-out {wanted}"
            )
        chosen = np.sort(generator(0, "probed dev sentences").permutation(rows)[:wanted])
        return cls([dev.columns[0][row] for row in chosen], objective)

    def probe(self, encoder: BertModel, pooling: PoolingMethod, seed: int, runtime: Runtime) -> dict[str, float]:
        """Scalars by name, of two dropout views. Draws the same dropout each time, and no other random numbers."""
        batch = PackedBatch.from_sequences([*self.tokens, *self.tokens]).to(runtime.device)
        before = generator_states(runtime.device)
        try:
            with torch.no_grad(), runtime.autocast():
                torch.manual_seed(torch_seed(seed, "dropout of held-out sentences"))
                views = pool(encoder.forward_packed(batch), batch, pooling)
        finally:
            restore_generators(before)
        first, second = views.float().chunk(2)
        u, v = unit(first), unit(second)
        return {
            **probe(self.objective, first, second).summary(),
            "alignment": alignment(u, v).item(),
            "uniformity": uniformity(u).item(),
        }
