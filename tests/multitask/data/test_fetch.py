"""Downloads from a local server that cuts connections, stalls, sends wrong content and refuses."""

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from minbert.errors import InputError
from multitask.data.fetch import PublishedFile, fetch, load_sources
from tests.conftest import slow_after

CONTENT = np.random.default_rng(0).bytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
GIT_BLOB = hashlib.sha1(b"blob 300000\0" + CONTENT).hexdigest()  # equal to `git hash-object`


@dataclass
class Server:
    """What the server does with each request in turn, whole answers at the end; and how many requests it got."""

    address: str = ""
    content: bytes = CONTENT
    answers: list[str | int] = field(default_factory=list)  # "cut" or "stall" after 100,000 bytes, or a status
    says_length: bool = True
    requests: int = 0
    released: threading.Event = field(default_factory=threading.Event)

    def source(self, file: str = "data.csv", checksum: str = SHA256) -> PublishedFile:
        return PublishedFile("set", "free", file, f"{self.address}/{file}", checksum)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests += 1
            answer = state.answers.pop(0) if state.answers else "whole"
            if isinstance(answer, int):
                self.send_error(answer)
                return
            self.send_response(200)
            if state.says_length:
                self.send_header("Content-Length", str(len(state.content)))
            self.end_headers()
            self.wfile.write(state.content if answer == "whole" else state.content[:100_000])
            if answer == "stall":
                state.released.wait(60)

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        state.address = f"http://127.0.0.1:{http.server_port}"
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        yield state
        state.released.set()
        http.shutdown()


def run(source: PublishedFile, folder: Path) -> Path:
    return fetch([source], folder, timeout_seconds=0.5, pause_seconds=0.001)[0]


@pytest.mark.parametrize("checksum", [SHA256, GIT_BLOB])
def test_downloads_and_verifies_and_does_it_once(server, tmp_path, checksum):
    for _ in range(2):
        path = run(server.source(checksum=checksum), tmp_path / "new" / "folder")
        assert path.read_bytes() == CONTENT
    assert server.requests == 1
    assert [file.name for file in path.parent.iterdir()] == ["data.csv"]


@pytest.mark.parametrize("says_length", slow_after(1, [True, False]))
@pytest.mark.parametrize("answers", [["cut", "cut"], ["stall"], [503, 429]])
def test_what_fails_for_a_while_is_tried_again(server, tmp_path, says_length, answers):
    server.answers, server.says_length = list(answers), says_length
    assert run(server.source(), tmp_path).read_bytes() == CONTENT
    assert server.requests == len(answers) + 1


def test_what_keeps_failing_is_one_line_and_leaves_no_file(server, tmp_path):
    def error(source: PublishedFile) -> str:
        with pytest.raises(InputError) as caught:
            run(source, tmp_path)
        assert list(tmp_path.iterdir()) == []
        assert len(str(caught.value).splitlines()) == 1
        return str(caught.value)

    assert "refused" in error(replace(server.source(), url="http://127.0.0.1:1/data.csv"))
    server.answers = [404]
    assert error(server.source()) == f"{server.address}/data.csv: HTTP 404 Not Found"
    assert server.requests == 1
    server.content = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    assert f"300,000 bytes received are not the published file {SHA256}" in error(server.source())


def test_another_file_of_that_name_is_not_overwritten_and_nothing_is_downloaded(server, tmp_path):
    (tmp_path / "mine.csv").write_text("my own data")
    with pytest.raises(InputError, match=r"mine\.csv: this file is not the published one"):
        fetch([server.source(), server.source(file="mine.csv")], tmp_path, pause_seconds=0.001)
    assert (tmp_path / "mine.csv").read_text() == "my own data"
    assert server.requests == 0


def test_the_list_of_sources_is_complete_and_pinned():
    sources = load_sources()
    assert {source.name for source in sources} == {"sst", "quora", "sts", "cfimdb", "nli", "wikipedia"}
    assert len({source.file for source in sources}) == len({source.url for source in sources}) == len(sources) == 14
    for source in sources:
        assert source.url.startswith("https://")
        assert any(len(part) == 40 and int(part, 16) for part in source.url.split("/") if part.isalnum())
        assert len(bytes.fromhex(source.checksum)) in (20, 32)
        assert source.terms
    assert load_sources(["sts", "nli"]) == [source for source in sources if source.name in ("sts", "nli")]
    with pytest.raises(InputError, match="no data set is called some, thing; expected some of sst, quora, sts"):
        load_sources(["some", "nli", "thing"])
