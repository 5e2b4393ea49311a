"""Predictions of a file: columns are kept in every format, and values equal those of the model's own `predict`."""

import csv
import datetime
import gzip
import io
import json
import os
import re
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import pandas
import pyarrow
import pyarrow.parquet
import pytest
import torch

from minbert.errors import InputError
from multitask.cli.main import main
from multitask.data import read_tables
from multitask.data.tables import Format, OpenTable
from multitask.data.texts import template
from multitask.data.write_tables import check_output, table_writer
from multitask.models.multitask_model import MultitaskModel
from multitask.models.predictions import Prediction
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.models.settings import HeadsConfig
from multitask.tasks.declarations import load_tasks, task_of
from multitask.use import predict as module
from multitask.use.predict import _check_header, predict_file, write_prediction_files
from tests.conftest import with_files
from tests.multitask.declared import model_of_every_kind

FP32 = ("--device", "cpu", "--precision", "fp32")
ROWS = [
    {"number": str(i), "question": f"Who made the {word}?", "one": f" a {word}", "two": f"the {word}, twice", "note": n}
    for i, (word, n) in enumerate([("film", 'said "so"'), ("time", ""), ("board", "a, b"), ("tea", "é\tö"), ("", " x")])
]


@pytest.fixture
def model(tiny_encoder):
    return model_of_every_kind(tiny_encoder)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(module, "ROWS_PER_BATCH", 2)  # so that files have several


SEPARATORS = {".csv": ",", ".tsv": "\t"}


def write(path, rows):
    if separator := SEPARATORS.get(path.suffixes[0]):
        pandas.DataFrame(rows).to_csv(path, sep=separator, index=False)  # pandas compresses by the name
    elif path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(path):
    if separator := SEPARATORS.get(path.suffixes[0]):
        return pandas.read_csv(path, sep=separator, dtype=str, keep_default_na=False).to_dict("records")
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path).to_pylist()
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def predicted(model, tmp_path):
    """Predicts a file in the test's folder, and reads what was written."""

    def rows(tasks, source, output="o.csv", *more, **named):
        predict_file(model, tasks, tmp_path / source, tmp_path / output, *more, **named)
        return read(tmp_path / output)

    return rows


@pytest.mark.parametrize(
    ("source", "output"),
    [
        *(("i.csv", "o.parquet"), ("i.tsv", "o.csv.gz"), ("i.jsonl", "o.tsv"), ("i.parquet", "o.jsonl")),
        *(("i.csv.gz", "o.jsonl.gz"), ("i.parquet", "o.parquet"), ("i.jsonl", "o.csv")),
    ],
)
def test_columns_are_kept_and_predictions_added(model, tmp_path, source, output):
    write(tmp_path / source, ROWS)
    assert predict_file(model, [], tmp_path / source, tmp_path / output, probabilities=True) == len(ROWS)
    found = read(tmp_path / output)
    assert [{name: row[name] for name in ROWS[0]} for row in found] == ROWS
    singles = model.predict_all([row["question"] for row in ROWS])
    pairs = model.predict_all([(row["one"], row["two"]) for row in ROWS])
    for i, row in enumerate(found):
        assert row["topic"] == singles["topic"][i].label
        assert float(row["topic_probability"]) == pytest.approx(singles["topic"][i].probability, abs=1e-5)
        for label, probability in singles["topic"][i].probabilities.items():
            assert float(row[f"topic_probability_{label}"]) == pytest.approx(probability, abs=1e-5)
        tags = row["tags"] if isinstance(row["tags"], list) else [tag for tag in row["tags"].split("|") if tag]
        assert tags == list(singles["tags"][i].labels)
        assert float(row["stars"]) == pytest.approx(singles["stars"][i].value, abs=1e-4)
        assert row["entails"] == pairs["entails"][i].label
        assert float(row["similar"]) == pytest.approx(pairs["similar"][i].value, abs=1e-4)


@pytest.mark.parametrize("output", ["o.csv.gz", "o.jsonl.gz", "o.parquet"])
def test_the_same_predictions_are_the_same_bytes_at_any_time(model, tmp_path, output, monkeypatch):
    write(tmp_path / "i.csv", ROWS)
    found = []
    for now in (1e9, 2e9):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        predict_file(model, ["topic"], tmp_path / "i.csv", tmp_path / output)
        found.append((tmp_path / output).read_bytes())
    assert found[0] == found[1]


