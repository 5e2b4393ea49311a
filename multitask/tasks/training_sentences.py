"""The sentences of a training without labels, by the name of their source."""

from pathlib import Path

from minbert.errors import InputError
from multitask.data.read_unlabelled_files import CAPTIONS_FILE, NEWS_FILE, SENTENCES, read_texts
from multitask.tasks.declarations import files_folder, load_tasks
from multitask.tasks.read_examples import load_rows


def training_sentences(name: str, data: Path, limit: int | None = None) -> list[str]:
    """The sentences of a source.

    Args:
        name: `unlabelled`; the name of another text file of the folder, ending in `.txt`; or a task, for its training
            sentences (of pairs: all first sentences, then all second ones).
        data: the data folder, or a tasks file.
        limit: read at most this many sentences of a text file.

    Raises:
        InputError: the name is unknown, or the file is missing or malformed.
    """
    if path := text_file(name, files_folder(data)):
        if name in (CAPTIONS_FILE, NEWS_FILE) and not path.is_file():
            raise InputError(f"{path}: no such file; `multitask data domains` makes it from the similarity set")
        if not path.exists():
            raise InputError(f"{path}: no such file; there are the sources {', '.join(_sources_in(data))}")
        return read_texts(path, SENTENCES, limit).columns[0]
    tasks = load_tasks(data)
    if name not in tasks:
        raise InputError(
            f'unknown source "{name}"; expected unlabelled, a text file\'s name (.txt) or one of {", ".join(tasks)}'
        )
    return [text for column in load_rows(tasks[name], "train").sentences for text in column]


def text_file(name: str, folder: Path) -> Path | None:
    """The file of a source of plain text, one sentence per line; None for any other source."""
    if name == "unlabelled":
        return folder / SENTENCES.file
    return folder / name if name.endswith(".txt") and Path(name).name == name else None


def _sources_in(data: Path) -> list[str]:
    """The tasks and text files that are there, as options name sources."""
    tasks = [name for name, task in load_tasks(data).items() if task.source("train").exists()]
    return [*tasks, *sorted(path.name for path in files_folder(data).glob("*.txt"))]
