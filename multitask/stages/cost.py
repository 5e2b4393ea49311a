"""How much stages have to do, roughly: sentences that go through the encoder. Only used to estimate times."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from multitask.data.read_task_files import Split
from multitask.data.read_unlabelled_files import PAIRS_FILE, TRIPLETS_FILE
from multitask.stages.finetune import FinetuneConfig
from multitask.stages.registry import Planned
from multitask.tasks.all_tasks import TASKS
from multitask.tasks.training_sentences import text_file

FORWARD_SHARE = 1 / 3
"""Cost of a forward pass, in training steps."""
MAIN_TASKS = ("sentiment", "paraphrase", "similarity")


def labelled(tasks: Iterable[str], split: Split, data: Path) -> float:
    """Sentences of the tasks' files."""
    return sum(sentences_per_row(task) * rows(data, task, split) for task in tasks)


def contrastive(name: str, data: Path, quora_share: float = 1.0, limit: int | None = None) -> float:
    """Sentences of a contrastive source in an epoch: two views of each row, three of a triplet."""
    files = {"nli": (TRIPLETS_FILE, 3), "pairs": (PAIRS_FILE, 2)}
    if path := text_file(name, data):
        count, columns = lines(path), 2
    elif name in files:
        file, columns = files[name]
        count = lines(data / file)
    else:
        task = "paraphrase" if name == "quora" else name
        count, columns = rows(data, task, "train") * (1 if name == "quora" else sentences_per_row(task)), 2
    return columns * min(count, limit or count) * (quora_share if name in ("quora", "paraphrase") else 1.0)


def evaluation(model: Planned) -> float:
    """Sentences of the dev sets that a model is scored on; without tasks of its own, on the main tasks'."""
    config = getattr(model.config, "finetune", model.config)
    tasks = (*config.tasks, *config.untrained) if isinstance(config, FinetuneConfig) else MAIN_TASKS
    return FORWARD_SHARE * labelled(tasks, "dev", model.data)


def sentences_per_row(task: str) -> int:
    """Sentences in a row of a task."""
    return 2 if TASKS[task].kind.pair else 1


def rows(data: Path, task: str, split: Split) -> int:
    """Rows of a task's file, from its number of lines."""
    return max(lines(TASKS[task].schema.path(data, split)) - 1, 0)


@cache
def lines(path: Path) -> int:
    """Lines of a file; 0 of a missing one, which the stage that needs it reports."""
    return path.read_bytes().count(b"\n") if path.is_file() else 0
