"""The commands of stages: train, or find the run that is there, and print its folder."""

import logging
from typing import Any

from multitask.base import distributed
from multitask.base.runs import Weights
from multitask.stages.run_stage import run_stage
from multitask.use.predict import data_for

logger = logging.getLogger("multitask")


class Warnings(logging.Handler):
    """Keeps warnings, in their order."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def train(options: Any) -> None:
    """Run the stage that the options belong to."""
    stage, data = options.stage, options.tasks_file or options.data
    weights: list[Weights] = []
    for model in stage.inputs:
        named = getattr(options, model.option)
        if model.several:
            weights += map(Weights, named)
        elif named is not None:
            weights.append(Weights(named, getattr(options, model.revision)))
    if not stage.inputs:
        weights = [Weights(name) for name in options.model]
        data = data_for(next(iter(options.model), ""), data).path
    early = Warnings()
    logger.addHandler(early)
    try:  # the first evaluation ends what is early
        artefact = run_stage(
            stage, weights, data, options.config, options.options, lambda *_: logger.removeHandler(early)
        )
        trained = early not in logger.handlers
    finally:
        logger.removeHandler(early)
    for message in early.messages if trained else ():  # a long training has pushed them out of sight
        logger.warning("%s", message)
    if distributed.is_first():  # once however many ranks there are
        if summary := getattr(stage.functions, "summary", None):
            print(summary(artefact))
        print(artefact.folder)
