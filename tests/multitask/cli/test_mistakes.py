"""Mistakes and damage in arguments, settings, tasks files and data: each ends in one line, as in mistakes.toml."""

import base64
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minbert.errors import InputError
from multitask.__main__ import run
from multitask.cli.main import LONGEST_ERROR, error_line, main
from multitask.cli.settings_file import read_settings
from multitask.stages.registry import stage_named

TABLE = tomllib.loads(Path(__file__).with_name("mistakes.toml").read_text(encoding="utf-8"))
FILES: dict[str, str] = TABLE["files"]
CHECK = "data check --tasks-file tasks.toml"


def content(name: str, found: Any) -> bytes:
    """The bytes of a file of mistakes.toml."""
    match found:
        case str(text):
            return text.encode()
        case {"base64": text}:
            return base64.b64decode(text)
        case {"text": text, "encoding": encoding}:
            return text.encode(encoding)
        case {"text": text, "line": line, "times": times}:
            return (text + "".join(line.format(i) for i in range(times))).encode()
    text = FILES[name]
    for old, new in found.items():
        text = text.replace(old, new) if old else text + new
    return text.encode()


@pytest.fixture
def refused(tiny_encoder, small_data, tmp_path, monkeypatch, capsys):
    """Runs a command in a folder with files. It must print one line, end with 2 and write nothing."""
    monkeypatch.chdir(tmp_path)
    models = {"data check": ["--model", str(tiny_encoder)], "finetune": ["--start", str(tiny_encoder)]}

    def call(argv: str, line: str, **files: Any) -> None:
        for name, found in files.items():
            (tmp_path / name).write_bytes(content(name, found))
        command = next((name for name in models if argv.startswith(f"{name} -")), "")
        model = models.get(command, []) + ["--device", "cpu"] * (command == "finetune")
        rest, line = (
            text.replace("DATA", str(small_data)).replace("ENCODER", str(tiny_encoder))
            for text in (argv.removeprefix(command), line)
        )
        assert main([*command.split(), *model, *rest.split()]) == 2
        printed = capsys.readouterr()
        beginning, *more = line.split("...")
        assert printed.err[: 7 + len(beginning)] == f"error: {beginning}"
        assert printed.err.count("\n") == 1
        assert more or printed.err == f"error: {beginning}\n"
        assert printed.out == "" or command == "data check"
        assert {path.name for path in tmp_path.iterdir()} - {"runs"} == files.keys()
        assert not list(tmp_path.glob("runs/[!.]*"))

    return call


@pytest.mark.parametrize(("argv", "line"), TABLE["commands"])
def test_commands(argv, line, refused):
    refused(argv, line)


@pytest.mark.parametrize(("options", "line"), TABLE["finetune"])
def test_options_of_a_training(options, line, refused):
    refused(f"finetune --data DATA {options}", line)


@pytest.mark.parametrize(("command", "text", "line"), TABLE["settings"])
def test_settings(command, text, line, refused):
    refused(f"{command} --config settings.toml --save-config saved.toml", line, **{"settings.toml": text})


@pytest.mark.parametrize("mistake", TABLE["mistakes"], ids=lambda mistake: mistake[0])
def test_tasks_and_data(mistake, refused):
    line, files, argv = mistake + [{}, CHECK][len(mistake) - 1 :]
    refused(argv, line, **{**FILES, **files})


def test_without_a_mistake_nothing_is_printed(tiny_encoder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text + "Who was it?,HUM\n" * (name == "dev.csv"))
    assert main([*CHECK.split(), "--model", str(tiny_encoder)]) == 0
    assert capsys.readouterr().err == ""


BUILDING = """
import signal, sys
import multitask.cli.arguments
from multitask.__main__ import run

def build(*_):
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise RuntimeError("of pydantic") from None

multitask.cli.arguments.build = build
sys.argv[1:] = ["data", "check"]
sys.exit(run())
"""