def test_a_text_file_has_a_sentence_a_line_or_a_pair_with_a_tab(model, tmp_path, predicted, caplog):
    texts = ["Who made it?", "Why?"]
    (tmp_path / "i.txt").write_text("\n".join(texts))
    labels = [prediction.label for prediction in model.predict("topic", texts)]
    assert [(row["text"], row["topic"]) for row in predicted(["topic"], "i.txt")] == [*zip(texts, labels, strict=True)]
    (tmp_path / "i.txt").write_text("a film\ta movie\n\tone side is empty\r\nthe other one is\t\n")
    found = [(row["sentence1"], row["sentence2"]) for row in predicted(["similar"], "i.txt")]
    assert found == [("a film", "a movie"), ("", "one side is empty"), ("the other one is", "")]
    assert "predicted 2 rows with an empty text (lines 2, 3)" in caplog.text


def test_a_text_file_with_a_separator_is_a_table(model, tmp_path, predicted):
    """The tasks read their own columns, not all of them."""
    (tmp_path / "i.txt").write_text("one;two;question\na film;a movie;Why?\n")
    (row,), (same,) = (predicted(tasks, "i.txt", separator=";") for tasks in (["topic", "same"], ["same"]))
    assert row["same_probability"] == same["same_probability"]
    for name, text in (("topic", "Why?"), ("same", ("a film", "a movie"))):
        expected = model.predict(name, [text])[0].probability
        assert float(row[f"{name}_probability"]) == pytest.approx(expected, abs=1e-5)


def test_a_text_file_is_a_table_if_it_begins_as_one_of_any_task(model, tmp_path, predicted):
    """The tasks' own files have different separators."""
    for name, separator in (("topic", ";"), ("tags", "|"), ("stars", None)):
        model.tasks[name] = with_files(model.tasks[name], format=Format(separator=separator))
    for separator in (";", "|"):
        (tmp_path / "i.txt").write_text(f"id{separator}question\n1{separator}Why?\n")
        (row,) = predicted(["topic", "tags", "stars"], "i.txt")
        assert (row["id"], row["question"]) == ("1", "Why?")


def test_a_tasks_words_stand_around_the_column_that_is_named_and_around_lines(model, tmp_path, predicted):
    texts = [row["question"] for row in ROWS]
    asked, again, twice = (
        [p.probability for p in model.predict("topic", [form.format(text) for text in texts])]
        for form in ("ask: {}", "ask: {0}: {0}", "ask: {0} {0}")
    )
    model.tasks["topic"] = with_files(model.tasks["topic"], text=("ask: {question}",))
    pandas.DataFrame({"question": texts, "other": texts}).to_csv(tmp_path / "i.csv", index=False)
    (tmp_path / "i.txt").write_text("\n".join(texts))
    files = [("i.txt", (), asked), *(("i.csv", columns, asked) for columns in [(), ("other",)])]
    files += [("i.csv", ("{question}: {other}",), again), ("i.csv", ("question", "other"), twice)]
    for name, columns, expected in files:
        found = [float(row["topic_probability"]) for row in predicted(["topic"], name, columns=columns)]
        assert found == pytest.approx(expected, abs=1e-5)
    assert asked != pytest.approx(twice, abs=1e-3)


def test_each_task_has_its_own_missing_values_in_a_file_as_in_a_frame(model, tmp_path, predicted):
    """The first task has none, and the last one shares the columns of the first."""
    model.tasks["tags"] = with_files(model.tasks["tags"], format=Format(missing=("n/a",)))
    frame = pandas.DataFrame([{"question": text, "one": "a", "two": "b"} for text in ("n/a", "Who?", "")])
    frame.to_csv(tmp_path / "i.csv", index=False)
    found = pandas.DataFrame(predicted([], "i.csv", "o.jsonl", probabilities=True))
    expected = model.predict_frame(frame, probabilities=True)
    assert list(found) == list(expected)
    of_tags, of_topic = ([name for name in found if name.startswith(f"{task}_")] for task in ("tags", "topic"))
    numbers = {"tags": found[of_tags], "topic": found[of_topic]}
    apart = {task: of.select_dtypes("number").iloc[[0, 2]].diff().abs().max(axis=None) for task, of in numbers.items()}
    assert apart["tags"] < 1e-6 < 1e-4 < apart["topic"]  # batches differ by rounding
    pandas.testing.assert_frame_equal(found[of_tags + of_topic], expected[of_tags + of_topic], atol=1e-5)


def test_one_and_several_labels_are_shown_as_their_tasks_say(model, tmp_path, predicted):
    model.tasks["topic"] = replace(model.tasks["topic"], shown=("short", "long", "thing"))
    model.tasks["tags"] = replace(model.tasks["tags"], shown=("first", "second"), thresholds=(-1, 2))
    write(tmp_path / "i.csv", [{"question": "Who?"}])
    (row,) = predicted([], "i.csv", "o.jsonl", probabilities=True)
    assert row["tags"] == ["first"]
    assert row["topic"] in ("short", "long", "thing")
    assert row[f"topic_probability_{row['topic']}"] == row["topic_probability"]
    assert {"tags_probability_first", "tags_probability_second"} < row.keys()


