"""Make a data folder with more rows, that of the best model or of the preset `medium`: the course's files with phrases,
more question pairs and more scored pairs, and other texts.

    python -m scripts.more_data COURSE OUTPUT [--phrases TSV] [--pairs TSV [--drawn N]] [--senteval FOLDER]
        [--sentences TXT] [--triplets CSV]

`--phrases` has the columns phrase and sentiment; each whole sentence then stands in the file three times. `--pairs` has
sentence1, sentence2 and is_duplicate; of all question pairs, `--drawn` keeps so many at random. `--senteval` has the
scored pairs of STS12 to STS16 and SICK, whose relatedness from 1 to 5 becomes a similarity from 0 to 5. No row of the
new training files is in a dev or test set. Of the scored pairs, those are left out, too, of which both sentences share
most words with those of a dev or test pair: the course's similarity sets are drawn from the same sources. `--sentences`
and `--triplets` become sentences.txt and nli_triplets.csv, without rows of which a sentence is in a dev or test set.
"""

import argparse
import csv
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from minbert.errors import InputError
from minbert.files import atomic_folder, read_text, write_text
from multitask.cli.main import exit_code
from multitask.data.contamination import TrainedOn, hash_sentences
from multitask.data.examples import Examples
from multitask.data.tables import FileRow, Format, RowsFrom
from multitask.data.write_tables import check_new_folder
from multitask.evaluation.suite_data import read_sts, read_table
from multitask.evaluation.suite_sets import SETS
from multitask.tasks import MAIN_TASKS
from multitask.tasks.declarations import chosen_tasks
from multitask.tasks.read_examples import load_rows, read_examples
from multitask.tasks.task import Task
from studies.multitask_report.treebank_phrases import (
    HELD_OUT_SPLITS,
    SENTENCE_COPIES,
    course_rows,
    held_out_rows,
    write_training_rows,
)

NEAR = 0.7  # share of common words, of all words of two sentences, from which they count as nearly the same
STS = ("STS12", "STS13", "STS14", "STS15", "STS16")
SICK = ("SICK_train", "SICK_trial", "SICK_test_annotated")

ScoredPair = tuple[str, str, float]
Row = TypeVar("Row")


def scored_pairs(senteval: Path) -> Iterator[ScoredPair]:
    """The pairs of STS12 to STS16 and of SICK, with similarities from 0 to 5. Raises InputError for a damaged file."""
    for name in STS:
        for gold in sorted((senteval / "STS" / f"{name}-en-test").glob("STS.gs.*.txt")):
            texts = gold.with_name(gold.name.replace(".gs.", ".input."))
            if texts.exists():  # not for the file of all sets
                rows = read_sts([texts, gold])
                yield from zip(*rows.columns, rows.labels.tolist(), strict=True)
    [relatedness] = (entry.table for entry in SETS["sts"] if entry.name == "SICKRelatedness")
    rows = read_table([senteval / "SICK" / f"{name}.txt" for name in SICK], **relatedness)
    yield from zip(*rows.columns, ((rows.labels - 1) * 1.25).tolist(), strict=True)


def words(texts: list[str], vocabulary: dict[str, int], width: int) -> csr_matrix:
    """Which words each text has  # [texts, width]."""
    found = [sorted({vocabulary.setdefault(word, len(vocabulary)) for word in _words(text)}) for text in texts]
    rows = np.repeat(np.arange(len(texts)), [len(ids) for ids in found])
    ids = np.fromiter(chain.from_iterable(found), np.int64)
    return csr_matrix((np.ones(len(ids), np.float32), (rows, ids)), (len(texts), width))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _shared(first: csr_matrix, second: csr_matrix) -> NDArray[np.float64]:
    """Common words of two sets of texts by all their words, from 0 to 1  # [first, second]."""
    common = (first @ second.T).toarray()
    sizes = np.asarray(first.sum(1)), np.asarray(second.sum(1)).T
    return common / np.maximum(sizes[0] + sizes[1] - common, 1)


def nearly_held_out(pairs: list[ScoredPair], held_out: Examples) -> NDArray[np.bool_]:
    """Which pairs nearly equal a held-out pair, in either order  # [pairs]."""
    columns = [[first for first, _, _ in pairs], [second for _, second, _ in pairs]]
    width = len({word for text in chain(*columns, *held_out.sentences) for word in _words(text)})
    vocabulary: dict[str, int] = {}
    a, b, c, d = (words(list(texts), vocabulary, width) for texts in (*columns, *held_out.sentences))
    near = np.zeros(len(pairs), bool)
    for start in range(0, len(pairs), 500):
        part = slice(start, start + 500)
        same = (_shared(a[part], c) >= NEAR) & (_shared(b[part], d) >= NEAR)
        near[part] = (same | (_shared(a[part], d) >= NEAR) & (_shared(b[part], c) >= NEAR)).any(1)
    return near


