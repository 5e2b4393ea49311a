"""Layer-wise decay of the learning rate: the lower a layer, the more slowly it learns.

Source: Sun et al. 2019, "How to Fine-Tune BERT for Text Classification?", arXiv 1905.05583, layer-wise decreasing rate;
after Howard & Ruder 2018, arXiv 1801.06146, section 3.2.
"""

import re
from collections.abc import Collection


def layer_rates(names: Collection[str], decay: float) -> dict[str, float]:
    """The learning rate of each parameter as a share of its highest: decay^k for the encoder's k-th layer from the top.

    The top layer has k = 0 and the embeddings are one below the lowest layer. The pooler and all that is outside the
    encoder have share 1.

    Args:
        names: of all trained parameters, as in `encoder.layers.0.output.weight`.
        decay: above 0, at most 1.
    """
    layers = {name: int(found[1]) for name in names if (found := re.match(r"encoder\.layers\.(\d+)\.", name))}
    top = max(layers.values(), default=-1)
    below = {name: top - layer for name, layer in layers.items()}
    below |= {name: top + 1 for name in names if name.startswith("encoder.embeddings.")}
    return {name: decay ** below.get(name, 0) for name in names}
