"""Add phrases of the Stanford Sentiment Treebank to the course's sentiment training set, for the preset `best`.

    python -m studies.multitask_report.treebank_phrases DATA TREES OUTPUT

The treebank labels every phrase of a sentence's tree (Socher et al., EMNLP 2013). The course's file has the sentences.
DATA is the folder of the course's files, OUTPUT a new one. TREES is train.txt of trainDevTestTrees_PTB.zip from
https://nlp.stanford.edu/sentiment.
"""

import argparse
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from minbert.errors import InputError
from minbert.files import atomic_folder
from multitask.cli.main import exit_code
from multitask.data.contamination import TrainedOn, hash_sentences
from multitask.data.examples import Examples
from multitask.data.tables import FileRow, text_lines
from multitask.data.write_tables import TEXT_FORMATS, check_new_folder
from multitask.tasks import MAIN_TASKS
from multitask.tasks.declarations import chosen_tasks
from multitask.tasks.read_examples import load_rows
from multitask.tasks.task import Split, Task

SENTENCE_COPIES = 3
"""How often the new file has each whole sentence. Phrases outnumber sentences by 17 to 1."""
PARTS = re.compile(r"\((?P<label>[0-4])(?= )|(?P<word>[^\s()]+)|(?P<end>\))|(?P<other>\S)")

HELD_OUT_SPLITS: tuple[Split, ...] = ("dev", "test")
Phrase = tuple[str, int]  # its words, separated by spaces, and its label from 0 to 4


def write_phrases(data: Path, trees: Path, folder: Path) -> tuple[int, int]:
    """Copy the files of the course's main tasks to a new folder, with phrases as further training rows of sentiment.

    Phrases come from trees whose sentence is a training row, and each is written once, in whatever case. No training
    row of the new folder is a sentence or pair of a dev or test set in other spacing, case or punctuation.

    Args:
        data: folder with the course's files.
        trees: `train.txt` of the treebank's `trainDevTestTrees_PTB.zip`: one tree a line.
        folder: the folder to write.

    Returns:
        The numbers of sentences and of phrases.

    Raises:
        InputError: a missing or malformed file, no tree of a training sentence, or the folder exists.
    """
    check_new_folder(folder)
    tasks = chosen_tasks(data, MAIN_TASKS)
    held_out = held_out_rows(tasks)
    training = {name: load_rows(task, "train") for name, task in tasks.items()}
    training = {n: rows.take(np.flatnonzero(~held_out.rows_seen(rows.sentences))) for n, rows in training.items()}
    sentiment = training["sentiment"]
    phrases = _phrases(read_trees(trees), sentiment.sentences[0], held_out)
    if not phrases:
        raise InputError(f"{trees}: no tree of a sentence in {sentiment.source}; expected the treebank's train.txt")
    written = {name: [*course_rows(tasks[name], rows)] for name, rows in training.items()}
    written["sentiment"] *= SENTENCE_COPIES
    written["sentiment"] += [{"sentence": text, "sentiment": label} for text, label in phrases]
    with atomic_folder(folder) as temporary:
        for name, task in tasks.items():
            rows = [{**row, "id": str(number)} for number, row in enumerate(written[name])]
            write_training_rows(temporary, task, rows)
    return len(sentiment), len(phrases)


def held_out_rows(tasks: Mapping[str, Task]) -> TrainedOn:
    """The rows of all dev and test sets, as if they were trained on. Raises InputError for a missing file."""
    held_out = TrainedOn()
    for examples in (load_rows(task, split) for task in tasks.values() for split in HELD_OUT_SPLITS):
        held_out |= TrainedOn.of_rows([hash_sentences(column) for column in examples.sentences])
    return held_out


def write_training_rows(folder: Path, task: Task, rows: Sequence[FileRow]) -> None:
    """Write a task's training file, and copy its dev and test files."""
    write_course_rows(folder / Path(task.files.splits["train"].file).name, task, rows)
    for path in (Path(task.files.splits[split].file) for split in HELD_OUT_SPLITS):
        shutil.copyfile(path, folder / path.name)


def course_rows(task: Task, examples: Examples) -> Iterator[FileRow]:
    """Rows as the course's files have them."""
    ids = examples.ids or map(str, range(len(examples)))
    for name, *texts, label in zip(ids, *examples.sentences, examples.gold.tolist(), strict=True):
        yield {"id": name, **dict(zip(task.files.text, texts, strict=True)), str(task.files.label): f"{label:g}"}


def write_course_rows(path: Path, task: Task, rows: Sequence[FileRow]) -> None:
    """Write a training or dev file of one of the course's tasks."""
    with path.open("w", encoding="utf-8", newline="") as file:
        TEXT_FORMATS[".tsv"](file, ("id", *task.files.text, str(task.files.label)))(rows)


def _phrases(trees: Iterable[Sequence[Phrase]], sentences: Sequence[str], held_out: TrainedOn) -> list[Phrase]:
    """The phrases of these sentences' trees, each once in whatever case, without those that a dev or test set has."""
    chosen, known, found = set(hash_sentences(sentences).tolist()), {text.lower() for text in sentences}, list[Phrase]()
    for tree in trees:
        *phrases, (whole, _) = tree
        if int(hash_sentences([whole])[0]) in chosen:
            evaluated = held_out.sentences_seen([words for words, _ in phrases])
            for (words, label), seen in zip(phrases, evaluated, strict=True):
                if not seen and words.lower() not in known:
                    known.add(words.lower())
                    found.append((words, label))
    return found


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


def main() -> None:
    """Write the folder and say how many phrases were added. Raises InputError for bad input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "trees", "output"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    sentences, phrases = write_phrases(given.data, given.trees, given.output)
    print(f"{given.output}: {phrases:,} phrases added to {sentences:,} sentences")


if __name__ == "__main__":
    sys.exit(exit_code(main))
