"""Plain-text tables: what is marked as best."""

import math

from multitask.data.problems import aligned
from multitask.evaluation.text_tables import ensemble_table, probe_table, scores_table


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


def test_dashes_of_a_probe_say_why():
    batches = [{"dissipation": 0.0, "ratio": math.nan}] * 2
    *rows, why = probe_table(batches).splitlines()
    assert [row.split() for row in rows[1:]] == [["dissipation", "0.0000", "0.0000"], ["ratio", "-", "-"]]
    assert why.startswith("-: ")
    assert len(probe_table([{"ratio": 1.0}]).splitlines()) == 2


def test_cells_give_a_terminal_no_orders():
    assert aligned([["a\x1b[31m", "b"], ["c\n\x9b", "d"]]) == "a [31m  b\nc       d"
