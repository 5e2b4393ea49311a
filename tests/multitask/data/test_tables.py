"""Tables written by other libraries come back equal, and damaged ones are refused in one line."""

import csv
import datetime
import gzip
import io
import json
import math
import os
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minbert.errors import InputError
from multitask.data import tables as text_lines
from multitask.data.messages import OnProblem, refuse
from multitask.data.read_tables import open_table
from multitask.data.tables import MAX_LINE, Format, RowsFrom, table_of, value_of
from multitask.data.write_tables import table_writer

Records = list[dict[str, Any]]

NAMES = [".csv", ".csv.gz", ".tsv", ".jsonl", ".jsonl.gz", ".jsonlines", ".parquet"]
# Lone surrogates cannot be written as UTF-8.
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=30)
COLUMNS = ("text", "other text", "label")
ROWS = st.lists(
    st.tuples(TEXT, TEXT, st.integers(-9, 9)).map(lambda row: dict(zip(COLUMNS, row, strict=True))),
    min_size=1,
    max_size=6,
)


def contents(name: str, rows: Records) -> bytes:
    """The rows as other libraries write them."""
    if name.endswith(".gz"):
        return gzip.compress(contents(name.removesuffix(".gz"), rows))
    if name == ".parquet":
        binary = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), binary)
        return binary.getvalue()
    if name.startswith(".json"):
        return "".join(json.dumps(row) + "\n" for row in rows).encode()
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if name == ".tsv" else ",")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def write(folder: Path, content: str | bytes, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """For the examples of a property, which write one file after another."""
    return tmp_path_factory.mktemp("tables")


def rows_of(path: Path, on_problem: OnProblem = refuse, **file_format: Any) -> list[tuple[int, dict[str, Any]]]:
    return list(open_table(RowsFrom(str(path)), Format(**file_format), on_problem).rows)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(rows=ROWS)
def test_a_table_comes_back_as_it_was_written(folder, name, rows):
    ours = folder / f"ours{name}"
    with table_writer(ours, COLUMNS) as write_rows:
        write_rows(rows[:3])
        write_rows(rows[3:])
    if name.startswith((".csv", ".tsv")):  # in which everything is text
        expected = [{column: str(value) for column, value in row.items()} for row in rows]
    else:
        expected = rows
    for path in (write(folder, contents(name, rows), f"data{name}"), ours):
        table = open_table(RowsFrom(str(path)), Format(line_breaks=name.startswith((".csv", ".tsv"))))
        assert table.columns == COLUMNS
        assert [row for _, row in table.rows] == expected


# Delimited text.


@settings(max_examples=200)
@given(
    body=st.one_of(
        st.lists(
            st.tuples(
                st.text("abcdefgh", min_size=1, max_size=4),
                st.text('ab "\r\n', max_size=6),
                st.sampled_from(["0", "1.0", "4", "", "x"]),
            ).map("\t".join),
            max_size=4,
        ).map("\n".join),
        st.text('ab01.,"\t\n\r \u2028', max_size=200),
    ),
    line_breaks=st.booleans(),
)
def test_what_is_read_is_what_dictreader_reads(folder, body, line_breaks):
    path = write(folder, "\tid\tsentence\tsentiment\n" + body)
    try:
        found = rows_of(path, separator="\t", line_breaks=line_breaks)
    except InputError:
        return
    with path.open(encoding="utf-8-sig", newline="") as file:
        records = list(csv.DictReader(file, delimiter="\t"))
    assert [row for _, row in found] == records


def test_rows_are_numbered_by_their_first_line(tmp_path):
    path = write(tmp_path, b'\xef\xbb\xbftext,label\r\n\r\na,1\r\n"b\nc",2\r\nd,3\r\n')
    table = open_table(RowsFrom(str(path)), Format(line_breaks=True))
    assert table.columns == ("text", "label")
    found = {table.place(number): row["text"] for number, row in table.rows}
    assert found == {f"{path}:3": "a", f"{path}:4": "b\nc", f"{path}:6": "d"}


@pytest.mark.parametrize(
    ("text", "count"), [('text, label\na, 1\n "a", 1', ""), ('text,label\na,1\n "a, b",1', "the row has 3 fields; .*")]
)
def test_a_space_before_quotes_is_named(tmp_path, text, count):
    path = write(tmp_path, text)
    with pytest.raises(InputError, match=rf"csv:3: {count}a quote after a space does not begin a field in quotes"):
        rows_of(path)
    as_written = write(tmp_path, 'text, label\n "a", 1')
    assert rows_of(as_written, quotes=False) == [(2, {"text": ' "a"', "label": " 1"})]


def test_two_stray_quotes_do_not_swallow_rows(tmp_path):
    lines = ["text,label", *(f"row {i},{i % 2}" for i in range(90))]
    lines[6], lines[61] = f'"{lines[6]}', lines[61].replace(",", '",')
    problems: list[str] = []
    assert len(rows_of(write(tmp_path, "\n".join(lines)), on_problem=problems.append)) == 90 - 56
    assert len(problems) == 1
    assert "data.csv:7: " in problems[0]


@pytest.mark.parametrize("first", ["", "\ufeff\ufeff"])
def test_a_header_of_a_file_that_was_joined_is_no_row(tmp_path, first):
    """Such a row would have the label `label`; `text` alone may well be a text."""
    lines = [f"{first}text,label", "a,1", "\ufefftext ,label", "text,b", "text, label"]
    problems: list[str] = []
    path = write(tmp_path, "\n".join(lines))
    assert [row["label"] for _, row in rows_of(path, on_problem=problems.append)] == ["1", "b"]
    assert [problem.partition(": ")[0] for problem in problems] == [f"{path}:3", f"{path}:5"]
    assert [row for _, row in rows_of(write(tmp_path, "text\na\ntext\n"))] == [{"text": "a"}, {"text": "text"}]


def test_a_sentence_may_be_long_but_a_line_of_more_than_16_mib_is_refused(tmp_path):
    text = "word " * 200_000
    assert rows_of(write(tmp_path, f'text,label\n"{text}",1\n'))[0][1]["text"] == text
    with pytest.raises(InputError, match=r"data\.csv:2: "):
        rows_of(write(tmp_path, b"text\n" + b"a" * (MAX_LINE + 1) + b"\n"))


@pytest.mark.parametrize(
    ("name", "content", "file_format", "rows"),
    [
        ("x.tsv", 'text\tlabel\n"a\t1\nb" c"\t2\n', {"quotes": False}, ['2 "a 1', '3 b" c" 2']),
        ("x.csv", "text;label\na, b;1\n", {"separator": ";"}, ["2 a, b 1"]),
        ("x.csv", 'text,label\n"a\rb",1\r\n"c",2\n', {}, ["2 a\rb 1", "3 c 2"]),
        ("x.jsonl", '{"text": "é", "label": 1}\n'.encode("cp1252"), {"encoding": "cp1252"}, ["1 é 1"]),
        ("x.jsonl", '\n{"text": "a"}\n\n{"label": 1}\n', {}, ["2 a", "4 1"]),
        ("x.txt", "a|b\n1|2\n", {"separator": "|"}, ["2 1 2"]),
        (
            "x.csv",
            'Report,\n"made\n\ntext,label\na,1\n"b\nc",2\n',
            {"skip_rows": 3, "line_breaks": True},
            ["5 a 1", "6 b\nc 2"],
        ),
        ("x.txt", " a,b \r\n\nc\u2028d", {}, ["1  a,b ", "2 ", "3 c\u2028d"]),
        *(
            ("x.csv", "text;label\nZürich – ja;1,5\n".encode(encoding), {"separator": ";", "encoding": encoding}, None)
            for encoding in ("cp1252", "utf-16", "utf-16-le", "utf-8-sig")
        ),
    ],
)
def test_formats(tmp_path, name, content, file_format, rows):
    """A file's own format comes before that of its task."""
    source = RowsFrom(str(write(tmp_path, content, name)), None, Format(**file_format))
    found = open_table(source, Format(separator="x")).rows
    texts = [f"{number} {' '.join(map(str, row.values()))}" for number, row in found]
    assert texts == (rows or ["2 Zürich – ja 1,5"])


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        *(("x.csv", "sheet", "a"), ("x.csv.gz", "sheet", "a"), ("x.txt", "skip_rows", 1), ("x.txt", "quotes", False)),
        *(("x.jsonl", "separator", ";"), ("x.jsonl", "skip_rows", 1), ("x.jsonl", "line_breaks", True)),
        *(("x.parquet", "encoding", "cp1252"), ("x.xlsx", "separator", ","), ("hf:x", "sheet", "a")),
    ],
)
def test_what_a_format_does_not_have_is_refused_before_anything_is_read(name, field, value):
    """The file is not even there."""
    with pytest.raises(InputError, match=rf"{name}: has no {field}, being of another format"):
        open_table(RowsFrom(name), Format(**{field: value}))


