"""Pooling: from the states of a sentence's tokens to one embedding."""

from typing import Literal

from torch import Tensor

from minbert.packing import PackedBatch, collect

PoolingMethod = Literal["cls", "mean"]


def pool(hidden: Tensor, batch: PackedBatch, method: PoolingMethod) -> Tensor:
    """Token states [total_tokens, hidden] -> embeddings [sentences, hidden] fp32.

    `cls` takes the first token's state, `mean` the mean over all tokens of a sentence; there is no padding.
    """
    if method == "cls":
        return collect(hidden, batch.offsets[:-1]).float()
    sums = hidden.new_zeros(len(batch), hidden.shape[1]).index_add(0, batch.sentence_ids, hidden)
    return sums.float() / batch.offsets.diff()[:, None]