def test_labels_that_contain_the_sign_between_labels_are_told_apart(tmp_path):
    rows = [("a", "b"), ("a|b", "c"), ()]
    with table_writer(tmp_path / "o.csv", ["tags"]) as write_rows:
        write_rows([{"tags": row} for row in rows])
    written = [row["tags"] for row in csv.DictReader((tmp_path / "o.csv").open())]
    assert written == ["a|b", '["a|b", "c"]', ""]


@pytest.mark.parametrize("name", ["o.csv", "o.tsv"])
def test_a_carriage_return_in_a_text_ends_no_row(model, tmp_path, name):
    texts = ["one\rtwo", "\r", "a\r\n", "b\r\nc"]
    write(tmp_path / "i.jsonl", [{"question": text} for text in texts])
    predict_file(model, ["topic"], tmp_path / "i.jsonl", tmp_path / name)
    with (tmp_path / name).open(newline="") as file:
        assert file.readline().endswith("topic_probability\n")
        rows = list(csv.reader(file, delimiter=SEPARATORS[Path(name).suffix]))
    assert [row[0] for row in rows] == texts
    assert list(pandas.read_csv(tmp_path / name, sep=SEPARATORS[Path(name).suffix])["question"]) == texts


def test_without_names_the_tasks_that_the_file_fits_are_predicted(model, tmp_path, predicted, caplog):
    (tmp_path / "i.txt").write_text("Who made it?\n")
    singles = {name for name, task in model.tasks.items() if not task.pair}
    assert {"topic"} <= singles <= predicted([], "i.txt")[0].keys()
    assert "not predicted: same, which reads one, two" in caplog.text
    (tmp_path / "i.csv").write_text("one,two\na film,a movie\n")
    assert not singles & predicted([], "i.csv")[0].keys()


@pytest.mark.parametrize(
    ("row", "tasks", "columns", "message"),
    [
        ({}, ["topic", "same"], ("one",), "same reads 2 columns of text"),
        ({}, ["topic"], ("body",), "i.jsonl: no column body; the columns are"),
        ({}, ["topics"], (), 'no task "topics"'),
        ({"question": 3}, ["topic"], (), "i.jsonl:6: question is 3"),
        ({"topic": "mine"}, ["topic"], (), "i.jsonl:6: has the column topic already"),
    ],
)
def test_a_file_that_cannot_be_predicted_is_named_and_leaves_nothing(
    model, tmp_path, monkeypatch, row, tasks, columns, message
):
    monkeypatch.setattr(read_tables, "ROWS_PER_BATCH", 1)  # so that the last row is not known when the file is opened
    write(tmp_path / "i.jsonl", [*ROWS, {**ROWS[0], **row}])
    with pytest.raises(InputError, match=message):
        predict_file(model, tasks, tmp_path / "i.jsonl", tmp_path / "o.csv", columns)
    assert [path.name for path in tmp_path.iterdir()] == ["i.jsonl"]


def test_a_row_that_cannot_be_read_is_found_before_anything_is_computed(model, tmp_path, monkeypatch):
    (tmp_path / "i.csv").write_text("question,note\n" + "Who?,\n" * 9 + "Why?\n")
    monkeypatch.setattr(module, "predict_columns", None)
    with pytest.raises(InputError, match=r"i\.csv:11: "):
        predict_file(model, ["topic"], tmp_path / "i.csv", tmp_path / "o.csv")


@pytest.mark.parametrize("output", ["o.csv", "o.parquet"])
def test_a_column_that_the_first_rows_lack_is_never_dropped(tmp_path, predicted, output, monkeypatch):
    write(tmp_path / "i.jsonl", [ROWS[0], {**ROWS[1], "extra": "1"}])
    assert [row["extra"] or None for row in predicted(["topic"], "i.jsonl", output)] == [None, "1"]
    monkeypatch.setattr(read_tables, "ROWS_PER_BATCH", 1)  # the columns are those of the first so many rows
    with pytest.raises(InputError, match="a row has the column extra"):
        predicted(["topic"], "i.jsonl", output)
    assert predicted(["topic"], "i.jsonl", "o.jsonl")[1]["extra"] == "1"


