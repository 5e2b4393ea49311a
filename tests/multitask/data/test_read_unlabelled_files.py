"""Triplets, pairs and sentences are read completely, and problems name file and line."""

import hashlib
import lzma
import os
import string
from pathlib import Path

import numpy as np
import pytest

from minbert.errors import InputError
from multitask.data.read_unlabelled_files import read_pairs, read_sentences, read_triplets
from tests.multitask.data.test_tables import write, zstandard


@pytest.mark.parametrize("read", [read_triplets, read_pairs, read_sentences])
def test_a_missing_file_and_a_folder_are_refused(tmp_path, read):
    with pytest.raises(InputError, match=r"absent\.csv: no such file"):
        read(tmp_path / "absent.csv")
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path)


def test_triplets(tmp_path, caplog):
    content = 'sent0,sent1,hard_neg\n"Two dogs, run.",Animals move.,"""No"" dog."\nx,,z\na, b ,c\n'
    path = write(tmp_path, content)
    triplets = read_triplets(path)
    assert triplets.anchors == ["Two dogs, run.", "a"]
    assert triplets.positives == ["Animals move.", "b"]
    assert triplets.hard_negatives == ['"No" dog.', "c"]
    assert triplets.dropped == 1
    assert caplog.messages == [f"{path}: left out 1 row without a sentence (line 3)"]
    assert triplets.fingerprint == hashlib.sha256(content.encode()).hexdigest()


def test_pairs(tmp_path):
    pairs = read_pairs(write(tmp_path, "sentence1\tsentence2\nWho is it?\tWho, then?\n"))
    assert (pairs.anchors, pairs.positives) == (["Who is it?"], ["Who, then?"])


@pytest.mark.parametrize(
    ("read", "content", "problem"),
    [
        (read_triplets, "sent0,sent1\na,b\n", ": no column hard_neg; the columns are sent0, sent1"),
        (read_triplets, "sent0,sent1,hard_neg\na,b,c\na,b\n", ":3: the row has 2 fields; expected 3"),
        (read_triplets, "sent0,sent1,hard_neg\n,,\n", ": no usable row"),
        (
            read_pairs,
            "sentence1,sentence2\na,b\n",
            ': no column sentence1; the only column is "sentence1,sentence2"; set separator',
        ),
        (read_pairs, 'sentence1\tsentence2\na\t"b\n', ":2: broken quoting"),
    ],
)
def test_bad_triplets_and_pairs_are_named_by_their_line(tmp_path, read, content, problem):
    path = write(tmp_path, content)
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}{problem}")


@pytest.mark.parametrize("name", ["sentences.txt", "sentences.txt.xz", "sentences.txt.zst"])
def test_sentences_plain_and_compressed(tmp_path, name, caplog):
    lines = " First one. \n\nSecond, caf\u00e9\u2028same line\r\n   \nThird".encode()
    content = {".xz": lzma.compress, ".zst": zstandard}.get(Path(name).suffix, bytes)(lines)
    path = write(tmp_path, content, name)
    read = read_sentences(path)
    assert read.sentences == ["First one.", "Second, caf\u00e9\u2028same line", "Third"]
    assert read.blank == 2
    assert caplog.messages == [f"{path}: skipped 2 blank lines"]
    assert read.fingerprint == hashlib.sha256(content).hexdigest()
    assert read_sentences(path, limit=2).sentences == read.sentences[:2]
    assert read_sentences(path, limit=2).fingerprint == read.fingerprint


def test_bad_sentence_files(tmp_path):
    with pytest.raises(InputError, match=r"a\.txt: no sentence"):
        read_sentences(write(tmp_path, "\n \n", "a.txt"))
    with pytest.raises(InputError, match=r"b\.txt:2: byte 0xfc at position 3 of the line"):
        read_sentences(write(tmp_path, b"one\nf\xc3\xfc\n".replace(b"\xc3", b"o"), "b.txt"))
    with pytest.raises(InputError, match=r"c\.txt\.xz: damaged or not a compressed file"):
        read_sentences(write(tmp_path, b"plain text", "c.txt.xz"))
    noise = "".join(np.random.default_rng(0).choice(list(string.ascii_letters), 100_000))
    with pytest.raises(InputError, match=r"d\.txt\.xz: damaged or not a compressed file"):
        read_sentences(write(tmp_path, lzma.compress(noise.encode())[:-5000], "d.txt.xz"))


REAL_DATA = os.environ.get("MINBERT_SHARED_DATA")


@pytest.mark.skipif(REAL_DATA is None, reason="MINBERT_SHARED_DATA does not name a folder with the real data")
def test_real_triplets_pairs_and_sentences_have_their_known_rows():
    folder = Path(REAL_DATA)
    assert len(read_triplets(folder / "nli" / "nli_triplets.csv").anchors) == 62_544
    assert len(read_pairs(folder / "quora" / "positive_pairs.tsv").anchors) == 63_837
    assert len(read_sentences(folder / "unlabelled" / "sentences.txt").sentences) == 87_048
    assert len(read_sentences(folder / "unlabelled" / "wiki_sentences_1m.txt.xz", limit=5000).sentences) == 5000
