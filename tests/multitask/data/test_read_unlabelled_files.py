"""Triplets, pairs and sentences are read completely, and problems name file and line."""

import gzip

import pytest

from minbert.errors import InputError
from multitask.data.read_unlabelled_files import PAIRS, SENTENCES, TRIPLETS, read_texts
from tests.multitask.data.test_tables import write


def test_triplets(tmp_path, caplog):
    content = 'sent0,sent1,hard_neg\n"Two dogs, run.",Animals move.,"""No"" dog."\nx,,z\na, b ,c\n'
    path = write(tmp_path, content)
    triplets = read_texts(path, TRIPLETS)
    assert triplets.columns == [["Two dogs, run.", "a"], ["Animals move.", "b"], ['"No" dog.', "c"]]
    assert triplets.dropped == 1
    assert caplog.messages == [f"{path}: left out 1 row without a sentence (line 3)"]


def test_pairs(tmp_path):
    pairs = read_texts(write(tmp_path, "sentence1\tsentence2\nWho is it?\tWho, then?\n"), PAIRS)
    assert pairs.columns == [["Who is it?"], ["Who, then?"]]


@pytest.mark.parametrize("name", ["sentences.txt", "sentences.txt.gz"])
def test_sentences_plain_and_compressed(tmp_path, name):
    lines = " First one. \n\nSecond, caf\u00e9\u2028same line\r\n   \nThird".encode()
    content = gzip.compress(lines) if name.endswith(".gz") else lines
    path = write(tmp_path, content, name)
    read = read_texts(path, SENTENCES)
    assert read.columns == [["First one.", "Second, caf\u00e9\u2028same line", "Third"]]
    assert read.dropped == 2
    assert read_texts(path, SENTENCES, limit=2).columns == [read.columns[0][:2]]


@pytest.mark.parametrize(
    ("layout", "content", "place"),
    [
        (TRIPLETS, "sent0,sent1\na,b\n", ": no column hard_neg"),
        (TRIPLETS, "sent0,sent1,hard_neg\na,b,c\na,b\n", ":3: "),
        (TRIPLETS, "sent0,sent1,hard_neg\n,,\n", ": no usable row"),
        (PAIRS, "sentence1,sentence2\na,b\n", ": no column sentence1"),
        (PAIRS, 'sentence1\tsentence2\na\t"b\n', ":2: broken quoting"),
        (SENTENCES, "\n \n", ": no usable row"),
        (SENTENCES, b"one\nfo\xfc\n", ":2: byte 0xfc at position 3"),
    ],
)
def test_bad_files_are_refused(tmp_path, layout, content, place):
    path = write(tmp_path, content)
    with pytest.raises(InputError) as caught:
        read_texts(path, layout)
    assert str(caught.value).startswith(f"{path}{place}")
