"""Settings in files and runs: saving and loading is a round trip; fields of dataclasses are options."""

import json
import shlex
import tomllib
from dataclasses import MISSING, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st

from minbert.errors import InputError
from minbert.settings import settings
from multitask.cli.arguments import POSITIONAL, Command, Option, build, options_of, parse
from multitask.cli.main import main
from multitask.cli.settings_file import read_settings, settings_of, values_from, write_settings
from multitask.stages.registry import stages
from multitask.training.settings import ObjectiveConfig, SchedulerConfig
from tests.multitask.cli.test_help import COMMANDS

CPU = ("--device", "cpu", "--precision", "fp32")
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(lambda text: text != "none")
OBJECTIVES = [
    ObjectiveConfig.of("vicreg", dissipation=0.3, weight=0.05),
    ObjectiveConfig.of("gradient", dissipation=None),
    ObjectiveConfig.of("mixed", ratio_of="met"),
]


def values_like(option: Option) -> st.SearchStrategy[Any]:
    """Values that an option may have. Most numbers are small, so that configurations accept them."""
    value: st.SearchStrategy[Any] = (
        st.sampled_from(option.choices)
        if option.choices
        else {
            bool: st.booleans(),
            int: st.one_of(st.integers(1, 300), st.integers(1, 2**63 - 1)),
            float: st.one_of(st.floats(0.01, 0.5), st.floats(1e-9, 1e9)),
            str: TEXTS,
            ObjectiveConfig: st.sampled_from(OBJECTIVES),
            SchedulerConfig: st.sampled_from([SchedulerConfig("dwa"), SchedulerConfig.of("cagrad", c=0.4)]),
            Path: TEXTS.map(lambda text: Path(f"{text}.npy")),
        }[option.kind]
    )
    values = st.lists(value, max_size=3).map(tuple) if option.several else value
    return st.one_of(st.none(), values) if option.may_be_none else values


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.declared()])
@of_hypothesis(max_examples=10, suppress_health_check=[HealthCheck.filter_too_much])  # commands refuse many settings
@given(data=st.data())
def test_what_is_saved_is_loaded(name, data, tmp_path_factory):
    command, path = COMMANDS[name], tmp_path_factory.getbasetemp() / "settings.toml"
    options = command.declared()
    changed = data.draw(st.lists(st.sampled_from(options), max_size=6, unique=True))
    defaults = {option.name: option.default for option in options}
    drawn = {o.name: data.draw(values_like(o)) for o in options if o in changed or o.default is MISSING}
    try:
        built = build(command.options, options, defaults | drawn)
    except InputError:
        assume(False)
    write_settings(path, name, drawn, defaults)
    loaded = read_settings(path, name, command.stage, options)
    read = {option.name: option.read(loaded[option.name]) for option in options if option.name in loaded}
    assert build(command.options, options, defaults | read) == built
    assert loaded.keys() <= drawn.keys()


@pytest.mark.parametrize("stage", stages().values(), ids=lambda stage: stage.name)
def test_a_configuration_may_be_nested_in_tables_as_it_is_flat(stage):
    """The keys of a run's config.json are nested; those of a saved file are not."""
    for option in options_of(stage.config, values=stage.config()):
        nested: Any = "value"
        for part in reversed(option.path):
            nested = {part: nested}
        for written in (nested, {option.name: "value"}, {".".join(option.path): "value"}):
            assert values_from(written, "x", list(options_of(stage.config)), "x") == {option.name: "value"}


@pytest.mark.parametrize(
    ("text", "value"),
    [("clip=0.5", 0.5), ("clip=none", "none"), ("optimizer.clip = 2", 2), ("clip='none'", "none"), ("clip=a=b", "a=b")],
)
def test_settings_on_the_command_line(text, value):
    assert settings_of([text], "x", COMMANDS["finetune"].declared()) == {"clip": value}


