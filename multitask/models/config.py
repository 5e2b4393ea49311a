"""How sentences are pooled, and the prediction heads."""

from dataclasses import dataclass
from typing import Literal

from multitask.runtime.options import check_range

Pooling = Literal["auto", "cls", "mean"]


Sharing = Literal["separate", "shared_first_layer", "shared", "none"]


PairInput = Literal["embeddings", "features", "joint"]


@dataclass(frozen=True)
class HeadsConfig:
    """Prediction heads on the sentence embeddings (report, section 4.2)."""

    sharing: Sharing = "shared_first_layer"
    """What paraphrase and similarity share where both compare embeddings; `none` predicts straight from them."""
    pairs: PairInput = "embeddings"
    """How a pair is read: two `embeddings` compared (the report), an MLP on their `features` |x-y|, x*y, x+y, or one
    `joint` input [CLS] a [SEP] b [SEP]."""
    similarity_pairs: PairInput | None = None
    """How similarity reads its pairs, where that differs from paraphrase."""
    residual: bool = False
    """Add the embedding to its transform, which starts at zero: pair heads then begin with the start weights' own
    geometry instead of a random one. For start weights that are already tuned for similarity."""
    hidden_size: int | None = None
    """Width of the MLPs; the encoder's when left out (768 for bert-base, as in the report)."""
    dropout: float = 0.3
    """Dropout before each linear layer."""

    def __post_init__(self) -> None:
        check_range(self, 1, ("hidden_size",))
        check_range(self, 0, ("dropout",), most=0.99)
