"""Add phrases of the Stanford Sentiment Treebank to the course's sentiment training set.

The treebank labels every phrase of a sentence's tree (Socher et al., EMNLP 2013). The course's file has the sentences.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from minbert.errors import InputError
from minbert.files import atomic_folder
from multitask.data.contamination import hash_sentences
from multitask.data.text_lines import text_lines
from multitask.data.write_tables import TEXT_FORMATS
from multitask.tasks.declarations import MAIN_TASKS, chosen_tasks
from multitask.tasks.read_examples import load_rows

SENTENCE_COPIES = 3
"""How often the new file has each whole sentence. Phrases outnumber sentences by 17 to 1."""
PARTS = re.compile(r"\((?P<label>[0-4])(?= )|(?P<word>[^\s()]+)|(?P<end>\))|(?P<other>\S)")

Phrase = tuple[str, int]
"""Its words, separated by spaces, and its label from 0 to 4."""


def write_phrases(data: Path, trees: Path, folder: Path) -> tuple[int, int]:
    """Copy the files of the course's main tasks to a new folder, with phrases as further training rows of sentiment.

    Phrases come from trees whose sentence is a training row. Each is written once, and none that equals a sentence of
    a dev or test set in other spacing, case or punctuation.

    Args:
        data: folder with the course's files.
        trees: `train.txt` of the treebank's `trainDevTestTrees_PTB.zip`: one tree a line.
        folder: the folder to write.

    Returns:
        The numbers of sentences and of phrases.

    Raises:
        InputError: a missing or malformed file, no tree of a training sentence, or the folder exists.
    """
    if folder.exists():
        raise InputError(f"{folder}: exists already; name another folder, or remove it")
    tasks = chosen_tasks(data, MAIN_TASKS)
    held_out = [load_rows(task, split).sentences for task in tasks.values() for split in ("dev", "test")]
    training = load_rows(tasks["sentiment"], "train")
    sentences = set(_hashes(training.sentences[0]))
    seen = sentences.union(*(_hashes(column) for columns in held_out for column in columns))
    phrases: list[Phrase] = []
    for tree in read_trees(trees):
        *hashes, whole = _hashes([words for words, _ in tree])
        if whole in sentences:
            new = {number: phrase for number, phrase in zip(hashes, tree, strict=False) if number not in seen}
            seen |= new.keys()
            phrases += new.values()
    if not phrases:
        raise InputError(f"{trees}: no tree of a sentence in {training.source}; expected the treebank's train.txt")
    whole_sentences = [*zip(training.sentences[0], map(int, training.gold), strict=True)]
    with atomic_folder(folder) as temporary:
        for path in (Path(source.file) for task in tasks.values() for source in task.sources.values()):
            shutil.copyfile(path, temporary / path.name)
        with (temporary / Path(training.source).name).open("w", encoding="utf-8", newline="") as file:
            rows = [*whole_sentences * SENTENCE_COPIES, *phrases]
            write = TEXT_FORMATS[".tsv"](file, ("id", "sentence", "sentiment"))
            write([{"id": str(i), "sentence": text, "sentiment": label} for i, (text, label) in enumerate(rows)])
    return len(whole_sentences), len(phrases)


def _hashes(texts: list[str]) -> list[int]:
    return hash_sentences(texts).tolist()


def read_trees(path: Path) -> Iterator[list[Phrase]]:
    """The phrases of each line's tree, the whole sentence last."""
    for number, line in enumerate(text_lines(path), start=1):
        malformed = InputError(f"{path}:{number}: not a tree; expected a line such as (3 (2 A) (4 gem))")
        words: list[str] = []
        begun: list[tuple[int, int]] = []  # label and first word of each phrase that has not ended
        phrases: list[Phrase] = []
        for part in PARTS.finditer(line):
            if part["label"] and (begun or not words):
                begun.append((int(part["label"]), len(words)))
            elif part["word"] and begun:
                words.append(part["word"])
            elif part["end"] and begun:
                label, first = begun.pop()
                phrases.append((" ".join(words[first:]), label))
            else:
                raise malformed
        if begun or not phrases:
            raise malformed
        yield phrases
