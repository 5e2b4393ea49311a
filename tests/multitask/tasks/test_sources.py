"""Triplets, pairs and sentences are read completely, and problems name file and line."""

import gzip

import pytest

from minbert.errors import InputError
from multitask.tasks.sources import PAIRS, SENTENCES, TRIPLETS, Layout, read_texts
from multitask.use.mine import read_pairs
from tests.multitask.data.test_tables import write

LINES = " First one. \n\nSecond, caf\u00e9\u2028same line\r\n   \nThird".encode()
READ = ["First one.", "Second, caf\u00e9\u2028same line", "Third"]


@pytest.mark.parametrize(
    ("layout", "content", "columns", "left_out"),
    [
        (
            TRIPLETS,
            'sent0,sent1,hard_neg\n"Two dogs, run.",Animals move.,"""No"" dog."\nx,\u2060,z\na, b ,c\n',
            (["Two dogs, run.", "a"], ["Animals move.", "b"], ['"No" dog.', "c"]),
            "1 row without a sentence (line 3)",
        ),
        (PAIRS, "sentence1\tsentence2\nWho is it?\tWho, then?\n", (["Who is it?"], ["Who, then?"]), ""),
        (SENTENCES, LINES, (READ,), "2 rows without a sentence (lines 2, 4)"),
        (SENTENCES, gzip.compress(LINES, mtime=0), (READ,), "2 rows without a sentence (lines 2, 4)"),
    ],
)
def test_files_are_read(tmp_path, caplog, layout, content, columns, left_out):
    name = "data.txt.gz" if content[:2] == b"\x1f\x8b" else "data.txt"
    path = write(tmp_path, content, name)
    read = read_texts(path, layout)
    assert (read.sentences, read.labels) == (columns, None)
    assert caplog.messages == ([f"{path}: left out {left_out}"] if left_out else [])
    assert read.dropped == int(left_out[:1] or 0)
    assert read_texts(path, layout, limit=1).sentences == tuple(column[:1] for column in columns)


@pytest.mark.parametrize(
    ("column", "values", "told"),
    [
        *[
            (name, "0110", "2 of 4 rows have 0 there")
            for name in ("label", "is_duplicate", "isDuplicate", "LABEL", "y")
        ],
        ("score", ("0.9", "1.0", "0.2", "1"), "2 of 4 rows have 0.9, 0.2 there"),
        *[(name, "1111", None) for name in ("label", "gold_label")],
        *[(name, "0101", None) for name in ("id", "classroom", "sample", "unmatched")],
    ],
)
@pytest.mark.parametrize("mined", [False, True])
def test_a_column_that_says_which_pairs_are_none_is_not_left_out_in_silence(
    tmp_path, caplog, column, values, told, mined
):
    rows = "".join(f"a {i},b {i},{value}\n" for i, value in enumerate(values))
    path = write(tmp_path, f"sentence1,sentence2,{column}\n{rows}", "pairs.csv")
    read = read_pairs(str(path), (), tmp_path) if mined else read_texts(path, Layout("pairs.csv", PAIRS.columns))
    assert len(read) == 4
    assert [message.partition(", and")[0] for message in caplog.messages] == (
        [f"{path}: the column {column} is not read: {told}"] if told else []
    )


@pytest.mark.parametrize(
    ("layout", "content", "place"),
    [
        (TRIPLETS, "sent0,sent1\na,b\n", ": no column hard_neg"),
        (TRIPLETS, "sent0,sent1,hard_neg\na,b,c\na,b\n", ":3: "),
        (TRIPLETS, "sent0,sent1,hard_neg\n,,\n", ": no usable row"),
        (SENTENCES, b"one\nfo\xfc\n", ":2: byte 0xfc at position 3"),
    ],
)
def test_bad_files_are_refused(tmp_path, layout, content, place):
    path = write(tmp_path, content)
    with pytest.raises(InputError) as caught:
        read_texts(path, layout)
    assert str(caught.value).startswith(f"{path}{place}")
