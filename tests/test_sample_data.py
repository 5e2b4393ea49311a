"""The bundled sample data: its script gives the same bytes; it is large enough, balanced, and no split leaks."""

import csv
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SAMPLE = REPOSITORY / "data" / "sample"
SPLITS = ("train", "dev", "test-student")
MINIMUM_ROWS = {
    "ids-sst": (800, 200, 200),
    "quora": (1200, 300, 300),
    "sts": (800, 200, 200),
    "ids-cfimdb": (150, 50, 50),
}
LABEL = {"ids-sst": "sentiment", "quora": "is_duplicate", "sts": "similarity", "ids-cfimdb": "sentiment"}


def read(name: str, delimiter: str = "\t") -> list[dict[str, str]]:
    with (SAMPLE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def sentences(rows: list[dict[str, str]]) -> set[str]:
    return {row[column] for row in rows for column in row if column.startswith("sentence")}


def labels(stem: str, split: str) -> list[float]:
    return [float(row[LABEL[stem]]) for row in read(f"{stem}-{split}.csv")]


def test_the_script_writes_the_same_bytes(tmp_path: Path) -> None:
    script = REPOSITORY / "scripts" / "make_sample_data.py"
    folders = ["--output", tmp_path / "sample", "--own", tmp_path / "own"]
    subprocess.run([sys.executable, script, *folders], check=True, capture_output=True)
    for name in ("sample", "own"):
        made = {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        kept = {path.name: path.read_bytes() for path in (SAMPLE.parent / name).iterdir() if path.suffix != ".toml"}
        assert made == kept


@pytest.mark.parametrize("stem", MINIMUM_ROWS)
def test_rows_ids_and_columns(stem: str) -> None:
    for split, minimum in zip(SPLITS, MINIMUM_ROWS[stem], strict=True):
        rows = read(f"{stem}-{split}.csv")
        assert len(rows) >= minimum
        assert (LABEL[stem] in rows[0]) == (split != "test-student")
        assert all(len(row["id"]) == 25 and int(row["id"], 16) >= 0 for row in rows)
        assert len({row["id"] for row in rows}) == len(rows)
        assert all(value.strip() == value != "" for row in rows for value in row.values())


@pytest.mark.parametrize("stem", MINIMUM_ROWS)
def test_no_sentence_in_two_splits(stem: str) -> None:
    train, dev, test = (sentences(read(f"{stem}-{split}.csv")) for split in SPLITS)
    assert not train & dev
    assert not train & test
    assert not dev & test


@pytest.mark.parametrize("split", SPLITS[:2])
def test_labels_are_legal_and_balanced(split: str) -> None:
    for stem, classes in (("ids-sst", 5), ("ids-cfimdb", 2)):
        frequencies = Counter(labels(stem, split))
        assert frequencies == dict.fromkeys(range(classes), frequencies.total() // classes)
    duplicate = Counter(labels("quora", split))
    assert set(duplicate) == {0, 1}
    assert 0.35 < duplicate[1] / duplicate.total() < 0.42
    similarity = labels("sts", split)
    assert min(similarity) == 0
    assert max(similarity) == 5
    bands = Counter(min(int(score), 4) for score in similarity)
    assert min(bands[band] for band in range(5)) > 0.08 * len(similarity)


def test_reviews_are_long() -> None:
    rows = [row for split in SPLITS for row in read(f"ids-cfimdb-{split}.csv")]
    assert all(80 <= len(row["sentence"].split()) <= 250 for row in rows)


def test_pretraining_texts_do_not_contain_evaluation_sentences() -> None:
    evaluation = set().union(*(sentences(read(f"{stem}-{split}.csv")) for stem in LABEL for split in SPLITS[1:]))
    triplets = read("nli_triplets.csv", delimiter=",")
    assert len(triplets) >= 800
    assert all(set(row) == {"sent0", "sent1", "hard_neg"} and len(set(row.values())) == 3 for row in triplets)
    assert not evaluation & {value for row in triplets for value in row.values()}
    for name, least in (("sentences", 3000), ("captions", 1000), ("news", 1000)):
        lines = (SAMPLE / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        assert len(lines) == len(set(lines)) >= least
        assert not evaluation & set(lines)
