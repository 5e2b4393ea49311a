"""Tables 6 and 7 extended to every scheduler: how the tasks share the steps, and how their gradients become one."""

from dataclasses import replace

from multitask.schedulers.config import SchedulerConfig
from studies.engine.recipes import Recipes
from studies.engine.tables import Row, Table

LABELS = {
    "average": "Average loss",
    "uncertainty": "Uncertainty weighting",
    "batch_round_robin": "Batch round robin",
    "epoch_round_robin": "Epoch round robin",
    "proportional": "Sampled by size",
    "annealed": "Sampled by size, annealed",
    "pcgrad": "PCGrad",
    "gradvac": "GradVac",
    "graddrop": "GradDrop",
    "config": "ConFIG",
    "mgda": "MGDA",
    "imtl_g": "IMTL-G",
    "aligned_mtl": "Aligned-MTL",
    "upgrad": "UPGrad",
    "dualproj": "DualProj",
    "cagrad": "CAGrad",
    "nash_mtl": "Nash-MTL",
    "fairgrad": "FairGrad",
    "random": "Random weights",
}


def table(recipes: Recipes) -> Table:
    """Fine-tuning without pre-training, under each scheduler, on the same number of rows of each task."""
    base = replace(recipes.multitask, scheduling=SchedulerConfig(reduction="mean"))
    rows = tuple(
        Row(label, recipes.finetune(recipes.start, replace(base, scheduler=name))) for name, label in LABELS.items()
    )
    return Table(
        "schedulers",
        "All schedulers",
        "Beyond the report. Fine-tuned from the start weights on the same number of examples of each task. Round robin "
        "and sampling make an optimizer step of each task's batch, the others one of all tasks' together.",
        rows,
        reference="Average loss",
        on_request=True,
    )
