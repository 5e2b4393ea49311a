"""Tasks files: every field arrives and nothing wrong is accepted. Triplets, pairs and sentences are read completely."""

import csv
import gzip
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minbert.errors import InputError
from multitask.data.tables import Format, RowsFrom
from multitask.tasks.declarations import default_tasks, files_folder, load_tasks, stored_task, task_of
from multitask.tasks.kinds import KINDS, Classification, Cosine, MultiLabel, PairClassification, Regression
from multitask.tasks.sources import Lines, Pairs, TaskTexts, Triplets, read_texts, source_named
from multitask.tasks.task import TaskFiles
from multitask.use.mine import read_pairs
from tests.conftest import COURSE_TASKS
from tests.multitask.data.test_tables import write

TOPIC = '[tasks.topic]\nkind = "classification"\ntext = "q"\nlabel = "c"\ntrain = "train.csv"\n'


def declare(folder: Path, text: str) -> Path:
    path = folder / "tasks.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_field_arrives(tmp_path):
    path = declare(
        tmp_path,
        """
[tasks.topic]
kind = "pair_classification"
text = ["premise", "hypothesis"]
label = "type"
labels = ["no", 1, 2.0, 0.5, true]
train = "data/train.jsonl"
dev = { file = "dev.parquet", split = "valid" }
test = "/somewhere/test.csv"
metric = "macro_f1"
weight = 2
id = "number"
separator = ";"
quotes = false
class_weights = [1, 2, 3.5, 4, 5]
prediction_file = "file"
prediction_column = "Column"

[tasks.stars]
kind = "regression"
text = "review"
label = "stars"
train = "reviews.csv"
range = [1, 5]
metric = "rmse"
dev_share = 0.2
line_breaks = true

[tasks.marks]
kind = "multilabel"
text = ["review"]
label = ["price", "quality"]
train = "reviews.csv"
class_weights = "balanced"
""",
    )
    topic, stars, marks = load_tasks(path).values()
    wrote = tomllib.loads(path.read_text())["tasks"]["topic"]
    assert (type(topic), topic.kind) == (PairClassification, wrote.pop("kind"))
    assert topic.files.splits == {
        "train": RowsFrom(str(tmp_path / "data/train.jsonl")),
        "dev": RowsFrom(str(tmp_path / "dev.parquet"), "valid"),
        "test": RowsFrom("/somewhere/test.csv"),
    }
    assert topic.names == ("no", "1", "2", "0.5", "True")
    read = vars(topic.files.format) | vars(topic.files) | vars(topic)
    kept = {name: read[name] for name in wrote.keys() - {"train", "dev", "test"}}
    lists = {"text": ("premise", "hypothesis"), "labels": ("no", 1, 2.0, 0.5, True)}
    assert kept == {name: wrote[name] for name in kept} | lists | {"class_weights": (1, 2, 3.5, 4, 5)}
    reviews: Any = {"text": ("review",), "train": RowsFrom(str(tmp_path / "reviews.csv"))}
    files = TaskFiles(label="stars", dev_share=0.2, format=Format(line_breaks=True), **reviews)
    assert stars == Regression(name="stars", files=files, range=(1.0, 5.0), metric="rmse")
    columns = ("price", "quality")
    files = TaskFiles(label=columns, **reviews)
    assert marks == MultiLabel(name="marks", files=files, class_weights="balanced")
    assert marks.labels == columns
    assert default_tasks(path) == ("topic", "stars", "marks")
    assert files_folder(path) == tmp_path


def test_defaults_of_each_kind():
    metrics = {"classification": "accuracy", "pair_classification": "accuracy", "multilabel": "macro_f1"}
    for kind in KINDS:
        pair = kind.startswith("pair_") or kind == "cosine"
        task = task_of("x", {"kind": kind, "text": ["a", "b"] if pair else "a", "label": "c"})
        assert (task.kind, task.metric) == (kind, metrics.get(kind, "pearson"))
        assert task.weight == 1.0
        assert task.files == TaskFiles(text=("a", "b") if pair else ("a",), label="c", dev_share=0.1)
        assert isinstance(task, Cosine) == (getattr(task, "range", None) == (0, 1))


