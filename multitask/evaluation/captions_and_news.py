"""Captions and news of the course's similarity training set, each in a file of its own.

The course's set is STS Benchmark shuffled, without its column of genres (Cer et al., SemEval 2017, table 2); SentEval's
copy has that column.
"""

from collections.abc import Iterable
from pathlib import Path

from minbert.errors import InputError
from minbert.files import write_text
from multitask.data.contamination import hash_sentences
from multitask.data.readers import CAPTIONS_FILE, NEWS_FILE, read_examples
from multitask.evaluation.senteval_files import read_genres
from multitask.tasks.kinds import TASKS

FILES = {"main-captions": CAPTIONS_FILE, "main-news": NEWS_FILE}


def write_captions_and_news(data: Path, suites_data: Path) -> dict[Path, int]:
    """Write the data folder's captions and news, each sentence once, without those of the dev and test sets.

    Args:
        data: folder with the similarity task's training file.
        suites_data: SentEval's data folder.

    Returns:
        Each file with its number of sentences.

    Raises:
        InputError: a missing or malformed file, a training file that is not of STS Benchmark, or a file of that name
            with other text.
    """
    schema = TASKS["similarity"].schema
    training = read_examples(schema.path(data, "train"), schema, labelled=True)
    genres, *theirs = zip(*read_genres(suites_data), strict=True)
    genre_of = dict(zip(_hashed(theirs), genres, strict=True))
    held_out = _held_out(data)
    texts: dict[Path, str] = {}
    for genre, file in FILES.items():
        sentences = {
            sentence: None
            for hashes, *pair in zip(_hashed(training.sentences), *training.sentences, strict=True)
            for number, sentence in zip(hashes, pair, strict=True)
            if genre_of.get(hashes) == genre and number not in held_out
        }
        if not sentences:
            raise InputError(f"{training.source}: no pair is one of STS Benchmark's {genre}; its genres are not known")
        texts[data / file] = "".join(f"{sentence}\n" for sentence in sentences)
    for path, text in texts.items():
        if path.exists() and (not path.is_file() or path.read_text(encoding="utf-8", errors="replace") != text):
            raise InputError(f"{path}: is there already and has other text; move it away to have it written")
    for path, text in texts.items():
        write_text(path, text)
    return {path: text.count("\n") for path, text in texts.items()}


def _held_out(data: Path) -> set[int]:
    """Hashes of all sentences of the similarity dev and test sets, as far as they are there."""
    schema = TASKS["similarity"].schema
    paths = {split: schema.path(data, split) for split in ("dev", "test")}
    found = [read_examples(path, schema, split == "dev") for split, path in paths.items() if path.is_file()]
    return {number for examples in found for pair in _hashed(examples.sentences) for number in pair}


def _hashed(columns: Iterable[Iterable[str]]) -> list[tuple[int, ...]]:
    """Pairs by what is the same in every tokenisation and case: one of the two copies is tokenised."""
    return list(zip(*(hash_sentences(column).tolist() for column in columns), strict=True))
