"""Options of the optimizer and of the regularisers."""

from typing import Annotated, Literal

from pydantic import Field

from minbert.settings import AtLeastZero, Share, settings


@settings
class OptimizerConfig:
    """AdamW, its learning rates, gradient clipping and averaging of weights."""

    learning_rate: AtLeastZero = 1e-5
    """Peak learning rate of the encoder."""
    head_learning_rate: AtLeastZero | None = None
    """Peak learning rate of the heads and all other layers outside the encoder; the encoder's when left out."""
    schedule: Literal["constant", "linear"] = "constant"
    """After the warm-up, `constant` keeps the peak learning rate and `linear` lowers it to zero at the last step."""
    warmup: Share = 0.0
    """Warm-up: share of all steps in which the learning rate rises to its peak, 0 to 1."""
    weight_decay: AtLeastZero = 0.01
    """Decoupled weight decay. Biases and norms are never decayed."""
    clip: Annotated[float, Field(ge=1e-9)] | None = 1.0
    """Largest norm of the gradient; a larger gradient is scaled down to it. `none` switches clipping off."""
    layer_decay: Annotated[float, Field(ge=0.01, le=1)] = 1.0
    """Learning rate of each layer of the encoder as a share of that of the layer above it. The embeddings count as
    the lowest layer."""
    ema_decay: Annotated[float, Field(ge=0, le=0.999999)] | None = None
    """Evaluate and keep models with a moving average of the weights. Each step's weights count this many times as much
    as the next step's, e.g. 0.95. Default: no average."""

    @property
    def needs_total_steps(self) -> bool:
        """Whether the learning rate of a step depends on the number of all steps."""
        return self.schedule != "constant" or self.warmup > 0


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
