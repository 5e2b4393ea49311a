"""Rows of the dev sets with predictions equal those of the model; CSV files are safe to open."""

import csv
import io

import numpy as np
import pytest

from multitask.data.examples import Examples
from multitask.inference.explore.dev_rows import Choice, DevRow, chosen_rows, csv_of, dev_rows, safe
from multitask.tasks.declarations import load_tasks, task_of
from multitask.tasks.read_examples import load_rows

ROWS = [
    DevRow(0, ("b",), "bad", "good", 0.6, 1),
    DevRow(1, ("=1+1",), "good", "good", 0.9, 0),
    DevRow(2, ("c",), "bad", "bad", 0.6, 0),
    DevRow(3, ("d",), "good", "bad", 0.5, 1),
]


def numbers(**choice):
    return [row.row for row in chosen_rows(ROWS, Choice(**choice))]


def test_rows_are_filtered_and_sorted():
    assert numbers() == [0, 1, 2, 3]
    assert numbers(gold="bad") == [0, 2]
    assert numbers(gold="bad", predicted="good") == [0]
    assert numbers(only_wrong=True) == [0, 3]
    assert numbers(order="confidence") == [3, 0, 2, 1]
    assert numbers(order="confidence", descending=True) == [1, 0, 2, 3]  # equal ones stay in file order
    assert numbers(order="error", descending=True) == [0, 3, 1, 2]


@pytest.mark.parametrize("task", ["sentiment", "paraphrase", "similarity"])
@pytest.mark.parametrize("name", ["one", "two"])
def test_rows_have_the_files_labels_and_the_models_predictions(dev_sets, models, small_data, task, name):
    found, model = dev_sets[task], models[name]
    examples = load_rows(load_tasks(small_data)[task], "dev")
    rows = found.rows[name]
    assert (len(rows), found.total) == (20, len(examples))
    texts = list(zip(*examples.sentences, strict=True))[:20]
    assert [row.texts for row in rows] == texts
    predictions = model.predict(task, [pair[0] if len(pair) == 1 else pair for pair in texts])
    for row, prediction, label in zip(rows, predictions, examples.labels, strict=False):
        if prediction.value is None:
            assert row.predicted == prediction.label
            assert row.confidence == pytest.approx(prediction.probability, abs=1e-5)
            assert row.gold == str(int(label))
            assert row.error == float(row.gold != row.predicted)
        else:
            assert float(row.predicted) == pytest.approx(prediction.value, abs=1e-2)
            assert row.error == pytest.approx(abs(prediction.value - float(label)), abs=1e-4)
            assert row.confidence is None


def test_a_row_of_several_labels_is_as_sure_as_its_least_certain_label():
    declaration = {"kind": "multilabel", "text": ["s"], "label": "l", "labels": ["film", "food"]}
    gold = np.array([[1, 0], [1, 1], [0, 0]], np.float32)
    examples = Examples((["a", "b", "c"],), gold, ("film", "food"), None, "file")
    found = dev_rows(task_of("topics", declaration), np.array([[0.9, 0.2], [0.7, 0.4], [0.1, 0.05]]), examples)
    assert [(row.gold, row.predicted, row.error) for row in found] == [
        ("film", "film", 0),
        ("film|food", "film", 1),
        ("", "", 0),
    ]
    assert [row.confidence for row in found] == pytest.approx([0.8, 0.6, 0.9])


def test_a_corpus_has_each_sentence_once(dev_sets):
    corpus = dev_sets["paraphrase"].corpus
    rows = dev_sets["paraphrase"].rows["one"]
    assert set(corpus.sentences) == {text for row in rows for text in row.texts}
    assert len(set(corpus.sentences)) == len(corpus.sentences) == len(corpus.labels)
    sentiment = dev_sets["sentiment"]
    labels = dict(zip(sentiment.corpus.sentences, sentiment.corpus.labels, strict=True))
    assert all(labels[row.texts[0]] == row.gold for row in sentiment.rows["one"])


@pytest.mark.parametrize("text", ["=1+1", "+SUM(A1)", "-2+3", "@cmd", "\t=1", "\r=1", "=cmd|' /C calc'!A0"])
def test_no_text_of_a_file_is_a_formula(text):
    row = DevRow(7, (text, 'a "quoted", one'), text, text, None, 0.25)
    header, found = csv.reader(io.StringIO(csv_of([row], ["=first", "second"])))
    assert header == ["row", "'=first", "second", "gold", "predicted", "confidence", "error"]
    assert found == ["7", f"'{text}", 'a "quoted", one', f"'{text}", f"'{text}", "", "0.25"]


@pytest.mark.parametrize("text", ["", "-1", "+2.5", "-1e-05", "a=b", "'=1"])
def test_other_texts_stay_as_they_are(text):
    assert safe(text) == text
