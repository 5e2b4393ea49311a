"""Rows of the dev sets with predictions equal those of the model; the map is the plane of two eigenvectors."""

import csv
import io
import shutil
import sys
from dataclasses import replace
from threading import Event

import anyio
import numpy as np
import pytest
from pandas import DataFrame

from minbert.errors import InputError
from multitask.data.examples import Examples
from multitask.data.write_tables import without_formula
from multitask.service.batching import QueueFull
from multitask.service.explore_routes import Errors
from multitask.service.explorer import MOST_POINTS, Explorer, csv_of, dev_rows, draw_map, load_dev_sets
from multitask.tasks.declarations import load_tasks, task_of
from multitask.tasks.read_examples import load_rows
from tests.conftest import task_file

ROWS = DataFrame(
    [
        (0, "bad", "good", 0.6, 1.0),
        (1, "good", "good", 0.9, 0.0),
        (2, "bad", "bad", 0.6, 0.0),
        (3, "good", "bad", 0.5, 1.0),
    ],
    columns=["row", "gold", "predicted", "confidence", "error"],
)
WORDS = ["very negative", "negative", "neutral", "positive", "very positive"]


@pytest.mark.parametrize(
    ("asked", "rows"),
    [
        ({"order": "row"}, [0, 1, 2, 3]),
        ({"gold": "bad"}, [0, 2]),
        ({"gold": "bad", "predicted": "good"}, [0]),
        ({"gold": "of another task", "rows": "wrong"}, []),
        ({"order": "unsure"}, [3, 0, 2, 1]),  # equal ones stay in file order
        ({"order": "worst"}, [0, 3, 1, 2]),  # the surest of the wrong ones first
    ],
)
def test_rows_are_filtered_and_sorted(asked, rows):
    assert Errors(model="one", task="mood", **({"rows": "all"} | asked)).chosen(ROWS).row.tolist() == rows


def test_an_empty_text_is_any_label_also_where_rows_have_none():
    unlabelled = ROWS.assign(gold=["", "a|b", "", "a"])
    assert len(Errors(model="one", task="tags", rows="all").chosen(unlabelled)) == 4


@pytest.mark.parametrize("task", ["sentiment", "paraphrase", "similarity"])
def test_rows_have_the_files_labels_and_the_models_predictions(dev_sets, models, small_data, task):
    found = dev_sets[task]
    examples = load_rows(load_tasks(small_data)[task], "dev")
    texts = list(zip(*examples.sentences, strict=True))[:20]
    for name, model in models.items():
        rows = found.rows[name]
        assert (len(rows), found.total) == (20, len(examples))
        assert rows.texts.tolist() == texts
        predictions = model.predict(task, [pair[0] if len(pair) == 1 else pair for pair in texts])
        for row, prediction, label in zip(rows.itertuples(), predictions, examples.labels, strict=False):
            if prediction.value is None:
                shown = WORDS if task == "sentiment" else ["0", "1"]
                assert (row.gold, row.predicted) == (shown[int(label)], shown[int(prediction.label)])
                assert row.confidence == pytest.approx(prediction.probability, abs=1e-5)
                assert row.error == float(row.gold != row.predicted)
            else:
                assert float(row.predicted) == pytest.approx(prediction.value, abs=1e-2)
                assert row.error == pytest.approx(abs(prediction.value - float(label)), abs=1e-4)
                assert np.isnan(row.confidence)


