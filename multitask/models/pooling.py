"""From token states to one embedding a sentence."""

from typing import Literal

from torch import Tensor

from minbert.packing import PackedBatch, collect

PoolingMethod = Literal["cls", "mean"]


def pool(hidden: Tensor, batch: PackedBatch, method: PoolingMethod) -> Tensor:
    """[total_tokens, hidden] -> [sentences, hidden] fp32: the first token's state, or the mean over all real tokens."""
    if method == "cls":
        return collect(hidden, batch.offsets[:-1]).float()
    sums = hidden.new_zeros(len(batch), hidden.shape[1]).index_add(0, batch.sentence_ids, hidden)
    return sums.float() / batch.offsets.diff()[:, None]