def test_sources(tmp_path):
    (tmp_path / "saved").mkdir()
    whole, hub = str(tmp_path / "all.csv"), "hf:glue/mrpc"
    sources = {
        'file = "all.csv"': [RowsFrom(whole, split) for split in ("train", "dev", "test")],
        'file = "all.csv"\ndev = "d.csv"': [
            RowsFrom(whole, "train"),
            RowsFrom(str(tmp_path / "d.csv")),
            RowsFrom(whole, "test"),
        ],
        'train = "all.csv"\nsplit = "fit"': [RowsFrom(whole, "fit"), None, None],
        f'train = "{hub}"\ndev = {{ file = "{hub}", split = "validation" }}': [
            RowsFrom(hub, "train"),
            RowsFrom(hub, "validation"),
            None,
        ],
        'train = "hf:saved"': [RowsFrom(f"hf:{tmp_path / 'saved'}", "train"), None, None],
    }
    for text, expected in sources.items():
        task = load_tasks(declare(tmp_path, TOPIC.replace('train = "train.csv"', text)))["topic"]
        assert [task.files.train, task.files.dev, task.files.test] == expected


@pytest.mark.parametrize(
    "field",
    [
        *('name = "other"', "weight = true", "weight = nan", "weight = inf", 'weight = ""', "id = 3", "quotes = 1"),
        *("labels = [[1], [2]]", 'labels = ["a", " "]', "labels = [1, nan]", 'class_weights = "balance"'),
        *("temperature = 0.0", 'metric = ["accuracy"]', 'separator = ""', "separator = '\"'", "dev = 3", 'dev = ""'),
        *(
            'encoding = "latin9000"',
            'decimal = ";"',
            'aliases = { a = " " }',
            'aliases = { a = "b", b = "c" }',
            "skip_rows = 9999999999",
        ),
        *('dev.splits = "b"', "dev.file = 1", 'dev = "a\\u0000b"', "dev_share = 2024-01-01", "dev_share = 1.0"),
    ],
)
def test_a_wrong_field_is_named(tmp_path, field):
    path = declare(tmp_path, f"{TOPIC}{field}\n")
    with pytest.raises(InputError) as caught:
        load_tasks(path)
    assert str(caught.value).startswith(f"{path}: tasks.topic: ")
    assert field.replace(".", " ").split()[0] in str(caught.value)


@pytest.mark.parametrize("field", ["aliases.x = 'a'", "label_separator = ','"])
def test_a_field_without_effect_is_refused(tmp_path, field):
    declared = f"{TOPIC}{field}\n".replace("classification", "multilabel").replace('"c"', '["a", "b"]')
    with pytest.raises(InputError, match=rf"tasks\.topic: {re.split('[ .]', field)[0]} has no effect .*; leave it out"):
        load_tasks(declare(tmp_path, declared))


@pytest.mark.parametrize(("first", "second"), [("same", "same"), (None, "topic")])
def test_two_tasks_do_not_write_one_prediction_file(tmp_path, first, second):
    tables = [TOPIC, TOPIC.replace("topic", "mood")]
    tables = [
        t + f'prediction_file = "{file}"\n' * (file is not None)
        for t, file in zip(tables, (first, second), strict=True)
    ]
    stem = first or "topic"
    for both in (tables, tables[::-1]):
        path = declare(tmp_path, "".join(both))
        with pytest.raises(InputError) as caught:
            load_tasks(path)
        names = ("mood", "topic") if both is tables else ("topic", "mood")
        expected = f"tasks.{names[0]}: {stem}-dev-output.csv would have the predictions of {names[1]}, too"
        assert str(caught.value) == f"{path}: {expected}; set another prediction_file"


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("classification", "temperature = 3.0"),
        ("regression", "learned_range = [0, 9]"),
        ("multilabel", "thresholds = []"),
    ],
)
def test_what_training_finds_is_refused_in_a_tasks_file(tmp_path, kind, field):
    declared = f"{TOPIC}{field}\n".replace("classification", kind)
    with pytest.raises(InputError, match=rf"tasks\.topic: {field.split()[0]} is found by training.*; leave it out"):
        load_tasks(declare(tmp_path, declared))


