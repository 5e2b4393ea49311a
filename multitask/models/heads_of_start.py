"""Training goes on with the heads of a fine-tuned start where they mean the same, and says which these are."""

from pathlib import Path

import torch
from torch import nn

from multitask.base import logger
from multitask.data.messages import listed
from multitask.models.model_folder import ModelDescription, read_description
from multitask.models.multitask_model import MultitaskModel, load_heads, stored_tasks
from multitask.models.prediction_heads import build_heads
from multitask.tasks.kinds import Regression
from multitask.tasks.labels import Labelled
from multitask.tasks.task import Task


def take_heads(model: MultitaskModel, folder: Path, new: bool) -> None:
    """Give a model the heads that its start has for the same tasks, or none if they should be `new`; log which.

    No random numbers are drawn. Raises InputError if the start's description or heads are damaged.
    """
    found = read_description(folder)
    if found is None:
        return
    tasks = stored_tasks(folder, found)
    if new:
        logger.info("heads: all are new, and those of the start (%s) are left out", listed(tasks))
        return
    with torch.random.fork_rng([]):  # heads are built with random weights
        heads = build_heads(list(tasks.values()), model.encoder.width, found.heads)
    load_heads(heads, folder)
    reasons = {name: _why_new(model, name, found, tasks.get(name), heads) for name in model.tasks}
    kept = [name for name, reason in reasons.items() if reason is None]
    for name in kept:
        model.heads[name].load_state_dict(heads[name].state_dict())
    parts = {
        "kept from the start": kept,
        "new": [f"{name} ({reason})" for name, reason in reasons.items() if reason is not None],
        "left out": [name for name in tasks if name not in model.tasks],
    }
    logger.info("heads: %s", "; ".join(f"{part}: {listed(names)}" for part, names in parts.items() if names))


def _why_new(
    model: MultitaskModel, name: str, found: ModelDescription, old: Task | None, heads: nn.ModuleDict
) -> str | None:
    """Why a task cannot go on with the start's head; None if it can."""
    own, task = model.heads_config, model.tasks[name]
    if old is None:
        return "the start has none"
    if old.kind != task.kind:
        return f"there it is a {old.kind}"
    if isinstance(task, Labelled) and isinstance(old, Labelled) and old.names != task.names:
        return f"there its labels are {listed(old.names, most=5)}"
    if isinstance(task, Regression) and isinstance(old, Regression) and old.bounds != task.bounds:
        return "there its range is {:g} to {:g}".format(*old.bounds)
    if found.pooling != model.encoder.pooling:
        return f"the start pools by {found.pooling}"
    shapes = [
        {key: value.shape for key, value in head.state_dict().items()} for head in (heads[name], model.heads[name])
    ]
    apart = own.sharing in (found.heads.sharing, "separate")  # otherwise one of the heads that share would decide
    if not apart or type(heads[name]) is not type(model.heads[name]) or shapes[0] != shapes[1]:
        return "the start's has other layers"
    return None