@pytest.mark.parametrize(
    ("notes", "output", "message"),
    [
        ([1, 2, "three"], "o.parquet", "no common type in parquet"),
        ([10**30], "o.parquet", "no common type in parquet"),
        ([1, float("inf")], "o.jsonl", "row 2: note is Infinity, which JSON cannot hold"),
    ],
)
def test_what_a_format_cannot_hold_is_refused(model, tmp_path, notes, output, message):
    write(tmp_path / "i.jsonl", [{**ROWS[0], "note": note} for note in notes])
    with pytest.raises(InputError, match=message):
        predict_file(model, ["topic"], tmp_path / "i.jsonl", tmp_path / output)
    assert not (tmp_path / output).exists()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([2**64 - 1, None, 3], pyarrow.uint64()),
        ([[("k", 1)], [], None], pyarrow.map_(pyarrow.string(), pyarrow.int64())),
        ([{"x": 1}, None, {"x": None}], pyarrow.struct({"x": pyarrow.int8()})),
        ([datetime.date(2020, 1, 1), None, None], pyarrow.date32()),
    ],
    ids=str,
)
@pytest.mark.parametrize("output", ["o.parquet", "o.PARQUET"])
def test_columns_of_parquet_keep_their_types_and_values(model, tmp_path, values, kind, output):
    table = pyarrow.table({"question": ["Who?", "Why?", ""], "kept": pyarrow.array(values, kind)})
    pyarrow.parquet.write_table(table, tmp_path / "i.parquet")
    predict_file(model, ["topic"], tmp_path / "i.parquet", tmp_path / output)
    assert pyarrow.parquet.read_table(tmp_path / output).select(["question", "kept"]).equals(table)


def test_labels_that_begin_after_the_first_block_are_written_to_parquet(tmp_path, predicted, monkeypatch):
    write(tmp_path / "i.csv", ROWS)
    found = [Prediction(labels=labels) for labels in ((), (), ("a",), ("a", "b"), ())]
    answers = iter([{"tags": found[:2]}, {"tags": found[2:4]}, {"tags": found[4:]}])
    monkeypatch.setattr(module, "predict_columns", lambda *_: next(answers))
    assert [row["tags"] for row in predicted(["tags"], "i.csv", "o.parquet")] == [[], [], ["a"], ["a", "b"], []]


@pytest.mark.parametrize("output", ["o.csv", "o.parquet"])
def test_a_file_without_rows_gives_a_table_without_rows(model, tmp_path, output):
    (tmp_path / "i.csv").write_text("question,note\n")
    assert predict_file(model, ["topic"], tmp_path / "i.csv", tmp_path / output) == 0
    assert read(tmp_path / output) == []


def test_parquet_is_written_to_standard_output_as_jsonl(model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    day = datetime.date(2024, 2, 29)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"question": "Who?", "day": day}]), tmp_path / "i.parquet")
    predict_file(model, ["topic"], tmp_path / "i.parquet", Path("-"))
    assert json.loads(capsys.readouterr().out)["day"] == "2024-02-29"
    assert [path.name for path in tmp_path.iterdir()] == ["i.parquet"]


def test_the_order_of_a_pairs_columns_is_that_of_the_task_or_of_the_options(tiny_encoder, tmp_path):
    task = task_of("d", {"kind": "pair_regression", "text": ["sentence2", "sentence1"], "label": "far"})
    torch.manual_seed(0)
    model = MultitaskModel(SentenceEncoder.read(tiny_encoder, "mean"), {"d": task}, HeadsConfig(pairs="joint")).eval()
    (tmp_path / "i.csv").write_text("sentence1,sentence2\na film,good time\n")
    one, other = (p.value for p in model.predict("d", [("a film", "good time"), ("good time", "a film")]))
    assert abs(one - other) > 1e-4
    for columns, expected in (((), other), (("sentence1", "sentence2"), one)):
        predict_file(model, ["d"], tmp_path / "i.csv", tmp_path / "o.csv", columns)
        assert float(read(tmp_path / "o.csv")[0]["d"]) == pytest.approx(expected, abs=1e-5)