@pytest.mark.parametrize(
    ("declaration", "problem"),
    [
        (3, "kind is missing"),
        ({"kind": ["classification"], "text": "q", "label": "c"}, "kind is ['classification']"),
        ({"kind": "multilabel", "text": "q", "label": ["a", "b"], "labels": ["b", "a"]}, "labels are named by"),
        ({"kind": "multilabel", "text": "q", "label": ["a", "b"], "thresholds": [0.5]}, "thresholds are [0.5]"),
        ({"kind": "multilabel", "text": "q", "label": "a", "label_separator": ""}, 'label_separator is ""'),
        *(
            ({"kind": "classification", "text": "q", "label": "c", "prediction_file": f}, f'prediction_file is "{f}"')
            for f in ("../x", "a/b", "")
        ),
        *(
            ({"kind": "regression", "text": "q", "label": "c", name: bounds}, f"{name} is [{bounds[0]:.1f}, ")
            for name, bounds in (("learned_range", [2, 1]), ("range", [1, 1 + 2**-40]), ("range", [0, 1e39]))
        ),
    ],
)
def test_a_wrong_declaration_is_named(declaration, problem):
    with pytest.raises(InputError) as caught:
        task_of("topic", declaration)
    assert str(caught.value).startswith(f"tasks.topic: {problem}")
    for name in ("overall", "../x", "-x", "a.b", ""):  # names of tasks are names of files
        with pytest.raises(InputError, match="expected a name of letters"):
            task_of(name, {"kind": "classification", "text": "q", "label": "c"})


def test_a_model_keeps_everything_but_where_the_rows_come_from(tmp_path):
    path = declare(tmp_path, TOPIC + 'labels = [1, "b"]\nmetric = "matthews"\nweight = 3\nid = "i"\nseparator = ";"\n')
    task = load_tasks(path)["topic"]
    kept = json.loads(json.dumps(task.declaration()))
    kind = {"kind": "classification", "text": ["q"], "label": "c"}
    assert kept == {**kind, "labels": ["1", "b"], "metric": "matthews", "id": "i"}
    again = task_of("topic", kept)
    files = TaskFiles(text=("q",), label="c", id="i")
    assert again == Classification(name="topic", files=files, labels=("1", "b"), metric="matthews")
    assert again.declaration() == kept


@pytest.mark.parametrize(
    ("file", "more", "form"),
    [("x.jsonl", "", ".jsonl"), ("x.xlsx", "", ".xlsx"), ("x.csv", "", None), ("x.txt", 'separator = "|"', None)],
)
def test_a_model_keeps_the_format_of_a_training_file_that_is_no_delimited_text(tmp_path, file, more, form):
    task = load_tasks(declare(tmp_path, TOPIC.replace("train.csv", file) + more))["topic"]
    kept = task.kept()
    assert kept.get("form") == form
    assert stored_task("x", kept).form == task.form == (form or "")
    assert stored_task("x", kept).kept() == kept
    with pytest.raises(InputError, match=r'tasks\.x: form is "\.doc"; expected one of'):
        stored_task("x", kept | {"form": ".doc"})
    with pytest.raises(InputError, match=r"classification has no field form"):
        task_of("x", kept | {"form": ".csv"})


def test_models_of_earlier_versions_show_what_the_labels_of_the_course_mean():
    kept = COURSE_TASKS["sentiment"].kept()
    assert stored_task("sentiment", kept) == stored_task("sentiment", kept | {"shown": []})
    assert stored_task("sentiment", kept).shown_names["4"] == "very positive"
    assert stored_task("sentiment", None) == COURSE_TASKS["sentiment"]
    own = {"kind": "classification", "text": "q", "label": "c", "labels": [0, 1, 2, 3, 4]}
    assert stored_task("sentiment", own).shown_names["4"] == "4"
    shown = {"labels": ["a", "b"], "shown": ["good", "bad"]}
    assert stored_task("x", task_of("x", own | shown).kept()).shown_names == {"a": "good", "b": "bad"}
    for texts in (["one"], ["one", "one"]):
        with pytest.raises(InputError, match=r"shown is .*; expected a different text for each of labels"):
            task_of("x", own | {"labels": ["a", "b"], "shown": texts})


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), st.lists, max_leaves=4
)
FIELDS = st.sampled_from(
    [
        *("kind", "text", "label", "labels", "metric", "weight", "range", "class_weights", "thresholds", "separator"),
        *("focal", "ordinal", "ordinal_weight", "ordinal_alpha", "x"),
    ]
)


