"""Write the bundled sample data: small generated files (CC0) in the formats of the course's and the pre-training data.

`python scripts/make_sample_data.py` writes data/sample/ again, and data/own/, an example of tasks that a user declares.
The same seed gives the same bytes. No sentence occurs in two splits of a task. The script needs only the standard
library.
"""

import argparse
import csv
import hashlib
import io
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sample_data import inference, messages, paraphrase, reviews, sentiment, similarity, unlabelled
from sample_data.grammar import SPLITS, Example, Split, collect

SEED = 2024
TRIPLETS = 900
UNLABELLED = 3200
OF_A_DOMAIN = 1000
MESSAGES = 500
NEW_MESSAGES = 6


@dataclass(frozen=True)
class Task:
    """One task's files.

    Args:
        stem: the start of the file names.
        sentence_columns: names of the columns that hold sentences.
        label_column: name of the label's column.
        rows: how many in train, dev and test.
        make: generates an example of a split.
        classes: number of classes; if above 1, labels are whole numbers and all classes are equally frequent.
    """

    stem: str
    sentence_columns: tuple[str, ...]
    label_column: str
    rows: tuple[int, int, int]
    make: Callable[[random.Random, Split], Example]
    classes: int = 1


TASKS = (
    Task("ids-sst", ("sentence",), "sentiment", (1200, 300, 300), sentiment.make_opinion, classes=5),
    Task("quora", ("sentence1", "sentence2"), "is_duplicate", (1500, 350, 350), paraphrase.make_pair),
    Task("sts", ("sentence1", "sentence2"), "similarity", (1000, 250, 250), similarity.make_pair),
    Task("ids-cfimdb", ("sentence",), "sentiment", (160, 60, 60), reviews.make_review, classes=2),
)


def table(rows: list[list[str]], delimiter: str) -> str:
    """CSV text with Unix line ends."""
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def row_id(stem: str, split: Split, index: int) -> str:
    """A row's id: 25 hex digits, as in the course's files."""
    return hashlib.sha256(f"{stem}/{split}/{index}".encode()).hexdigest()[:25]


def task_file(task: Task, split: Split, examples: list[Example]) -> str:
    """The text of one split's file. Test files have no label column."""
    labelled = split != "test"
    rows = [["", "id", *task.sentence_columns, *([task.label_column] if labelled else [])]]
    for index, example in enumerate(examples):
        label = example.label
        shown = [str(int(label) if task.classes > 1 else label)] if labelled and label is not None else []
        rows.append([str(index), row_id(task.stem, split, index), *example.sentences, *shown])
    return table(rows, delimiter="\t")


def all_files(seed: int) -> dict[str, str]:
    """The text of every file, by file name."""
    files = {}
    evaluation_sentences: set[str] = set()
    for task in TASKS:
        rng = random.Random(f"{seed}/{task.stem}")
        taken: set[str] = set()
        for split, count in zip(SPLITS, task.rows, strict=True):
            examples = collect(partial(task.make, rng, split), count, taken, task.classes)
            rng.shuffle(examples)
            name = f"{task.stem}-{'test-student' if split == 'test' else split}.csv"
            files[name] = task_file(task, split, examples)
            if split != "train":
                evaluation_sentences.update(*(example.sentences for example in examples))

    rng = random.Random(f"{seed}/nli")
    triplets = collect(partial(inference.make_triplet, rng, "train"), TRIPLETS, set(evaluation_sentences))
    header = ["sent0", "sent1", "hard_neg"]
    files["nli_triplets.csv"] = table([header, *(list(triplet.sentences) for triplet in triplets)], delimiter=",")

    rng = random.Random(f"{seed}/unlabelled")
    sentences = collect(partial(unlabelled.make_sentence, rng, "train"), UNLABELLED, set(evaluation_sentences))
    files["sentences.txt"] = "".join(f"{sentence.sentences[0]}\n" for sentence in sentences)

    for name, make in {"captions": unlabelled.make_caption, "news": unlabelled.make_report}.items():
        rng = random.Random(f"{seed}/{name}")
        of_domain = collect(partial(make, rng, "train"), OF_A_DOMAIN, set(evaluation_sentences))
        files[f"{name}.txt"] = "".join(f"{sentence.sentences[0]}\n" for sentence in of_domain)
    return files


def own_files(seed: int) -> dict[str, str]:
    """The text of the files of the declared tasks, by file name: labelled messages, and new ones without labels."""
    rng = random.Random(f"{seed}/messages")
    rows: dict[str, tuple[str, int]] = {}
    while len(rows) < MESSAGES + NEW_MESSAGES:
        text, topic, urgency = messages.make_message(rng)
        rows[text] = (topic, urgency)
    labelled = [[text, topic, str(urgency)] for text, (topic, urgency) in list(rows.items())[:MESSAGES]]
    new = "".join(f"{text}\n" for text in list(rows)[MESSAGES:])
    return {"messages.csv": table([["message", "topic", "urgency"], *labelled], ","), "new_messages.txt": new}


def main() -> None:
    repository = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=repository / "data" / "sample", help="folder to write to")
    parser.add_argument("--own", type=Path, default=repository / "data" / "own", help="folder of the declared tasks")
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args()
    for folder, files in ((arguments.output, all_files(arguments.seed)), (arguments.own, own_files(arguments.seed))):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
            print(f"{folder / name}: {len(text.splitlines())} lines")


if __name__ == "__main__":
    main()
