"""Captions and news are found by SentEval's copy of the same pairs, in any tokenisation."""

import csv
import os
import re
import shutil
from pathlib import Path

import pytest

from minbert.errors import InputError
from studies.gradient_paradigm.captions_and_news import main, write_captions_and_news

PAIRS = [
    ("A man isn't eating.", "Someone eats, slowly.", "2.0"),
    ("13 killed in attack", "6 killed in Kabul attack", "2.4"),
    ("A man isn't eating.", "A dog (black) runs.", "0.0"),
    ("Which pan is best?", "What pan do you like?", "3.0"),
]
THEIRS = {
    "train": [("main-captions", "a man is n't eating .", "someone eats , slowly .")],
    "dev": [("main-news", "13 killed in attack", "6 killed in kabul attack")],
    "test": [
        ("main-captions", "a man is n't eating .", "a dog -lrb- black -rrb- runs ."),
        ("main-forums", "which pan is best ?", "what pan do you like ?"),
        ("main-news", "a sentence that", "the course does not have"),
    ],
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    with (folder / "sts-train.csv").open("w", encoding="utf-8", newline="") as file:
        rows = [(i, f"{i:025x}", *pair) for i, pair in enumerate(PAIRS)]
        csv.writer(file, delimiter="\t").writerows([("", "id", "sentence1", "sentence2", "similarity"), *rows])
    return folder


@pytest.fixture
def suites(tmp_path: Path) -> Path:
    for split, pairs in THEIRS.items():
        path = tmp_path / "senteval" / "STS" / "STSBenchmark" / f"sts-{split}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{g}\tfile\t2012\t1\t2.0\t{a}\t{b}\n" for g, a, b in pairs), encoding="utf-8")
    return tmp_path / "senteval"


def test_each_sentence_goes_once_to_the_file_of_its_genre(data, suites, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["captions_and_news", str(data), str(suites)])
    main()
    captions = ["A man isn't eating.", "Someone eats, slowly.", "A dog (black) runs."]
    assert (data / "captions.txt").read_text(encoding="utf-8").splitlines() == captions
    assert (data / "news.txt").read_text(encoding="utf-8").splitlines() == [PAIRS[1][0], PAIRS[1][1]]
    assert capsys.readouterr().out == f"{data}/captions.txt: 3 sentences\n{data}/news.txt: 2 sentences\n"


def test_sentences_of_dev_and_test_are_left_out(data, suites):
    rows = "\tid\tsentence1\tsentence2"
    (data / "sts-dev.csv").write_text(f"{rows}\tsimilarity\n0\t{1:025x}\tA man isn't eating.\tOther words.\t1.0\n")
    (data / "sts-test-student.csv").write_text(f"{rows}\n0\t{2:025x}\tNo words.\t6 killed in Kabul attack\n")
    assert list(write_captions_and_news(data, suites).values()) == [2, 1]
    assert (data / "captions.txt").read_text().splitlines() == ["Someone eats, slowly.", "A dog (black) runs."]
    assert (data / "news.txt").read_text() == "13 killed in attack\n"


def test_other_text_is_not_overwritten(data, suites, capsys, monkeypatch):
    (data / "news.txt").write_text("my own\n")
    monkeypatch.setattr("sys.argv", ["captions_and_news", str(data), str(suites)])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "news.txt: the file exists and has other text" in capsys.readouterr().err
    assert not (data / "captions.txt").exists()
    (data / "news.txt").unlink()
    assert write_captions_and_news(data, suites) == write_captions_and_news(data, suites)


def test_other_data_and_no_data_are_refused(data, suites, tmp_path):
    benchmark = suites / "STS" / "STSBenchmark"
    (benchmark / "sts-dev.csv").write_text("main-news\tfile\t2012\t1\t2.0\tother\tnews\n")
    with pytest.raises(InputError, match=r"sts-train.csv: no pair has the genre main-news in STS Benchmark"):
        write_captions_and_news(data, suites)
    assert not list(data.glob("*.txt"))
    with pytest.raises(InputError, match=re.escape(f"{tmp_path}/STS/STSBenchmark/sts-train.csv: no such file")):
        write_captions_and_news(data, tmp_path)


@pytest.mark.skipif("MINBERT_SHARED_DATA" not in os.environ, reason="MINBERT_SHARED_DATA names no data folder")
def test_every_pair_of_the_course_is_found(tmp_path):
    shared = Path(os.environ["MINBERT_SHARED_DATA"])
    (tmp_path / "sts-train.csv").write_bytes((shared / "cs224n" / "sts-train.csv").read_bytes())
    assert list(write_captions_and_news(tmp_path, shared / "senteval").values()) == [3808, 5837]
    (tmp_path / "dev").mkdir()
    for split in ("train", "dev", "test-student"):
        shutil.copy(shared / "cs224n" / f"sts-{split}.csv", tmp_path / "dev")
    assert list(write_captions_and_news(tmp_path / "dev", shared / "senteval").values()) == [3453, 5685]
