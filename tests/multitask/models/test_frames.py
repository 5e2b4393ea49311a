"""pandas in, pandas out: the values are those of lists and files."""

import numpy as np
import pandas
import pytest
import torch
from pandas.testing import assert_frame_equal

from minbert.errors import InputError
from multitask.data.contamination import TrainedOn
from multitask.evaluation.task_scores import evaluate
from multitask.models.multitask_model import MultitaskModel
from multitask.runtime.device import Runtime
from multitask.stages.finetune import finetune
from tests.multitask.declared import model_of_every_kind

CPU = Runtime(torch.device("cpu"), "fp32")
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


@pytest.fixture(scope="module")
def model(tiny_encoder):
    return model_of_every_kind(tiny_encoder)


def test_a_series_and_a_frame_are_rows_as_lists_are(model):
    expected = model.predict("topic", list(FRAME["question"]))
    assert model.predict("topic", FRAME["question"]) == expected
    assert model.predict("topic", FRAME) == expected
    pairs = list(zip(FRAME["one"], FRAME["two"], strict=True))
    assert model.predict("same", FRAME) == model.predict("same", pairs)
    assert model.predict_all(FRAME["question"]).keys() == {"topic", "tags", "stars"}
    with pytest.raises(InputError, match="no column two"):
        model.predict("same", FRAME[["one"]])


def test_predict_frame_keeps_index_columns_and_types(model):
    found = model.predict_frame(FRAME, ["topic", "tags", "same"], probabilities=True)
    assert_frame_equal(found[FRAME.columns], FRAME)
    answers = model.predict("topic", FRAME)
    assert list(found["topic"]) == [answer.label for answer in answers]
    assert list(found["topic_probability"]) == [answer.probability for answer in answers]
    assert list(found["topic_probability_DESC"]) == [answer.probabilities["DESC"] for answer in answers]
    assert list(found["tags"]) == [answer.labels for answer in model.predict("tags", FRAME)]
    with pytest.raises(InputError, match="has the column topic already"):
        model.predict_frame(found, ["topic"])
    for call in (model.predict_frame, model.predict_all):
        with pytest.raises(InputError, match="no column question or one, two; the columns are price"):
            call(FRAME[["price"]])
    assert "new_topic" in model.predict_frame(found, ["topic"], prefix="new_")


def test_evaluate_takes_a_frame(model):
    found = evaluate(model, FRAME, TrainedOn(), CPU, ["topic"])
    right = [p.label == gold for p, gold in zip(model.predict("topic", FRAME), FRAME["type"], strict=True)]
    assert found.scores.tasks == {"topic": np.mean(right)}
    assert evaluate(model, FRAME, tasks=["topic"]).scores.tasks == found.scores.tasks
    with pytest.raises(InputError, match="data is a DataFrame; expected the path"):
        finetune("all-minilm-l6-v2", FRAME)
    with pytest.raises(InputError, match='type is "MOON"; expected one of ABBR'):
        evaluate(model, FRAME.assign(type="MOON"), TrainedOn(), CPU, ["topic"])


def test_a_model_that_is_not_there_is_named_as_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^runs: no complete run with a model"):
        MultitaskModel.load("last")
    (tmp_path / "runs" / "finetune-run").mkdir(parents=True)
    with pytest.raises(InputError, match=r"^finetune-run: no such folder; did you mean runs/finetune-run\?$"):
        MultitaskModel.load("finetune-run")
