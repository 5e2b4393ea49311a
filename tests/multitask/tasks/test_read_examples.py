"""The reader agrees with `csv.DictReader` on good files and names the line of every problem."""

import csv
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minbert.errors import InputError
from multitask.data.read_task_files import Schema, read_examples

SENTIMENT = Schema("ids-sst", ("sentence",), "sentiment", 0, 4, integral=True)
REVIEWS = Schema("ids-cfimdb", ("sentence",), "sentiment", 0, 1, integral=True)
PARAPHRASE = Schema("quora", ("sentence1", "sentence2"), "is_duplicate", 0, 1, integral=True)
SIMILARITY = Schema("sts", ("sentence1", "sentence2"), "similarity", 0, 5, integral=False)

PAIR_HEADER = "\tid\tsentence1\tsentence2\tsimilarity\n"
GOOD_ROW = "0\ta1\tTwo dogs run.\tA cat sleeps.\t4.6\n"


def write(folder: Path, content: str | bytes, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_reads_ids_sentences_labels_and_fingerprint(tmp_path):
    content = PAIR_HEADER + GOOD_ROW + '7\ta2\t "say ""hi"""\t  b  \t0\n'.replace('\t "say', '\t"say')
    examples = read_examples(write(tmp_path, content), SIMILARITY, labelled=True)
    assert examples.ids == ["a1", "a2"]
    assert examples.sentences == (["Two dogs run.", 'say "hi"'], ["A cat sleeps.", "b"])
    assert examples.labels is not None
    assert examples.labels.dtype == np.float32
    np.testing.assert_array_equal(examples.labels, np.array([4.6, 0], dtype=np.float32))
    assert examples.fingerprint == hashlib.sha256(content.encode()).hexdigest()
    assert examples.dropped == 0
    assert len(examples) == 2


def test_header_of_the_courses_test_file_with_an_extra_unnamed_column(tmp_path):
    content = "0\t\tid\tsentence\n1\t0.0\tb75\t Effective but tepid biopic\n2\t1.0\td17\tIf you like `` movies '' .\n"
    examples = read_examples(write(tmp_path, content), SENTIMENT, labelled=False)
    assert examples.ids == ["b75", "d17"]
    assert examples.sentences == (["Effective but tepid biopic", "If you like `` movies '' ."],)
    assert examples.labels is None


def test_labels_of_a_labelled_file_can_be_ignored(tmp_path):
    examples = read_examples(write(tmp_path, PAIR_HEADER + GOOD_ROW), SIMILARITY, labelled=False)
    assert examples.labels is None
    assert len(examples) == 1


def test_byte_order_mark_and_windows_line_ends_and_blank_lines_are_harmless(tmp_path):
    content = "id\tsentence\tsentiment\r\na\tfine film\t3\r\n\r\nb\tbad film\t1\r\n"
    examples = read_examples(write(tmp_path, b"\xef\xbb\xbf" + content.encode()), SENTIMENT, labelled=True)
    assert examples.ids == ["a", "b"]
    assert examples.sentences == (["fine film", "bad film"],)


# Lone surrogates cannot be written as UTF-8; every other character can.
TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=40).filter(str.strip)


ROW = st.tuples(TEXT, TEXT, TEXT, st.floats(0, 5, width=32))