def test_texts_are_shown_without_the_words_that_predictions_add(models, small_data, tmp_path, monkeypatch):
    declared = '[tasks.similarity]\nkind = "cosine"\nlabel = "similarity"\nrange = [0, 5]\nseparator = "\\t"\n'
    files = f'train = "{small_data}/sts-train.csv"\ndev = "{small_data}/sts-dev.csv"\n'
    (tmp_path / "tasks.toml").write_text(f'{declared}{files}text = ["sentence1", "a film: {{sentence2}}"]\n')
    model = models["one"]
    declaration = load_tasks(tmp_path / "tasks.toml")["similarity"]
    own = replace(model.tasks["similarity"], files=declaration.files)
    monkeypatch.setitem(model.tasks, "similarity", own)
    rows = load_dev_sets({"one": model}, tmp_path / "tasks.toml", 5)["similarity"].rows["one"]
    expected = model.predict("similarity", [*rows.texts])
    assert [float(found) for found in rows.predicted] == pytest.approx([p.value for p in expected], abs=1e-2)
    examples = load_rows(load_tasks(small_data)["similarity"], "dev")
    assert rows.texts.tolist() == list(zip(*examples.sentences, strict=True))[:5]


def test_rows_have_the_numbers_of_their_lines_also_below_one_that_is_left_out(models, small_data, tmp_path):
    for path in small_data.iterdir():
        shutil.copy(path, tmp_path)
    path = task_file(tmp_path, "sentiment", "dev")
    lines = path.read_text(encoding="utf-8").splitlines()
    fields = dict(zip(lines[0].split("\t"), lines[3].split("\t"), strict=True)) | {"sentiment": ""}
    path.write_text("\n".join([*lines[:3], "\t".join(fields.values()), *lines[4:]]), encoding="utf-8")
    rows = load_dev_sets({"one": models["one"]}, tmp_path, 4)["sentiment"].rows["one"]
    assert rows.row.tolist() == [2, 3, 5, 6]
    assert all(text in lines[row - 1] for row, (text,) in zip(rows.row, rows.texts, strict=True))


def test_a_row_of_several_labels_is_as_sure_as_its_least_certain_label():
    declaration = {"kind": "multilabel", "text": ["s"], "label": "l", "labels": ["film", "food"]}
    gold = np.array([[1, 0], [1, 1], [0, 0]], np.float32)
    examples = Examples((["a", "b", "c"],), gold, ("film", "food"), None, "file")
    found = dev_rows(task_of("topics", declaration), np.array([[0.9, 0.2], [0.7, 0.4], [0.1, 0.05]]), examples)
    assert found[["gold", "predicted", "error"]].to_numpy().tolist() == [
        ["film", "film", 0],
        ["film|food", "film", 1],
        ["", "", 0],
    ]
    assert found.confidence.tolist() == pytest.approx([0.8, 0.6, 0.9])
    named = task_of("topics", declaration | {"shown": ["about films", "about food"]})
    found = dev_rows(named, np.array([[0.9, 0.2], [0.7, 0.8], [0.1, 0.05]]), examples)
    assert found.predicted.tolist() == found.gold.tolist() == ["about films", "about films|about food", ""]


@pytest.mark.parametrize(
    ("bounds", "labels", "predicted"),
    [
        ((0, 1e6), ["123456", "123457.5"], ["500000", "123457"]),
        ((1, 5), ["4.25", "3"], ["3", "1.494"]),
        ((0, 0.01), ["0.0025", "0.01"], ["0.005", "0.00123"]),
    ],
)
def test_numbers_are_shown_as_in_the_file_and_predicted_ones_with_four_digits(bounds, labels, predicted):
    task = task_of("price", {"kind": "regression", "text": ["s"], "label": "l", "range": bounds})
    examples = Examples((["a", "b"],), np.array(labels, np.float32), (), None, "file")
    found = dev_rows(task, np.array([0.5, 0.123457]), examples)
    assert (found.gold.tolist(), found.predicted.tolist()) == (labels, predicted)


@pytest.mark.parametrize("text", ["=1+1", "+SUM(A1)", "-2+3", "@cmd", "\t=1", "\r=1", "'=1", "＝1"])
def test_no_text_of_a_file_is_a_formula(text):
    row = {"row": 7, "texts": (text, 'a "quoted", one'), "gold": text, "predicted": text}
    rows = DataFrame([row | {"confidence": np.nan, "error": 0.25}])
    header, found = csv.reader(io.StringIO(csv_of(rows, ["=first", "second"])))
    assert header == ["row", "'=first", "second", "gold", "predicted", "confidence", "error"]
    assert found == ["7", f"'{text}", 'a "quoted", one', f"'{text}", f"'{text}", "", "0.25"]


