"""Captions and news of the course's similarity training set, each in a file of its own.

The course's set is STS Benchmark shuffled, without its column of genres (Cer et al., SemEval 2017, table 2); SentEval's
copy has that column.
"""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from minbert.errors import InputError
from minbert.files import write_text
from multitask.contamination import hash_sentences
from multitask.datasets.readers import CAPTIONS_FILE, NEWS_FILE, read_examples
from multitask.evaluation.senteval import read_genres
from multitask.tasks import TASKS

FILES = {"main-captions": CAPTIONS_FILE, "main-news": NEWS_FILE}


def write_domains(data: Path, suites_data: Path) -> dict[Path, int]:
    """Write the data folder's captions and news, each sentence once.

    Args:
        data: folder with the similarity task's training file.
        suites_data: SentEval's data folder.

    Returns:
        Each file with its number of sentences.

    Raises:
        InputError: a missing or malformed file, or a training file that is not of STS Benchmark.
    """
    schema = TASKS["similarity"].schema
    examples = read_examples(schema.path(data, "train"), schema, labelled=True)
    genres, *theirs = zip(*read_genres(suites_data), strict=True)
    genre_of = dict(zip(_hashed(theirs), genres, strict=True))
    pairs = list(zip(_hashed(examples.sentences), *examples.sentences, strict=True))
    domains: dict[Path, list[str]] = {}
    for genre, file in FILES.items():
        chosen = [sentences for hashes, *sentences in pairs if genre_of.get(hashes) == genre]
        domains[data / file] = list(dict.fromkeys(chain.from_iterable(chosen)))
        if not chosen:
            raise InputError(f"{examples.source}: no pair is one of STS Benchmark's {genre}; its genres are not known")
    for path, sentences in domains.items():
        write_text(path, "".join(f"{sentence}\n" for sentence in sentences))
    return {path: len(sentences) for path, sentences in domains.items()}


def _hashed(columns: Iterable[Iterable[str]]) -> list[tuple[int, int]]:
    """Pairs by what is the same in every tokenisation and case: one of the two copies is tokenised."""
    return list(zip(*(hash_sentences(column).tolist() for column in columns), strict=True))
