"""Real servers under load: nothing that was accepted is lost, and no request is answered with a 5xx."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from minbert.errors import InputError
from multitask.cli.arguments import parse
from multitask.cli.main import find_command, main
from multitask.cli.serve import Serve, serve
from multitask.models.multitask_model import MultitaskModel
from multitask.service.app import create_app
from multitask.service.limits import Limits
from multitask.service.served_model import load_served
from tests.conftest import ROOT
from tests.multitask.service.conftest import build, eventually, served

READS = 3
"""Ways in which the model's tasks read a sentence that is to be predicted."""


def waiting(url: str) -> float:
    page = httpx2.get(f"{url}/metrics").text
    (value,) = re.findall(r"^multitask_waiting_inputs\{.*\} (\S+)$", page, re.MULTILINE)
    return float(value)


def count(url: str, path: str, status: int) -> float:
    page = httpx2.get(f"{url}/metrics").text
    found = re.findall(rf'^multitask_requests_total{{path="{path}",status="{status}"}} (\S+)$', page, re.MULTILINE)
    return float(found[0]) if found else 0


@contextmanager
def held(model: MultitaskModel, **limits: Any) -> Iterator[str]:
    """The URL of a service whose batches wait at the gate; that of its start has passed."""
    model.encoder.gate.set()
    with served(create_app({"tiny": model}, Limits(**limits))) as url:
        model.encoder.batches.clear()
        model.encoder.gate.clear()
        yield url


async def ask(url: str, rows: list[str], path: str = "/v1/predict") -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=60, verify=False) as client:  # certificates would take a while to load
        return await client.post(url + path, json={"texts": rows})


def test_with_more_load_than_it_can_carry_it_refuses_some_and_answers_the_others(gated_model, gated):
    """Twice what fits comes at once."""
    requests = [[f"time {number}", "good movie", "band " * number] for number in range(40)]
    with held(gated_model, texts=10, queue=60 * READS) as url:

        async def load() -> list[httpx2.Response]:
            first = asyncio.create_task(ask(url, ["time"]))
            await asyncio.to_thread(eventually, lambda: gated.batches == [READS])
            others = [asyncio.create_task(ask(url, rows)) for rows in requests]
            await asyncio.to_thread(eventually, lambda: count(url, "/v1/predict", 503) == 20)
            gated.gate.set()
            return [await first, *[await other for other in others]][1:]

        answers = asyncio.run(load())
        assert sorted(answer.status_code for answer in answers) == [200] * 20 + [503] * 20
        for answer, rows in zip(answers, requests, strict=True):
            if answer.status_code == 503:
                assert 1 <= int(answer.headers["retry-after"]) <= 60
                assert answer.json().keys() == {"error"}
                continue
            stars, expected = answer.json()["predictions"]["stars"], gated_model.predict("stars", rows)
            assert [found["value"] for found in stars] == pytest.approx([each.value for each in expected], abs=1e-5)
        assert asyncio.run(ask(url, ["time"])).status_code == 200


