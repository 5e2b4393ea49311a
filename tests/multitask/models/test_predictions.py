"""Predictions of any rows equal those of the padded encoder with the heads, for every kind of task."""

import numpy as np
import pandas
import pytest
import torch
from pandas.testing import assert_frame_equal

from minbert.errors import InputError
from multitask.data.tables import Format
from multitask.evaluation.task_scores import evaluate
from multitask.models.multitask_model import MultitaskModel
from multitask.models.predictions import added_columns, added_values, columns_of, interpret
from multitask.models.settings import HeadsConfig
from multitask.stages.finetune import finetune
from tests.conftest import COURSE_TASKS, with_files
from tests.multitask.declared import model_of_every_kind

SINGLES = ["The band seemed to have a good time.", "", "It falls short. " * 5, "time"]
PAIRS = [("How much is it?", "What is the price?"), ("short", ""), ("Two women", "A couple is serving tea. " * 3)]


@pytest.fixture(
    params=[
        HeadsConfig(),
        HeadsConfig("separate", "features"),
        HeadsConfig("separate", "joint", similarity_pairs="embeddings"),
        HeadsConfig("none"),
        HeadsConfig("shared", residual=True, head_hidden_size=20),
    ],
    ids=["embeddings", "features", "joint", "no layers", "residual"],
)
def model(request, tiny_encoder) -> MultitaskModel:
    made = model_of_every_kind(tiny_encoder, request.param)
    made.encoder.pooling = "cls" if request.param.residual else "mean"
    return made


@torch.no_grad()
def slow_outputs(model: MultitaskModel, task: str, row) -> torch.Tensor:
    """One row alone through the padded encoder, pooling by hand, and the head."""
    texts = (row,) if isinstance(row, str) else row
    if len(texts) == 2 and model.reads_jointly(task):
        ids, types, *_ = model.encoder.tokenizer.encode_and_count([tuple(texts)])
    else:
        ids = model.encoder.tokenizer.encode(list(texts))
        types = [np.zeros_like(sequence) for sequence in ids]
    embeddings = []
    for sequence, kinds in zip(ids, types, strict=True):
        inputs = torch.from_numpy(sequence).long()[None]
        types = torch.from_numpy(kinds).long()[None]
        hidden = model.encoder.model(inputs, torch.ones_like(inputs), types).last_hidden_state
        embeddings.append(hidden[0, 0] if model.encoder.pooling == "cls" else hidden[0].mean(dim=0))
    return model.heads[task](*[embedding[None] for embedding in embeddings])[0]


@pytest.mark.parametrize("rows", [SINGLES, PAIRS], ids=["sentences", "pairs"])
def test_predictions_equal_a_slow_computation(model, rows):
    found = model.predict_all(rows)
    assert found.keys() == {name for name, task in model.tasks.items() if task.pair == (rows is PAIRS)}
    for task, predictions in found.items():
        assert len(predictions) == len(rows)
        for row, prediction in zip(rows, predictions, strict=True):
            raw = slow_outputs(model, task, row).double()
            match model.tasks[task].kind:
                case "classification" | "pair_classification":
                    names = model.tasks[task].labels
                    logits = torch.stack([torch.zeros(()), raw]) if raw.dim() == 0 else raw
                    expected = logits.softmax(dim=0)
                    assert list(prediction.probabilities) == list(names)
                    np.testing.assert_allclose(list(prediction.probabilities.values()), expected, atol=1e-5)
                    assert prediction.label == names[int(expected.argmax())]
                    assert prediction.probability == max(prediction.probabilities.values())
                case "multilabel":
                    expected = raw.sigmoid()
                    np.testing.assert_allclose(list(prediction.probabilities.values()), expected, atol=1e-5)
                    assert prediction.labels == tuple(
                        n for n, p, t in zip("ab", expected, (0.4, 0.6), strict=True) if p > t
                    )
                case _:
                    low, high = model.tasks[task].range
                    assert prediction.value == pytest.approx(low + float(raw.clip(0, 1)) * (high - low), abs=1e-4)


FRAME = pandas.DataFrame(
    {
        "question": ["Who made it?", "a film", "Why?", "good time"],
        "one": ["a", "b film", "c", "d"],
        "two": ["x", "y", "z film", "w"],
        "type": ["ABBR", "DESC", "ENTY", "DESC"],
        "price": [1.5, np.nan, 3, 4],
        "when": pandas.to_datetime(["2024-02-29"] * 4),
    },
    index=[7, 3, 5, 1],
)