@given(st.sampled_from([*KINDS, "x"]), st.dictionaries(FIELDS, VALUES))
def test_any_declaration_is_valid_or_refused_in_one_line(kind, values):
    pair = kind in ("pair_classification", "pair_regression", "cosine")
    try:
        task = task_of("topic", {"kind": kind, "text": ["q", "r"] if pair else "q", "label": "c", **values})
    except InputError as error:
        message = str(error)
    else:
        assert task_of("topic", task.declaration()).declaration() == task.declaration()
        return
    assert len(message.splitlines()) == 1
    assert message.startswith("tasks.topic")


@pytest.mark.parametrize("name", ["train.csv", "./train.csv"])
def test_a_file_has_its_format_once_and_a_byte_order_mark_is_no_content(tmp_path, name):
    path = tmp_path / "tasks.toml"
    stars = TOPIC.replace("topic", "stars").replace("classification", "regression")
    files = f'[files."{name}"]\nseparator = ";"\nencoding = "cp1252"\ndecimal = ","\nmissing = ["n/a", "-"]\n'
    path.write_text(TOPIC + 'dev = "dev.csv"\n' + stars + files, encoding="utf-8-sig")
    expected = Format(separator=";", encoding="cp1252", decimal=",", missing=("n/a", "-"))
    topic, other = load_tasks(path).values()
    assert topic.source("train").format == other.source("train").format == expected
    assert topic.source("dev").format is None
    of_task = 'separator = ";"\ndecimal = ","\nmissing = ["-"]\n'  # the file takes what is said of labels
    declare(tmp_path, f'{TOPIC}dev = "dev.csv"\n{of_task}[files."{name}"]\nskip_rows = 1\nmissing = []\n')
    assert load_tasks(path)["topic"].source("train").format == Format(skip_rows=1, decimal=",")
    with pytest.raises(InputError, match=r"tasks\.topic: separator: every file has a table \[files\] of its own"):
        load_tasks(declare(tmp_path, f'{TOPIC}{of_task}[files."{name}"]\nskip_rows = 1\n'))
    mistakes = {
        '"train.csv"]\nseperator = ";"': "train.csv: seperator",
        '"tran.csv"]': "tran.csv: no task reads it",
        '"hf:own/reviews"]': "hf:own/reviews: a hub data set is no file",
    }
    for table, problem in mistakes.items():
        with pytest.raises(InputError, match=rf"tasks\.toml: files\.{problem}"):
            load_tasks(declare(tmp_path, f"{TOPIC}[files.{table}\n"))


# Triplets, pairs and sentences are read completely, and problems name file and line.


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
    ("content", "place"),
    [
        (b"sent0,sent1\na,b\n", ": no column hard_neg"),
        (b"sent0,sent1,hard_neg\nfo\xfc,a,b\n", ":2: byte 0xfc at position 3"),
    ],
)
def test_bad_files_are_refused(tmp_path, content, place):
    with pytest.raises(InputError, match=rf"data\.csv{place}"):
        read_texts(write(tmp_path, content), Triplets.columns)


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


@pytest.mark.parametrize(
    ("fields", "positive"),
    [
        ("", None),  # by the alphabet, "different" is the class 0, and "same" the class 1
        ('labels = ["same", "different"]', None),
        ("labels = [0, 1]\naliases = { different = 0, same = 1 }", "same"),
        ('kind = "cosine"\nrange = [0, 5]', None),
        ('kind = "classification"', None),
    ],
)
def test_duplicates_are_the_pairs_with_the_label_1(tmp_path, fields, positive):
    names = ["0", "1", "5"] if "cosine" in fields else ["same", "different"]
    rows = "".join(f"a {i},b {i},{names[i % len(names)]}\n" for i in range(60))
    write(tmp_path, f"q,r,c\n{rows}", "train.csv")
    kind = fields if "kind" in fields else f'kind = "pair_classification"\n{fields}'
    text = '"q"' if '"classification"' in kind else '["q", "r"]'
    task = f'[tasks.paraphrase]\n{kind}\ntext = {text}\nlabel = "c"\ntrain = "train.csv"\n'
    source = source_named("quora", declare(tmp_path, task))
    if positive is None:
        with pytest.raises(InputError, match=r"quora needs pairs with the labels 0 and 1.*in tasks\.paraphrase"):
            source.rows(negative_pairs=False)
        assert len(source.sentences()) == len(text.split(",")) * 54  # whose labels do not matter; six are held out
        return
    first, _ = source.rows(negative_pairs=False).sentences
    assert {int(text[2:]) % 2 for text in first} == {names.index(positive)}


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
