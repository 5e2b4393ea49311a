"""Help lists every command and explains every option, and imports nothing heavy; bash completes all of it."""

import inspect
import os
import re
import subprocess
import sys
from collections import defaultdict
from contextlib import redirect_stdout
from dataclasses import MISSING
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from minbert.errors import InputError
from multitask.cli.arguments import Command, Group, Option, build, refuse_changed
from multitask.cli.main import every_command, main
from multitask.objectives import OBJECTIVES
from multitask.training.schedulers import SCHEDULERS
from tests.conftest import ROOT
from tests.multitask.declared import model_of_every_kind

COMMANDS: dict[str, Command] = {
    name: command
    for found in every_command()
    for name, command in (
        [(f"{found.name} {member.name}", member) for member in found.commands]
        if isinstance(found, Group)
        else [(found.name, found)]
    )
}
PROMISED = {
    *("finetune", "pretrain", "mlm", "fuse", "prune", "evaluate", "predict", "ensemble", "embed", "probe", "export"),
    "distil",
    *("search", "mine", "serve", "explore", "simulate", "report", "data check", "data sample", "data fetch"),
    *(f"experiments {name}" for name in ("run", "plan", "list", "show")),
}

# Flags that are explained in other words where they do the same to other things: a batch of pairs or of sentences, the
# seed of dropout or of folds, negatives within a batch or for an anchor.
EXPLAINED_BY_EACH = {
    f"--{name}"
    for name in (
        *("batch-size", "batches", "data", "input", "max-length", "model", "negatives", "output", "rounds", "seed"),
        *("seeds", "unlabelled", "sources", "task", "threads", "trials", "train-limit"),
    )
}


def page(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_no_command_is_lost():
    assert COMMANDS.keys() >= PROMISED


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]], ids=str)
def test_the_list_has_a_line_for_each_command(arguments, capsys):
    text = page(capsys, *arguments)
    for found in every_command():
        (line,) = re.findall(rf"^  {found.name} +(\S.*)$", text, re.MULTILINE)
        assert line == found.help.splitlines()[0]
    assert max(map(len, text.splitlines())) <= 120
    assert all(f"  {name} " in page(capsys, "data") for name in ("check", "fetch", "sample"))
    assert text.index("Train a model:") < text.index("Use a model:") < text.index("Data:") < text.index("Studies:")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_what_people_use_and_help_all_everything(name, capsys):
    short, whole = page(capsys, *name.split(), "--help"), page(capsys, *name.split(), "--help-all")
    options = [*COMMANDS[name].declared(), *COMMANDS[name].general()]

    def in_page(text: str) -> set[str]:
        shown = re.findall(r"^  (--[a-z0-9-]+|[A-Z_]+)", text, re.MULTILINE)
        return {flag if flag.startswith("--") else flag.lower() for flag in shown}

    options = [option for option in options if not option.refused]
    assert in_page(whole) == {option.flag for option in options if COMMANDS[name].is_flag(option)}
    assert len(in_page(whole)) <= 46
    hidden = {option.name for option in options if not COMMANDS[name].is_flag(option)}
    assert set(re.findall(r"^  ([a-z_0-9]+)=", whole, re.MULTILINE)) == hidden
    assert in_page(short) <= in_page(whole)
    assert len(in_page(short)) <= 18
    assert short.splitlines()[-1] == f"--help-all shows all options ({len(options)})."
    assert "--config" in short


# What further settings options need, one set or another of their command.
WITH: dict[str, list[dict[str, Any]]] = {
    "pretrain": [
        *({"momentum": 0.9}, {"mlm_weight": 1.0}, {"probe_every": 1}, {"sources": ["quora"]}),
        *({"negatives": "random"}, {"negatives": "unlike"}),
    ],
    "fuse": [{"unlabelled": ["quora"]}, {"smart_weight": 1.0}, {"negatives": "random"}, {"negatives": "unlike"}],
    "distil": [{"unlabelled": ["x.txt"]}, {"embedding_loss": "mse"}, {"smart_weight": 1.0}],
    "mlm": [{"from_scratch": True}],
    "prune": [{"score": "task"}],
    "ensemble": [{"method": "greedy"}, {"method": "soup"}],
    "tune": [{"trials": 1}],
    "evaluate": [{"suite": "transfer", "data": "x"}, {"input": "x.csv"}],
    "predict": [{"input": "x.csv"}, {"input": "-"}],
    "mine": [{"corpus": "x.csv"}, {"sampling": "random"}, {"text": ["a", "b"]}, {"ranks": [1, 200]}],
    "export": [{"to": "onnx"}, {"to": "onnx", "with_heads": True}, {"to": "onnx", "with_heads": True, "data": "x"}],
    "data check": [{"folder": "data"}],
} | {name: [{"smart_weight": 1.0}] for name in ("finetune", "experiments run", "experiments plan")}


