"""How much stages have to do, roughly: sentences that go through the encoder. Only used to estimate times."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from multitask.data.read_unlabelled_files import PAIRS_FILE, TRIPLETS_FILE
from multitask.data.text_lines import count_lines, suffixes
from multitask.stages.finetune import FinetuneConfig
from multitask.stages.registry import Planned
from multitask.tasks.declarations import chosen_tasks, default_tasks, files_folder, load_tasks
from multitask.tasks.task import Split, Task
from multitask.tasks.training_sentences import text_file

FORWARD_SHARE = 1 / 3
"""Cost of a forward pass, in training steps."""


def labelled(tasks: Iterable[str], split: Split, data: Path) -> float:
    """Sentences of the tasks' files."""
    return sum(len(task.text) * rows(task, split) for task in chosen_tasks(data, tuple(tasks)).values())


def contrastive(name: str, data: Path, quora_share: float = 1.0, limit: int | None = None) -> float:
    """Sentences of a contrastive source in an epoch: two views of each row, three of a triplet."""
    files = {"nli": (TRIPLETS_FILE, 3), "pairs": (PAIRS_FILE, 2)}
    if path := text_file(name, files_folder(data)):
        count, columns = float(lines(path)), 2
    elif name in files:
        file, columns = files[name]
        count = float(lines(files_folder(data) / file))
    else:
        task = load_tasks(data)["paraphrase" if name == "quora" else name]
        count, columns = rows(task, "train") * (1 if name == "quora" else len(task.text)), 2
    return columns * min(count, limit or count) * (quora_share if name in ("quora", "paraphrase") else 1.0)


def evaluation(model: Planned) -> float:
    """Sentences of the dev sets that a model is scored on; without tasks of its own, on the main tasks'."""
    config = getattr(model.config, "finetune", model.config)
    named = (*config.tasks, *config.untrained) if isinstance(config, FinetuneConfig) else ()
    return FORWARD_SHARE * labelled(named or default_tasks(model.data), "dev", model.data)


def rows(task: Task, split: Split) -> float:
    """Rows of a task's file, from its number of lines; of what has no lines, its bytes divided by 100."""
    if split == "dev" and task.dev is None:
        return task.dev_share * rows(task, "train")
    path = task.source(split).path
    if path is None or not path.is_file():
        return 0
    suffix, compression = suffixes(path)
    return path.stat().st_size / 100 if compression or suffix == ".parquet" else max(lines(path) - 1, 0)


@cache
def lines(path: Path) -> int:
    """Lines of a file; 0 of a missing one, which the stage that needs it reports."""
    return count_lines(path) if path.is_file() else 0
