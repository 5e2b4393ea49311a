"""Damaged settings and arguments of any kind are one printable line, never a traceback."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minbert.errors import InputError
from minbert.files import read_toml
from multitask.cli.main import LONGEST_ERROR, error_line, main
from multitask.cli.settings_file import read_settings
from multitask.stages.registry import stage_named

RUNS = {
    "inputs.json": (
        *("[]", "1", "{}", '{"stage": "finetune"}', '{"stage": "finetune", "labels": [1]}'),
        '{"stage": "finetune", "labels": {"start": 1}}',
    ),
    "config.json": ("[]", "null", '"text"'),
}


@pytest.mark.parametrize(("file", "content"), [(file, content) for file in RUNS for content in RUNS[file]])
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


def test_a_number_that_no_float_holds_is_refused(tmp_path, capsys):
    (tmp_path / "settings.toml").write_text(f"learning_rate = {10**400}")
    assert main(["finetune", "--config", str(tmp_path / "settings.toml")]) == 2
    assert "settings.toml: learning_rate is 1000" in capsys.readouterr().err


@pytest.mark.parametrize("argument", ["\r\n", "\0", "\x1b[31mred", "\udcff", "9" * 70_000, "a\nerror: b"])
def test_an_error_is_one_line_whatever_the_arguments_are(argument, capsys):
    assert main([argument]) == 2
    assert main(["report", argument]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("error: ") and line.isprintable() and len(line) <= LONGEST_ERROR for line in lines)


@given(st.text())
def test_an_error_of_any_text_is_printable(text):
    line = error_line(InputError(text))
    assert line.isprintable()
    assert len(line) <= LONGEST_ERROR


def test_a_long_error_keeps_its_beginning_and_its_end():
    line = error_line(InputError(f"a.toml: {'x' * 70_000}; expected a number"))
    assert line.startswith("error: a.toml: xxx")
    assert line.endswith("xxx; expected a number")


@pytest.mark.parametrize(
    "arguments", [["x" * 500], ["finetune", "--" + "x" * 500], ["finetune", "--epochs", "x" * 500]]
)
def test_an_argument_of_any_length_leaves_room_for_what_was_expected(arguments, capsys):
    assert main(arguments) == 2
    assert len(capsys.readouterr().err) < 300