def values_of(option: Option) -> list[Any]:
    """Some that its type takes, and not the default."""
    of_kind = {
        bool: [True, False],
        int: [3, 2, 200],
        float: [0.25, 2.0],
        Path: ["x.npy"],
        str: ["x", "encoder", "ascii"],
    }
    values = option.choices or of_kind.get(option.kind, ["met", "pcgrad", "x"])
    given = [[value] if option.several else value for value in values]
    return [value for value in given if value != option.default]


def refusal(command: Command, given: dict[str, Any]) -> str:
    """The error of a command that is given these options, before it does anything; empty if it takes them."""
    options = command.declared()
    usual = {o.name: values_of(o)[0] if o.default is MISSING else o.default for o in options}
    try:
        refuse_changed(options, build(command.options, options, usual | given))
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_is_taken_or_is_refused_with_its_reason_and_in_no_help(name):
    for option in COMMANDS[name].declared():
        each = [{option.name: value, **more} for more in [{}, *WITH.get(name, [])] for value in values_of(option)]
        refusals = [refusal(COMMANDS[name], given) for given in each]
        assert ("" not in refusals) if option.refused else ("" in refusals), option.name
        assert any(option.refused in text for text in refusals), option.name


@pytest.mark.parametrize("given", [{"scheduler": "average"}, {"untrained": []}, {"new_heads": True}], ids=str)
def test_the_default_of_a_refused_option_is_taken_as_text_too(given):
    assert refusal(COMMANDS["experiments plan"], given) == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_help_text_and_a_name_of_its_own(name):
    options = [*COMMANDS[name].declared(), *COMMANDS[name].general()]
    assert [option.flag for option in options if not option.help] == []
    assert len({option.name for option in options}) == len(options)
    assert set(COMMANDS[name].common) <= {option.name for option in options}


def test_a_flag_means_one_thing():
    """The first sentences of its help texts are equal in all commands."""
    meanings = defaultdict(set)
    for command in COMMANDS.values():
        for option in (option for option in command.declared() if not option.positional):
            meanings[option.flag].add(re.split(r"(?<=\.)\s", option.help)[0])
    assert {flag for flag, texts in meanings.items() if len(texts) > 1} == EXPLAINED_BY_EACH


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("finetune", "start data tasks-file tasks epochs epoch-size batch-size learning-rate head-learning-rate"),
        ("fuse", "start data tasks-file tasks epochs epoch-size batch-size learning-rate head-learning-rate"),
        ("distil", "teacher start data tasks-file tasks epochs epoch-size learning-rate"),
        ("pretrain", "start data tasks-file sources objective epochs batch-size learning-rate"),
        ("mlm", "start data tasks-file sources from-scratch epochs batch-size learning-rate"),
        ("evaluate", "model data tasks-file task"),
        ("predict", "model input output task data tasks-file"),
        ("probe", "model data source objective"),
        ("export", "model output to"),
        ("ensemble", "model data tasks-file method"),
    ],
)
def test_help_begins_with_what_people_set(name, first, capsys):
    flags = re.findall(r"^  --([a-z0-9-]+)", page(capsys, name, "--help"), re.MULTILINE)
    assert " ".join(flags).startswith(f"{first} ")


def test_help_shows_defaults(capsys):
    text = " ".join(page(capsys, "fuse", "--help-all").split())
    assert "(default: all-minilm-l6-v2)" in text
    assert "(default: sentiment)" in text  # of the fusion's own tasks, not of the class that declares them
    assert "Also keep the best checkpoint of each task, for ensembles. (default: on)" in text
    assert "Seed of new layers, dropout, data order and other random choices. (default: 0)" in text
    assert "Also write TensorBoard event files. (default: off)" in text
    assert "10% replaced" in " ".join(page(capsys, "mlm", "--help-all").split())
    assert "(default: )" not in page(capsys, "predict", "--help-all")


