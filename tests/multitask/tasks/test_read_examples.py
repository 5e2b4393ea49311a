"""Rows of tasks are read completely, and problems are named by file and row."""

import json
import math
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest

from minbert.errors import InputError
from multitask.data.examples import Examples
from multitask.data.messages import refuse
from multitask.data.tables import RowsFrom, table_of
from multitask.models.estimates import with_files_of
from multitask.tasks import read_examples as module
from multitask.tasks.declarations import load_tasks, task_of
from multitask.tasks.read_examples import load_rows, load_training_rows, read_examples
from multitask.tasks.task import Task
from tests.conftest import with_files
from tests.multitask.data.test_tables import write

COURSE = load_tasks("data")
SENTIMENT, SIMILARITY = COURSE["sentiment"], COURSE["similarity"]


def read(path: Path, task: Task, labelled: bool = True, on_problem: Any = refuse) -> Examples:
    return module.read_examples(task, RowsFrom(str(path)), labelled, on_problem)


def json_file(folder: Path, rows: list[dict[str, Any]]) -> Path:
    return write(folder, "".join(json.dumps(row) + "\n" for row in rows), "data.jsonl")


def topic(kind: str = "classification", **fields: Any) -> Task:
    return task_of("topic", {"kind": kind, "text": "q", "label": "c", **fields})


# The course's files.

PAIR_HEADER = "\tid\tsentence1\tsentence2\tsimilarity\n"
GOOD_ROW = "0\ta1\tTwo dogs run.\tA cat sleeps.\t4.6\n"


def test_reads_ids_sentences_and_labels(tmp_path):
    content = PAIR_HEADER + GOOD_ROW + '7\ta2\t"say ""hi"""\t  b  \t0\n'
    examples = read(write(tmp_path, content), SIMILARITY)
    assert examples.ids == ["a1", "a2"]
    assert examples.sentences == (["Two dogs run.", 'say "hi"'], ["A cat sleeps.", "b"])
    assert examples.labels.dtype == np.float32
    np.testing.assert_array_equal(examples.labels, np.array([4.6, 0], dtype=np.float32))
    assert (examples.dropped, len(examples)) == (0, 2)
    part = examples.take(np.array([1]))
    assert (part.sentences, part.ids, part.labels.tolist(), len(part)) == ((['say "hi"'], ["b"]), ["a2"], [0], 1)
    # The course's test file has an unnamed column more.
    content = "0\t\tid\tsentence\n1\t0.0\tb75\t Effective but tepid biopic\n2\t1.0\td17\tIf you like `` movies '' .\n"
    examples = read(write(tmp_path, content), SENTIMENT, labelled=False)
    assert (examples.ids, examples.labels) == (["b75", "d17"], None)
    assert examples.sentences == (["Effective but tepid biopic", "If you like `` movies '' ."],)


