"""The report on data counts rows, tokens and overlap; problems name file and row."""

import gzip
import json
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minbert.tokenizer import Tokenizer
from multitask.data.examples import Examples
from multitask.data.tables import RowsFrom
from multitask.tasks.check import check_data, contradictions, undefined_on, warn_of_gaps
from multitask.tasks.declarations import load_tasks, task_of
from multitask.tasks.read_examples import load_rows, load_training_rows
from tests.conftest import SPECIALS, word_piece

UNUSED = "tasks.sentiment: no training row of {} has the label 1, 2, 4"
WORDS = word_piece([*SPECIALS, "w"])


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """One token a word, besides [CLS] and [SEP]; at most 64."""
    return Tokenizer(WORDS, 64, {})


@pytest.fixture
def folder(tmp_path) -> Path:
    files = {
        "ids-sst-train.csv": "id\tsentence\tsentiment\na\tOne two 3 .\t0\nb\tone TWO 3 .\t3\nc\tx\t3\nd\tx y\t\n",
        "ids-sst-dev.csv": "id\tsentence\tsentiment\na\tfour\t1\nb\tOne two 3 .\t2\nc\t X \t2\n",
        "sts-train.csv": "id\tsentence1\tsentence2\tsimilarity\na\tp\tq\t0\nb\tr\ts\t4.6\nc\tq\tp\t5\nd\tP\tQ\t1.0\n",
        "sts-dev.csv": "id\tsentence1\tsentence2\tsimilarity\na\tq\tt\t2.5\n",
        "sts-test-student.csv": "id\tsentence1\tsentence2\na\tt\tu\n",
        "nli_triplets.csv": "sent0,sent1,hard_neg\na,b c,d\nA,B c,D\n",
        "sentences.txt": "one two\n\nthree\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    return tmp_path


def test_counts(folder, tokenizer):
    report = check_data(folder, tokenizer)
    assert report.problems == [UNUSED.format(folder / "ids-sst-train.csv")]
    files = {file.name: file for file in report.files}
    train = files["ids-sst-train.csv"]
    assert (train.rows, train.dropped, train.repeated) == (3, 1, 1)
    assert train.tokens == [6, 6, 6]
    assert train.over == 0
    assert train.labels == {"0": 1, "1": 0, "2": 0, "3": 2, "4": 0}
    assert files["ids-sst-dev.csv"].labels == {"0": 0, "1": 1, "2": 2, "3": 0, "4": 0}
    assert files["sts-train.csv"].labels == {"0-1": 1, "1-2": 1, "2-3": 0, "3-4": 0, "4-5": 2}
    assert files["sts-train.csv"].repeated == 1  # a pair in the other order is a different pair
    assert files["sts-test-student.csv"].labels == {}
    assert (files["nli_triplets.csv"].rows, files["nli_triplets.csv"].repeated) == (2, 1)
    assert (files["sentences.txt"].rows, files["sentences.txt"].dropped) == (2, 1)
    assert report.overlaps == [
        ("sentiment train", "sentiment dev", 2),
        ("similarity train", "similarity dev", 1),
        ("similarity train", "similarity test", 0),
        ("similarity dev", "similarity test", 1),
    ]
    assert report.absent == ["ids-sst-test-student.csv"]


def test_percentiles_of_sentence_lengths(tmp_path, tokenizer):
    rows = "".join(f"{n}\t{'w ' * n}\t0\n" for n in range(1, 101))
    (tmp_path / "ids-sst-train.csv").write_text("id\tsentence\tsentiment\n" + rows)
    report = check_data(tmp_path, tokenizer)
    assert report.files[0].tokens == [53, 98, 102]  # 50 and 95 of the 100 sentences are shorter
    assert report.files[0].over == 0.38  # from 63 words on
    assert check_data(tmp_path, tokenizer, 12).files[0].over == 0.9


def test_every_problem_of_every_file_is_listed(folder, tokenizer):
    sts = folder / "sts-train.csv"
    sts.write_text(sts.read_text() + "e\tx\ty\t7\na\tx\ty\t1\n")
    (folder / "sts-dev.csv").write_bytes(b"\xff")
    (folder / "nli_triplets.csv").write_text("sent0,sent1,hard_neg\na,b,c\na,b\n")
    (folder / "sentences.txt").write_text("\n")
    (folder / "news.txt").write_text("a\nb\nA\n")
    report = check_data(folder, tokenizer)
    places = [
        "tasks.sentiment: no",
        "sts-train.csv:6: ",
        "sts-train.csv:7: ",
        "sts-dev.csv:1: ",
        "nli_triplets.csv:3: ",
    ]
    for problem, place in zip(report.problems, [*places, "sentences.txt: no usable"], strict=True):
        assert problem.removeprefix(f"{folder}/").startswith(place)
    rows = {file.name: file.rows for file in report.files}
    assert rows["sts-train.csv"] == 4
    assert rows["nli_triplets.csv"] == 1
    assert rows["news.txt"] == 3
    assert "sts-dev.csv" not in rows


TEXTS = st.sampled_from(["w a", "W a", "w b"])


@pytest.mark.parametrize("kind", ["classification", "pair_classification", "regression", "cosine"])
@given(st.lists(st.tuples(TEXTS, TEXTS, st.integers(0, 4)), min_size=1, max_size=14))
def test_texts_with_different_labels_are_counted_and_the_first_is_shown(kind, rows):
    pair, numbers = kind in ("pair_classification", "cosine"), kind in ("regression", "cosine")
    declared = {"kind": kind, "text": ["a", "b"][: 1 + pair], "label": "c", **({"range": [0, 4]} if numbers else {})}
    examples = Examples(
        sentences=tuple([row[column] for row in rows] for column in range(1 + pair)),
        labels=np.array([label for *_, label in rows], np.float32),
        classes=() if numbers else tuple("vwxyz"),
        ids=None,
        source="x.csv",
        numbers=np.arange(2, len(rows) + 2),
    )
    found = contradictions(task_of("x", declared), RowsFrom("x.csv"), examples)
    keys = [row[: 1 + pair] for row in rows]
    apart = 2 if numbers else 0  # labels further apart than this are different
    wrong = {
        (keys[i], i + 2, j + 2)
        for i, j in combinations(range(len(rows)), 2)
        if keys[i] == keys[j] and abs(rows[i][2] - rows[j][2]) > apart
    }
    assert len(found) == bool(wrong)
    for line in found:
        shown = re.fullmatch(
            r'x.csv: (\d+) .* different labels for x.*, first ".*" in lines (\d+) \((.*)\) and (\d+) \((.*)\); .*', line
        )
        count, first, second = (int(shown[group]) for group in (1, 2, 4))
        for line_number, label in ((first, shown[3]), (second, shown[5])):
            expected = rows[line_number - 2][2]
            assert label == (f"{expected}.0" if numbers else "vwxyz"[expected])
        assert count == len({key for key, *_ in wrong})
        assert (next(key for key in keys if key in {key for key, *_ in wrong}), first, second) in wrong


def test_different_labels_of_a_text_are_a_warning_with_file_and_lines(folder, tokenizer):
    path = folder / "sts-train.csv"
    half_apart = "h\tu\tv\t0.2\ni\tu\tv\t2.7\n"  # in fp32 a little more than half
    path.write_text(path.read_text() + "e\tp\tq\t5\nf\tp\tq\t4.5\ng\tr\ts\t2.2\n" + half_apart)
    assert [hint for hint in check_data(folder, tokenizer).hints if "unknown" not in hint] == [
        f"{path}: 1 pair has different labels for similarity (more than half the range apart), "
        'first "p", "q" in lines 2 (0.0) and 6 (5.0); correct or remove such rows'
    ]


# Tasks files.


@pytest.fixture
def tasks_file(tmp_path) -> Path:
    """Three tasks, of which two read one file."""
    rows = [{"q": f"w {i}", "r": f"r {i}", "c": "ab"[i % 2], "marks": ["x"] * (i < 3), "stars": i} for i in range(6)]
    with gzip.open(tmp_path / "train.jsonl.gz", "wt") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)
    (tmp_path / "dev.csv").write_text("q,r,c,marks,stars\nw 0,s,b,y|x,9\nnew,new,b,[],\n")
    common = 'train = "train.jsonl.gz"\ndev = "dev.csv"\n'
    (tmp_path / "tasks.toml").write_text(
        f'[tasks.topic]\nkind = "classification"\ntext = "q"\nlabel = "c"\n{common}'
        f'[tasks.stars]\nkind = "pair_regression"\ntext = ["q", "w {{r}}"]\nlabel = "stars"\nrange = [0, 10]\n{common}'
        f'[tasks.marks]\nkind = "multilabel"\ntext = "r"\nlabel = "marks"\nlabels = ["x", "y"]\n{common}'
    )
    return tmp_path / "tasks.toml"


