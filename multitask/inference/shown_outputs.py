"""A head's outputs as predictions show them, as a function of tensors, which can be differentiated and exported."""

import torch
from torch import Tensor

from multitask.tasks.kinds import Regression
from multitask.tasks.labelled import Labelled
from multitask.tasks.task import Task


def shown_outputs(task: Task, outputs: Tensor) -> Tensor:
    """Outputs, [rows, outputs] or [rows], as probabilities [rows, labels] or values in the labels' unit [rows]."""
    if isinstance(task, Regression):
        low, high = task.bounds
        return low + (outputs.clamp(0, 1) if task.range else outputs) * (high - low)
    assert isinstance(task, Labelled)
    logits = outputs / task.temperature
    if task.outputs == 1:
        return torch.stack([(-logits).sigmoid(), logits.sigmoid()], dim=1)
    return logits.sigmoid() if task.log_odds else logits.softmax(dim=1)