def test_a_series_and_a_frame_are_rows_as_lists_are(tiny_encoder):
    model = model_of_every_kind(tiny_encoder)
    expected = model.predict("topic", list(FRAME["question"]))
    assert model.predict("topic", FRAME["question"]) == model.predict("topic", FRAME) == expected
    pairs = list(zip(FRAME["one"], FRAME["two"], strict=True))
    assert model.predict("same", FRAME) == model.predict("same", pairs)
    found = model.predict_frame(FRAME, ["topic", "tags", "same"], probabilities=True)
    assert_frame_equal(found[FRAME.columns], FRAME)
    assert list(found["topic"]) == [answer.label for answer in expected]
    assert list(found["topic_probability_DESC"]) == [answer.probabilities["DESC"] for answer in expected]
    assert list(found["tags"]) == [answer.labels for answer in model.predict("tags", FRAME)]
    assert "new_topic" in model.predict_frame(found, ["topic"], prefix="new_")
    order = ["topic", "same", "tags"]  # whichever share a pass of the encoder
    again = model.predict_frame(FRAME.set_axis([2, 2, 0, 2]), order)
    assert [name for name in again if name in order] == list(model.predict_all(FRAME, order)) == order
    assert again["tags"].tolist() == found["tags"].tolist()
    with pytest.raises(InputError, match="has the column topic already"):
        model.predict_frame(found, ["topic"])
    with pytest.raises(InputError, match="no column two"):
        model.predict("same", FRAME[["one"]])
    with pytest.raises(InputError, match="no column question or one, two; the columns are price"):
        model.predict_all(FRAME[["price"]])
    model.tasks["topic"] = with_files(model.tasks["topic"], text=("0",))
    assert model.predict("topic", pandas.DataFrame(list(FRAME["question"]))) == expected  # its column is the number 0


def test_two_columns_of_one_name_are_not_added_to_a_frame(tiny_encoder, monkeypatch):
    monkeypatch.setattr("multitask.models.multitask_model.added_columns", lambda *_: ["x"])
    with pytest.raises(InputError, match="two predicted columns are called x; predict these tasks apart"):
        model_of_every_kind(tiny_encoder).predict_frame(FRAME, ["topic", "same"])


def test_plain_texts_stand_in_the_words_of_a_task(tiny_encoder):
    """Tasks that read the same texts in different words have predictions of their own in one call."""
    model = model_of_every_kind(tiny_encoder)
    texts, plain = list(FRAME["question"]), model.predict_all(list(FRAME["question"]))
    asked = model.predict_all([f"Is it ({text})?" for text in texts])
    model.tasks["topic"] = with_files(model.tasks["topic"], text=("Is it ({question})?",))
    for rows in (texts, FRAME):
        found = model.predict_all(rows, ["topic", "stars"])
        assert [p.label for p in found["topic"]] == [p.label for p in asked["topic"]]
        for name, expected in (("topic", asked), ("stars", plain)):
            values = [[p.value, *p.probabilities.values()] for p in (*found[name], *expected[name])]
            np.testing.assert_allclose(*np.split(np.array(values, float), 2), atol=1e-5)
    pairs = [(one, f"not: {two}") for one, two in zip(FRAME["one"], FRAME["two"], strict=True)]
    expected = model.predict("similar", pairs)
    model.tasks["similar"] = with_files(model.tasks["similar"], text=("{one}", "not: {two}"))
    assert model.predict("similar", FRAME) == expected
    model.tasks["topic"] = with_files(model.tasks["topic"], text=("{question} {one} {price}",))
    whole = [f"{row.question} {row.one} {row.price:g}".removesuffix(" nan") for row in FRAME.itertuples()]
    assert model.predict("topic", FRAME) == model.predict("topic", whole)  # of several columns, a text is whole
    assert model.predict("topic", []) == []