def test_a_tasks_file_is_checked(tasks_file, tokenizer):
    report = check_data(tasks_file, tokenizer)
    assert report.problems == [
        "tasks.marks: no training row of {} has the label y".format(tasks_file.parent / "train.jsonl.gz")
    ]
    assert [(file.rows, file.dropped, file.labels) for file in report.files] == [
        (6, 0, {"a": 3, "b": 3}),
        (2, 0, {"a": 0, "b": 2}),
        (6, 0, {"0-2": 2, "2-4": 2, "4-6": 2, "6-8": 0, "8-10": 0}),
        (1, 1, {"0-2": 0, "2-4": 0, "4-6": 0, "6-8": 0, "8-10": 1}),
        (6, 0, {"x": 3, "y": 0}),
        (2, 0, {"x": 1, "y": 1}),
    ]
    assert report.files[2].tokens == [5, 5, 5]  # [CLS] w r 0 [SEP] of half of the texts
    name = f"topic {tasks_file.parent / 'dev.csv'}: "  # "w 0" has as many known tokens as unknown ones
    assert [hint for hint in report.hints if hint.startswith(name)] == [report.hints[0]]
    assert report.hints[0].startswith(f"{name}most tokens of 1 of 2 texts are unknown ([UNK])")
    # "w 0" is in both; training sets are also compared with other tasks' development sets.
    assert report.overlaps == [
        ("topic train", "topic dev", 1),
        ("topic train", "stars dev", 1),
        ("topic dev", "stars train", 1),
        ("stars train", "stars dev", 1),
        ("marks train", "marks dev", 0),
    ]
    (tasks_file.parent / "train.jsonl.gz").unlink()  # the other files are still checked
    report = check_data(tasks_file, tokenizer)
    assert [problem.split(":")[0] for problem in report.problems] == ["tasks.topic", "tasks.stars", "tasks.marks"]
    assert [file.rows for file in report.files] == [2, 1, 2]


