"""Triplets, pairs and sentences are read completely, and problems name file and line."""

import csv
import gzip

import pytest

from minbert.errors import InputError
from multitask.tasks.sources import Lines, Pairs, TaskTexts, Triplets, read_texts, source_named
from multitask.use.mine import read_pairs
from tests.multitask.data.test_tables import write

LINES = " First one. \n\nSecond, caf\u00e9\u2028same line\r\n   \nThird".encode()
SUFFIXES = {Triplets: ".csv", Pairs: ".tsv", Lines: ".txt"}
READ = ["First one.", "Second, caf\u00e9\u2028same line", "Third"]


@pytest.mark.parametrize(
    ("kind", "content", "columns", "left_out"),
    [
        (
            Triplets,
            'sent0,sent1,hard_neg\n"Two dogs, run.",Animals move.,"""No"" dog."\nx,\u2060,z\na, b ,c\n',
            (["Two dogs, run.", "a"], ["Animals move.", "b"], ['"No" dog.', "c"]),
            "1 row without a sentence (line 3)",
        ),
        (Pairs, "sentence1\tsentence2\nWho is it?\tWho, then?\n", (["Who is it?"], ["Who, then?"]), ""),
        (Lines, LINES, (READ,), "2 rows without a sentence (lines 2, 4)"),
        (Lines, gzip.compress(LINES, mtime=0), (READ,), "2 rows without a sentence (lines 2, 4)"),
    ],
)
def test_files_are_read(tmp_path, caplog, kind, content, columns, left_out):
    suffix = SUFFIXES[kind]
    name = f"data{suffix}.gz" if content[:2] == b"\x1f\x8b" else f"data{suffix}"
    path = write(tmp_path, content, name)
    read = read_texts(path, kind.columns)
    assert (read.sentences, read.labels) == (columns, None)
    assert caplog.messages == ([f"{path}: left out {left_out}"] if left_out else [])
    assert read.dropped == int(left_out[:1] or 0)
    assert read_texts(path, kind.columns, limit=1).sentences == tuple(column[:1] for column in columns)


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
    read = read_pairs(str(path), (), tmp_path)[0] if mined else read_texts(path, Pairs.columns)
    assert len(read) == 4
    assert [message.partition(", and")[0] for message in caplog.messages] == (
        [f"{path}: the column {column} is not read: {told}"] if told else []
    )


@pytest.mark.parametrize(
    ("kind", "content", "place"),
    [
        (Triplets, "sent0,sent1\na,b\n", ": no column hard_neg"),
        (Triplets, "sent0,sent1,hard_neg\na,b,c\na,b\n", ":3: "),
        (Triplets, "sent0,sent1,hard_neg\n,,\n", ": no usable row"),
        (Lines, b"one\nfo\xfc\n", ":2: byte 0xfc at position 3"),
    ],
)
def test_bad_files_are_refused(tmp_path, kind, content, place):
    path = write(tmp_path, content, f"data{SUFFIXES[kind]}")
    with pytest.raises(InputError) as caught:
        read_texts(path, kind.columns)
    assert str(caught.value).startswith(f"{path}{place}")


@pytest.mark.parametrize(
    ("name", "kind", "file", "columns"),
    [
        ("unlabelled", Lines, "sentences.txt", ()),
        ("news.txt", Lines, "news.txt", ()),
        ("nli", Triplets, "nli_triplets.csv", ("sent0", "sent1", "hard_neg")),
        ("own.csv", Pairs, "own.csv", ("sentence1", "sentence2")),
        ("quora", TaskTexts, "quora-train.csv", ("sentence1", "sentence2")),
        ("paraphrase", TaskTexts, "quora-train.csv", ("sentence1", "sentence2")),
        ("sentiment", TaskTexts, "ids-sst-train.csv", ("sentence",)),
    ],
)
def test_a_name_means_one_file_whose_sentences_are_read_in_one_column(sample_data, tmp_path, name, kind, file, columns):
    own = "sentence1,sentence2\na,b\nc,d\n"
    lines = own.splitlines(True) if file == "own.csv" else (sample_data / file).read_text("utf-8").splitlines(True)[:20]
    write(tmp_path, "".join(lines), file)
    table = [*csv.DictReader(lines, delimiter="\t" if kind is TaskTexts else ",")]
    expected = [row[column].strip() for column in columns for row in table] if columns else [*map(str.strip, lines)]
    source = source_named(name, tmp_path)
    assert type(source) is kind
    assert source.sentences().sentences == (expected,)
    rows = source.rows()
    assert len(rows.sentences) == (1 if name == "paraphrase" else len(columns) or 1)
    assert (rows.labels is not None) == (name == "quora")
    assert source.same_meaning == (name in ("quora", "own.csv"))


def test_a_name_with_two_meanings_or_none_is_refused(tmp_path):
    task = '[tasks.{}]\nkind = "classification"\ntext = "a"\nlabel = "b"\ntrain = "c.csv"\n'
    path = write(tmp_path, "".join(map(task.format, ("nli", "quora", "mood"))), "tasks.toml")
    for name in ("nli", "quora"):
        with pytest.raises(InputError, match=f"the task {name} has the name of another source of sentences; rename it"):
            source_named(name, path)
    with pytest.raises(
        InputError, match=r'--unlabelled: unknown source "mod"; .* unlabelled, nli, .*mood.*did you mean'
    ):
        source_named("mod", path, "--unlabelled")
    for name in ("folder/own.txt", "own.jsonl", ".."):
        with pytest.raises(InputError, match="unknown source"):
            source_named(name, path)