@pytest.mark.parametrize(
    ("row", "fields", "told"),
    [
        ({"q": ["a"], "c": "a"}, {}, "q is ['a']"),
        ({"q": "x", "c": {}}, {}, "c is {}"),
        *(({"q": "x", "c": label}, {"labels": [1, 2]}, f"c is {label}") for label in (2.5, 3, -1, 1e9)),
        ({"q": "x", "c": "1.500"}, {"kind": "regression", "range": [0, 5], "decimal": ","}, 'c is "1.500"'),
        (
            {"q": "x", "c": "1,000"},  # which a decimal comma would make 1
            {"kind": "regression", "range": [0, 5]},
            'c is "1,000"; expected a number from 0 to 5 (without commas between thousands; or set decimal',
        ),
        *(({"q": "x", "c": "a", "i": blank}, {"id": "i"}, "the id is empty") for blank in (None, " ", math.nan)),
        ({"q": "x", "c": "a", "i": "b,c"}, {"id": "i"}, 'id "b,c" has a comma'),
        ({"q": "x", "c": "a", "i": "b\x1bc"}, {"id": "i"}, 'id "b c" has a comma or a control character'),
        ({"q": "x", "c": "[a"}, {"kind": "multilabel"}, 'c is "[a"'),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path, row, fields, told):
    label = 1 if "range" in fields or fields.get("labels") == [1, 2] else "a"
    path = json_file(tmp_path, [{"q": "q", "c": label, "i": "1"}, row])
    with pytest.raises(InputError) as caught:
        read(path, topic(**fields))
    assert str(caught.value).startswith(f"{path}:2: {told}")


INCOMPLETE = PAIR_HEADER + GOOD_ROW + "1\tb\tx\t\t1\n2\tc\tx\ty\t \n3\td\t \u200b\u200d \ty\t2\n4\te\tx\ty\t3\n"


@pytest.mark.parametrize(
    ("labelled", "ids", "dropped", "warning"),
    [
        (True, ["a1", "e"], 3, "left out 3 rows without a label or a sentence (lines 3, 4, 5)"),
        (False, ["a1", "b", "c", "d", "e"], 0, "kept 2 rows with an empty sentence (lines 3, 5)"),
    ],
)
def test_incomplete_rows_are_left_out_of_labelled_sets_with_one_warning(
    tmp_path, caplog, labelled, ids, dropped, warning
):
    path = write(tmp_path, INCOMPLETE)
    examples = read(path, SIMILARITY, labelled)
    assert (examples.ids, examples.dropped) == (ids, dropped)
    assert len(examples.sentences[1]) == len(ids)
    assert caplog.messages == [f"{path}: {warning}"]


# Files of any format.


def test_several_tasks_may_read_one_file_and_a_blank_label_counts_for_its_task_only(tmp_path, caplog):
    rows = [{"q": f"q{i}", "c": "ab"[i % 2], "stars": float(i)} for i in range(6)]
    rows[1]["c"], rows[2]["stars"], rows[4]["q"] = None, None, " "
    del rows[3]["stars"]
    path = json_file(tmp_path, rows)
    topics, stars = read(path, topic()), read(path, topic("regression", label="stars"))
    assert topics.sentences == (["q0", "q2", "q3", "q5"],)
    assert topics.labels.tolist() == [0, 0, 1, 1]
    assert topics.classes == ("a", "b")
    assert stars.sentences == (["q0", "q1", "q5"],)
    assert stars.labels.tolist() == [0, 1, 5]
    assert (topics.dropped, stars.dropped) == (2, 3)
    assert caplog.messages[0] == f"{path}: left out 2 rows without a label or a sentence (lines 2, 5)"


WRITTEN = ["1", "1.0", "0101", "101", "1.1", "1.10", "1E1", "10", " 1 "]


def test_labels_are_the_text_that_is_written_in_every_format(tmp_path, caplog):
    csv_file = write(tmp_path, "q,c\n" + "".join(f"q{i},{value}\n" for i, value in enumerate(WRITTEN)))
    rows = {"q": [f"q{i}" for i in range(9)], "c": WRITTEN}
    pyarrow.parquet.write_table(pyarrow.table(rows), tmp_path / "x.parquet")
    json_path = json_file(tmp_path, [{"q": f"q{i}", "c": value} for i, value in enumerate(WRITTEN)])
    for path in (csv_file, json_path, tmp_path / "x.parquet"):
        for decimal in (".", ","):
            examples = read(path, topic(decimal=decimal))
            assert [examples.classes[int(label)] for label in examples.labels] == [text.strip() for text in WRITTEN]
    pyarrow.parquet.write_table(pyarrow.table({"q": ["x", ""], "c": ["a", "b"]}), tmp_path / "y.parquet")
    read(tmp_path / "y.parquet", topic())
    assert caplog.messages == [f"{tmp_path / 'y.parquet'}: left out 1 row without a label or a sentence (row 2)"]
    pyarrow.parquet.write_table(pyarrow.table({"q": ["x", "y"], "i": [7, 7], "c": ["a", "b"]}), tmp_path / "z.parquet")
    with pytest.raises(InputError, match=r'z\.parquet: row 2: id "7" is already in row 1; expected each id once'):
        read(tmp_path / "z.parquet", topic(id="i"))


@pytest.mark.parametrize("kind", ["classification", "multilabel"])
def test_labels_declared_as_numbers_stand_for_text_that_is_this_number(tmp_path, kind):
    path = write(tmp_path, "q,c\n" + "".join(f"q{value},{value}\n" for value in ("1", "1.0", "01", "2.50", "one")))
    task = topic(kind, labels=[1, 2.5], aliases={"one": 1})
    assert task.names == ("1", "2.5")
    decided = read(path, task).labels
    np.testing.assert_array_equal(decided if decided.ndim == 1 else decided.argmax(axis=1), [0, 0, 0, 1, 0])
    with pytest.raises(InputError) as caught:
        read(path, topic(kind, labels=["1", "2.5", "one"]))
    assert str(caught.value) == f'{path}:3: c is "1.0"; expected one of 1, 2.5, one; or add aliases = {{ "1.0" = "1" }}'
    kept, older = task_of("topic", task.kept()), task_of("topic", task.declaration())
    assert kept.declaration() == older.declaration() == task.declaration()  # so keys of runs stay
    for saved in (kept, with_files_of(older, task)):  # of models
        assert read(path, saved).labels.tolist() == decided.tolist()


def test_what_only_parquet_has_is_the_text_that_csv_has(tmp_path):
    values = {
        "price": pyarrow.array([Decimal("1.50"), Decimal("0.25")]),
        "day": [date(2024, 2, 29), date(2024, 3, 1)],
        "at": [datetime(2024, 2, 29, 12, 30), datetime(2024, 3, 1)],
        "of_day": [time(12, 30), time(1)],
    }
    pyarrow.parquet.write_table(pyarrow.table({"q": ["x", "y"], **values}), tmp_path / "x.parquet")
    found = {label: read(tmp_path / "x.parquet", topic(label=label)) for label in ("day", "at", "of_day")}
    assert found["day"].classes == ("2024-02-29", "2024-03-01")
    assert found["at"].classes == ("2024-02-29 12:30:00", "2024-03-01 00:00:00")
    assert found["of_day"].classes == ("01:00:00", "12:30:00")
    for decimal in (".", ","):  # which is a mark of numbers that are written
        prices = read(tmp_path / "x.parquet", topic("regression", label="price", decimal=decimal))
        assert prices.gold.tolist() == [1.5, 0.25]


def test_texts_are_made_of_several_columns_and_words(tmp_path, caplog):
    rows = [{"t": {"q": "a", "n": 3}, "body": "b", "c": "x"}, {"t": {"q": ""}, "body": "c", "c": "x"}, {"c": "y"}]
    path = json_file(tmp_path, rows)
    assert read(path, topic(text=["t.q", "body"])).sentences == (["a b", "c"],)
    assert caplog.messages == [f"{path}: left out 1 row without a label or a sentence (line 3)"]
    pair = topic("pair_classification", text=["query: {t.q}", "{body} ({t.n})"])
    found = read(path, pair)
    assert [*found.texts] == [["query: a"], ["b (3)"]]
    assert found.sentences == (["a"], ["b (3)"])  # words around one column do not identify a text
    with pytest.raises(InputError, match=r"data\.jsonl: no column bodi; .*; did you mean body\?$"):
        read(path, topic(text="{t.q}: {bodi}"))
    with pytest.raises(InputError, match=r"data\.jsonl:1: t is \{.*\}; expected text"):
        read(path, topic(text="{t} {body}"))
    with pytest.raises(InputError, match=r"^tasks.topic: text is .*; expected \{COLUMN\}"):
        topic(text="{t")


REPEATED = [("1", "a", "x"), ("2", "a", "x"), ("1", "b", "x"), ("3", "a", "y"), ("4", " a ", "x"), ("5", "b", "")]


@pytest.mark.parametrize(
    ("duplicates", "kept", "problems"),
    [
        (None, ["1", "2", "3", "4"], ['4: id "1" is already on line 2']),
        ("keep", ["1", "2", "1", "3", "4"], []),
        ("drop", ["1", "3"], []),
        ("error", ["1", "3"], [f"{line}: its texts and label are already on line 2" for line in (3, 6)]),
    ],
)
def test_rows_that_repeat_others_are_kept_left_out_or_refused(tmp_path, caplog, duplicates, kept, problems):
    path = write(tmp_path, "i,q,c\n" + "".join(f"{','.join(row)}\n" for row in REPEATED))
    declared = topic(id="i", **({} if duplicates is None else {"duplicates": duplicates}))
    found: list[str] = []
    examples = read(path, declared, on_problem=found.append)
    assert examples.ids == kept
    assert len(examples) == len(kept) == len(examples.gold)
    expected = [*problems, '4: id "1" is already on line 2'] if duplicates == "error" else problems
    assert sorted(problem.partition(";")[0] for problem in found) == sorted(f"{path}:{text}" for text in expected)
    left_out = "left out 3 rows with the id, or the texts and label, of an earlier one (lines 3, 4, 6)"
    assert (f"{path}: {left_out}" in caplog.messages) == (duplicates == "drop")
    assert examples.dropped == (4 if duplicates == "drop" else 1)
    # Every row of a file without labels needs a prediction, unless it has the id of another.
    unlabelled = read(path, declared, labelled=False, on_problem=found.append)
    assert unlabelled.ids == ["1", "2", *["1"] * (duplicates == "keep"), "3", "4", "5"]


def test_rows_with_the_same_labels_in_another_order_repeat_each_other(tmp_path):
    path = write(tmp_path, "q,c\nx,a|b\nx,b|a\nx,b\n")
    assert read(path, topic("multilabel", duplicates="drop")).gold.tolist() == [[1, 1], [0, 1]]


def test_a_frame_may_have_the_arrays_that_pandas_reads_from_parquet(tmp_path):
    rows = [{"q": text, "c": labels, "m": {"c": labels}} for text, labels in (("x", ["a", "b"]), ("y", ["b"]))]
    pandas.DataFrame(rows).to_parquet(tmp_path / "x.parquet")
    for label in ("c", "m.c"):
        table = table_of(pandas.read_parquet(tmp_path / "x.parquet"))
        found = module.examples_of(topic("multilabel", label=label), table, "the frame", labelled=True)
        assert (found.classes, found.gold.tolist()) == (("a", "b"), [[1, 1], [0, 1]])


def test_a_missing_file_of_the_course_next_to_a_tasks_file_is_named_with_its_remedy(tmp_path):
    write(tmp_path, "", "tasks.toml")
    message = rf"ids-sst-train\.csv: no such file; for the tasks of {tmp_path / 'tasks.toml'}, give --tasks-file"
    with pytest.raises(InputError, match=message):
        load_rows(load_tasks(tmp_path)["sentiment"], "train")
    with pytest.raises(InputError, match=r"new\.csv: no such file$"):
        read(tmp_path / "new.csv", topic())


def test_decimal_commas_missing_values_and_aliases(tmp_path):
    (tmp_path / "x.csv").write_text("text;n;kind\ngood, 1,5;4,5;Review\nn/a;1,0;bug\nbad;-;reviw\nfine;1e0;review\n")
    source = RowsFrom(str(tmp_path / "x.csv"))
    common = {"text": "text", "separator": ";", "missing": ["n/a", "-"]}
    stars = task_of("stars", {"kind": "regression", "label": "n", "range": [1, 5], "decimal": ",", **common})
    examples = read_examples(stars, source, labelled=True)
    assert (examples.sentences[0], examples.labels.tolist()) == (["good, 1,5", "fine"], [4.5, 1.0])
    aliases = {"reviw": "review", "Review": "review"}
    kind = task_of("kind", {"kind": "classification", "label": "kind", "aliases": aliases, **common})
    examples = read_examples(kind, source, labelled=True)
    assert (examples.classes, examples.labels.tolist()) == (("review",), [0, 0, 0])
    assert task_of("kind", kind.declaration()).aliases == aliases  # a model reads other files the same way


def test_missing_values_may_be_listed_or_have_spaces_around_them(tmp_path):
    labels = (["a", "-"], ["-"], ["-", "n/a"], [], ["b"], " - ", "n/a|-", "b| -", '["n/a", "a"]')
    path = json_file(tmp_path, [{"q": str(i), "c": c} for i, c in enumerate(labels)])
    found = read(path, topic("multilabel", missing=["- ", "n/a"]))
    assert (found.sentences, found.classes) == ((["0", "3", "4", "7", "8"],), ("a", "b"))
    assert found.gold.tolist() == [[1, 0], [0, 0], [0, 1], [0, 1], [1, 0]]


def test_weights_stay_with_their_rows(tmp_path):
    rows = [f"q{i};{'ab'[i % 2]};{i / 8:g}".replace(".", ",") for i in range(40)]
    rows[3], rows[5] = "q3;;", ";b;1"  # a row that is left out needs no weight
    (tmp_path / "x.csv").write_text("\n".join(["q;c;trust", *rows]) + "\n")
    (tmp_path / "dev.csv").write_text("q;c\nq1;a\n")
    source = RowsFrom(str(tmp_path / "x.csv"))
    task = with_files(topic(separator=";", decimal=",", weight="trust"), train=source)
    _, training = load_training_rows(task)
    assert len(training) == 34
    for examples in (training, training.take(np.array([7, 2])), load_rows(task, "dev")):
        expected = [int(text.removeprefix("q")) / 8 for text in examples.sentences[0]]
        np.testing.assert_array_equal(examples.weights, np.array(expected, np.float32))
    unweighted = load_rows(with_files(task, dev=RowsFrom(str(tmp_path / "dev.csv"))), "dev")
    assert (unweighted.weights, task.loss_weight) == (None, 1.0)
