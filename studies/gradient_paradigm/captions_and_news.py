"""Write the captions and the news of the course's similarity training set into two files, for the table `domains`.

    python -m studies.gradient_paradigm.captions_and_news DATA SENTEVAL

DATA is the folder with the course's sts-train.csv, which gets the new files. SENTEVAL is SentEval's data folder.
The course's set is a shuffled STS Benchmark without the column of genres (Cer et al., SemEval 2017, table 2), which
SentEval's copy has.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from minbert.errors import InputError
from minbert.files import write_text
from multitask.cli.main import exit_code
from multitask.data.contamination import hash_sentences
from multitask.data.tables import text_lines
from multitask.tasks.declarations import task_named
from multitask.tasks.read_examples import load_rows
from multitask.tasks.task import Split

GENRE_FILES = {"main-captions": "captions.txt", "main-news": "news.txt"}  # the file of each genre


def write_captions_and_news(data: Path, suites_data: Path) -> dict[Path, int]:
    """Write the captions and the news, each sentence once, without sentences of the dev and test sets.

    Args:
        data: folder with the similarity task's training file; the new files are written there.
        suites_data: SentEval's data folder.

    Returns:
        The number of sentences in each new file.

    Raises:
        InputError: a missing or malformed file, a training file that is not from STS Benchmark, or an existing file of
            the same name with other text.
    """
    training = load_rows(task_named(data, "similarity"), "train")
    paths = [suites_data / f"STS/STSBenchmark/sts-{split}.csv" for split in ("train", "dev", "test")]
    genres, *theirs = zip(*(row for path in paths for row in _genres(path)), strict=True)
    genre_of = dict(zip(_hashed(theirs), genres, strict=True))
    held_out = _held_out(data)
    texts: dict[Path, str] = {}
    for genre, file in GENRE_FILES.items():
        sentences = {
            sentence: None
            for hashes, *pair in zip(_hashed(training.sentences), *training.sentences, strict=True)
            for number, sentence in zip(hashes, pair, strict=True)
            if genre_of.get(hashes) == genre and number not in held_out
        }
        if not sentences:
            raise InputError(f"{training.source}: no pair has the genre {genre} in STS Benchmark")
        texts[data / file] = "".join(f"{sentence}\n" for sentence in sentences)
    for path, text in texts.items():
        if path.exists() and (not path.is_file() or path.read_bytes() != text.encode()):
            raise InputError(f"{path}: the file exists and has other text; move it away and run the command again")
    for path, text in texts.items():
        write_text(path, text)
    return {path: text.count("\n") for path, text in texts.items()}


def _genres(path: Path) -> Iterator[tuple[str, str, str]]:
    """Genre and sentences of every pair of a file of STS Benchmark."""
    for number, line in enumerate(text_lines(path), start=1):
        row = line.split("\t")
        if len(row) < 7:
            raise InputError(f"{path}:{number}: the line has {len(row)} fields; expected 7 or more, separated by tabs")
        yield row[0], row[5], row[6]


def _held_out(data: Path) -> set[int]:
    """Hashes of all sentences of the similarity dev and test sets, if their files exist."""
    task = task_named(data, "similarity")
    splits: tuple[Split, ...] = ("dev", "test")
    found = [load_rows(task, split) for split in splits if task.source(split).exists()]
    return {number for examples in found for pair in _hashed(examples.sentences) for number in pair}


def _hashed(columns: Iterable[Iterable[str]]) -> list[tuple[int, ...]]:
    """Hashes of pairs that ignore tokenisation and case, since one of the two copies is tokenised."""
    return list(zip(*(hash_sentences(column).tolist() for column in columns), strict=True))


def main() -> None:
    """Write both files and say how many sentences they have. Raises InputError for bad input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "senteval"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    written = write_captions_and_news(given.data, given.senteval)
    for path, count in written.items():
        print(f"{path}: {count:,} sentences")


if __name__ == "__main__":
    sys.exit(exit_code(main))