def test_labels_that_may_be_wrong_are_pointed_out_in_training_too(tmp_path, tokenizer, caplog):
    labels = ["review"] * 40 + ["reviw", "bug\u200b", "bug\u200d"] + ["n/a"]
    (tmp_path / "x.csv").write_text("q,c\n" + "".join(f"w {i},{label}\n" for i, label in enumerate(labels)))
    (tmp_path / "t.toml").write_text('[tasks.x]\nkind="classification"\ntext="q"\nlabel="c"\ntrain="x.csv"\n')
    report = check_data(tmp_path / "t.toml", tokenizer)
    assert [hint.partition(": perhaps")[0].removeprefix(f"{tmp_path / 'x.csv'}: ") for hint in report.hints] == [
        '"n/a" (1 row)',
        '"bug\\u200b" (1 row), "bug\\u200d" (1 row)',
        '"reviw" (1 row), "review" (40 rows)',
    ]
    assert report.files[0].labels == {'"bug\\u200b"': 1, '"bug\\u200d"': 1, "n/a": 1, "review": 40, "reviw": 1}
    load_training_rows(load_tasks(tmp_path / "t.toml")["x"])
    assert caplog.messages == [f"{report.hints[0]} (2 more; `multitask data check` lists them)"]


def test_one_file_without_test_rows_and_with_labels_beyond_those_of_training_is_checked(tmp_path, tokenizer):
    rows = [("train", 1), ("train", 3), ("train", 2), ("dev", 6), ("dev", 1.5), ("dev", 0)]
    (tmp_path / "x.csv").write_text("q,n,split\n" + "".join(f"w {n},{n},{split}\n" for split, n in rows))
    (tmp_path / "t.toml").write_text('[tasks.x]\nkind="regression"\ntext="q"\nlabel="n"\nfile="x.csv"\n')
    report = check_data(tmp_path / "t.toml", tokenizer)
    assert report.problems == []
    assert [list(file.labels.values()) for file in report.files] == [[1, 0, 1, 0, 1], [1, 1, 0, 0, 1]]


