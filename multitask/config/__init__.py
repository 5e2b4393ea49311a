"""Every setting of every stage, as typed frozen dataclasses. Defaults are the report's unless said otherwise.

What decides the bits of a result stands in a stage's config; where things lie and how a run reports stands in
`RunOptions`. Imports nothing heavy: the command line builds its help from here.
"""

from multitask.config.parts import (
    Device,
    HeadsConfig,
    MaskingConfig,
    ObjectiveConfig,
    OptimizerConfig,
    PairInput,
    Pooling,
    Precision,
    RunOptions,
    SchedulerConfig,
    ShapeConfig,
    Sharing,
)
from multitask.config.stages import (
    ContrastiveConfig,
    EnsembleConfig,
    FinetuneConfig,
    FuseConfig,
    Kept,
    MlmConfig,
    PretrainConfig,
    PruneConfig,
    SimulationConfig,
    SuitesConfig,
)

__all__ = [
    "ContrastiveConfig",
    "Device",
    "EnsembleConfig",
    "FinetuneConfig",
    "FuseConfig",
    "HeadsConfig",
    "Kept",
    "MaskingConfig",
    "MlmConfig",
    "ObjectiveConfig",
    "OptimizerConfig",
    "PairInput",
    "Pooling",
    "Precision",
    "PretrainConfig",
    "PruneConfig",
    "RunOptions",
    "SchedulerConfig",
    "ShapeConfig",
    "Sharing",
    "SimulationConfig",
    "SuitesConfig",
]