def test_the_command_reads_standard_input_from_a_pipe_and_writes_standard_output(model, tmp_path, monkeypatch):
    """In UTF-8, as files, whatever the locale."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii"))
    model.save(tmp_path / "model")
    reading, writing = os.pipe()
    own = os.dup(0)
    os.write(writing, "question\nWho made café ☃?\n".encode())
    os.close(writing)
    os.dup2(reading, 0)
    arguments = ["predict", "--model", str(tmp_path / "model"), "--task", "topic", "--input", "-"]
    try:
        assert main([*arguments, "--input-format", "csv", "--precision", "fp32"]) == 0
    finally:
        os.dup2(own, 0)
        os.close(own)
        os.close(reading)
    header, row = written.getvalue().decode().splitlines()
    assert header == "question,topic,topic_probability"
    assert row.split(",")[:2] == ["Who made café ☃?", model.predict("topic", ["Who made café ☃?"])[0].label]


def test_memory_does_not_grow_with_the_file(model, tmp_path, monkeypatch):
    """At most one block of rows is in memory when it is written."""
    with (tmp_path / "i.csv").open("w") as file:
        file.write("question\n" + "Who?\n" * 25)
    sizes = []

    @contextmanager
    def writer(*_):
        yield lambda rows: sizes.append(len(rows))

    monkeypatch.setattr(module, "table_writer", writer)
    predict_file(model, ["topic"], tmp_path / "i.csv", tmp_path / "o.csv")
    assert sizes == [2] * 12 + [1]


def test_a_long_file_says_how_many_rows_are_done_and_not_on_standard_output(
    model, tmp_path, monkeypatch, caplog, capsys
):
    caplog.set_level("INFO")
    write(tmp_path / "i.csv", ROWS[:4])
    predict_file(model, [], tmp_path / "i.csv", Path("-"))
    assert caplog.messages == []  # it takes less than ten seconds
    expected = capsys.readouterr()
    ticks = count(step=20.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks))
    predict_file(model, [], tmp_path / "i.csv", Path("-"))
    assert capsys.readouterr() == expected
    shown = r"(\d+) of 4 rows, [\d.]+ rows/s, \d min \d\d s left"
    done = [float(re.fullmatch(shown, line)[1]) for line in caplog.messages]
    assert len(done) >= 4  # each block has two passes: of the single texts, and of the pairs
    assert done == sorted(done)
    assert done[-1] == 4


def test_nested_values_stay_json_in_csv_and_numbers_that_are_none_are_no_json(model, tmp_path, predicted):
    nested = {"list": ["a", "b"], "object": {"x": [1, None], "y": "é"}}
    write(tmp_path / "i.jsonl", [{"question": "Who?", "flag": True, "nothing": None, **nested}])
    (row,) = predicted(["tags"], "i.jsonl")
    assert {name: json.loads(row[name]) for name in nested} == nested
    assert (row["nothing"], row["flag"]) == ("", "True")  # the name that such a label has
    numbers = [{"question": "Who?", "price": float("nan"), "parts": [1.5, float("nan")]}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(numbers), tmp_path / "i.parquet")
    predict_file(model, ["topic"], tmp_path / "i.parquet", tmp_path / "o.jsonl")

    def no_number(text):
        pytest.fail(f"{text} is no JSON")

    row = json.loads((tmp_path / "o.jsonl").read_text(), parse_constant=no_number)
    assert (row["price"], row["parts"]) == (None, [1.5, None])


def test_empty_texts_are_counted_and_their_rows_named(model, tmp_path, caplog):
    write(tmp_path / "i.csv", [{"question": text} for text in ("Who?", " ", "Why?", "a", "\u200b\u200d", "b")])
    predict_file(model, ["topic", "stars"], tmp_path / "i.csv", tmp_path / "o.csv")
    (message,) = caplog.messages
    assert message == f"{tmp_path / 'i.csv'}: predicted 2 rows with an empty text (lines 3, 6)"
    caplog.clear()
    model.predict("topic", ["Who?", "\ufeff", " "])
    model.predict("same", [("a", "b"), ("a", "")])
    assert caplog.messages == [
        "predicted 2 rows with an empty text (rows 1, 2, counted from 0)",
        "predicted 1 row with an empty text (row 1, counted from 0)",
    ]


def test_texts_that_the_tokenizer_cannot_read_are_counted_once(model, tmp_path, caplog):
    write(tmp_path / "i.csv", [{"question": text} for text in ("\u1781", "Who?", "\u1782 \u1783", "\u1784", "", "b")])
    predict_file(model, ["topic", "stars"], tmp_path / "i.csv", tmp_path / "o.csv")
    assert [message for message in caplog.messages if "unknown" in message] == [
        f"{tmp_path / 'i.csv'}: most tokens of 3 of 6 texts are unknown ([UNK]), so the model can hardly tell these "
        "texts apart; take a model whose vocabulary has their script"
    ]
    caplog.clear()
    model.predict("topic", pandas.DataFrame({"question": ["\u1781", "Who?"]}))
    model.predict("topic", ["Who?"])
    model.predict("same", [("Who?", "\u1781")])
    assert [message.partition(" are")[0] for message in caplog.messages] == [
        "the data frame: most tokens of 1 of 2 texts",
        "predicted texts: most tokens of 1 of 2 texts",
    ]


def test_texts_are_counted_once_although_heads_read_them_alone_and_jointly(tiny_encoder, caplog):
    model = model_of_every_kind(tiny_encoder, HeadsConfig(pairs="joint", similarity_pairs="embeddings"))
    assert {model.reads_jointly(name) for name in ("same", "similar")} == {True, False}
    model.predict_all([("Who?", "\u1781"), ("Why?", "b")])
    assert caplog.messages[-1].startswith("predicted texts: most tokens of 1 of 4 texts")


# Prediction files of dev and test sets.


def declaration(name: str, kind: str, label: str, more: str = "") -> str:
    head = f'[tasks.{name}]\nkind = "{kind}"\ntext = "question"\nlabel = "{label}"\n'
    return f'{head}train = "x.csv"\ndev = "x.csv"\n{more}'


def test_a_task_without_a_test_set_has_a_file_for_its_dev_set_only(tiny_encoder, tmp_path):
    whole = model_of_every_kind(tiny_encoder)
    tasks = {name: whole.tasks[name] for name in ("topic", "stars")}
    model = MultitaskModel(whole.encoder, tasks, whole.heads_config)
    model.save(tmp_path / "model")
    (tmp_path / "x.csv").write_text("question,type,stars\nWho?,ABBR,3\nWhy?,DESC,5\n")
    topic = declaration("topic", "classification", "type")
    stars = declaration("stars", "regression", "stars", 'range = [1, 5]\ntest = "x.csv"\n')
    for text, names in (
        (topic + stars, ["topic-dev", "stars-dev", "stars-test"]),
        (topic + stars.replace('test = "x.csv"', ""), ["topic-dev", "stars-dev"]),
    ):
        (tmp_path / "tasks.toml").write_text(text)
        found = write_prediction_files(tmp_path / "model", tmp_path / "tasks.toml", tmp_path / "out", device="cpu")
        assert [path.name for path in found] == [f"{name}-output.csv" for name in names]
        answers, loaded = pandas.read_csv(found[0]), MultitaskModel.load(tmp_path / "model", "cpu", "fp32")
        assert list(answers.columns) == ["id", "topic"]
        assert list(answers["topic"]) == [p.label for p in loaded.predict("topic", ["Who?", "Why?"])]


def test_the_tasks_file_names_prediction_files_also_of_a_model_whose_tasks_share_one(tiny_encoder, tmp_path):
    """Earlier versions stored such models; each file then had the predictions of the last task alone."""
    whole = model_of_every_kind(tiny_encoder)
    tasks = {name: replace(whole.tasks[name], prediction_file="same") for name in ("topic", "stars")}
    MultitaskModel(whole.encoder, tasks, whole.heads_config).save(tmp_path / "model")
    (tmp_path / "x.csv").write_text("question,type,stars\nWho?,ABBR,3\nWhy?,DESC,5\n")
    topic = declaration("topic", "classification", "type", 'prediction_file = "kinds"\n')
    (tmp_path / "tasks.toml").write_text(topic + declaration("stars", "regression", "stars", "range = [1, 5]\n"))
    found = write_prediction_files(tmp_path / "model", tmp_path / "tasks.toml", tmp_path / "out", device="cpu")
    assert [path.name for path in found] == ["kinds-dev-output.csv", "stars-dev-output.csv"]
    first, second = (path.read_text().splitlines() for path in found)
    assert first[0].split() == ["id", "topic"]
    assert [line.split(" , ")[1].strip() in whole.tasks["topic"].names for line in first[1:]] == [True, True]
    assert [1 <= float(line.split(",")[1]) <= 5 for line in second[1:]] == [True, True]


@pytest.mark.parametrize("suffix", [".csv", ".txt"])
def test_a_file_is_read_as_the_models_declaration_or_a_tasks_file_says(tiny_encoder, tmp_path, caplog, suffix):
    """The format is the one that spreadsheets write in much of Europe."""
    written = 'encoding = "cp1252"\ndecimal = ","\nmissing = ["n/a"]\nseparator = ";"\n'
    topic = declaration("topic", "classification", "type", written).replace(".csv", suffix)
    (tmp_path / "tasks.toml").write_text(topic)
    whole = model_of_every_kind(tiny_encoder)
    whole.save(tmp_path / "plain")
    declared = replace(load_tasks(tmp_path / "tasks.toml")["topic"], labels=whole.tasks["topic"].labels)
    MultitaskModel(whole.encoder, {"topic": declared}, whole.heads_config).save(tmp_path / "model")
    (tmp_path / f"new{suffix}").write_text("question;type\nCaf\u00e9?;ABBR\nn/a;DESC\nWhy?;DESC\n", encoding="cp1252")
    (tmp_path / "lines.txt").write_text("Caf\u00e9; question?\n", encoding="utf-8")

    def run(command: str, model: str, source: str, output: str, *more: str) -> int:
        files = ["--model", tmp_path / model, "--input", tmp_path / source, "--output", tmp_path / output]
        return main([command, *map(str, files), *more, *FP32])

    assert run("predict", "model", f"new{suffix}", "o.jsonl") == 0
    assert [row["question"] for row in read(tmp_path / "o.jsonl")] == ["Caf\u00e9?", "n/a", "Why?"]
    assert "predicted 1 row with an empty text (line 3)" in caplog.text
    assert run("evaluate", "model", f"new{suffix}", "s.json") == 0
    assert "left out 1 row without a label or a sentence (line 3)" in caplog.text
    for command, output in (("predict", "o.csv"), ("evaluate", "of-plain.json")):
        if (command, suffix) != ("predict", ".txt"):  # which are sentences then
            assert run(command, "plain", f"new{suffix}", output, "--task", "topic") == 2
        tasks = str(tmp_path / "tasks.toml")
        assert run(command, "plain", f"new{suffix}", output, "--task", "topic", "--tasks-file", tasks) == 0
    assert run("predict", "model", "lines.txt", "o.jsonl") == 0  # without the columns' names, a line is a sentence
    assert read(tmp_path / "o.jsonl")[0]["text"] == "Caf\u00e9; question?"


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_a_declared_encoding_of_jsonl_holds_for_files_of_jsonl_alone(tiny_encoder, tmp_path, encoding):
    row = json.dumps({"question": "Caf\u00e9?", "type": "ABBR"}, ensure_ascii=False)
    (tmp_path / "x.jsonl").write_text(row, encoding=encoding)
    (tmp_path / "new.csv").write_text("question,type\nCaf\u00e9?,ABBR\n", encoding="utf-8")
    declared = declaration("topic", "classification", "type", f'encoding = "{encoding}"\n').replace(".csv", ".jsonl")
    (tmp_path / "tasks.toml").write_text(declared)
    whole = model_of_every_kind(tiny_encoder)
    whole.save(tmp_path / "plain")
    task = replace(load_tasks(tmp_path / "tasks.toml")["topic"], labels=whole.tasks["topic"].labels)
    MultitaskModel(whole.encoder, {"topic": task}, whole.heads_config).save(tmp_path / "model")
    of_file = ["--tasks-file", str(tmp_path / "tasks.toml")]
    for model, more in (("model", []), ("plain", ["--task", "topic", *of_file])):
        for source in ("x.jsonl", "new.csv"):
            options = ["--model", str(tmp_path / model), "--input", str(tmp_path / source), *more, *FP32]
            assert main(["predict", *options, "--output", str(tmp_path / "o.jsonl")]) == 0
            assert [row["question"] for row in read(tmp_path / "o.jsonl")] == ["Caf\u00e9?"]
            assert main(["evaluate", *options, "--output", str(tmp_path / "s.json")]) == 0


def of_files(tiny_encoder, folder, **tasks):
    """A model with classifications of these names, each with the fields of its declaration, as it is saved and read."""
    head = 'kind = "classification"\nlabel = "type"\n'
    lines = [
        f"[tasks.{name}]\n{head}" + "".join(f"{n} = {json.dumps(v)}\n" for n, v in more.items())
        for name, more in tasks.items()
    ]
    (folder / "tasks.toml").write_text("".join(lines))
    whole = model_of_every_kind(tiny_encoder)
    labels = whole.tasks["topic"].labels
    declared = {name: replace(task, labels=labels) for name, task in load_tasks(folder / "tasks.toml").items()}
    MultitaskModel(whole.encoder, declared, HeadsConfig()).save(folder / "model")
    return MultitaskModel.load(folder / "model", "cpu", "fp32"), declared


XLSX, CSV = {"text": "question", "train": "s.xlsx"}, {"text": "question", "train": "s.csv"}
DATA = {"sheet": "Data"}
DIFFERENT = "a and b declare different"


@pytest.mark.parametrize("with_tasks_file", [False, True])
@pytest.mark.parametrize(
    ("a", "b", "source", "tasks", "found"),
    [
        (XLSX | DATA, CSV, "s.xlsx", [], ["a", "b"]),  # csv has no sheet
        (XLSX | DATA | {"skip_rows": 1}, CSV, "t.xlsx", [], ["a", "b"]),
        (XLSX | DATA, XLSX | {"text": "other"}, "s.xlsx", [], ["a"]),
        (XLSX | DATA, XLSX, "s.xlsx", [], f"{DIFFERENT} sheet"),
        (XLSX | DATA, XLSX, "s.xlsx", ["a"], ["a"]),
        (CSV | {"quotes": False}, CSV | {"text": "other"}, "s.csv", [], ["a"]),
        (CSV | {"quotes": False}, CSV, "s.csv", [], f"{DIFFERENT} quotes"),
        (CSV | {"quotes": False}, CSV, "s.csv", ["a"], ["a"]),
        (CSV | {"quotes": False, "separator": ","}, XLSX | {"skip_rows": 1}, "s.csv", [], ["a", "b"]),
        (
            CSV | {"quotes": False, "encoding": "UTF8"},
            CSV | {"quotes": False, "separator": ","},
            "s.csv",
            [],
            ["a", "b"],
        ),
    ],
)
def test_a_file_is_read_as_those_tasks_say_that_can_say_it(
    tiny_encoder, tmp_path, with_tasks_file, a, b, source, tasks, found
):
    book = pytest.importorskip("openpyxl").Workbook()
    book.active.append(["question", "note"])
    book.active.append(["of the first sheet", ""])
    sheet = book.create_sheet("Data")
    for row in [["above"]] * source.startswith("t") + [["question"], ['"Who" is it?']]:
        sheet.append(row)
    book.save(tmp_path / source.replace(".csv", ".xlsx"))
    (tmp_path / "s.csv").write_text('question\n"Who" is it?\n')
    model, declared = of_files(tiny_encoder, tmp_path, a=a, b=b)
    how = {"declared": declared} if with_tasks_file else {}
    if isinstance(found, str):
        with pytest.raises(InputError, match=rf"{source}: {found}; name one with --task"):
            predict_file(model, tasks, tmp_path / source, tmp_path / "o.jsonl", **how)
        return
    predict_file(model, tasks, tmp_path / source, tmp_path / "o.jsonl", **how)
    [row] = read(tmp_path / "o.jsonl")
    assert row["question"] == '"Who" is it?'
    assert [name for name in "ab" if name in row] == found
    assert row["a"] == model.predict("a", ['"Who" is it?'])[0].label


def test_a_missing_text_is_an_empty_one_everywhere(model, tmp_path, caplog):
    (tmp_path / "i.jsonl").write_text('{"question": "Who?"}\n{"question": null}\n{"note": "x"}\n')
    predict_file(model, ["topic"], tmp_path / "i.jsonl", tmp_path / "o.jsonl")
    assert caplog.messages == [f"{tmp_path / 'i.jsonl'}: predicted 2 rows with an empty text (lines 2, 3)"]
    caplog.clear()
    expected = model.predict("topic", ["Who?", "", ""])
    for rows in (["Who?", None, float("nan")], pandas.DataFrame({"question": ["Who?", None, float("nan")]})):
        assert model.predict("topic", rows) == expected
    assert caplog.messages == ["predicted 2 rows with an empty text (rows 1, 2, counted from 0)"] * 3


@pytest.mark.parametrize(
    ("first", "second", "last"),
    [
        (
            {"k": 1, "parts": [{"a": 1}]},
            {"k": 2, "parts": [{"a": 1}, {"a": None}]},
            {"k": 3, "parts": [{"a": 1, "b": 2}]},
        ),
        ({"k": 1}, {"k": 2.0}, {"k": 2.75}),
        (5, 6.0, 19.99),
        (0.5, 1.0, True),
        (datetime.date(2020, 1, 1), None, datetime.datetime(2020, 1, 1, 5, 6)),
    ],
)
def test_what_the_type_of_the_first_rows_cannot_hold_is_not_lost(tmp_path, first, second, last):
    lost = pytest.raises(
        InputError, match=r"meta has a value that the type of the first rows \((int|double|struct|date).*; write"
    )
    with lost, table_writer(tmp_path / "o.parquet", ["meta"]) as write:
        write([{"meta": first}])
        write([{"meta": None}, {"meta": second}])
        write([{"meta": last}])
    assert not (tmp_path / "o.parquet").exists()


@pytest.mark.parametrize(("name", "place"), [("o.csv", "k"), ("o.jsonl", "row 1: k")])
@pytest.mark.parametrize("value", [b"\0\xff", [b"\xff"]], ids=["cell", "nested"])
def test_binary_cells_are_no_text(tmp_path, name, place, value):
    refused = pytest.raises(InputError, match=f"^{place} is binary, which text cannot hold; write parquet$")
    with refused, table_writer(tmp_path / name, ["k"]) as write:
        write([{"k": value}])


def test_two_predicted_columns_of_one_name_and_a_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match="two predicted columns are called x"):
        _check_header(OpenTable("t.csv", ("a",), iter(())), ["x", "y", "x"])
    (tmp_path / "o.csv").mkdir()
    with pytest.raises(InputError, match=r"o\.csv: a folder; expected the name of a file"):
        check_output(tmp_path / "o.csv")


@pytest.mark.parametrize(("value", "text"), [(5.0, "x costs 5"), (5, "x costs 5"), (0.5, "x costs 0.5")])
def test_numbers_in_templates_are_those_of_csv(value, text):
    assert template("x costs {a}{b}").text_of({"a": value, "b": ""}, Format()) == text
    assert template("{b} costs {a}").text_of({"a": float("nan"), "b": "x"}, Format()) == "x costs"
