"""Damaged settings and arguments of any kind are one printable line, never a traceback."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minbert.errors import InputError
from multitask.cli.main import LONGEST_ERROR, error_line, main
from multitask.cli.settings_file import read_settings
from multitask.stages.registry import stage_named

RUNS = {
    "inputs.json": ("[]", "1", "{}", '{"stage": "finetune"}', '{"stage": "finetune", "labels": {"start": 1}}'),
    "config.json": ("[]", "null", '"text"'),
}
HUGE = "9" * 5000


@pytest.mark.parametrize(("file", "content"), [(file, content) for file in RUNS for content in RUNS[file]])
def test_settings_of_a_damaged_run_are_refused_in_one_line(tmp_path, file, content):
    (tmp_path / "inputs.json").write_text('{"stage": "finetune", "labels": {}}')
    (tmp_path / "config.json").write_text("{}")
    read_settings(tmp_path, "multitask finetune", stage_named("finetune"), [])
    (tmp_path / file).write_text(content)
    with pytest.raises(InputError, match=str(tmp_path)):
        read_settings(tmp_path, "multitask finetune", stage_named("finetune"), [])


HOSTILE = ["a = " + "[" * 5000, '"b".' * 2000 + "a = 1", f"seed = 0x{'f' * 5000}"]


@pytest.mark.parametrize("content", [f"a = {HUGE}", "a = \xff", f"learning_rate = {10**400}", *HOSTILE])
def test_toml_that_is_none_is_refused_in_one_line(tmp_path, content, capsys):
    (tmp_path / "settings.toml").write_bytes(content.encode("latin-1"))
    assert main(["finetune", "--config", str(tmp_path / "settings.toml")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {tmp_path / 'settings.toml'}: ")


@pytest.mark.parametrize("value", ["[" * 5000, f"0x{'f' * 5000}", "{" + "b." * 20_000 + "a = 1}"])
def test_a_value_that_toml_cannot_hold_is_text(value, capsys):
    assert main(["finetune", "--set", f"seed={value}"]) == 2
    assert capsys.readouterr().err.startswith("error: --seed is ")


@pytest.mark.parametrize("argument", ["\r\n", "\0", "\x1b[31mred", "\udcff", "9" * 70_000, "a\nerror: b"])
def test_an_error_is_one_short_line_whatever_the_arguments_are(argument, capsys):
    for arguments in ([argument], ["report", argument], ["finetune", f"--{argument}"]):
        assert main(arguments) == 2
        line = capsys.readouterr().err.removesuffix("\n")
        assert line.startswith("error: ")
        assert line.isprintable()
        assert len(line) < 500


def test_a_file_name_that_is_no_utf8_is_named(capsys):
    assert main(["embed", "a\udcff.txt", "o.npy"]) == 2
    assert capsys.readouterr().err == "error: 'a\\udcff.txt': not UTF-8; rename the file\n"


@given(st.text())
def test_an_error_of_any_text_is_printable(text):
    line = error_line(InputError(text))
    assert line.isprintable()
    assert len(line) <= LONGEST_ERROR


def test_a_long_error_keeps_its_beginning_and_its_end():
    line = error_line(InputError(f"a.toml: {'x' * 70_000}; expected a number"))
    assert line.startswith("error: a.toml: xxx")
    assert line.endswith("xxx; expected a number")