def test_ctrl_c_while_settings_are_built_is_exit_code_130():
    done = subprocess.run([sys.executable, "-c", BUILDING], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "")


def test_ctrl_c_while_a_command_runs_is_exit_code_130(monkeypatch):
    monkeypatch.setattr("multitask.tasks.check.check_data", lambda *_: signal.raise_signal(signal.SIGINT))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        monkeypatch.setattr("sys.argv", ["multitask", "data", "check", "data"])
        assert run() == 130
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


WRITING = """
import os, signal, sys
from pathlib import Path
import multitask.tasks.check
from minbert.files import atomic_file
from multitask.__main__ import run

def write(*_):
    with atomic_file(Path("out")) as path:
        path.write_text("half")
        assert len(os.listdir()) == 1
        signal.raise_signal(signal.SIGTERM)

multitask.tasks.check.check_data = write
sys.argv[1:] = ["data", "check", "data"]
sys.exit(run())
"""


@pytest.mark.slow
def test_what_sigterm_ends_leaves_nothing_half_written(tmp_path):
    done = subprocess.run([sys.executable, "-c", WRITING], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_reader_that_ends_early_ends_the_command_without_a_word():
    command = [sys.executable, "-m", "multitask", "finetune", "--help-all"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as ended:
        assert ended.stdout
        assert ended.stderr
        ended.stdout.close()
        assert (ended.stderr.read(), ended.wait()) == (b"", 141)


# Damaged settings and arguments of any kind are one printable line, never a traceback.


RUNS = {
    "inputs.json": ("[]", "1", "{}", '{"stage": "finetune"}', '{"stage": "finetune", "labels": {"start": 1}}'),
    "config.json": ("[]", "null", '"text"'),
}
HUGE = "9" * 5000


@pytest.mark.parametrize(("file", "content"), [(file, content) for file in RUNS for content in RUNS[file]])
def test_settings_of_a_damaged_run_are_refused_in_one_line(tmp_path, capsys, file, content):
    run = tmp_path / "finetune-run-0123456789abcdef"
    run.mkdir()
    (run / "inputs.json").write_text('{"stage": "finetune", "labels": {}}')
    (run / "config.json").write_text("{}")
    read_settings(run, "multitask finetune", stage_named("finetune"), [])
    assert main(["experiments", "show", str(run)]) == 0
    (run / file).write_text(content)
    with pytest.raises(InputError, match=str(run)):
        read_settings(run, "multitask finetune", stage_named("finetune"), [])
    for runs in ([run], [run, run]):
        capsys.readouterr()
        assert main(["experiments", "show", *map(str, runs)]) == 2
        assert str(run) in capsys.readouterr().err


HOSTILE = ["a = " + "[" * 5000, '"b".' * 2000 + "a = 1", f"seed = 0x{'f' * 5000}"]


@pytest.mark.parametrize("content", [f"a = {HUGE}", "a = \xff", f"learning_rate = {10**400}", *HOSTILE])
def test_toml_that_is_none_is_refused_in_one_line(tmp_path, content, capsys):
    (tmp_path / "settings.toml").write_bytes(content.encode("latin-1"))
    assert main(["finetune", "--config", str(tmp_path / "settings.toml")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {tmp_path / 'settings.toml'}: ")


@pytest.mark.parametrize("value", ["[" * 5000, "1\ndropout = 0.5", f"0x{'f' * 5000}", "{" + "b." * 20_000 + "a = 1}"])
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


def test_an_error_of_a_disk_names_the_file_that_was_meant():
    error = IsADirectoryError(21, "Is a directory", ".c.toml.tmp/new", None, "c.toml")  # as of `Path.replace`
    assert error_line(error) == "error: c.toml: Is a directory"


def test_a_long_error_keeps_its_beginning_and_its_end():
    line = error_line(InputError(f"a.toml: {'x' * 70_000}; expected a number"))
    assert line.startswith("error: a.toml: xxx")
    assert line.endswith("xxx; expected a number")