def test_the_mark_of_utf_8_and_another_encoding_contradict_each_other(tmp_path):
    path = write(tmp_path, "\ufefftext\nCafé\n")
    assert rows_of(path, encoding="UTF8")[0][1] == {"text": "Café"}
    with pytest.raises(InputError, match=r"data\.csv:1: begins with the mark of UTF-8, not cp1252; set encoding"):
        rows_of(path, encoding="cp1252")


@pytest.mark.parametrize(
    ("value", "read"),
    [("-1 ", None), (-1, None), (-1.0, None), (0.5, None), (math.nan, None), (1, 1), (-1.5, -1.5), (["-1"], ["-1"])],
)
def test_a_number_is_missing_if_its_text_in_csv_is(value, read):
    assert Format(missing=("-1", "0.5")).field(value) == read


def test_a_number_with_a_decimal_comma_is_missing_with_either_mark():
    marked = Format(decimal=",", missing=("-99,9", ".", "-1.5"))
    fields = ("-99,9", " . ", "-1,5", -1.5, "9,5", 9.5)
    assert [marked.label_field(value) for value in fields] == [None, None, None, None, "9.5", 9.5]


# Other formats.


BAD_LINES = ["[1]", "{", '{"text": "\\ud800"}', "[" * 100_000, f'{{"label": {"9" * 5000}}}', '{"a": 1, "a": 2}']
BAD_LINES += ['{"text": "\\u0000"}', '{"label": ["\\\\\\u0000"]}']