@pytest.mark.parametrize("name", ["experiments run", "experiments plan"])
def test_each_preset_is_explained(name):
    (preset,) = (option for option in COMMANDS[name].declared() if option.positional)
    assert re.findall("`([a-z-]+)`", preset.help) == list(preset.choices)


@pytest.mark.parametrize(
    ("command", "option", "classes", "name"),
    [
        *((command, "objective", OBJECTIVES, "vicreg") for command in ("pretrain", "fuse", "probe")),
        *((command, "scheduler", SCHEDULERS, "cagrad") for command in ("finetune", "fuse")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_objectives_and_schedulers_are_named_and_explained(command, option, classes, name, capsys):
    text = page(capsys, command, "--help-all")
    assert f"--{option} NAME[:PARAMETER=VALUE,...]" in text
    listed = page(capsys, command, f"--help-{option}", "all").splitlines()
    assert [line.partition(": ")[0] for line in listed] == list(classes)
    assert page(capsys, command, f"--help-{option}", name) == classes.describe(name) + "\n"


def test_help_and_refusals_of_settings_import_nothing_heavy():
    """In a fresh process: what nothing has imported at the end, no page or refusal has imported."""
    code = inspect.cleandoc(f"""
        import sys
        from multitask.cli.main import main
        pages = [([*command, "--help"], 0) for command in {[[], *(name.split() for name in COMMANDS)]!r}]
        for command, code in [*pages, *(([name, "--epochs", "0"], 2) for name in ("finetune", "pretrain"))]:
            assert main(command) == code
            slow = {{"torch", "transformers", "tokenizers", "sklearn", "scipy", "matplotlib"}} & set(sys.modules)
            assert not slow, (command, slow)
    """)
    checked = os.environ | {"PYTHONOPTIMIZE": ""}  # the asserts above are all that it does
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=checked, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("usage: multitask") == 1 + len(COMMANDS)


# The completion script completes commands, options and choices.


COMPLETE = """
complete_words() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_multitask; echo "${{COMPREPLY[@]}}"; }}
complete_words multitask {words}
"""


@pytest.fixture(scope="module")
def script() -> str:
    """For bash."""
    with redirect_stdout(StringIO()) as printed:
        assert main(["--print-completion", "bash"]) == 0
    return printed.getvalue()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        *(('"fi"', "finetune"), ('"s"', "search serve simulate"), ('data ""', "check sample fetch")),
        *(('data "f"', "fetch"), ('experiments "l"', "list")),
        ('finetune "--task"', "--tasks-file --tasks --task-weights"),
        *(('finetune --epochs 3 "--save"', "--save-every --save-config"), ('finetune --precision "f"', "fp32")),
        *(('data fetch "--f"', "--folder"), ('data check "--h"', "--help --help-all")),
        *(('experiments run sample --engine ""', "local ray"), ('finetune "x"', "")),
    ],
)
def test_bash(words, expected, script):
    command = script + COMPLETE.format(words=words)
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    assert ended.stdout.split() == expected.split()


# Commands that people wait for import only what they need: pandas and scipy took longer than predicting three rows.


SLOW = ("pandas", "pyarrow", "scipy", "sklearn", "matplotlib", "transformers", "torch._dynamo")


def test_commands_bound_the_cache_of_kernels_unless_the_user_has_set_it(monkeypatch, capsys):
    for given, expected in (("7", "7"), (None, "256")):
        monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", given or "")
        if given is None:
            monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY")
        assert main(["--version"]) == 0
        assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == expected


@pytest.mark.slow
def test_predict_and_embed_import_no_slow_package_that_they_do_not_use(tmp_path, tiny_encoder):
    model_of_every_kind(tiny_encoder).save(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("A gem.\nBad.\n", encoding="utf-8")
    commands = [
        ["predict", "--model", "model", "--task", "topic", "--input", "texts.txt", "--output", "predicted.csv"],
        ["embed", "texts.txt", "embeddings.npy", "--model", "model"],
    ]
    code = (
        "import sys; from multitask.cli.main import main; "
        f"print([main(command) for command in {commands}], [name for name in {SLOW} if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.stdout.splitlines()[-1] == "[0, 0] []", ended.stderr
    assert (tmp_path / "embeddings.npy").is_file()
