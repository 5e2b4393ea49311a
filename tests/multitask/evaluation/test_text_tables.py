"""Plain-text tables: what is marked as best."""

import math
import re

import numpy as np
import pytest

from multitask.data.markup import aligned
from multitask.evaluation.statistics import DevAnswers
from multitask.evaluation.text_tables import ensemble_table, intervals_table, probe_table, scores_table


def test_the_best_defined_score_of_a_column_is_marked():
    scores = [
        {"overall": math.nan, "a": 0.5, "b": math.nan},
        {"overall": 0.25, "a": math.nan, "b": math.nan},
        {"overall": 0.2, "a": 0.5, "b": math.nan},
    ]
    history = [{"epoch": number, "scores": line} for number, line in enumerate(scores, start=1)]
    lines = scores_table(history).splitlines()
    assert [line.split() for line in lines] == [
        ["epoch", "overall", "a", "b"],
        ["1", "undefined", "0.5000*", "undefined"],
        ["2", "0.2500*", "undefined", "undefined"],
        ["3", "0.2000", "0.5000*", "undefined"],
    ]


def test_an_undefined_score_of_an_ensemble_is_shown_as_undefined():
    scored = {"overall": math.nan, "scores": {"a": math.nan, "b": 0.5}}
    evaluation = {**scored, "method": "average", "selected_on_dev": False, "members": {"m": scored}, "weights": {}}
    evaluation["weights"] = {"a": {"m": 1.0}, "b": {"m": 1.0}}
    lines = ensemble_table(evaluation).splitlines()
    assert [line.split() for line in lines[1:3]] == [
        [name, "undefined", "undefined", "0.5000"] for name in ("m", "average")
    ]


def test_an_undefined_score_has_no_interval_and_resamples_without_a_value_are_counted():
    labels, answers = np.array([0.0, 0.0, 1.0]), {}
    answers["same"] = DevAnswers(labels, 1 - 1e-7 * labels, "pearson", None, math.nan)
    answers["right"] = DevAnswers(labels, labels, "matthews", 2, 1.0)
    _, *rows, left_out = intervals_table(answers).splitlines()
    undefined = [[name, "undefined", "-"] for name in ("overall", "same")]
    assert [row.split() for row in rows] == [*undefined, ["right", "1.0000", "1.0000", "to", "1.0000"]]
    count = re.fullmatch(r"right is undefined on ([\d,]+) of 10,000 resamples: left out", left_out)[1]
    only_one_class = (1 / 3) ** 3 + (2 / 3) ** 3
    assert int(count.replace(",", "")) / 10_000 == pytest.approx(only_one_class, abs=0.02)


def test_a_probe_says_in_how_many_batches_a_mean_is_undefined():
    batches = [{"dissipation": 0.0, "ratio": math.nan, "push": push} for push in (0.5, math.nan, 0.5)]
    *rows, why = probe_table(batches).splitlines()
    shown = [["dissipation", "0.0000", "0.0000"], ["ratio", "-", "-"], ["push", "0.5000", "0.0000"]]
    assert [row.split() for row in rows[1:]] == shown
    assert why.endswith(": ratio (in 3 of 3 batches), push (in 1 of 3 batches)")
    assert len(probe_table([{"ratio": 1.0}]).splitlines()) == 2


def test_cells_give_a_terminal_no_orders():
    assert aligned([["a\x1b[31m", "b"], ["c\n\x9b", "d"]]) == "a [31m  b\nc       d"
