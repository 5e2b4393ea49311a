"""A small data folder in SentEval's layout, and encoders that need no model."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from minbert.config import Long
from multitask.data.contamination import TrainedOn
from multitask.data.examples import TextCounts
from multitask.evaluation.suite_sets import SETS

WORDS = ("a", "the", "cat", "dog", "man", "woman", "child", "runs", "sleeps", "sings", "fast", "slowly", "red", "old")
GOOD, BAD = ("superb", "charming"), ("dreadful", "boring")
TREC_WORDS = {"ABBR": "stands", "DESC": "why", "ENTY": "animal", "HUM": "who", "LOC": "where", "NUM": "many"}


def sentence(generator: np.random.Generator, *more: str) -> str:
    words = [*generator.choice(WORDS, generator.integers(3, 8)), *more]
    return " ".join(generator.permutation(words))


def write(path: Path, lines: Sequence[str], encoding: str = "utf-8") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))


def write_sts(folder: Path, pairs: int = 24) -> None:
    """All similarity sets; a third of STS16's pairs has no score."""
    generator = np.random.default_rng(0)
    for entry in SETS["sts"][:5]:
        for inputs, scores in zip(entry.files[::2], entry.files[1::2], strict=True):
            gold = [f"{value:.3f}" for value in generator.uniform(0, 5, pairs)]
            if entry.name == "STS16":
                gold[::3] = [""] * len(gold[::3])
            write(folder / inputs, [f"{sentence(generator)}\t{sentence(generator)}" for _ in gold])
            write(folder / scores, gold)
    rows = [(sentence(generator), sentence(generator), value) for value in generator.uniform(1, 5, pairs)]
    write(
        folder / "STS/STSBenchmark/sts-test.csv",
        [f"main-news\tnews\t2015\t{i:04}\t{gold:.3f}\t{a}\t{b}" for i, (a, b, gold) in enumerate(rows)],
    )
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\r"
    lines = [f"{i}\t{a}\t{b}\t{gold:.2f}\tNEUTRAL\r" for i, (b, a, gold) in enumerate(rows)]
    write(folder / "SICK/SICK_test_annotated.txt", [header, *lines])


def write_transfer(folder: Path, rows: int = 40) -> None:
    """All transfer sets, with `rows` rows in each class; a word reveals the class."""
    generator = np.random.default_rng(1)

    def said(words: Sequence[str]) -> str:
        return sentence(generator, str(generator.choice(words))) if generator.random() < 0.9 else sentence(generator)

    for entry in SETS["transfer"][:4]:
        negative, positive = entry.files
        write(folder / negative, [said(BAD) for _ in range(rows)])
        write(folder / positive, ["", *(said(GOOD) for _ in range(rows - 1))])
    for split in ("train", "dev", "test"):
        lines = [f"{said((BAD, GOOD)[label])} \t{label}" for label in (0, 1) for _ in range(rows)]
        write(folder / f"SST/binary/sentiment-{split}", lines)
    for file in ("train_5500.label", "TREC_10.label"):
        lines = [f"{kind}:café {said([word])} ?" for kind, word in TREC_WORDS.items() for _ in range(rows)]
        write(folder / "TREC" / file, lines, "latin-1")
    for split in ("train", "test"):
        pairs = [(sentence(generator), sentence(generator)) for _ in range(2 * rows)]
        alike = [(a, a + " now") if i % 2 else (a, b) for i, (a, b) in enumerate(pairs)]
        lines = [f"{i % 2}\t{i}\t{i}\t{a}\t{b}" for i, (a, b) in enumerate(alike)]
        write(
            folder / f"MRPC/msr_paraphrase_{split}.txt", ["\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", *lines]
        )


def write_retrieval(folder: Path) -> None:
    """A set of one's own: three documents, of which one has a title and one no text, and three queries."""
    write(
        folder / "corpus.jsonl",
        [
            '{"_id": "d1", "title": "Cats", "text": "a cat sleeps"}',
            '{"_id": "d2", "title": "", "text": "the dog runs"}',
            '{"_id": "d3", "title": "", "text": ""}',
        ],
    )
    texts = {"q1": "who sleeps ?", "q2": "a dog", "q3": "nobody asks this"}
    write(folder / "queries.jsonl", [f'{{"_id": "{name}", "text": "{text}"}}' for name, text in texts.items()])
    rows = ["q1\td1\t2", "q1\td2\t0.5", "q1\td3\t0", "q2\td2\t1"]
    write(folder / "qrels" / "dev.tsv", ["query-id\tcorpus-id\tscore", *rows])


class BagOfWords:
    """Embeds a sentence as the sum of its words' random vectors."""

    def __init__(self, dim: int = 24, name: str = "bag") -> None:
        self.name = name
        self.dim = dim
        self.settings: dict[str, str] = {}
        self.asked: list[str] = []
        self.counts = TextCounts()

    def trained_on(self, _name: str) -> TrainedOn:
        return TrainedOn()

    def encode(
        self, sentences: Sequence[str], *, normalize: bool = False, show_progress: bool = False, long: Long = "head"
    ) -> NDArray[np.float32]:
        self.asked += sentences
        return np.stack([sum(map(self.word, text.split())) for text in sentences]).astype(np.float32)

    def word(self, text: str) -> NDArray[np.float64]:
        seed = int.from_bytes(sha256(f"{self.name} {text}".encode()).digest()[:8], "big")
        return np.random.default_rng(seed).standard_normal(self.dim)
