"""The report on a data folder counts its rows, and problems name file and line."""

import os
from pathlib import Path

import pytest

from minbert.errors import InputError
from multitask.data.check import SplitOverlap, check_folder
from multitask.data.read_task_files import Schema

SCHEMAS = {
    "sentiment": Schema("ids-sst", ("sentence",), "sentiment", 0, 4, integral=True),
    "paraphrase": Schema("quora", ("sentence1", "sentence2"), "is_duplicate", 0, 1, integral=True),
    "similarity": Schema("sts", ("sentence1", "sentence2"), "similarity", 0, 5, integral=False),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "ids-sst-train.csv": "id\tsentence\tsentiment\na\tOne two 3 .\t0\nb\tone TWO 3 .\t3\nc\tx\t3\nd\tx y\t\n",
        "ids-sst-dev.csv": "id\tsentence\tsentiment\na\tfour\t1\nb\tOne two 3 .\t2\nc\t X \t2\n",
        "sts-train.csv": "id\tsentence1\tsentence2\tsimilarity\na\tp\tq\t0\nb\tr\ts\t4.6\nc\tq\tp\t5\nd\tP\tQ\t1.0\n",
        "sts-dev.csv": "id\tsentence1\tsentence2\tsimilarity\na\tq\tt\t2.5\n",
        "sts-test-student.csv": "id\tsentence1\tsentence2\na\tt\tu\n",
        "nli_triplets.csv": "sent0,sent1,hard_neg\na,b c,d\nA,B c,D\n",
        "sentences.txt": "one two\n\nthree\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    return tmp_path


def test_counts(folder):
    report, problems = check_folder(folder, SCHEMAS)
    assert problems == []
    files = {file.name: file for file in report.files}
    train = files["ids-sst-train.csv"]
    assert (train.rows, train.dropped, train.repeated) == (3, 1, 1)
    assert train.words == (4, 4, 4)
    assert train.labels == {"0": 1, "1": 0, "2": 0, "3": 2, "4": 0}
    assert files["ids-sst-dev.csv"].labels == {"0": 0, "1": 1, "2": 2, "3": 0, "4": 0}
    assert files["sts-train.csv"].labels == {"0-1": 1, "1-2": 1, "2-3": 0, "3-4": 0, "4-5": 2}
    assert files["sts-train.csv"].repeated == 1  # a pair in the other order is a different pair
    assert files["sts-test-student.csv"].labels == {}
    assert (files["nli_triplets.csv"].rows, files["nli_triplets.csv"].repeated) == (2, 1)
    assert (files["sentences.txt"].rows, files["sentences.txt"].dropped) == (2, 1)
    assert report.overlaps == (
        SplitOverlap("sentiment", ("train", "dev"), 2),
        SplitOverlap("similarity", ("train", "dev"), 1),
        SplitOverlap("similarity", ("train", "test"), 0),
        SplitOverlap("similarity", ("dev", "test"), 1),
    )
    assert report.absent == ("ids-sst-test-student.csv",)


def test_percentiles_of_sentence_lengths(tmp_path):
    rows = "".join(f"{n}\t{'w ' * n}\t0\n" for n in range(1, 101))
    (tmp_path / "ids-sst-train.csv").write_text("id\tsentence\tsentiment\n" + rows)
    report, _ = check_folder(tmp_path, SCHEMAS)
    assert report.files[0].words == (51, 96, 100)  # 50 and 95 of the 100 sentences are shorter


def test_every_text_file_is_listed(folder):
    (folder / "news.txt").write_text("a\nb\nA\n")
    [*_, news, sentences] = check_folder(folder, SCHEMAS)[0].files
    assert (news.name, news.rows, news.repeated) == ("news.txt", 3, 1)
    assert sentences.name == "sentences.txt"


def test_the_table_is_aligned(folder):
    table = check_folder(folder, SCHEMAS)[0].render()
    first, second, absent = table.split("\n\n")
    header, *rows = first.splitlines()
    assert len(rows) == 7
    for name in ("rows", "dropped", "repeated", "words 50%", "95%", "max"):
        end = header.index(name) + len(name)
        assert all(row[end - 1].isdigit() and row[end : end + 2] == "  " for row in rows)
    assert all(row.startswith(("ids-", "sts-", "nli_", "sentences")) for row in rows)
    assert rows[0].endswith("0: 1  1: 0  2: 0  3: 2  4: 0")
    assert rows[-1].endswith("  -")
    assert len(second.splitlines()) == 5
    assert absent == "absent: ids-sst-test-student.csv"


def test_every_problem_of_every_file_is_listed(folder):
    sts = folder / "sts-train.csv"
    sts.write_text(sts.read_text() + "e\tx\ty\t7\na\tx\ty\t1\n")
    (folder / "sts-dev.csv").write_bytes(b"\xff")
    (folder / "nli_triplets.csv").write_text("sent0,sent1,hard_neg\na,b,c\na,b\n")
    (folder / "sentences.txt").write_text("\n")
    report, problems = check_folder(folder, SCHEMAS)
    assert problems == [
        f'{sts}:6: similarity is "7"; expected a number from 0 to 5',
        f'{sts}:7: id "a" is already on line 2; expected each id once',
        f"{folder / 'sts-dev.csv'}:1: byte 0xff at position 1 of the line is not UTF-8; save the file as UTF-8",
        f"{folder / 'nli_triplets.csv'}:3: the row has 2 fields; expected 3, as in the header (separated by commas)",
        f"{folder / 'sentences.txt'}: no sentence; expected one sentence per line",
    ]
    rows = {file.name: file.rows for file in report.files}
    assert rows["sts-train.csv"] == 4
    assert rows["nli_triplets.csv"] == 1
    assert "sts-dev.csv" not in rows


def test_many_problems_of_one_file_are_cut_short(tmp_path):
    path = tmp_path / "ids-sst-train.csv"
    path.write_text("id\tsentence\tsentiment\n" + "".join(f"{n}\tx\t9\n" for n in range(24)) + "z\tx\t1\n")
    problems = check_folder(tmp_path, SCHEMAS)[1]
    assert len(problems) == 21
    assert problems[-1] == f"{path}: and 4 more problems"


def test_a_file_with_nothing_but_problems_is_reported(tmp_path):
    path = tmp_path / "ids-sst-train.csv"
    path.write_text("")
    report, problems = check_folder(tmp_path, SCHEMAS)
    assert problems == [f"{path}: the file is empty; expected a header line and rows"]
    assert report.files == ()
    assert report.render()


def test_a_missing_or_foreign_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        check_folder(tmp_path / "absent", SCHEMAS)
    (tmp_path / "notes.md").write_text("x")
    with pytest.raises(InputError, match=r"no data file; expected some of ids-sst-train\.csv, quora-train\.csv"):
        check_folder(tmp_path, SCHEMAS)


@pytest.mark.skipif("MINBERT_SHARED_DATA" not in os.environ, reason="no folder with the real data")
def test_real_files_have_no_problem_and_quora_splits_share_no_question():
    report, problems = check_folder(Path(os.environ["MINBERT_SHARED_DATA"]) / "cs224n", SCHEMAS)
    assert problems == []
    assert [o.sentences for o in report.overlaps if o.task == "paraphrase"] == [0, 0, 0]
    assert {file.name: file.rows for file in report.files}["ids-sst-train.csv"] == 8544
