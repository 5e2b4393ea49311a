"""Options of the regularisers."""

from typing import Annotated

from pydantic import Field

from minbert.settings import AtLeastZero, settings


@settings
class RegularisationConfig:
    """Regularisation of the tasks' losses."""

    smart_weight: AtLeastZero = 0.0
    """SMART (arXiv 1911.03437): weight of how far the outputs move if the word embeddings move a little, in the
    direction that moves the outputs most. 0 switches it off; the paper uses 1 to 5."""
    smart_radius: Annotated[float, Field(ge=1e-9)] = 1e-3
    """For SMART: largest move of each component of a word embedding. With bf16, moves this small are partly lost to
    rounding."""
    r_drop_weight: AtLeastZero = 0.0
    """R-Drop (arXiv 2106.14448): weight of how far apart the outputs of two passes with different dropout are. 0
    switches it off. It needs dropout, in the heads or within the encoder."""
