"""`multitask explore` listens before it opens a browser, on the loopback address only."""

import socket
import webbrowser
from pathlib import Path

import pytest
import uvicorn

from multitask.cli.main import main
from tests.multitask.service.conftest import eventually


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The addresses that servers would answer on; they end at once."""
    found: list[tuple[str, int]] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: found.extend(s.getsockname() for s in sockets))
    return found


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(webbrowser, "open", found.append)
    return found


def arguments(encoder: Path, data: Path) -> list[str]:
    return ["explore", "--model", f"tiny={encoder}", "--data", str(data), "--rows", "5", "--device", "cpu"]


def test_a_browser_is_opened_at_its_address(tiny_encoder, small_data, listening, opened):
    assert main([*arguments(tiny_encoder, small_data), "--port", "0"]) == 0
    ((host, port),) = listening
    assert host == "127.0.0.1"
    eventually(lambda: bool(opened))
    assert opened == [f"http://127.0.0.1:{port}/"]


def test_without_its_data_a_model_is_shown_without_dev_sets(tiny_encoder, listening, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    command = ["explore", "--model", str(tiny_encoder), "--device", "cpu", "--port", "0", "--no-browser"]
    assert main(command) == 0
    assert "the page has no dev sets: data/sample/ids-sst-dev.csv: no such file" in caplog.text
    assert len(listening) == 1
    assert main([*command, "--data", "data/sample"]) == 2  # what is asked for must be there


def test_no_browser_is_opened_if_not_wanted(tiny_encoder, small_data, listening, opened, caplog):
    caplog.set_level("INFO")
    assert main([*arguments(tiny_encoder, small_data), "--port", "0", "--no-browser"]) == 0
    assert f"http://127.0.0.1:{listening[0][1]}/ (Ctrl-C stops)" in caplog.text
    assert opened == []


def test_a_taken_port_is_an_error_before_a_browser_is_opened(tiny_encoder, small_data, listening, opened, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main([*arguments(tiny_encoder, small_data), "--port", str(port)]) == 2
    assert (
        f"error: --port {port}: Address already in use; choose another, or 0 for a free one" in capsys.readouterr().err
    )
    assert (listening, opened) == ([], [])