def test_terminals_get_few_and_printable_lines(tmp_path, tokenizer):
    rows = [{"q": f"w {i}", "c": ["a\n\x1b[2J", "b"][i % 2]} for i in range(4)]
    (tmp_path / "x.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    task = '[tasks.{}]\nkind="classification"\ntext="q"\nlabel="c"\ntrain="{}"\n'
    (tmp_path / "t.toml").write_text(task.format("x", "x.jsonl"))
    lines = check_data(tmp_path / "t.toml", tokenizer).render().splitlines()
    assert len(lines) == 2
    assert all(map(str.isprintable, lines))
    (tmp_path / "x.csv").write_text("q,c\n" + "a,b,c\n" * 30 + "a,b\nc,d\n")
    (tmp_path / "t.toml").write_text(task.format("one", "x.csv") + task.format("two", "x.csv"))
    assert len(check_data(tmp_path / "t.toml", tokenizer).problems) == 10


GAPS = {
    "classification": ("c", ["a", "b", "c"], ["b", "b"], [
        'matthews is undefined for every model, as all 2 labels are "b"',
        'no row has the label "a", "c", whose F1 counts as 0: macro_f1 is at most 0.3333',
    ]),
    "multilabel": ("c", ["a", "b"], [[], []], [
        "average_precision is undefined for every model, as each label stands in every row or in none",
        'no row has the label "a", "b", whose F1 counts as 0: macro_f1 is at most 0.0000',
    ]),
    "regression": ("c", None, [2, 2.0000001], [
        "pearson and spearman are undefined for every model, as all 2 labels are 2",
    ]),
    "cosine": ("c", None, [0.25], [
        "pearson and spearman are undefined for every model, as there is only one row",
        "the two texts of every pair are equal, so embeddings cannot tell one pair from another",
    ]),
}  # fmt: skip


@pytest.mark.parametrize("kind", GAPS)
def test_what_development_rows_cannot_tell_is_said(kind, tmp_path, tokenizer, caplog):
    label, labels, of_dev, expected = GAPS[kind]
    text = ["q", "r"] if kind == "cosine" else "q"
    of_training = [[name] if kind == "multilabel" else name for name in labels] if labels else [0.0, 0.5]
    for name, values in (("train", of_training * 3), ("dev", of_dev)):
        rows = [{"q": f"{name} {i}", "r": f"{name} {i}", label: value} for i, value in enumerate(values)]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    more = f"labels = {json.dumps(labels)}" if labels else "range = [0, 3]"
    (tmp_path / "t.toml").write_text(
        f'[tasks.x]\nkind = "{kind}"\ntext = {json.dumps(text)}\nlabel = "c"\n{more}\n'
        'train = "train.jsonl"\ndev = "dev.jsonl"\n'
    )
    expected = [f"x: {tmp_path / 'dev.jsonl'}: {line}" for line in expected]
    assert check_data(tmp_path / "t.toml", tokenizer).gaps == expected
    task, _ = load_training_rows(load_tasks(tmp_path / "t.toml")["x"])
    warn_of_gaps(task, load_rows(task, "dev"))
    assert [line for line in caplog.messages if "dev.jsonl" in line] == expected


@given(st.lists(st.integers(0, 3), min_size=2, max_size=6), st.sampled_from(["classification", "pair_classification"]))
def test_a_score_is_undefined_only_if_all_labels_are_equal(labels, kind):
    text = ["q", "r"] if kind == "pair_classification" else "q"
    task = task_of("x", {"kind": kind, "text": text, "label": "c", "labels": [*range(max(2, *labels) + 1)]})
    assert undefined_on(task, np.array(labels, np.float32)) == ["matthews"] * (len({*labels}) == 1)


def test_each_label_has_its_own_count(tmp_path, tokenizer):
    """Labels that are shown cut are different, and so are ends of intervals with many digits."""
    rows = "".join(f"w {i},{'long ' * 20}{i % 2},{100000 + i % 5}\n" for i in range(20))
    (tmp_path / "x.csv").write_text(f"q,c,n\n{rows}")
    task = '[tasks.{}]\nkind="{}"\ntext="q"\nlabel="{}"\ntrain="x.csv"\n'
    (tmp_path / "t.toml").write_text(task.format("x", "classification", "c") + task.format("y", "regression", "n"))
    report = check_data(tmp_path / "t.toml", tokenizer)
    assert [list(file.labels.values()) for file in report.files] == [[10, 10], [4, 4, 4, 4, 4]]
    assert report.render().count("...: 10") == 2


def test_a_class_that_the_held_out_rows_lack_is_said(tmp_path, tokenizer):
    """The only row of a class stays a training row."""
    rows = "".join(f"w {i},{label}\n" for i, label in enumerate(["rare", *["a", "b"] * 20]))
    (tmp_path / "x.csv").write_text(f"q,c\n{rows}")
    (tmp_path / "t.toml").write_text('[tasks.x]\nkind="classification"\ntext="q"\nlabel="c"\ntrain="x.csv"\n')
    [line] = check_data(tmp_path / "t.toml", tokenizer).gaps
    assert line.startswith(f'x: held-out rows of {tmp_path / "x.csv"}: no row has the label "rare", ')
    assert line.endswith("macro_f1 is at most 0.6667")
    (tmp_path / "x.csv").write_text("q,c\n" + rows.replace("rare", "a"))
    assert check_data(tmp_path / "t.toml", tokenizer).gaps == []
