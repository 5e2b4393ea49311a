"""The bundled sample data: its files are well-formed, and no split leaks into another."""

import csv

import pytest

from tests.conftest import ROOT

SAMPLE = ROOT / "data" / "sample"
SPLITS = ("train", "dev", "test-student")
ROWS = {
    "ids-sst": (1200, 300, 300),
    "quora": (1500, 350, 350),
    "sts": (1000, 250, 250),
    "ids-cfimdb": (160, 60, 60),
}
LABEL = {"ids-sst": "sentiment", "quora": "is_duplicate", "sts": "similarity", "ids-cfimdb": "sentiment"}


def read(name: str, delimiter: str = "\t") -> list[dict[str, str]]:
    with (SAMPLE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def sentences(stem: str, split: str) -> set[str]:
    rows = read(f"{stem}-{split}.csv")
    return {text for row in rows for column, text in row.items() if column.startswith("sentence")}


@pytest.mark.parametrize("stem", ROWS)
def test_rows_ids_and_columns(stem: str) -> None:
    for split, count in zip(SPLITS, ROWS[stem], strict=True):
        rows = read(f"{stem}-{split}.csv")
        assert len(rows) == len({row["id"] for row in rows}) == count
        assert (LABEL[stem] in rows[0]) == (split != "test-student")
        assert all(len(row["id"]) == 25 and int(row["id"], 16) >= 0 for row in rows)
        assert all(value.strip() == value != "" for row in rows for value in row.values())


@pytest.mark.parametrize("stem", ROWS)
def test_no_sentence_is_in_two_splits(stem: str) -> None:
    splits = [sentences(stem, split) for split in SPLITS]
    assert len(set().union(*splits)) == sum(map(len, splits))


def test_pretraining_texts_have_no_evaluation_sentence() -> None:
    evaluation = set().union(*(sentences(stem, split) for stem in ROWS for split in SPLITS[1:]))
    triplets = read("nli_triplets.csv", delimiter=",")
    assert all(set(row) == {"sent0", "sent1", "hard_neg"} and len(set(row.values())) == 3 for row in triplets)
    assert not evaluation & {text for row in triplets for text in row.values()}
    for name, count in (("sentences", 3200), ("captions", 1000), ("news", 1000)):
        lines = (SAMPLE / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        assert len(lines) == len(set(lines)) == count
        assert not evaluation & set(lines)
