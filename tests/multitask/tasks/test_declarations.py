"""Tasks files: every field arrives, nothing wrong is accepted, and a declaration survives its model."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minbert.errors import InputError
from multitask.data.tables import Source
from multitask.tasks.declarations import chosen_tasks, default_tasks, files_folder, load_tasks, task_of
from multitask.tasks.kinds import KINDS, Classification, Cosine, MultiLabel, PairClassification, Regression

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
dev_share = 0.2
metric = "macro_f1"
weight = 2
id = "number"
separator = ";"
line_breaks = true
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

[tasks.marks]
kind = "multilabel"
text = ["review"]
label = ["price", "quality"]
label_separator = ","
train = "reviews.csv"
class_weights = "balanced"
""",
    )
    topic, stars, marks = load_tasks(path).values()
    assert topic == PairClassification(
        name="topic",
        text=("premise", "hypothesis"),
        label="type",
        labels=("no", "1", "2", "0.5", "True"),
        train=Source(str(tmp_path / "data/train.jsonl")),
        dev=Source(str(tmp_path / "dev.parquet"), "valid"),
        test=Source("/somewhere/test.csv"),
        dev_share=0.2,
        metric="macro_f1",
        weight=2.0,
        id="number",
        separator=";",
        line_breaks=True,
        quotes=False,
        class_weights=(1, 2, 3.5, 4, 5),
        prediction_file="file",
        prediction_column="Column",
    )
    reviews = Source(str(tmp_path / "reviews.csv"))
    assert stars == Regression(
        name="stars", text=("review",), label="stars", train=reviews, range=(1.0, 5.0), metric="rmse"
    )
    assert marks == MultiLabel(
        name="marks",
        text=("review",),
        label=("price", "quality"),
        labels=("price", "quality"),
        label_separator=",",
        train=reviews,
        class_weights="balanced",
    )
    assert default_tasks(path) == ("topic", "stars", "marks")
    assert files_folder(path) == tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_of_each_kind(kind, tmp_path):
    text = '["a", "b"]' if kind in ("pair_classification", "pair_regression", "cosine") else '"a"'
    path = declare(tmp_path, f'[tasks.x]\nkind = "{kind}"\ntext = {text}\nlabel = "c"\ntrain = "t.csv"')
    task = load_tasks(path)["x"]
    assert task.kind == kind
    assert task.metric == {
        "classification": "accuracy",
        "pair_classification": "accuracy",
        "multilabel": "macro_f1",
    }.get(kind, "pearson")
    assert (task.dev, task.test, task.weight, task.dev_share, task.id) == (None, None, 1.0, 0.1, None)
    assert isinstance(task, Cosine) == (getattr(task, "range", None) == (0, 1))


def test_sources(tmp_path):
    (tmp_path / "saved").mkdir()
    sources = {
        'file = "all.csv"': [Source(str(tmp_path / "all.csv"), split) for split in ("train", "dev", "test")],
        'file = "all.csv"\ndev = "dev.csv"': [
            Source(str(tmp_path / "all.csv"), "train"),
            Source(str(tmp_path / "dev.csv")),
            Source(str(tmp_path / "all.csv"), "test"),
        ],
        'train = "all.csv"\nsplit = "fit"': [Source(str(tmp_path / "all.csv"), "fit"), None, None],
        'train = "hf:trec"': [Source("hf:trec", "train"), None, None],
        'train = "hf:glue/mrpc"\ndev = { file = "hf:glue/mrpc", split = "validation" }': [
            Source("hf:glue/mrpc", "train"),
            Source("hf:glue/mrpc", "validation"),
            None,
        ],
        'train = "hf:saved"': [Source(f"hf:{tmp_path / 'saved'}", "train"), None, None],
    }
    for text, expected in sources.items():
        task = load_tasks(declare(tmp_path, TOPIC.replace('train = "train.csv"', text)))["topic"]
        assert [task.train, task.dev, task.test] == expected


def test_two_tasks_of_one_name_are_refused(tmp_path):
    with pytest.raises(InputError) as caught:
        load_tasks(declare(tmp_path, TOPIC + TOPIC))
    path = tmp_path / "tasks.toml"
    assert (
        str(caught.value) == f"{path}: not valid TOML (Cannot declare ('tasks', 'topic') twice (at line 6, column 13))"
    )