@settings(deadline=None, max_examples=150)
@given(rows=st.lists(ROW, min_size=1, max_size=12, unique_by=lambda row: row[0].strip()))
def test_rows_written_by_the_csv_module_come_back(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("round") / "data.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["", "id", "sentence1", "sentence2", "similarity"])
        writer.writerows((i, *row) for i, row in enumerate(rows))
    examples = read_examples(path, SIMILARITY, labelled=True)
    assert examples.ids == [row[0].strip() for row in rows]
    assert examples.sentences == ([row[1].strip() for row in rows], [row[2].strip() for row in rows])
    np.testing.assert_array_equal(examples.labels, np.array([row[3] for row in rows], dtype=np.float32))


LIKELY_ROW = st.tuples(
    st.text("abcdefgh", min_size=1, max_size=4),
    st.text('ab "\r\n', max_size=6),
    st.sampled_from(["0", "1.0", "4", "", "x"]),
)


@settings(deadline=None, max_examples=400)
@given(
    body=st.one_of(
        st.lists(LIKELY_ROW.map("\t".join), max_size=4).map("\n".join).map(str.encode),
        st.text(alphabet='ab01.,"\t\n\r \u2028', max_size=200).map(str.encode),
        st.binary(max_size=200),
    ),
    header=st.sampled_from([b"", b"id\tsentence\tsentiment\n", b"\tid\tsentence\tsentiment\n"]),
    labelled=st.booleans(),
)
def test_any_bytes_are_read_as_dictreader_reads_them_or_refused_in_one_line(tmp_path_factory, body, header, labelled):
    path = write(tmp_path_factory.mktemp("fuzz"), header + body)
    try:
        examples = read_examples(path, SENTIMENT, labelled)
    except InputError as error:
        message = str(error)
    else:
        message = None
    if message is not None:
        assert "\n" not in message
        assert message.startswith(str(path))
        return
    with path.open(encoding="utf-8-sig", newline="") as file:
        records = list(csv.DictReader(file, delimiter="\t"))
    usable = [r for r in records if not labelled or (r["sentence"].strip() and r["sentiment"].strip())]
    assert examples.ids == [r["id"].strip() for r in usable]
    assert examples.sentences == ([r["sentence"].strip() for r in usable],)
    if labelled:
        assert examples.labels.tolist() == [float(r["sentiment"]) for r in usable]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("1\tb\tx\ty\t4,6\n", ':3: similarity is "4,6"; expected a number from 0 to 5 (decimal point, not comma)'),
        ("1\tb\tx\ty\t5.1\n", ':3: similarity is "5.1"; expected a number from 0 to 5'),
        ("1\tb\tx\ty\t-0.1\n", ':3: similarity is "-0.1"; expected a number from 0 to 5'),
        ("1\tb\tx\ty\tnan\n", ':3: similarity is "nan"; expected a number from 0 to 5'),
        ("1\tb\tx\ty\tinf\n", ':3: similarity is "inf"; expected a number from 0 to 5'),
        ("1\tb\tx\ty\t0_1\n", ':3: similarity is "0_1"; expected a number from 0 to 5'),
        ("1\tb\tx\ty\t٣\n", ':3: similarity is "٣"; expected a number from 0 to 5'),
        ("1\tb\tx\ty\thigh\n", ':3: similarity is "high"; expected a number from 0 to 5'),
        ("1\ta1\tx\ty\t1\n", ':3: id "a1" is already on line 2; expected each id once'),
        ("1\t\tx\ty\t1\n", ":3: the id is empty; expected one that is unique in the file"),
        ("1\tb\tx\ty\n", ":3: the row has 4 fields; expected 5, as in the header (separated by tabs)"),
        ("1\tb\tx\ty\tz\t1\n", ":3: the row has 6 fields; expected 5, as in the header (separated by tabs)"),
        ('1\tb\t"x\ty\t1\n2\tc\tx\ty\t1\n', ":3: broken quoting (unexpected end of data)"),
        ('1\tb\t"x" z\ty\t1\n', ":3: broken quoting ('\t' expected after '\"')"),
        ('1\tb\t"x\n\nw"\ty\t1\n2\tc\tx\ty\t9\n', ':6: similarity is "9"; expected a number from 0 to 5'),
        ("\n\n1\tb\tx\ty\t9\n", ':5: similarity is "9"; expected a number from 0 to 5'),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path, row, problem):
    path = write(tmp_path, PAIR_HEADER + GOOD_ROW + row)
    with pytest.raises(InputError) as caught:
        read_examples(path, SIMILARITY, labelled=True)
    assert str(caught.value).startswith(f"{path}{problem}")


@pytest.mark.parametrize("label", ["2.5", "5", "-1", "1e9"])
def test_labels_of_classes_are_whole_numbers_in_range(tmp_path, label):
    path = write(tmp_path, f"id\tsentence\tsentiment\na\tx\t1.0\nb\ty\t{label}\n")
    with pytest.raises(InputError) as caught:
        read_examples(path, SENTIMENT, labelled=True)
    assert str(caught.value) == f'{path}:3: sentiment is "{label}"; expected a whole number from 0 to 4'


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", ": the file is empty; expected a header line and rows"),
        (b"\n\n", ":1: column id occurs 0 times in the header; expected the columns id, sentence, sentiment"),
        (b"id\tsentence\tsentiment\n", ": no usable row below the header"),
        (b"id\tsentence\tsentiment\na\t\t\n", ": no usable row below the header"),
        (b"id\ttext\tsentiment\na\tx\t1\n", ":1: column sentence occurs 0 times in the header"),
        (b"id\tsentence\n", ":1: column sentiment occurs 0 times in the header"),
        (b"id\tid\tsentence\tsentiment\n", ":1: column id occurs 2 times in the header"),
        (b"id,sentence,sentiment\na,x,1\n", ":1: column id occurs 0 times in the header"),
        (b"id\tsentence\tsentiment\na\tx\t1\nb\tcaf\xe9\t1\n", ":3: byte 0xe9 at position 6 of the line is not UTF-8"),
        ("id\tsentence\tsentiment\n".encode("utf-16"), ":1: byte 0xff at position 1 of the line is not UTF-8"),
        (b"\xef\xbb\xbfid\xff", ":1: byte 0xff at position 3 of the line is not UTF-8"),
    ],
)
def test_a_bad_file_is_refused(tmp_path, content, problem):
    path = write(tmp_path, content)
    with pytest.raises(InputError) as caught:
        read_examples(path, SENTIMENT, labelled=True)
    assert str(caught.value).startswith(f"{path}{problem}")


