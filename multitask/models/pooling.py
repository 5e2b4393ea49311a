"""Pooling: from the states of a sentence's tokens to one embedding, and the first numbers of it."""

from typing import Literal

from torch import Tensor
from torch.nn import functional

from minbert.errors import InputError
from minbert.packing import PackedBatch, collect

PoolingMethod = Literal["cls", "mean"]


def pool(hidden: Tensor, batch: PackedBatch, method: PoolingMethod) -> Tensor:
    """Token states [total_tokens, hidden] -> embeddings [sentences, hidden] fp32.

    `cls` takes the first token's state, `mean` the mean over all tokens of a sentence; there is no padding.
    """
    if method == "cls":
        return collect(hidden, batch.offsets[:-1]).float()
    states = hidden.float()  # sums of many tokens in bf16 would lose the last ones
    sums = states.new_zeros(len(batch), states.shape[1]).index_add(0, batch.sentence_ids, states)
    return sums / batch.offsets.diff()[:, None]


def leading(embeddings: Tensor, size: int | None) -> Tensor:
    """Embeddings [rows, hidden] with zeros in place of all but the first `size` numbers: what a layer reads of these.

    The layer then has one set of weights for all sizes (Kusupati et al. 2022, arXiv 2205.13147, section 3, "MRL-E").
    None keeps all numbers.
    """
    if size is None:
        return embeddings
    return functional.pad(embeddings[:, :size], (0, embeddings.shape[1] - size))


def check_dimensions(dimensions: int | None, width: int, name: str) -> None:
    """Raise InputError unless a model's embeddings have so many numbers to keep; None keeps all."""
    if dimensions is not None and not 1 <= dimensions <= width:
        raise InputError(f"dimensions is {dimensions}; the embeddings of {name} have {width}")