def test_a_request_that_waits_too_long_is_answered_with_504(gated_model, gated):
    with held(gated_model, timeout=0.3) as url:
        answer = asyncio.run(ask(url, ["time"] * 9))
        assert (answer.status_code, answer.json()) == (504, {"error": "no answer after 0.3 s; the service is busy"})
        late = asyncio.run(ask(url, ["time"]))  # the first request is still in the works
        assert late.status_code == 504
        assert waiting(url) == 0
        gated.gate.set()
        assert asyncio.run(ask(url, ["time"])).status_code == 200
    assert gated.batches == [9 * READS, READS]


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def head(length: int) -> bytes:
    return (
        f"POST /v1/embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def test_the_texts_of_a_client_that_went_are_not_computed(gated_model, gated):
    with held(gated_model) as url:
        body = b'{"texts": ["time", "band"]}'
        with connect(url) as first, connect(url) as second:
            first.sendall(head(len(body)) + body)
            eventually(lambda: gated.batches == [2])
            second.sendall(head(len(body)) + body)
            eventually(lambda: waiting(url) == 2)
        eventually(lambda: waiting(url) == 0)
        gated.gate.set()
        assert asyncio.run(ask(url, ["time"])).status_code == 200
    assert gated.batches == [2, READS]


@pytest.mark.parametrize("length", [{}, {"Content-Length": "20000000"}], ids=["chunked", "known"])
def test_a_too_large_body_is_read_before_the_answer(model, length):
    """urllib sends the whole body before it reads, and closes the connection."""
    with served(create_app({"tiny": model}, Limits())) as url:
        body = (b" " * 100_000 for _ in range(200))
        request = urllib.request.Request(f"{url}/v1/embed", body, {"Content-Type": "application/json"} | length)
        with pytest.raises(urllib.error.HTTPError, match="413"):
            urllib.request.urlopen(request)


def test_a_body_that_stops_half_way_is_no_failure(model):
    with served(create_app({"tiny": model}, Limits())) as url:
        with connect(url) as client:
            client.sendall(head(100) + b'{"texts"')
        assert asyncio.run(ask(url, ["time"])).status_code == 200
        assert count(url, "/v1/embed", 500) == 0


@pytest.fixture
def folder(tiny_encoder, tmp_path) -> Path:
    build(tiny_encoder).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.slow
def test_a_stop_under_load_loses_no_accepted_request(folder, tmp_path):
    log = tmp_path / "log"
    with log.open("w") as file:
        command = [sys.executable, "-m", "multitask", "serve", "--model", str(folder), "--port", "0"]
        server = subprocess.Popen(command, cwd=ROOT, stderr=file, env=os.environ | {"PYTHONPATH": str(ROOT)})
    try:
        eventually(lambda: "Uvicorn running on" in log.read_text() or server.poll() is not None)
        (url,) = re.findall(r"running on (http://\S+)", log.read_text())
        statuses, refused = asyncio.run(stop_under_load(url, server))
        assert server.wait(60) == -signal.SIGTERM
    finally:
        server.kill()
    assert set(statuses) == {200}
    assert refused == 12  # every client went on until nobody listened
    assert f"stopped; {len(statuses)} requests were answered, 0 were not" in log.read_text()


async def stop_under_load(url: str, server: "subprocess.Popen[bytes]") -> tuple[list[int], int]:
    """Clients that ask until the server is gone: the statuses of answers, and how many clients were refused."""
    statuses: list[int] = []

    async def client(number: int) -> int:
        async with httpx2.AsyncClient(timeout=60) as session:
            while True:
                try:
                    answer = await session.post(f"{url}/v1/embed", json={"texts": ["time band"] * (1 + 20 * number)})
                except httpx2.TransportError:
                    return 1
                assert len(answer.json()["embeddings"]) == 1 + 20 * number
                statuses.append(answer.status_code)

    clients = [asyncio.create_task(client(number)) for number in range(12)]
    while len(statuses) < 30:
        await asyncio.sleep(0.01)
    server.send_signal(signal.SIGTERM)
    return statuses, sum(await asyncio.gather(*clients))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--model", "a=MODEL", "a=MODEL"], "two models are named a"),
        (["--model", "MODEL", "--token-file", "TOKEN"], "expected one line of visible ASCII"),
        (["--model", "MODEL", "--token-file", "missing"], "missing: no such file"),
        (
            ["--model", "MODEL", "--port", "PORT"],
            "--host and --port: expected an address of this machine and a free port",
        ),
        (["--model", "MODEL", "--host", "no.such.invalid"], "cannot listen at no.such.invalid, port 8000"),
    ],
)
def test_wrong_options_are_refused(folder, tmp_path, capsys, arguments, text):
    (tmp_path / "token").write_text("two words\n")
    named = {"MODEL": str(folder), "a=MODEL": f"a={folder}", "TOKEN": str(tmp_path / "token")}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        named["PORT"] = str(taken.getsockname()[1])
        assert main(["serve", *(named.get(argument, argument) for argument in arguments)]) == 2
    assert text in capsys.readouterr().err


def test_a_model_whose_embeddings_are_not_finite_is_refused(tiny_encoder, tmp_path):
    model = build(tiny_encoder)
    model.encoder.bert.layers[-1].output_norm.weight.data *= 3e38
    model.save(tmp_path)
    with pytest.raises(InputError, match="the model's embeddings are not finite; its weights are damaged"):
        load_served(tmp_path, "cpu", "fp32")


def test_models_may_be_given_at_once_or_one_by_one():
    for arguments in (["--model", "RUN", "b=RUN"], ["--model", "RUN", "--model", "b=RUN"]):
        assert parse(*find_command(["serve", *arguments]))["model"] == ["RUN", "b=RUN"]


def test_the_token_may_come_from_the_environment(folder, monkeypatch):
    monkeypatch.setenv("MULTITASK_TOKEN", "")
    with pytest.raises(InputError, match="MULTITASK_TOKEN: expected"):
        serve(Serve(model=(str(folder),)))


# No request that schemathesis makes from the OpenAPI schema is answered with a 5xx.


# Which tasks a model has and how many texts a request may have is not in the schema, so valid data may be refused.
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
CASES = 5000


@pytest.mark.slow
def test_no_request_is_a_failure_of_the_service(model, tmp_path):
    pytest.importorskip("schemathesis", reason="needs: pip install schemathesis")
    tool = [sys.executable, "-m", "schemathesis.cli", "run", "--no-color"]
    options = ["--checks", CHECKS, "--max-examples", "1500"]
    with served(create_app({"tiny": model}, Limits())) as url:
        done = subprocess.run([*tool, *options, f"{url}/openapi.json"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    (cases,) = re.findall(r"([\d,]+) generated", done.stdout)
    print(cases, "cases")
    assert int(cases.replace(",", "")) >= CASES
