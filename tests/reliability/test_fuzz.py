"""A few cases of `python -m benchmarks.reliability.fuzz`, and what it once found."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.reliability.fuzz import Found, Hang, Inputs, try_case
from benchmarks.reliability.mutations import mutated, mutated_json
from benchmarks.reliability.world import copy
from minbert.errors import InputError
from minbert.files import read_toml
from multitask.cli.main import LONGEST_ERROR, error_line, main
from multitask.cli.settings_file import read_settings
from multitask.evaluation.text_tables import aligned
from multitask.models.multitask_model import MultitaskModel
from multitask.stages.registry import stage_named

RUNS = {
    "inputs.json": ("[]", "1", "{}", '{"stage": "finetune"}', '{"stage": "finetune", "labels": [1]}'),
    "config.json": ("[]", "null", '"text"'),
}
LABELS = '{"stage": "finetune", "labels": {"start": 1}}'


@pytest.mark.parametrize(("file", "content"), [(f, c) for f in RUNS for c in RUNS[f]] + [("inputs.json", LABELS)])
def test_settings_of_a_damaged_run_are_refused_in_one_line(tmp_path, file, content):
    (tmp_path / "inputs.json").write_text('{"stage": "finetune", "labels": {}}')
    (tmp_path / "config.json").write_text("{}")
    read_settings(tmp_path, "multitask finetune", stage_named("finetune"), [])
    (tmp_path / file).write_text(content)
    with pytest.raises(InputError, match=str(tmp_path)):
        read_settings(tmp_path, "multitask finetune", stage_named("finetune"), [])


@pytest.mark.parametrize("content", ["a = " + "9" * 5000, "a = " + "[" * 5000, "a = \xff", "a = 1\na = 2"])
def test_toml_that_is_none_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "settings.toml").write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match=r"settings\.toml: not "):
        read_toml(tmp_path / "settings.toml")
    assert main(["finetune", "--config", str(tmp_path / "settings.toml")]) == 2


@pytest.mark.parametrize("argument", ["\r\n", "\0", "\x1b[31mred", "\udcff", "9" * 70_000, "a\nerror: b"])
def test_an_error_is_one_line_whatever_the_arguments_are(argument, capsys):
    assert main([argument]) == 2
    assert main(["report", argument]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("error: ") and line.isprintable() and len(line) <= LONGEST_ERROR for line in lines)


@pytest.mark.parametrize("length", ["12", 1.5, True, [], 2, -1])
def test_a_model_with_a_sentence_length_that_is_none_is_refused(world, model, tmp_path, length):
    [kept] = (world / model / "checkpoints").iterdir()
    path = copy(kept, tmp_path / "model") / "multitask.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_length": length}))
    with pytest.raises(InputError, match=r"multitask\.json: max_length is .*; expected a number of tokens"):
        MultitaskModel.load(path.parent, "cpu")


def test_cells_of_a_table_give_a_terminal_no_orders():
    assert aligned([["a\x1b[31m", "b"], ["c\n\x9b", "d"]]) == "a [31m  b\nc       d"


def test_cases_are_counted_and_a_traceback_and_a_hang_are_found(tmp_path):
    class Broken(Inputs):
        def table(self, draw):
            raise (KeyError, InputError, Hang, OSError)[draw.choice(range(4))]

    found, inputs = Found(), Broken(tmp_path, tmp_path, tmp_path)
    for number in range(40):
        try_case(inputs, "table", number, found)
    assert found.cases == {"table": 40}
    assert {problem.partition(" ")[0] for problem in found.problems} == {"KeyError", "unclear", "Hang", "OSError"}
    assert found.problems.total() == 40


@given(st.text())
def test_an_error_of_any_text_is_printable(text):
    line = error_line(InputError(text))
    assert line.isprintable()
    assert len(line) <= LONGEST_ERROR


@given(st.integers(0, 10**6), st.binary(max_size=200))
def test_equal_draws_give_equal_changes(number, content):
    assert mutated(content, random.Random(number)) == mutated(content, random.Random(number))


def test_changes_reach_every_part_of_a_value():
    value = {"a": [1, {"b": 2}], "c": "d"}
    found = {json.dumps(mutated_json(value, random.Random(number))) for number in range(500)}
    assert len(found) > 100
    assert json.dumps(value) not in found or len(found) > 1
    parts = [json.loads(text) for text in found]
    assert any(isinstance(part, dict) and part.get("a") == [1, {"b": None}] for part in parts)
