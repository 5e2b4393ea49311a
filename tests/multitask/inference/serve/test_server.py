"""Real servers under load: nothing that was accepted is lost, and clients that go, wait or dawdle cost nothing."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

from minbert.errors import InputError
from multitask.cli.arguments import parse
from multitask.cli.main import main
from multitask.cli.serve import COMMAND, Serve, serve
from multitask.inference.serve.app import create_app
from multitask.inference.serve.connection import LARGEST_HEAD, Connection
from multitask.inference.serve.limits import Limits
from tests.conftest import ROOT
from tests.multitask.inference.serve.conftest import build, eventually, served


def waiting(url: str) -> float:
    page = httpx2.get(f"{url}/metrics").text
    (value,) = re.findall(r"^multitask_waiting_inputs\{.*\} (\S+)$", page, re.MULTILINE)
    return float(value)


def count(url: str, path: str, status: int) -> float:
    page = httpx2.get(f"{url}/metrics").text
    found = re.findall(rf'^multitask_requests_total{{path="{path}",status="{status}"}} (\S+)$', page, re.MULTILINE)
    return float(found[0]) if found else 0


def hold(gated) -> None:
    """Let the batch of the service's start pass; later batches wait at the gate."""
    gated.batches.clear()
    gated.gate.clear()


async def ask(url: str, rows: list[str], path: str = "/v1/predict") -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=60) as client:
        return await client.post(url + path, json={"texts": rows})


def test_with_more_load_than_it_can_carry_it_refuses_some_and_answers_the_others(gated):
    """Twice what fits comes at once."""
    requests = [[f"time {number}", "good movie", "band " * number] for number in range(40)]
    gated.gate.set()
    with served(create_app({"tiny": gated}, Limits(texts=10, queue=60))) as url:
        hold(gated)

        async def load() -> list[httpx2.Response]:
            first = asyncio.create_task(ask(url, ["time"]))
            await asyncio.to_thread(eventually, lambda: gated.batches == [1])
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
            expected = gated.predict_all(rows)
            for found, prediction in zip(answer.json()["predictions"]["stars"], expected["stars"], strict=True):
                assert found["value"] == pytest.approx(prediction.value, abs=1e-5)
            for found, prediction in zip(answer.json()["predictions"]["mood"], expected["mood"], strict=True):
                assert found["probabilities"] == pytest.approx(dict(prediction.probabilities), abs=1e-5)
        assert asyncio.run(ask(url, ["time"])).status_code == 200


def test_a_request_that_waits_too_long_is_answered_with_504(gated):
    gated.gate.set()
    with served(create_app({"tiny": gated}, Limits(timeout=0.3))) as url:
        hold(gated)
        answer = asyncio.run(ask(url, ["time"] * 9))
        assert (answer.status_code, answer.json()) == (504, {"error": "no answer after 0.3 s; the service is busy"})
        late = asyncio.run(ask(url, ["time"]))  # the first request is still in the works
        assert late.status_code == 504
        assert waiting(url) == 0
        gated.gate.set()
        assert asyncio.run(ask(url, ["time"])).status_code == 200
    assert gated.batches == [9, 1]


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def receive(client: socket.socket, end: bytes) -> bytes:
    """An answer that ends with these bytes."""
    answer = b""
    while not answer.endswith(end):
        received = client.recv(2**16)
        assert received
        answer += received
    return answer


def until_the_end(client: socket.socket) -> bytes:
    """What a server sends until it closes the connection."""
    answer = b""
    try:
        while received := client.recv(2**16):
            answer += received
    except ConnectionError:
        pass
    return answer


def takes(client: socket.socket) -> bool:
    """Whether the server's end of the connection is open."""
    try:
        client.sendall(b"G")
    except ConnectionError:
        return False
    return True