@pytest.mark.parametrize(
    ("added", "problem"),
    [
        ("lable = 1", "classification has no field lable; did you mean label?"),
        ("range = [1, 2]", "classification has no field range; regression, pair_regression, cosine have it"),
        ("colour = 1", "classification has no field colour"),
        ('name = "other"', "classification has no field name"),
        ('weight = "1"', 'weight = "1"; expected a number'),
        ("weight = true", "weight = True; expected a number"),
        ("weight = nan", "weight is nan; expected a positive number"),
        ("weight = inf", "weight is inf; expected a positive number"),
        ("id = 3", "id = 3; expected text"),
        ("line_breaks = 1", "line_breaks = 1; expected true or false"),
        ("labels = [[1], [2]]", "labels = [[1], [2]]; expected a list of names or numbers"),
        ('labels = ["a", " "]', 'labels are "a", " "; expected two or more different names'),
        ("labels = [1, nan]", "labels are 1, nan; expected two or more different names"),
        ("labels = []\nclass_weights = []", "class_weights need labels"),
        ('class_weights = "balance"', 'class_weights = "balance"; expected "balanced" or a list of numbers'),
        ('labels = ["a", "b"]\nclass_weights = [1, 0]', "class_weights are 1.0, 0.0; expected positive numbers"),
        ("temperature = 0.0", "temperature is 0.0; expected a positive number"),
        ('metric = ["accuracy"]', "metric = ['accuracy']; expected one of accuracy, macro_f1, matthews"),
        ('separator = ""', 'separator is ""; expected one character'),
        ("separator = '\"'", 'separator is "\\""; expected one character'),
        ("dev = 3", 'dev is not a file; expected "FILE" or {file = "FILE", split = "NAME"}'),
        ('dev = { file = "a", splits = "b" }', 'dev is not a file; expected "FILE" or {file = "FILE", split = "NAME"}'),
        ('dev = { file = "a", split = 1 }', "the split of dev is not text"),
        ('dev = "a\\u0000b"', 'dev is "a b", a name with a control character'),
        ("weight = 2024-01-01", "has a date or a time; put it into quotes"),
    ],
)
def test_a_wrong_field_is_named(tmp_path, added, problem):
    path = declare(tmp_path, f"{TOPIC}{added}\n")
    with pytest.raises(InputError) as caught:
        load_tasks(path)
    assert str(caught.value).startswith(f"{path}: tasks.topic: {problem}")


@pytest.mark.parametrize(
    ("declaration", "problem"),
    [
        (3, "kind is missing; expected one of: classification, "),
        ({"kind": ["classification"], "text": "q", "label": "c"}, "kind is ['classification']; expected one of"),
        (
            {"kind": "multilabel", "text": "q", "label": ["a", "b"], "labels": ["b", "a"]},
            "labels are named by their col",
        ),
        ({"kind": "multilabel", "text": "q", "label": ["a"]}, 'labels are "a"; expected two or more'),
        (
            {"kind": "multilabel", "text": "q", "label": ["a", "b"], "thresholds": [0.5]},
            "thresholds are [0.5]; expected",
        ),
        (
            {"kind": "cosine", "text": ["q", "r"], "label": "c", "range": [2, 2]},
            "range is [2.0, 2.0]; expected two numbers",
        ),
        ({"kind": "regression", "text": "q", "label": "c", "learned_range": [2, 1]}, "learned_range is [2.0, 1.0]"),
    ],
)
def test_a_wrong_declaration_is_named(declaration, problem):
    with pytest.raises(InputError) as caught:
        task_of("topic", declaration)
    assert str(caught.value).startswith(f"tasks.topic: {problem}")


@pytest.mark.parametrize("name", ["overall", "training", '"a b"', '"../x"', '"-x"', '"a.b"', '""', '"a\\n"'])
def test_names_of_tasks_are_names_of_files(tmp_path, name):
    with pytest.raises(InputError, match="expected a name of letters, digits, _ and - other than overall and training"):
        load_tasks(declare(tmp_path, TOPIC.replace("topic", name)))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "expected tables [tasks.NAME] and nothing else"),
        (b"[tasks]\n", "expected tables [tasks.NAME] and nothing else"),
        (b"tasks = 3\n", "expected tables [tasks.NAME] and nothing else"),
        (TOPIC.encode() + b"[model]\n", "expected tables [tasks.NAME] and nothing else"),
        (b"\xff", "not UTF-8 (byte 0); save it as UTF-8"),
        (b"a = " + b"9" * 5000, "not valid TOML (Exceeds the limit"),
        (b"a = " + b"[" * 100_000, "not valid TOML ("),
    ],
)
def test_a_file_that_is_no_tasks_file_is_refused(tmp_path, content, problem):
    path = tmp_path / "tasks.toml"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_tasks(path)
    assert str(caught.value).startswith(f"{path}: {problem}")
    assert len(str(caught.value).splitlines()) == 1


def test_missing_files_and_folders_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"absent\.toml: no such file"):
        load_tasks(tmp_path / "absent.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(InputError, match=r"folder\.toml: a folder; expected a tasks file"):
        load_tasks(tmp_path / "folder.toml")
    (tmp_path / "tasks.txt").write_text(TOPIC)
    with pytest.raises(InputError, match=r"tasks\.txt: expected the folder .* whose name ends in \.toml"):
        load_tasks(tmp_path / "tasks.txt")


def test_an_unknown_task_lists_the_declared_ones(tmp_path):
    path = declare(tmp_path, TOPIC)
    assert list(chosen_tasks(path, ("topic",))) == ["topic"]
    with pytest.raises(InputError, match=r'unknown task "mood"; expected one of: topic$'):
        chosen_tasks(path, ("topic", "mood"))


def test_a_model_keeps_everything_but_where_the_rows_come_from(tmp_path):
    path = declare(tmp_path, TOPIC + 'labels = [1, "b"]\nmetric = "matthews"\nweight = 3\nid = "i"\nseparator = ";"\n')
    task = load_tasks(path)["topic"]
    kept = json.loads(json.dumps(task.declaration()))
    assert kept == {
        "kind": "classification",
        "text": ["q"],
        "label": "c",
        "labels": ["1", "b"],
        "metric": "matthews",
        "id": "i",
    }
    again = task_of("topic", kept)
    assert again == Classification(name="topic", text=("q",), label="c", labels=("1", "b"), metric="matthews", id="i")
    assert again.declaration() == kept


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), st.lists, max_leaves=4
)
FIELDS = st.sampled_from(
    ["kind", "text", "label", "labels", "metric", "weight", "range", "class_weights", "thresholds", "separator", "x"]
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
