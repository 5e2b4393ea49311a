"""The sets of each suite that tables of frozen embeddings have. Imports no torch."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from multitask.evaluation.retrieval_sets import RETRIEVAL_SETS
from multitask.evaluation.senteval_files import STS_SETS, TRANSFER_SETS, DataSet

TaskSuite = Literal["sts", "transfer", "retrieval"]
SETS: Mapping[TaskSuite, Sequence[DataSet[Any]]] = {
    "sts": STS_SETS,
    "transfer": TRANSFER_SETS,
    "retrieval": RETRIEVAL_SETS,
}

logger = logging.getLogger("multitask")


def missing_files(sets: Sequence[DataSet[Any]], folder: Path) -> dict[str, str]:
    """For each data set that lacks a file, the first one missing. A warning names them, unless all lack one."""
    absent = {entry.name: [path for path in entry.paths(folder) if not path.is_file()] for entry in sets}
    missing = {task: str(paths[0]) for task, paths in absent.items() if paths}
    if len(missing) < len(sets):
        for task, path in missing.items():
            logger.warning("%s: no such file; %s is left out", path, task)
    return missing
