"""Rows that move to the dev sets are lost nowhere and leave no sentence behind."""

import csv
from itertools import chain
from pathlib import Path

from multitask.data.contamination import normalised
from multitask.data.fetch import CHECKOUT
from scripts.larger_dev_sets import enlarge

SAMPLE = CHECKOUT / "sample"


def read(path: Path) -> list[tuple[str, ...]]:
    """Ids, texts and labels of a file of the course."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return [tuple(f"{float(v):g}" if k == rows.fieldnames[-1] else v for k, v in row.items() if k) for row in rows]


def test_every_row_is_in_one_part_and_no_sentence_in_two(tmp_path):
    sizes = enlarge(SAMPLE, tmp_path / "new", share=0.2)
    seen = {"train": set[str](), "dev": set[str]()}
    for name, file in {"sentiment": "ids-sst", "paraphrase": "quora", "similarity": "sts"}.items():
        train, dev, old_train, old_dev = (
            read(folder / f"{file}-{split}.csv") for folder in (tmp_path / "new", SAMPLE) for split in ("train", "dev")
        )
        assert sorted(train + dev) == sorted(old_train + old_dev)
        assert dev[: len(old_dev)] == old_dev
        assert sizes[name] == (len(train), len(dev))
        assert 0 < len(dev) - len(old_dev) <= round(0.2 * len(old_train))
        seen["train"].update(normalised(text) for text in chain.from_iterable(row[1:-1] for row in train))
        seen["dev"].update(normalised(text) for text in chain.from_iterable(row[1:-1] for row in dev[len(old_dev) :]))
        test = f"{file}-test-student.csv"
        assert (tmp_path / "new" / test).read_bytes() == (SAMPLE / test).read_bytes()
    assert not seen["train"] & seen["dev"]
