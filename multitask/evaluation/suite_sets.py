"""The sets of each suite that tables of frozen embeddings have. Imports no torch."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from multitask.evaluation.retrieval_sets import RETRIEVAL_SETS
from multitask.evaluation.senteval_files import STS_SETS, TRANSFER_SETS, DataSet

TaskSuite = Literal["sts", "transfer", "retrieval"]
SETS: Mapping[TaskSuite, Sequence[DataSet[Any]]] = {
    "sts": STS_SETS,
    "transfer": TRANSFER_SETS,
    "retrieval": RETRIEVAL_SETS,
}