def test_without_rows_the_file_has_its_header_alone(dev_sets):
    none = dev_sets["paraphrase"].rows["one"][:0]
    assert csv_of(none, ["first", "second"]) == "row,first,second,gold,predicted,confidence,error\r\n"
    assert csv_of(none, ["row", "error"]) == "row,text_row,text_error,gold,predicted,confidence,error\r\n"


@pytest.mark.parametrize("text", ["", "-1", "+2.5", "-1e-05", "a=b", "'tis", -0.5, None])
def test_other_values_stay_as_they_are(text):
    assert without_formula(text) == text


@pytest.mark.slow
def test_a_full_queue_refuses_work_and_the_place_before_the_last_is_free(models):
    """One computes, sixteen wait, and one more is told to ask again in a second."""
    explorer, busy, refused, done = Explorer(models, {}), Event(), [], []

    def work() -> None:
        busy.wait(60)
        done.append(1)

    async def ask() -> None:
        try:
            await explorer.compute(work)
        except QueueFull as full:
            refused.append(full.headers["Retry-After"])

    async def all_ask() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(18):
                tasks.start_soon(ask)
                await anyio.wait_all_tasks_blocked()
            busy.set()

    anyio.run(all_ask)
    assert (len(done), refused) == (17, ["1"])


# The map of principal components is the plane of the two largest eigenvectors.


RANDOM = np.random.default_rng(0)
EMBEDDINGS = RANDOM.normal(size=(60, 8)).astype(np.float32) * RANDOM.uniform(0.1, 9, (60, 1)).astype(np.float32)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def test_the_map_has_the_two_directions_of_largest_variance():
    found = draw_map(EMBEDDINGS, "pca")
    rows = unit(EMBEDDINGS.astype(np.float64))
    centred = rows - rows.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    assert found.variance == pytest.approx(values[-2:].sum() / values.sum(), rel=1e-6)
    np.testing.assert_allclose(np.abs(found.points), np.abs(centred @ vectors[:, ::-1][:, :2]), atol=1e-9)
    np.testing.assert_allclose(found.place(EMBEDDINGS[3]), found.points[3], atol=1e-6)


def test_a_map_has_a_limited_number_of_points():
    many = RANDOM.normal(size=(MOST_POINTS + 5, 4)).astype(np.float32)
    assert draw_map(many, "pca").points.shape == (MOST_POINTS, 2)


@pytest.fixture(params=["pca", pytest.param("umap", marks=pytest.mark.slow)])  # numba compiles for half a minute
def method(request):
    if request.param == "umap":
        pytest.importorskip("umap", reason="needs: pip install umap-learn")
    return request.param


@pytest.mark.parametrize("value", [0, 1])
def test_a_map_of_equal_or_zero_embeddings_is_finite(value, method):
    found = draw_map(np.full((5, 4), value, np.float32), method)
    assert np.isfinite(found.points).all()
    assert np.isfinite(found.place(np.full(4, value, np.float32))).all()


@pytest.mark.parametrize("count", [3, 60])
def test_a_second_map_has_the_same_bits(count, method):
    first, second = (draw_map(EMBEDDINGS[:count], method) for _ in range(2))
    assert first.points.shape == (count, 2)
    assert first.points.tobytes() == second.points.tobytes()
    places = [found.place(EMBEDDINGS[row]) for found in (first, second) for row in (1, 0, 1)]
    assert np.isfinite(places).all()
    assert len({place.tobytes() for place in places}) == 2


def test_without_umap_learn_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(InputError, match=r"^UMAP needs umap-learn; install with: .*explore"):
        draw_map(EMBEDDINGS, "umap")
