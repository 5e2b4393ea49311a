"""The sentences that a training without labels reads, by the name of their source."""

from collections.abc import Sequence
from pathlib import Path

from minbert.errors import InputError
from multitask.data.read_task_files import read_examples
from multitask.data.read_unlabelled_files import CAPTIONS_FILE, NEWS_FILE, SENTENCES_FILE, read_sentences
from multitask.tasks.kinds import TASKS


def training_sentences(name: str, folder: Path, limit: int | None = None) -> tuple[Sequence[str], str]:
    """Sentences and the fingerprint of their file.

    Args:
        name: `unlabelled`; the name of another text file of the folder, ending in `.txt`; or a task whose training
            sentences are taken, of pairs all first sentences, then all second.
        folder: the data folder.
        limit: read only the first so many sentences of a text file.

    Raises:
        InputError: an unknown name, or a missing or malformed file.
    """
    if path := text_file(name, folder):
        if name in (CAPTIONS_FILE, NEWS_FILE) and not path.is_file():
            raise InputError(f"{path}: no such file; `multitask data domains` makes it of the similarity training set")
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
    """Where a source of plain text lies, one sentence a line; None for any other source."""
    if name == "unlabelled":
        return folder / SENTENCES_FILE
    return folder / name if name.endswith(".txt") and Path(name).name == name else None
