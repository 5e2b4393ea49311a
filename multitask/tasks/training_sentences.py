"""The sentences of a training without labels, by the name of their source."""

from collections.abc import Sequence
from pathlib import Path

from minbert.errors import InputError
from multitask.data.read_task_files import read_examples
from multitask.data.read_unlabelled_files import CAPTIONS_FILE, NEWS_FILE, SENTENCES_FILE, read_sentences
from multitask.tasks.all_tasks import TASKS


def training_sentences(name: str, folder: Path, limit: int | None = None) -> tuple[Sequence[str], str]:
    """Sentences and the fingerprint of their file.

    Args:
        name: `unlabelled`; the name of another text file of the folder, ending in `.txt`; or a task, for its training
            sentences (of pairs: all first sentences, then all second ones).
        folder: the data folder.
        limit: read at most this many sentences of a text file.

    Raises:
        InputError: the name is unknown, or the file is missing or malformed.
    """
    if path := text_file(name, folder):
        if name in (CAPTIONS_FILE, NEWS_FILE) and not path.is_file():
            raise InputError(f"{path}: no such file; `multitask data domains` makes it from the similarity set")
        sentences = read_sentences(path, limit)
        return sentences.sentences, sentences.fingerprint
    if name not in TASKS:
        raise InputError(
            f'unknown source "{name}"; expected unlabelled, a text file\'s name (.txt) or one of {", ".join(TASKS)}'
        )
    schema = TASKS[name].schema
    examples = read_examples(schema.path(folder, "train"), schema, labelled=True)
    return [text for column in examples.sentences for text in column], examples.fingerprint


def text_file(name: str, folder: Path) -> Path | None:
    """The file of a source of plain text, one sentence per line; None for any other source."""
    if name == "unlabelled":
        return folder / SENTENCES_FILE
    return folder / name if name.endswith(".txt") and Path(name).name == name else None
