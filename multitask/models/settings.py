"""Options of pooling and of the prediction heads."""

from typing import Annotated, Literal

from pydantic import Field

from minbert.settings import settings

MOST_HIDDEN = 65_536
"""Largest hidden size that a model's description may ask for, because memory is allocated for it."""
Pooling = Literal["auto", "cls", "mean"]
Sharing = Literal["separate", "shared_first_layer", "shared", "none"]
PairInput = Literal["embeddings", "features", "joint"]


@settings
class HeadsConfig:
    """Prediction heads on the sentence embeddings (report, section 4.2)."""

    sharing: Sharing = "shared_first_layer"
    """Layers that the heads of paraphrase and similarity share, if both compare embeddings. `none`: heads have no
    hidden layers, so pairs are scored by the cosine of their embeddings."""
    pairs: PairInput = "embeddings"
    """What a head reads of two sentences: two `embeddings` to compare (the report), `features` of the embeddings
    (|x-y|, x*y, x+y, and for `pair_regression` their cosine), or the embedding of one `joint` input [CLS] a [SEP] b
    [SEP]."""
    similarity_pairs: PairInput | None = None
    """How similarity, or another task of the kind `cosine`, reads pairs; `none`: as paraphrase does."""
    residual: bool = False
    """Add the embedding to the output of a pair head's layers, which is zero at first: training then begins with the
    embeddings of the start weights. Useful for start weights that are already tuned for similarity."""
    head_hidden_size: Annotated[int, Field(ge=1, le=MOST_HIDDEN)] | None = None
    """Hidden size of the heads' MLPs; `none`: the encoder's hidden size (768 for bert-base, as in the report)."""
    dropout: Annotated[float, Field(ge=0, le=0.99)] = 0.3
    """Dropout before each linear layer of a head."""