@pytest.fixture(scope="module")
def where(tiny_encoder, small_data, tmp_path_factory) -> list[str]:
    runs = tmp_path_factory.mktemp("runs")
    return ["--start", str(tiny_encoder), "--data", str(small_data), "--runs", str(runs), *CPU]


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    """The lines that a command prints."""
    assert main([str(argument) for argument in arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out.splitlines()


def test_a_command_saves_what_it_used_and_repeats_it(where, tmp_path, capsys):
    file = tmp_path / "new" / "settings.toml"
    settings = ["--tasks", "sentiment", "--epochs", 1, "--epoch-size", 16, "--set", "dropout=0.2", "clip=none"]
    *_, run = call(capsys, "finetune", *where, *settings, "--save-config", file)
    first = file.read_text().splitlines()[0]
    assert first == "# Settings of: multitask finetune --config settings.toml"
    written = tomllib.loads(file.read_text())
    assert (written["tasks"], written["epochs"], written["dropout"], written["clip"]) == (["sentiment"], 1, 0.2, "none")
    assert "batch_size" not in written
    assert call(capsys, "finetune", "--config", file)[-1] == run
    other = call(capsys, "finetune", "--config", file, "--epoch-size", 8)[-1]  # the command line overrides
    assert json.loads(Path(other, "config.json").read_text())["epoch_size"] == 8
    assert json.loads(Path(other, "config.json").read_text())["optimizer"]["clip"] is None
    # A run gives its settings too, with its start weights and its data.
    again = ["finetune", "--config", run, *where[4:]]
    assert call(capsys, *again)[-1] == run
    assert call(capsys, *again, "--epoch-size", 8)[-1] == other
    # It gives its precision, which decides the weights: one of the two is not the one that auto chooses.
    for precision in ("fp32", "bf16"):
        *_, run = call(capsys, "finetune", *where, *settings, "--precision", precision)
        assert call(capsys, "finetune", "--config", run, *where[4:-2])[-1] == run


def test_a_run_gives_its_settings_and_models(where, tiny_encoder, capsys):
    *_, run = call(capsys, "prune", *where, "--score", "magnitude", "--share", 0.5, "--rewind-to", tiny_encoder)
    assert call(capsys, "prune", "--config", run, *where[4:])[-1] == run


def test_data_of_the_command_line_take_the_place_of_the_settings_tasks_file(tiny_encoder, tmp_path, capsys):
    (tmp_path / "settings.toml").write_text("tasks_file = 'absent.toml'")
    data = ["--start", str(tiny_encoder), "--data", str(tmp_path)]
    assert main(["finetune", "--config", str(tmp_path / "settings.toml"), *data]) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / 'ids-sst-train.csv'}: no such file")


def test_a_model_of_the_command_line_has_no_revision_of_the_settings(tmp_path, capsys):
    (tmp_path / "settings.toml").write_text("start = 'owner/model'\nrevision = 'main'")
    where = ["--start", str(tmp_path / "absent"), "--data", str(tmp_path)]
    assert main(["finetune", "--config", str(tmp_path / "settings.toml"), *where]) == 2
    assert "revision" not in capsys.readouterr().err
    (tmp_path / "model.toml").write_text("model = 'owner/model'\nrevision = 'main'")
    assert main(["evaluate", "--config", str(tmp_path / "model.toml"), "--model", str(tmp_path)]) == 2
    assert "revision" not in capsys.readouterr().err


def test_a_label_with_a_revision(tmp_path):
    stage = stages()["finetune"]
    options = COMMANDS["finetune"].declared()
    labels = {"start": "owner/model@main", "data": "data"}
    (tmp_path / "inputs.json").write_text(json.dumps({"stage": "finetune", "labels": labels}))
    (tmp_path / "config.json").write_text(json.dumps({"epochs": 3, "epoch_size": None, "heads": {"dropout": 0.1}}))
    models = {"start": "owner/model", "revision": "main", "data": "data"}
    expected = models | {"epochs": 3, "epoch_size": None, "dropout": 0.1}
    assert read_settings(tmp_path, "multitask finetune", stage, options) == expected


@pytest.mark.parametrize(
    ("computed", "given", "warns"),
    [
        ("fp32", [], True),
        ("fp32", ["--precision", "auto"], False),
        ("fp32", ["--set", "precision=fp32"], False),
        ("bf16", [], False),
    ],
)
def test_a_runs_precision_is_warned_of_where_it_is_used_and_another_is_usual(
    computed, given, warns, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr("multitask.base.device._cpu_has_bf16", lambda: True)
    run = tmp_path / "run"
    run.mkdir()
    (run / "inputs.json").write_text(json.dumps({"stage": "finetune", "precision": computed, "labels": {}}))
    (run / "config.json").write_text("{}")
    assert main(["finetune", "--config", str(run), "--start", str(tmp_path), "--device", "cpu", *given]) == 2
    means = "computed in fp32, which may be slow on this machine; --precision auto takes bf16 here"
    assert [line for line in caplog.messages if "may be slow" in line] == [f"{run}: {means}"] * warns


def test_a_run_of_ensemble_gives_its_models_and_their_data(tmp_path, monkeypatch):
    began: list[tuple[Any, ...]] = []

    def run_stage(*given: Any) -> None:
        began.append(given)
        raise InputError("enough")

    monkeypatch.setattr("multitask.stages.run_stage.run_stage", run_stage)
    models, data = [str(tmp_path / "a b"), str(tmp_path / "c")], str(tmp_path / "own.toml")
    labels = {"members": shlex.join(models), "data": data}
    (tmp_path / "inputs.json").write_text(json.dumps({"stage": "ensemble", "labels": labels}))
    (tmp_path / "config.json").write_text('{"method": "average"}')
    (tmp_path / "settings.toml").write_text("model = 'one'\ndata = 'x'\nmethod = 'average'")

    def combined(config: Path, *given: str) -> tuple[list[str], str]:
        assert main(["ensemble", "--config", str(config), *given]) == 2
        _, weights, where, settings, *_ = began.pop()
        assert settings.method == "average"
        return [model.name for model in weights], str(where)

    assert combined(tmp_path) == (models, data)
    assert combined(tmp_path, "--data", "x") == (models, "x")
    # Another model has data of its own: outside a run, the sample.
    assert combined(tmp_path, "--model", "other") == (["other"], "data/sample")
    assert combined(tmp_path, "--model", "other", "--data", "x") == (["other"], "x")
    assert combined(tmp_path / "settings.toml", "--model", "other") == (["other"], "x")  # somebody has chosen them


def test_a_run_of_another_stage_is_refused(tmp_path, capsys):
    (tmp_path / "inputs.json").write_text('{"stage": "prune", "labels": {}}')
    (tmp_path / "config.json").write_text("{}")
    for command, takes in (("mlm", "a TOML file or a run of mlm"), ("predict", "a TOML file")):
        assert main([command, "--config", str(tmp_path)]) == 2
        found = f"error: {tmp_path}: a run of prune; `multitask {command} --config` takes {takes}\n"
        assert capsys.readouterr().err == found


def test_only_the_first_rank_saves(monkeypatch, where, tmp_path):
    monkeypatch.setenv("RANK", "1")
    assert main(["finetune", *where, "--save-config", str(tmp_path / "saved.toml"), "--start", "/no/such"]) == 2
    assert not list(tmp_path.iterdir())


def test_a_positional_option_may_come_from_the_file(tiny_encoder, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("good time\n")
    file, output = tmp_path / "settings.toml", tmp_path / "e.npy"
    call(capsys, "embed", tmp_path / "text.txt", output, "--model", tiny_encoder, *CPU, "--save-config", file)
    output.unlink()
    assert call(capsys, "embed", "--config", file) == [f"{output}: 1 embeddings of size 32"]


# Fields of dataclasses as options.


@settings
class Inner:
    """What is inside.

    More about it.
    """

    width: int | None = None
    """Width,
    in words."""


@settings
class Base:
    """A base."""

    place: Path = field(metadata=POSITIONAL, kw_only=True)
    """Where."""


@settings
class Outer(Base):
    """All."""

    inner: Inner = field(default_factory=lambda: Inner(7))
    names: tuple[str, ...] = ()
    """Names."""
    """Not a help text."""
    mode: Literal["a", "b"] = field(default="a", metadata={"help": "Mode."})


def test_options_are_the_fields_with_their_docstrings():
    assert list(options_of(Outer)) == [
        Option(("place",), Path, MISSING, "Where.", positional=True),  # required, and of the base
        Option(("inner", "width"), int, 7, "Width, in words.", "What is inside", may_be_none=True),
        Option(("names",), str, (), "Names.", several=True),
        Option(("mode",), Literal["a", "b"], "a", "Mode.", choices=("a", "b")),
    ]


def test_values_make_the_settings():
    values = {"place": Path("x"), "width": None, "names": ["n"], "mode": "b"}
    built = build(Outer, list(options_of(Outer)), values)
    assert built == Outer(place=Path("x"), inner=Inner(None), names=("n",), mode="b")


def read(kind: Any, *arguments: str) -> Any:
    """The value of an option `--the-name` of this type."""
    default = field(default=None, metadata={"help": "A name."})
    options = settings(type("Options", (), {"__annotations__": {"the_name": kind}, "the_name": default}))
    command = Command("name", options, "nowhere:nothing")
    (option,) = command.declared()
    return build(options, [option], {"the_name": option.read(parse("name", command, arguments)["the_name"])}).the_name


@pytest.mark.parametrize(
    ("kind", "texts", "value"),
    [
        *((int, ["12"], 12), (float, ["1e-5"], 1e-5), (float, ["2"], 2.0), (int | None, ["none"], None)),
        *((float | None, ["none"], None), (str | None, ["x"], "x"), (str, ["12"], "12")),
        *((Path, ["a b"], Path("a b")), (tuple[int, ...], ["1", "2"], (1, 2))),
        *((tuple[str, ...] | None, ["none"], None), (tuple[str, ...] | None, [], ())),
        *((Literal["a", "b"], ["b"], "b"), (Literal["a", "b"] | None, ["none"], None)),
        (tuple[Literal["a", "b"], ...], ["b", "a"], ("b", "a")),
    ],
)
def test_text_of_the_command_line(kind, texts, value):
    found = read(kind, "--the-name", *texts)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(("argument", "value"), [("--the-name", True), ("--no-the-name", False)])
def test_switches(argument, value):
    assert read(bool, argument) is value


@pytest.mark.parametrize(
    ("kind", "text"),
    [(int, "1.0"), (float | None, "x"), (tuple[int, ...], "x"), (tuple[Literal["a"], ...], "b"), (Literal["a"], "b")],
)
def test_text_of_another_type(kind, text):
    with pytest.raises(InputError):
        read(kind, "--the-name", text)