@pytest.mark.parametrize("line", BAD_LINES, ids=range(8))
def test_a_bad_line_of_json_is_left_out_and_named(tmp_path, line):
    path = write(tmp_path, '{"text": "\\ud83d\\ude00"}\n' + line + '\n{"text": "\\\\u0000"}\n', "x.jsonl")
    problems: list[str] = []
    assert [row["text"] for _, row in rows_of(path, on_problem=problems.append)] == ["😀", "\\u0000"]
    assert len(problems) == 1
    assert problems[0].startswith(f"{path}:2: ")


def test_what_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "nowhere")
    (tmp_path / "pipe.csv.gz").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.parquet")
    for name in ("absent.csv", "folder.csv", "link.csv", "pipe.csv.gz", "pipe.parquet"):
        for read in (lambda source: open_table(source).rows, RowsFrom.fingerprint):
            with pytest.raises(InputError, match=name):
                list(read(RowsFrom(str(tmp_path / name))))
    assert RowsFrom(str(tmp_path / "link.csv")).exists()
    assert not RowsFrom(str(tmp_path / "absent.csv")).exists()
    with (tmp_path / "x.csv").open("wb") as file:
        file.truncate(50 * 10**9)  # a sparse file
    with pytest.raises(InputError, match=r"x\.csv: 50,000,000,000 bytes; expected at most"):
        RowsFrom(str(tmp_path / "x.csv")).fingerprint()
    array = pyarrow.Array.from_buffers(pyarrow.string(), 1, pyarrow.array([b"\xff"]).buffers())  # no UTF-8
    pyarrow.parquet.write_table(pyarrow.table({"text": array}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"x\.parquet: damaged"):
        rows_of(tmp_path / "x.parquet")


@pytest.mark.parametrize("name", [".csv", ".jsonl"])
def test_one_file_may_have_all_splits(tmp_path, name):
    rows = [{"text": f"text {i}", "split": ("train", "dev", "train", 3)[i % 4]} for i in range(9)]
    path = write(tmp_path, contents(name, rows), f"x{name}")
    for split in ("train", "dev", "3"):
        found = open_table(RowsFrom(str(path), split)).rows
        assert [row["text"] for _, row in found] == [row["text"] for row in rows if str(row["split"]) == split]


def test_rows_whose_split_is_nearly_the_name_of_one_are_not_left_out_in_silence(tmp_path, caplog):
    values = [" dev", "Dev", None, "train", "DEV"]
    path = write(tmp_path, contents(".jsonl", [{"text": "a", "split": value} for value in values]), "x.jsonl")
    assert len(list(open_table(RowsFrom(str(path), "dev")).rows)) == 1
    assert len(list(open_table(RowsFrom(str(path), "train")).rows)) == 1
    assert caplog.messages == [
        f'{path}: rows with "DEV", "Dev" in column split do not belong to "dev"',
        f'{path}: rows with "" in column split do not belong to "train"',
    ]


# Spreadsheets, and small files that claim much.


def test_a_workbook_is_read_as_text_with_the_numbers_of_its_rows(tmp_path):
    book = pytest.importorskip("openpyxl").Workbook()
    for row in (["text ", "label", "n"], ["a", 4, 0.5], [None, None, None], ["n/a", True, None]):
        book.active.append(row)
    book.save(tmp_path / "x.xlsx")
    table = open_table(RowsFrom(str(tmp_path / "x.xlsx")))
    assert table.columns == ("text", "label", "n")
    assert list(table.rows) == [
        (2, {"text": "a", "label": "4", "n": "0.5"}),
        (4, {"text": "n/a", "label": "True", "n": ""}),
    ]
    marked = open_table(
        RowsFrom(str(tmp_path / "x.xlsx")), Format(decimal=",")
    )  # its numbers have no mark of their own
    labels = [marked.format.label_field(value) for _, row in marked.rows for value in row.values()]
    assert labels == ["a", "4", "0.5", "n/a", "True", ""]
    with pytest.raises(InputError, match=r"y\.xlsx: damaged"):
        open_table(RowsFrom(str(write(tmp_path, "text,label\n", "y.xlsx"))))


def test_a_date_of_a_workbook_has_no_time(tmp_path):
    day = datetime.datetime(2024, 1, 5)
    book = pytest.importorskip("openpyxl").Workbook()
    book.active.append(["day", "began", "end"])
    book.active.append([day.date(), day, day.replace(hour=13)])
    book.save(tmp_path / "x.xlsx")
    ((_, row),) = rows_of(tmp_path / "x.xlsx")
    assert [*row.values()] == ["2024-01-05", "2024-01-05 00:00:00", "2024-01-05 13:00:00"]


def test_signs_that_a_workbook_escapes_are_read(tmp_path):
    book = pytest.importorskip("openpyxl").Workbook()
    book.active.append(["text", "label_x000D_"])
    book.active.append(["one_x000D_\ntwo", "_x005F_x000D_ _x00E_"])
    book.active.append([no_text := "_x0000_ _xD83D__xde00_", "a"])
    book.save(tmp_path / "x.xlsx")
    first, second = ({"text": "one\r\ntwo", "label": "_x000D_ _x00E_"}, {"text": no_text, "label": "a"})
    assert rows_of(tmp_path / "x.xlsx") == [(2, first), (3, second)]


def test_a_code_of_a_workbook_keeps_its_zeros(tmp_path):
    book = pytest.importorskip("openpyxl").Workbook()
    for row in (["code"], [123], [123456], [123], [123.0], [True]):
        book.active.append(row)
    for place in ("A2", "A3", "A5", "A6"):
        book.active[place].number_format = "00000"
    book.save(tmp_path / "x.xlsx")
    assert [row["code"] for _, row in rows_of(tmp_path / "x.xlsx")] == ["00123", "123456", "123", "00123", "True"]


def test_a_hidden_sheet_is_read_by_its_name_alone(tmp_path):
    book = pytest.importorskip("openpyxl").Workbook()
    book.active.title, book.active.sheet_state = "old", "hidden"
    for sheet, text in ((book.active, "a"), (book.create_sheet("new"), "b")):
        sheet.append(["text"])
        sheet.append([text])
    book.save(tmp_path / "x.xlsx")
    assert rows_of(tmp_path / "x.xlsx") == [(2, {"text": "b"})]
    assert rows_of(tmp_path / "x.xlsx", sheet="old") == [(2, {"text": "a"})]


def test_a_sheet_has_a_name_and_rows_above_its_header(tmp_path):
    book = pytest.importorskip("openpyxl").Workbook()
    book.active.append(["text"])
    sheet = book.create_sheet("Second half")
    for row in ([], ["Report of", "May"], [None], ["text", "label"], ["a", "x"], [], ["b", "y"]):
        sheet.append(row)
    book.save(tmp_path / "x.xlsx")
    assert rows_of(tmp_path / "x.xlsx", sheet="Second half", skip_rows=3) == [
        (5, {"text": "a", "label": "x"}),
        (7, {"text": "b", "label": "y"}),
    ]
    with pytest.raises(
        InputError, match='no sheet "Second"; there are "Sheet", "Second half"; did you mean Second half'
    ):
        rows_of(tmp_path / "x.xlsx", sheet="Second")
    for path in (tmp_path / "x.xlsx", write(tmp_path, "text\na\n")):
        with pytest.raises(
            InputError, match=r"x\.xlsx: the sheet is empty|csv: the file is empty after 9 skipped lines"
        ):
            rows_of(path, skip_rows=9)


def test_what_is_in_objects_has_names_with_dots(tmp_path):
    ticket = {"subject": "a", "by": {"name": "b"}, "closed": None}
    rows = [{"ticket": ticket, "ticket.id": "7"}, {"ticket": "none"}, {}]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows[:1]), parquet := tmp_path / "x.parquet")
    frame = table_of(pandas.DataFrame(rows))
    for table in (*(open_table(RowsFrom(str(path))) for path in (write(tmp_path, text, "x.jsonl"), parquet)), frame):
        names = ["ticket.subject", "ticket.by.name", "ticket.id"]
        table.require([*names, "ticket.closed"])
        found = [[value_of(row, name) for name in names] for _, row in table.rows]
        assert found[0] == ["a", "b", "7"]
        assert all(values == [None, None, None] for values in found[1:])
        assert table.columns == ("ticket", "ticket.id")
        with pytest.raises(
            InputError, match=r"no column ticket.subjct; .*ticket.by.name.*; did you mean ticket.subject\?"
        ):
            table.require(["ticket.subjct"])