def test_all_problems_can_be_collected_and_the_other_rows_are_read(tmp_path):
    bad = "1\tb\tx\ty\t9\n" + '2\tc\t"x" z\ty\t1\n' + "3\td\tx\n" + "4\ta1\tx\ty\t2\n"
    path = write(tmp_path, PAIR_HEADER + GOOD_ROW + bad + "5\te\tx\ty\t3\n")
    problems: list[str] = []
    examples = read_examples(path, SIMILARITY, labelled=True, on_problem=problems.append)
    assert [problem.removeprefix(f"{path}:")[0] for problem in problems] == ["3", "4", "5", "6"]
    assert examples.ids == ["a1", "e"]
    assert examples.labels is not None
    assert len(examples.labels) == len(examples.sentences[0]) == len(examples.sentences[1]) == 2


INCOMPLETE = PAIR_HEADER + GOOD_ROW + "1\tb\tx\t\t1\n2\tc\tx\ty\t \n3\td\t  \ty\t2\n4\te\tx\ty\t3\n"


def test_labelled_rows_without_label_or_sentence_are_left_out_with_one_counted_warning(tmp_path, caplog):
    path = write(tmp_path, INCOMPLETE)
    examples = read_examples(path, SIMILARITY, labelled=True)
    assert examples.ids == ["a1", "e"]
    assert examples.dropped == 3
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: left out 3 rows without a label or a sentence (lines 3, 4, 5)"
    ]
    assert caplog.records[0].name == "multitask"


def test_unlabelled_rows_are_all_kept(tmp_path, caplog):
    path = write(tmp_path, INCOMPLETE)
    examples = read_examples(path, SIMILARITY, labelled=False)
    assert examples.ids == ["a1", "b", "c", "d", "e"]
    assert examples.sentences[1][1] == ""
    assert examples.dropped == 0
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: kept 2 rows with an empty sentence (lines 3, 5)"
    ]


def test_the_warning_shortens_a_long_list_of_lines(tmp_path, caplog):
    rows = "".join(f"{i}\tid{i}\t\ty\t1\n" for i in range(9))
    read_examples(write(tmp_path, PAIR_HEADER + GOOD_ROW + rows), SIMILARITY, labelled=True)
    assert caplog.messages[0].endswith("left out 9 rows without a label or a sentence (lines 3, 4, 5, 6, 7, ...)")


REAL_DATA = os.environ.get("MINBERT_SHARED_DATA")
ROWS = [
    (SENTIMENT, 8544, 1101, 2210),
    (REVIEWS, 1707, 245, 488),
    (SIMILARITY, 6040, 863, 1725),
    (PARAPHRASE, 26946, 3000, 3001),
]


@pytest.mark.skipif(REAL_DATA is None, reason="MINBERT_SHARED_DATA does not name a folder with the real data")
@pytest.mark.parametrize(("schema", "train", "dev", "test"), ROWS, ids=lambda v: getattr(v, "file_stem", None))
def test_real_files_have_their_known_rows_as_dictreader_reads_them(schema, train, dev, test):
    for split, rows in (("train", train), ("dev", dev), ("test", test)):
        path = schema.path(Path(REAL_DATA) / "cs224n", split)
        examples = read_examples(path, schema, labelled=split != "test")
        assert len(examples) == rows
        with path.open(encoding="utf-8") as file:
            records = list(csv.DictReader(file, delimiter="\t"))
        for column, sentences in zip(schema.sentence_columns, examples.sentences, strict=True):
            assert sentences == [record[column].strip() for record in records]
        if examples.labels is not None:
            wanted = np.array([float(record[schema.label_column]) for record in records], dtype=np.float32)
            np.testing.assert_array_equal(examples.labels, wanted)
