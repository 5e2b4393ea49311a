"""The sentences that a training without labels reads, by the name of their source."""

from collections.abc import Sequence
from pathlib import Path

from minbert.errors import InputError
from multitask.datasets.readers import SENTENCES_FILE, read_examples, read_sentences
from multitask.tasks import TASKS


def training_sentences(name: str, folder: Path, limit: int | None = None) -> tuple[Sequence[str], str]:
    """Sentences and the fingerprint of their file.

    Args:
        name: `unlabelled`, or a task whose training sentences are taken; of pairs all first sentences, then all second.
        folder: the data folder.
        limit: read only the first so many unlabelled sentences.

    Raises:
        InputError: an unknown name, or a missing or malformed file.
    """
    if name == "unlabelled":
        sentences = read_sentences(folder / SENTENCES_FILE, limit)
        return sentences.sentences, sentences.fingerprint
    if name not in TASKS:
        raise InputError(f'unknown source "{name}"; expected unlabelled or one of {", ".join(TASKS)}')
    schema = TASKS[name].schema
    examples = read_examples(schema.path(folder, "train"), schema, labelled=True)
    return [text for column in examples.sentences for text in column], examples.fingerprint
