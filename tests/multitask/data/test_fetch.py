"""Downloads from a local server that cuts connections, stalls, sends wrong content and refuses."""

import hashlib
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from minbert.errors import InputError
from multitask.data.fetch import ATTEMPTS, PublishedFile, fetch, load_sources

CONTENT = np.random.default_rng(0).bytes(300_000)


@dataclass
class Server:
    """What the server does, and how many requests it got."""

    address: str = ""
    content: bytes = CONTENT
    cuts: int = 0  # this many requests are cut after 100,000 bytes
    stalls: int = 0  # this many requests get nothing after 100,000 bytes
    released: threading.Event = field(default_factory=threading.Event)
    says_length: bool = True
    statuses: list[int] = field(default_factory=list)  # of the first requests
    requests: int = 0

    def source(self, kind: str = "sha256", file: str = "data.csv") -> PublishedFile:
        digest = hashlib.sha256(CONTENT).hexdigest()
        if kind == "git_blob":
            digest = hashlib.sha1(b"blob 300000\0" + CONTENT).hexdigest()
        return PublishedFile("set", "free", file, f"{self.address}/{file}", kind, digest, len(CONTENT))


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests += 1
            if state.statuses and (status := state.statuses.pop(0)) != 200:
                self.send_error(status)
                return
            self.send_response(200)
            if state.says_length:
                self.send_header("Content-Length", str(len(state.content)))
            self.end_headers()
            whole = not state.cuts and not state.stalls
            self.wfile.write(state.content if whole else state.content[:100_000])
            if state.cuts:
                state.cuts -= 1
            elif state.stalls:
                state.stalls -= 1
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
    return fetch([source], folder, timeout_seconds=5, pause_seconds=0.001)[0]


@pytest.mark.parametrize("kind", ["sha256", "git_blob"])
def test_downloads_and_verifies_and_does_it_once(server, tmp_path, kind):
    path = run(server.source(kind), tmp_path / "new" / "folder")
    assert path.read_bytes() == CONTENT
    run(server.source(kind), tmp_path / "new" / "folder")
    assert server.requests == 1
    assert [file.name for file in path.parent.iterdir()] == ["data.csv"]


def test_git_blob_id_is_gits(tmp_path, server):
    (tmp_path / "x").write_bytes(CONTENT)
    command = ["git", "hash-object", "--no-filters", "--stdin"]
    try:
        expected = subprocess.run(command, input=CONTENT, capture_output=True, check=True).stdout.decode().strip()
    except FileNotFoundError:
        pytest.skip("git is not installed")
    assert server.source("git_blob").checksum == expected


@pytest.mark.parametrize("says_length", [True, False])
def test_a_cut_connection_is_tried_again(server, tmp_path, says_length):
    server.cuts, server.says_length = 2, says_length
    assert run(server.source(), tmp_path).read_bytes() == CONTENT
    assert server.requests == 3


def test_a_silent_server_is_left_and_asked_again(server, tmp_path):
    server.stalls = 1
    assert fetch([server.source()], tmp_path, timeout_seconds=0.3, pause_seconds=0.001)[0].read_bytes() == CONTENT
    assert server.requests == 2


def test_without_success_no_file_is_left(server, tmp_path):
    server.cuts = ATTEMPTS
    with pytest.raises(InputError, match="connection cut after 100,000 of 300,000"):
        run(server.source(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_wrong_content_is_refused_and_removed(server, tmp_path):
    server.content = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    with pytest.raises(InputError, match="is not the published file and was removed") as caught:
        run(server.source(), tmp_path)
    assert server.source().checksum in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_not_found_is_one_line_at_once(server, tmp_path):
    server.statuses = [404]
    with pytest.raises(InputError) as caught:
        run(server.source(), tmp_path)
    assert str(caught.value) == f"{server.address}/data.csv: HTTP 404 Not Found"
    assert server.requests == 1
    assert list(tmp_path.iterdir()) == []


def test_a_busy_server_is_asked_again(server, tmp_path):
    server.statuses = [503, 429, 200]
    assert run(server.source(), tmp_path).read_bytes() == CONTENT
    assert server.requests == 3


def test_no_server_is_one_line(tmp_path, server):
    source = replace(server.source(), url="http://127.0.0.1:1/data.csv")
    with pytest.raises(InputError, match=r"not downloaded in 5 attempts \(.*refused") as caught:
        run(source, tmp_path)
    assert "\n" not in str(caught.value)


def test_another_file_of_that_name_is_not_overwritten_and_nothing_is_downloaded(server, tmp_path):
    (tmp_path / "mine.csv").write_text("my own data")
    with pytest.raises(InputError, match=r"mine\.csv: this file is not the published one"):
        fetch([server.source(), server.source(file="mine.csv")], tmp_path, pause_seconds=0.001)
    assert (tmp_path / "mine.csv").read_text() == "my own data"
    assert server.requests == 0


def test_only_the_named_sets_are_fetched(server, tmp_path):
    sources = [server.source(file="a.csv"), replace(server.source(file="b.csv"), name="other")]
    assert fetch(sources, tmp_path, ["other"]) == [tmp_path / "b.csv"]
    assert [file.name for file in tmp_path.iterdir()] == ["b.csv"]
    with pytest.raises(InputError, match="no data set is called some, thing; expected some of set, other"):
        fetch(sources, tmp_path, ["some", "other", "thing"])


def test_the_list_of_sources_is_complete_and_pinned():
    sources = load_sources()
    assert {source.name for source in sources} == {"sst", "quora", "sts", "cfimdb", "nli", "wikipedia"}
    assert len({source.file for source in sources}) == len({source.url for source in sources}) == len(sources) == 14
    for source in sources:
        assert source.url.startswith("https://")
        assert any(
            len(part) == 40 and int(part, 16) for part in source.url.split("/") if part.isalnum() and len(part) == 40
        )
        assert len(bytes.fromhex(source.checksum)) == {"sha256": 32, "git_blob": 20}[source.kind]
        assert source.terms
