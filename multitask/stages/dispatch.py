"""From a configuration to the stage that it configures: what the command line and the grid have in common."""

from pathlib import Path

from multitask.runs.artefact import Artefact
from multitask.runtime.options import RunOptions
from multitask.stages.finetune import FinetuneConfig
from multitask.stages.fuse import FuseConfig
from multitask.stages.mlm import MlmConfig
from multitask.stages.pretrain import PretrainConfig

TrainingConfig = FinetuneConfig | FuseConfig | MlmConfig | PretrainConfig


def train_stage(
    start: str, data: Path, config: TrainingConfig, options: RunOptions, revision: str | None = None
) -> Artefact:
    """Call the training stage of a configuration. Each is imported when it is needed: all of them import torch.

    Args:
        start: a run's folder, or a checkpoint as `BertModel.from_pretrained` takes it.
        data: folder with the stage's files.
        config: of the stage.
        options: where to compute and to write.
        revision: of a hub id.
    """
    match config:
        case FuseConfig():  # which is a FinetuneConfig, too
            from multitask.stages.fuse.training import fuse

            return fuse(start, data, config, options, revision)
        case FinetuneConfig():
            from multitask.stages.finetune.training import finetune

            return finetune(start, data, config, options, revision)
        case PretrainConfig():
            from multitask.stages.pretrain.training import pretrain

            return pretrain(start, data, config, options, revision)
        case MlmConfig():
            from multitask.stages.mlm.training import mlm

            return mlm(start, data, config, options, revision)