def given_rows(task: Task, path: Path, *text: str) -> list[FileRow]:
    """The rows of a file that has the task's label, and its texts in columns of these names."""
    files = replace(task.files, text=text or task.files.text, id=None, format=Format())
    return [*course_rows(task, read_examples(replace(task, files=files), RowsFrom(str(path)), labelled=True))]


def without(rows: list[Row], seen: NDArray[np.bool_]) -> list[Row]:
    return [row for row, known in zip(rows, seen, strict=True) if not known]


def main() -> None:
    """Write the folder and say how many rows each file has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("course", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--drawn", type=int)
    for option in ("--phrases", "--pairs", "--senteval", "--sentences", "--triplets"):
        parser.add_argument(option, type=Path)
    given = parser.parse_args()
    if given.drawn is not None and given.drawn < 1:
        raise InputError(f"--drawn is {given.drawn}; expected at least 1")
    check_new_folder(given.output)
    tasks = chosen_tasks(given.course, MAIN_TASKS)
    held_out = held_out_rows(tasks)
    rows: dict[str, list[FileRow]] = {}
    for name, task in tasks.items():
        examples = load_rows(task, "train")
        rows[name] = without([*course_rows(task, examples)], held_out.rows_seen(examples.sentences))
    if given.phrases:
        rows["sentiment"] *= SENTENCE_COPIES
        known = {row["sentence"].lower() for row in rows["sentiment"]}
        phrases = given_rows(tasks["sentiment"], given.phrases, "phrase")
        new = [*{row["sentence"].lower(): row for row in phrases if row["sentence"].lower() not in known}.values()]
        rows["sentiment"] += without(new, held_out.sentences_seen([row["sentence"] for row in new]))
    if given.pairs:
        pairs = given_rows(tasks["paraphrase"], given.pairs)
        # Not even one of the two questions may be held out: course files of other splits have them apart, too.
        seen = np.any([held_out.sentences_seen(column) for column in _columns(pairs)], axis=0)
        rows["paraphrase"] += without(pairs, seen)
    if given.senteval:
        scored = [*{frozenset(pair[:2]): pair for pair in scored_pairs(given.senteval)}.values()]
        known_pairs = TrainedOn.of_rows([hash_sentences(column) for column in _columns(rows["similarity"])])
        more = [{"sentence1": a, "sentence2": b, "similarity": f"{score:g}"} for a, b, score in scored]
        left_out = held_out.pairs_seen(*_columns(more)) | known_pairs.pairs_seen(*_columns(more))
        for split in HELD_OUT_SPLITS:
            left_out |= nearly_held_out(scored, load_rows(tasks["similarity"], split))
        rows["similarity"] += without(more, left_out)
    with atomic_folder(given.output) as folder:
        for name, task in tasks.items():
            numbered = [{**row, "id": str(number)} for number, row in enumerate(rows[name])]
            if given.drawn and name == "paraphrase":
                kept = np.sort(np.random.default_rng(0).permutation(len(numbered))[: given.drawn])
                numbered = [numbered[number] for number in kept]
            write_training_rows(folder, task, numbered)
            print(f"{name}: {len(numbered):,} training rows")
        write_texts(folder, held_out, given.sentences, given.triplets)


def write_texts(folder: Path, held_out: TrainedOn, sentences: Path | None, triplets: Path | None) -> None:
    """Write unlabelled texts, those that are given, without rows that have a held-out sentence."""
    if sentences:
        texts = [*filter(None, read_text(sentences).split("\n"))]
        kept = without(texts, held_out.sentences_seen(texts))
        write_text(folder / "sentences.txt", "".join(f"{text}\n" for text in kept))
        print(f"sentences.txt: {len(kept):,} of {len(texts):,} rows")
    if triplets:
        with triplets.open(encoding="utf-8", newline="") as file:
            head, *rows = [*csv.reader(file)] or [[]]
        for number, row in enumerate(rows, start=2):
            if len(row) != len(head):
                raise InputError(f"{triplets}: row {number} has {len(row)} columns; expected {len(head)}")
        seen = np.zeros(len(rows), bool)
        for column in zip(*rows, strict=True):
            seen |= held_out.sentences_seen(column)
        kept_rows = without(rows, seen)
        with (folder / "nli_triplets.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([head, *kept_rows])
        print(f"nli_triplets.csv: {len(kept_rows):,} of {len(rows):,} rows")


def _columns(rows: list[FileRow]) -> list[list[str]]:
    return [[row[name] for row in rows] for name in ("sentence1", "sentence2")]


if __name__ == "__main__":
    sys.exit(exit_code(main))
