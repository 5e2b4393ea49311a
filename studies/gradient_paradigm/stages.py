"""The gradient study's stages: simulations, which need no model and no data, and encoders with random weights."""

from typing import Annotated, Literal

from pydantic import Field

from minbert.settings import AtLeastZero, Count, Seed, settings
from multitask.stages.registry import Stage, register


@settings
class SimulationConfig:
    """Simulated embeddings of the gradient study (arXiv 2402.18281, section 3.1).

    The defaults are the paper's settings.
    """

    grid: Annotated[int, Field(ge=10, le=10**4)] = 100
    """Values of the mean angle of positives, and of negatives, in each map."""
    batches: Annotated[int, Field(ge=2, le=10**6)] = 1000
    """Simulated batches for each value."""
    batch_size: Annotated[int, Field(ge=2, le=10**6)] = 128
    """The number of an anchor's candidates: its positive and its negatives."""
    positive_deviation: AtLeastZero = 0.05
    """Standard deviation of the angle between an anchor and its positive, in radians."""
    negative_deviation: AtLeastZero = 0.10
    """The same for negatives."""
    trials: Annotated[int, Field(ge=1, le=10**6)] = 1000
    """Random batches of each size and dimension on which losses with a margin are compared with InfoNCE."""
    seed: Seed = 0
    """Seed of all random draws."""


SIMULATE = register(
    Stage(
        "simulate",
        SimulationConfig,
        module="studies.gradient_paradigm.simulations",
        version=4,
        with_seed=None,
        inputs=(),
        computing=(),
        command=False,
        scores=True,
    )
)


Architecture = Literal["bert", "roberta", "roberta-prelayernorm", "deberta-v2", "modernbert", "t5"]
"""What transformers calls them."""


@settings
class RandomEncoderConfig:
    """An encoder with random weights and the tokenizer of the start weights."""

    architecture: Architecture = "bert"
    hidden_size: Count = 256
    num_hidden_layers: Count = 4
    num_attention_heads: Count = 4
    intermediate_size: Count = 1024
    from_scratch: Literal[True] = True
    """As of `mlm`: reports and model cards read that the start weights are not used."""
    seed: Seed = 0
    """Seed of the weights."""


register(
    Stage(
        "random_encoder",
        RandomEncoderConfig,
        module="studies.gradient_paradigm.random_encoder",
        computing=(),
        command=False,
    )
)
