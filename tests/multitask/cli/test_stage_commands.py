"""A stage is a command with its configuration as options; `explore` listens before it opens a browser."""

import json
import logging
import re
import socket
import webbrowser
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path

import pytest
import uvicorn

from minbert.files import write_json
from minbert.settings import AtLeastZero, settings
from multitask.base.runs import Run, Weights
from multitask.cli.main import main
from multitask.cli.train import stage_commands
from multitask.stages import registry
from multitask.stages.registry import START, ModelInput, Stage, register
from multitask.stages.run_stage import OpenRun
from tests.multitask.service.conftest import eventually

logger = logging.getLogger("multitask")


@settings
class Stirring:
    """How to stir."""

    speed: AtLeastZero = 1.0
    """Turns a second."""


@settings
class ToyConfig:
    """A toy."""

    spoons: int = 2
    """Number of spoons."""
    stirring: Stirring = field(default_factory=Stirring)


def compute(models: Sequence[Weights], _data: Path, _config: ToyConfig, run: OpenRun) -> None:
    logger.warning("early")
    run.on_evaluation(1, {})
    logger.warning("late")
    write_json(run.folder / "stirred.json", [str(model) for model in models])


def summary(run: Run) -> str:
    return f"stirred {run.folder.name}"


SALT = ModelInput("salt", "salt_revision", "A pinch of this.")
TOY = Stage("stir", ToyConfig, "Stir the weights.", inputs=(START, SALT), common=("spoons",))


@pytest.fixture
def toy(monkeypatch) -> Iterator[None]:
    """The stage `stir`, registered."""
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry.stages()))
    registry.stages.cache_clear()
    stage_commands.cache_clear()
    register(TOY)
    yield
    monkeypatch.undo()
    registry.stages.cache_clear()
    stage_commands.cache_clear()


@pytest.mark.usefixtures("toy")
def test_a_registered_stage_is_a_command(tiny_encoder, tmp_path, capsys, caplog):
    assert main(["--help"]) == 0
    assert re.search(r"^  stir +Stir the weights\.$", capsys.readouterr().out, re.MULTILINE)
    assert main(["stir", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(flag in text for flag in ("--start", "--data", "--spoons", "--runs", "--device", "--set"))
    assert not any(flag in text for flag in ("--salt", "--speed", "--precision", "--name", "--revision"))
    command = ["stir", "--runs", str(tmp_path), "--name", "soup", "--spoons", "3", "--set", "speed=0.5"]
    assert main([*command, "--start", str(tiny_encoder)]) == 0
    summary, folder = capsys.readouterr().out.splitlines()
    assert caplog.messages == ["early", "late", "early"]  # a long training has pushed the first one out of sight
    assert main([*command, "--start", str(tiny_encoder)]) == 0  # it is there
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"][3:] == []
    assert capsys.readouterr().out.splitlines() == [summary, folder]
    assert Path(folder).parent == tmp_path
    assert summary == f"stirred {Path(folder).name}"
    assert Path(folder).name.startswith("stir-soup-")
    assert json.loads(Path(folder, "config.json").read_text()) == {"spoons": 3, "stirring": {"speed": 0.5}}
    assert json.loads(Path(folder, "stirred.json").read_text()) == [str(tiny_encoder)]
    assert main([*command, "--salt", str(tiny_encoder)]) == 0
    folder = capsys.readouterr().out.splitlines()[-1]
    assert json.loads(Path(folder, "stirred.json").read_text()) == ["all-minilm-l6-v2", str(tiny_encoder)]
    assert main(["stir", "--set", "speed=-1"]) == 2
    assert "speed is -1; expected at least 0" in capsys.readouterr().err


@pytest.mark.usefixtures("toy")
def test_a_stage_that_is_not_distributed_refuses_torchrun(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "any")
    assert main(["stir", "--runs", str(tmp_path)]) == 2
    assert "torchrun is for distil, finetune, fuse, mlm and pretrain; run other" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# `multitask explore` listens before it opens a browser, on the loopback address only.


@pytest.fixture
def listening(monkeypatch) -> list[tuple[str, int]]:
    """The addresses that servers would answer on; they end at once."""
    found: list[tuple[str, int]] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: found.extend(s.getsockname() for s in sockets))
    return found


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(webbrowser, "open", found.append)
    return found


def arguments(encoder: Path, data: Path) -> list[str]:
    return ["explore", "--model", f"tiny={encoder}", "--data", str(data), "--rows", "5", "--device", "cpu"]


@pytest.mark.parametrize("wanted", [True, False])
def test_a_browser_is_opened_at_its_address_if_wanted(tiny_encoder, small_data, listening, opened, caplog, wanted):
    caplog.set_level("INFO")
    assert main([*arguments(tiny_encoder, small_data), "--port", "0", *["--no-browser"] * (not wanted)]) == 0
    ((host, port),) = listening
    assert host == "127.0.0.1"
    assert f"http://127.0.0.1:{port}/ (Ctrl-C stops)" in caplog.text
    eventually(lambda: len(opened) == wanted)
    assert opened == [f"http://127.0.0.1:{port}/"] * wanted


def test_without_its_data_a_model_is_shown_without_dev_sets(tiny_encoder, listening, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    command = ["explore", "--model", str(tiny_encoder), "--device", "cpu", "--port", "0", "--no-browser"]
    assert main(command) == 0
    assert "the page has no dev sets: data/sample/ids-sst-dev.csv: no such file" in caplog.text
    assert len(listening) == 1
    assert main([*command, "--data", "data/sample"]) == 2  # what is asked for must be there


def test_a_taken_port_is_an_error_before_a_browser_is_opened(tiny_encoder, small_data, listening, opened, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main([*arguments(tiny_encoder, small_data), "--port", str(port)]) == 2
    error = f"error: --port {port}: Address already in use; choose another, or 0 for a free one"
    assert error in capsys.readouterr().err
    assert (listening, opened) == ([], [])