CLOSING = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
CHUNKED = b"POST /v1/embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def head(length: int) -> bytes:
    return (
        f"POST /v1/embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def test_the_texts_of_a_client_that_went_are_not_computed(gated):
    gated.gate.set()
    with served(create_app({"tiny": gated}, Limits())) as url:
        hold(gated)
        body = b'{"texts": ["time", "band"]}'
        with connect(url) as first, connect(url) as second:
            first.sendall(head(len(body)) + body)
            eventually(lambda: gated.batches == [2])
            second.sendall(head(len(body)) + body)
            eventually(lambda: waiting(url) == 2)
        eventually(lambda: waiting(url) == 0)
        gated.gate.set()
        assert asyncio.run(ask(url, ["time"])).status_code == 200
    assert gated.batches == [2, 1]


def test_a_body_that_does_not_arrive_is_not_waited_for(gated):
    gated.gate.set()
    with served(create_app({"tiny": gated}, Limits(timeout=0.3))) as url, connect(url) as client:
        client.sendall(head(100) + b'{"texts"')
        answer = until_the_end(client)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b'{"error":"the body did not arrive in 0.3 s"}' in answer


def closes(client: socket.socket, piece: bytes) -> bytes:
    """What a server answers to a client that sends a piece ten times a second, until it closes the connection."""
    client.settimeout(0.1)
    answer, end = b"", time.monotonic() + 20
    while time.monotonic() < end:
        try:
            client.sendall(piece)
            received = client.recv(4096)
        except TimeoutError:
            continue
        except ConnectionError:
            return answer
        if not received:
            return answer
        answer += received
    pytest.fail("the connection is still open")


@pytest.mark.parametrize("piece", [b"", b"a", b"\r\n"], ids=["silence", "letters", "empty lines"])
@pytest.mark.parametrize("again", [False, True], ids=["first", "second"])
def test_headers_that_do_not_arrive_are_not_waited_for(model, piece, again):
    """Of the first request of a connection, and of one after an answer."""
    with served(create_app({"tiny": model}, Limits(timeout=0.5))) as url, connect(url) as client:
        if again:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert receive(client, b"ok").startswith(b"HTTP/1.1 200")
        if piece == b"a":
            client.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        assert closes(client, piece) == b""
        assert asyncio.run(ask(url, ["time"])).status_code == 200


def test_the_time_for_headers_is_not_that_of_the_answer(gated):
    """Each takes more than half of the limit."""
    gated.gate.set()
    with served(create_app({"tiny": gated}, Limits(timeout=3))) as url, connect(url) as client:
        hold(gated)
        request = head(len(body := b'{"texts": ["time"]}')) + body
        for piece in (request[:30], request[30:60], request[60:]):
            time.sleep(0.6)
            client.sendall(piece)
        eventually(lambda: gated.batches == [1])
        time.sleep(1.6)
        gated.gate.set()
        assert client.recv(65536).startswith(b"HTTP/1.1 200")


def test_endless_headers_are_cut_off(model):
    with served(create_app({"tiny": model}, Limits())) as url, connect(url) as client:
        with pytest.raises(ConnectionError):
            client.sendall(b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 10_000_000)
        assert asyncio.run(ask(url, ["time"])).status_code == 200


@pytest.mark.parametrize(("length", "accepted"), [(LARGEST_HEAD - 100, True), (LARGEST_HEAD, False)])
@pytest.mark.parametrize("header", [b"X: %s\r\n", b"%s"], ids=["one", "many"])
def test_a_head_that_is_too_large_is_refused_also_when_it_arrives_at_once(model, header, length, accepted):
    headers = header % (b"a:\r\n" * (length // 4) if header == b"%s" else b"a" * length)
    with served(create_app({"tiny": model}, Limits())) as url, connect(url) as client:
        client.sendall(CLOSING.replace(b"Host", headers + b"Host"))
        assert until_the_end(client).startswith(b"HTTP/1.1 200") == accepted


@pytest.mark.parametrize("token", [None, "secret"], ids=["accepted", "refused"])
def test_endless_trailers_are_cut_off(model, token):
    with served(create_app({"tiny": model}, Limits(), token)) as url, connect(url) as client:
        with pytest.raises(ConnectionError):
            client.sendall(CHUNKED + b"0\r\n" + b"a:b\r\n" * 1_000_000)
        assert httpx2.get(f"{url}/healthz").status_code == 200


def test_chunks_and_trailers_that_are_larger_than_a_head_in_all_are_answered(model):
    """Each piece arrives on its own; what counts is the size since the last piece of the body."""
    text = b" " * 40_000
    with served(create_app({"tiny": model}, Limits())) as url, connect(url) as client:
        for piece in (CHUNKED, b'12\r\n{"texts": ["time"]\r\n', b"9c40\r\n%s\r\n" % text, b"9c40\r\n%s\r\n" % text):
            client.sendall(piece)
            time.sleep(0.05)
        for piece in (b"1\r\n}\r\n0\r\n", b"A: %s\r\n" % text, b"\r\n", CLOSING):
            client.sendall(piece)
            time.sleep(0.05)
        assert until_the_end(client).count(b"HTTP/1.1 200") == 2


def test_a_body_that_goes_on_after_its_answer_is_not_read_for_ever(model):
    with served(create_app({"tiny": model}, Limits(timeout=0.5), "secret")) as url, connect(url) as client:
        client.sendall(CHUNKED)
        assert closes(client, b"1\r\na\r\n").startswith(b"HTTP/1.1 401")


def test_requests_that_follow_each_other_without_waiting_are_answered(model):
    """The body before a head does not count as part of the head."""
    body = b'{"texts": ["time"]' + b" " * 80_000 + b"}"
    request = head(len(body)) + body
    with served(create_app({"tiny": model}, Limits())) as url, connect(url) as client:
        client.sendall(request + request[:30])
        time.sleep(0.1)
        client.sendall(request[30:60])
        time.sleep(0.1)
        client.sendall(request[60:] + CLOSING)
        assert until_the_end(client).count(b"HTTP/1.1 200") == 3


def test_requests_are_not_read_ahead(model, monkeypatch):
    """Otherwise those of a client that sends faster than it is answered fill the memory."""
    waiting: list[int] = []
    read = Connection.data_received

    def observed(connection: Connection, data: bytes) -> None:
        waiting.append(len(connection.pipeline))
        read(connection, data)

    monkeypatch.setattr(Connection, "data_received", observed)
    with served(create_app({"tiny": model}, Limits())) as url, connect(url) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n" % (b"a" * 5_000) * 200 + CLOSING)
        assert until_the_end(client).count(b"HTTP/1.1 200") == 201
    assert len(waiting) > 2
    assert set(waiting) == {0}


@pytest.mark.parametrize("reads", [False, True])
def test_an_answer_that_is_not_read_is_not_kept_for_ever(model, reads):
    """The answers together are larger than the system's buffers."""
    requests = 400
    with served(create_app({"tiny": model}, Limits(timeout=3 if reads else 0.3))) as url, connect(url) as client:
        client.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * requests + CLOSING)
        time.sleep(0.5)
        if reads:
            assert until_the_end(client).count(b"HTTP/1.1 200") == requests + 1
        else:
            eventually(lambda: not takes(client))


def test_a_body_that_stops_half_way_is_no_failure(gated):
    gated.gate.set()
    with served(create_app({"tiny": gated}, Limits())) as url:
        with connect(url) as client:
            client.sendall(head(100) + b'{"texts"')
        assert asyncio.run(ask(url, ["time"])).status_code == 200
        assert count(url, "/v1/embed", 500) == 0


@pytest.fixture
def folder(tiny_encoder: Path, tmp_path: Path) -> Path:
    build(tiny_encoder).save(tmp_path / "model")
    return tmp_path / "model"


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
        (["--model"], "--model is empty"),
        (["--model", "MODEL", "x/../MODEL"], "no such checkpoint"),
        (["--model", "a=MODEL", "a=MODEL"], "two models are named a"),
        (["--model", "MODEL", "--port", "70000"], "port is 70000"),
        (["--model", "MODEL", "--queue", "10"], "queue is 10; expected at least 256"),
        (["--model", "MODEL", "--timeout", "0"], "timeout is 0"),
        (["--model", "MODEL", "--token-file", "TOKEN"], "expected one line of visible ASCII"),
    ],
)
def test_wrong_options_are_refused(folder, tmp_path, capsys, arguments, text):
    (tmp_path / "token").write_text("two words\n")
    named = {"MODEL": str(folder), "a=MODEL": f"a={folder}", "TOKEN": str(tmp_path / "token")}
    assert main(["serve", *(named.get(argument, argument) for argument in arguments)]) == 2
    assert text in capsys.readouterr().err


def test_models_may_be_given_at_once_or_one_by_one() -> None:
    for arguments in (["--model", "RUN", "b=RUN"], ["--model", "RUN", "--model", "b=RUN"]):
        assert parse("multitask serve", COMMAND, arguments)["model"] == ("RUN", "b=RUN")


def test_the_token_may_come_from_the_environment(folder, monkeypatch):
    monkeypatch.setenv("MULTITASK_TOKEN", "")
    with pytest.raises(InputError, match="MULTITASK_TOKEN: expected"):
        serve(Serve((str(folder),)))