def test_texts_that_are_cut_are_counted_of_these_rows_in_the_words_of_each_task(tiny_encoder, caplog):
    model = model_of_every_kind(tiny_encoder)
    model.encoder.max_length = 8
    model.tasks["topic"] = with_files(model.tasks["topic"], text=("Is it of the one or the other: {question}",))
    model.encoder.encode(["time " * 20] * 3)
    model.predict("stars", ["Who?"])
    assert caplog.messages == []
    model.predict_all(["Who?"], ["stars", "topic"])
    model.predict_all(pandas.DataFrame({"question": ["Who?"]}), ["stars", "topic"])
    model.predict("topic", ["Who?"])
    assert [line.partition(" texts to")[0] for line in caplog.messages] == [
        "predicted texts: cut 1 of 2",
        "the data frame: cut 1 of 2",
        "predicted texts: cut 1 of 1",
    ]


def test_evaluate_takes_a_frame(tiny_encoder):
    model = model_of_every_kind(tiny_encoder)
    right = [p.label == gold for p, gold in zip(model.predict("topic", FRAME), FRAME["type"], strict=True)]
    model.tasks["topic"] = with_files(model.tasks["topic"], id="number")  # that of its own files
    assert evaluate(model, FRAME, tasks=["topic"]).scores.tasks == {"topic": np.mean(right)}
    with pytest.raises(InputError, match="data is a DataFrame; expected the path"):
        finetune("all-minilm-l6-v2", FRAME)
    with pytest.raises(InputError, match='type is "MOON"; expected one of ABBR'):
        evaluate(model, FRAME.assign(type="MOON"), tasks=["topic"])


def test_missing_values_of_a_frame_are_what_the_task_declares(tiny_encoder):
    model = model_of_every_kind(tiny_encoder)
    model.tasks["topic"] = with_files(model.tasks["topic"], format=Format(missing=("n/a",)))
    frame = FRAME.assign(question=["n/a", *FRAME["question"][1:]], type=["ABBR", "DESC", " n/a ", "DESC"])
    blank = frame.replace({"n/a": "", " n/a ": None})
    assert model.predict("topic", frame) == model.predict("topic", blank)
    assert model.predict("tags", frame) != model.predict("tags", blank)  # which declares none
    assert evaluate(model, frame, tasks=["topic"]).examples["topic"].sentences[0] == list(FRAME["question"][[3, 1]])


def test_texts_are_read_without_the_white_space_around_them_as_in_training():
    assert columns_of([" a film\n", "b"]) == [["a film", "b"]]
    assert columns_of([("a ", "\tb c")]) == [["a"], ["b c"]]


def test_no_rows_give_no_predictions(model):
    assert model.predict_all([]) == {name: [] for name in model.tasks}
    assert model.predict("similar", []) == model.predict("topic", []) == []
    with pytest.raises(InputError, match='no task "sentiment"'):
        model.predict("sentiment", [])


@pytest.mark.parametrize(
    ("rows", "tasks", "message"),
    [
        (SINGLES, ["similar"], "similar reads pairs of sentences, not sentences"),
        (PAIRS, ["topic"], "topic reads sentences, not pairs of sentences"),
        (SINGLES, ["sentiment"], 'the model has no task "sentiment"; it has topic, tags'),
        (SINGLES, "topic", 'tasks is "topic"; expected a list of names'),
        ("A gem.", None, "expected a list of sentences"),
        ({"text": "A gem."}, None, "expected a list of texts, found a dict"),
        (["A gem.", 3], None, "row 1 is 3; expected text"),
        ([("a", "b", "c")], None, "row 0"),
        ([()], None, "row 0"),
        ([("a", "b"), "c"], None, "row 1"),
    ],
)
def test_rows_that_do_not_fit_are_named(tiny_encoder, rows, tasks, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        model_of_every_kind(tiny_encoder).predict_all(rows, tasks)


def test_the_courses_sentiment_is_written_in_words():
    """The labels of other tasks stay as they are declared; so do the course's own prediction files."""
    task, other = COURSE_TASKS["sentiment"], COURSE_TASKS["paraphrase"]
    (prediction,) = interpret(task, np.array([[0.1, 0.1, 0.1, 0.1, 0.6]]))
    assert prediction.label == "4"
    assert added_values(task, prediction) == ["very positive", 0.6]
    assert added_columns(task, probabilities=True)[2:4] == [
        "sentiment_probability_very negative",
        "sentiment_probability_negative",
    ]
    assert added_columns(other, probabilities=True)[2:] == ["paraphrase_probability_0", "paraphrase_probability_1"]
