"""The gradient that an objective would give to sentences that are not trained on, while others are trained on.

Training batches are probed as the objective sees them: projected, and after the encoder has been fitted to them. Here
the embeddings are the encoder's own, which are what a user gets, of sentences of the similarity dev set.
"""

import numpy as np
import torch

from minbert.errors import InputError
from minbert.model import BertModel
from minbert.packing import PackedBatch
from multitask.data.labelled_data import LabelledData
from multitask.evaluation.gradient_probe import probe
from multitask.models.pooling import PoolingMethod, pool
from multitask.objectives import Objective, alignment, uniformity, unit
from multitask.runtime.device import Runtime, generator_states, restore_generators
from multitask.runtime.random_streams import generator, torch_seed


class HeldOut:
    """Different first sentences of the similarity dev set, always the same, and the objective to probe.

    Raises:
        InputError: the set has fewer sentences than `count`, or the objective learns from labels.
    """

    def __init__(self, dev: LabelledData, objective: Objective, count: int) -> None:
        if objective.takes_labels != "none":
            raise InputError(f"{objective.name} learns from labels; leave out --probe-held-out")
        rows = list({text: row for row, text in enumerate(dev.examples.sentences[0])}.values())
        if len(rows) < count:
            raise InputError(
                f"{dev.examples.source}: has {len(rows)} different sentences; expected --probe-held-out {count}"
            )
        chosen = np.sort(generator(0, "probed dev sentences").permutation(rows)[:count])
        self.tokens = [dev.columns[0][row] for row in chosen]
        self.objective = objective

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