def test_cells_that_a_small_workbook_claims_are_not_all_read(tmp_path):
    book = pytest.importorskip("openpyxl").Workbook()
    book.active.append(["text", "label"])
    book.active.cell(2**16, 2**14, "far")
    book.save(tmp_path / "x.xlsx")
    with pytest.raises(InputError, match=r"x\.xlsx: row 65536 has 16,384 cells; expected 2, as in the header"):
        rows_of(tmp_path / "x.xlsx")
    for row in range(2, 200):
        book.active.cell(row, 2**14, "far")
    book.save(tmp_path / "x.xlsx")
    with pytest.raises(InputError, match=r"x\.xlsx: 2,097,154 cells of content, more than 100 times"):
        rows_of(tmp_path / "x.xlsx", on_problem=print)


def test_lists_of_nothing_and_too_many_columns_are_refused(tmp_path):
    nothing = pyarrow.array([[None] * 100_000] * 30, pyarrow.list_(pyarrow.null()))
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"] * 30, "labels": nothing}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"x\.parquet: 3,000,030 values of content"):
        rows_of(tmp_path / "x.parquet")
    names = [f"column {i}" for i in range(100_001)]
    for name, content in {"x.csv": ",".join(names), "x.jsonl": json.dumps(dict.fromkeys(names))}.items():
        with pytest.raises(InputError, match=f"{name}: 100,001 columns; expected at most 100,000"):
            rows_of(write(tmp_path, content, name))


@pytest.mark.parametrize("line", [b"\n", b"a,b\n"])
def test_a_compressed_file_of_equal_lines_is_not_read_to_its_end(tmp_path, line, monkeypatch):
    monkeypatch.setattr(text_lines, "UNSUSPECTED_BYTES", 2**14)
    path = write(tmp_path, gzip.compress(b"text,label\n" + line * 300_000), "data.csv.gz")
    with pytest.raises(InputError, match=r"data\.csv\.gz: \d+,\d{3} bytes of content, more than 100 times"):
        rows_of(path, on_problem=print)
