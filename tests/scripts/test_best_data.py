"""The data folder of the best model has the further rows, and none that a dev or test set has or nearly has."""

import csv
import sys
from pathlib import Path

import pytest

from scripts import best_data


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file, delimiter="\t")]


def test_further_rows_are_added_but_for_those_of_dev_and_test_sets(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev = rows(small_data / "ids-sst-dev.csv")[0]["sentence"]
    first, pair = (rows(small_data / f"{name}-dev.csv")[0] for name in ("quora", "sts"))
    phrases = tmp_path / "phrases.tsv"
    phrases.write_text(f"phrase\tsentiment\nquite lovely indeed\t4\nQuite Lovely Indeed\t4\n{dev.upper()}\t1\n")
    pairs = tmp_path / "pairs.tsv"
    known = f"{first['sentence2'].upper()}\t{first['sentence1']}\t1\n"  # the pair in the other order
    pairs.write_text(f"sentence1\tsentence2\tis_duplicate\nhow do owls hear\thow can an owl hear\t1\n{known}")
    folder = tmp_path / "senteval" / "STS" / "STS12-en-test"
    folder.mkdir(parents=True)
    (folder / "STS.input.a.txt").write_text(
        f"a new pair\tof two texts\nno score\there\n{pair['sentence2']} too\t{pair['sentence1']}\n\t\n",
        encoding="utf-8",
    )
    (folder / "STS.gs.a.txt").write_text("2.5\n\n4.0\n\n")
    (folder / "STS.gs.ALL.txt").write_text("2.5\n")
    sick = tmp_path / "senteval" / "SICK"
    sick.mkdir()
    for name in best_data.SICK:
        text = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
        (sick / f"{name}.txt").write_text(text + f"1\tan owl in {name}\ta bird\t3\tNEUTRAL\n")
    options = ["--phrases", str(phrases), "--pairs", str(pairs), "--senteval", str(tmp_path / "senteval")]
    monkeypatch.setattr(sys, "argv", ["best_data", str(small_data), str(tmp_path / "out"), *options])
    best_data.main()

    sentiment = rows(tmp_path / "out" / "ids-sst-train.csv")
    sentences = [row["sentence"] for row in rows(small_data / "ids-sst-train.csv")]
    assert [row["sentence"] for row in sentiment] == [*sentences * 3, "Quite Lovely Indeed"]
    assert sentiment[-1]["sentiment"] == "4"
    assert [row["sentence1"] for row in rows(tmp_path / "out" / "quora-train.csv")][64:] == ["how do owls hear"]
    scored = rows(tmp_path / "out" / "sts-train.csv")[64:]
    assert [(row["sentence1"], row["similarity"]) for row in scored] == [
        ("a new pair", "2.5"),
        *((f"an owl in {name}", "2.5") for name in best_data.SICK),  # 3 of 1 to 5
    ]
    assert (tmp_path / "out" / "sts-dev.csv").read_bytes() == (small_data / "sts-dev.csv").read_bytes()
