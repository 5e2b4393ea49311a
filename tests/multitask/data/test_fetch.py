"""Downloads from a local server that cuts connections, stalls, sends wrong content and refuses."""

import hashlib
import multiprocessing
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
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
    """What the server does, and the `Range` headers of the requests it got (None if a request had none)."""

    address: str = ""
    content: bytes = CONTENT
    cuts: int = 0  # this many requests are cut after 100,000 bytes
    stalls: int = 0  # this many requests get nothing after 100,000 bytes
    released: threading.Event = field(default_factory=threading.Event)
    pause: float = 0.0  # seconds after each 20,000 bytes
    honours_range: bool = True
    says_length: bool = True
    statuses: list[int] = field(default_factory=list)  # of the first requests
    ranges: list[str | None] = field(default_factory=list)

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
            wanted = self.headers["Range"]
            state.ranges.append(wanted)
            if state.statuses and (status := state.statuses.pop(0)) != 200:
                self.send_error(status)
                return
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and state.honours_range else 0
            if start and start >= len(state.content):
                self.send_error(416)
                return
            body = state.content[start:]
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(state.content) - 1}/{len(state.content)}")
            if state.says_length:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if state.cuts:
                state.cuts -= 1
                body = body[:100_000]
            elif state.stalls:
                state.stalls -= 1
                self.wfile.write(body[:100_000])
                state.released.wait(60)
                return
            with suppress(ConnectionError):  # the client was killed
                for begin in range(0, len(body), 20_000) if state.pause else ():
                    self.wfile.write(body[begin : begin + 20_000])
                    time.sleep(state.pause)
                if not state.pause:
                    self.wfile.write(body)

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
    assert server.ranges == [None]
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
def test_a_cut_connection_is_resumed_where_it_broke(server, tmp_path, says_length):
    server.cuts, server.says_length = 2, says_length
    assert run(server.source(), tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=100000-", "bytes=200000-"]


def test_killed_at_random_moments_it_leaves_no_half_file_and_ends_with_the_same_bytes(server, tmp_path):
    draw, path, part = random.Random(0), tmp_path / "data.csv", tmp_path / "data.csv.part"
    server.pause = 0.002
    complete = 0
    for number in range(30):
        process = multiprocessing.get_context("fork").Process(target=run, args=(server.source(), tmp_path))
        process.start()
        if number % 2:
            time.sleep(draw.uniform(0, 0.03))
        else:  # a slow machine would not have begun by then
            wanted, longest = draw.randrange(1, len(CONTENT)), time.monotonic() + 1
            while not path.exists() and size(part) < wanted and time.monotonic() < longest:
                time.sleep(0.0005)
        os.kill(process.pid, draw.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
        process.join(5)
        process.kill()  # it may wait for a lock that a thread of the server held when it began
        process.join()
        if path.exists():
            assert path.read_bytes() == CONTENT
            path.unlink()
            complete += 1
    assert complete < 30
    assert run(server.source(), tmp_path).read_bytes() == CONTENT
    assert [file.name for file in tmp_path.iterdir()] == ["data.csv"]
    assert any(server.ranges)


def size(path: Path) -> int:
    """Bytes of a file that another process may rename at any time."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def test_a_second_run_continues_a_partial_download(server, tmp_path):
    server.cuts = ATTEMPTS
    server.honours_range = False
    with pytest.raises(InputError, match=r"not downloaded in 5 attempts \(connection cut after 100,000 of 300,000"):
        run(server.source(), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["data.csv.part"]
    server.ranges.clear()
    server.honours_range = True
    assert run(server.source(), tmp_path).read_bytes() == CONTENT
    assert server.ranges == ["bytes=100000-"]
    assert [file.name for file in tmp_path.iterdir()] == ["data.csv"]


def test_a_server_that_ignores_the_range_starts_the_file_anew(server, tmp_path):
    server.cuts, server.honours_range = 1, False
    assert run(server.source(), tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=100000-"]


def test_a_silent_server_is_left_and_asked_for_the_rest(server, tmp_path):
    server.stalls = 1
    assert fetch([server.source()], tmp_path, timeout_seconds=0.3, pause_seconds=0.001)[0].read_bytes() == CONTENT
    assert server.ranges[0] is None
    assert server.ranges[-1].startswith("bytes=")


@pytest.mark.parametrize("length", [300_000, 400_000])
def test_a_part_as_long_as_the_file_or_longer_is_replaced(server, tmp_path, length):
    (tmp_path / "data.csv.part").write_bytes(bytes(length))
    assert run(server.source(), tmp_path).read_bytes() == CONTENT
    assert server.ranges == [f"bytes={length}-", None]


def test_a_whole_part_only_needs_its_name(server, tmp_path):
    (tmp_path / "data.csv.part").write_bytes(CONTENT)
    assert run(server.source(), tmp_path).read_bytes() == CONTENT
    assert server.ranges == []


@pytest.mark.parametrize("part", [None, bytes(1000)], ids=["fresh", "resumed"])
def test_wrong_content_is_refused_and_removed(server, tmp_path, part):
    if part is None:
        server.content = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    else:
        (tmp_path / "data.csv.part").write_bytes(part)
    with pytest.raises(InputError, match="is not the published file and was removed") as caught:
        run(server.source(), tmp_path)
    assert "\n" not in str(caught.value)
    assert server.source().checksum in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_page_in_place_of_the_file_is_refused(server, tmp_path):
    server.content = b"<html>Please log in</html>"
    with pytest.raises(InputError, match="is not the published file"):
        run(replace(server.source(), size=None), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_not_found_is_one_line_at_once(server, tmp_path):
    server.statuses = [404]
    with pytest.raises(InputError) as caught:
        run(server.source(), tmp_path)
    assert str(caught.value) == f"{server.address}/data.csv: HTTP 404 Not Found"
    assert len(server.ranges) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_busy_server_is_asked_again(server, tmp_path):
    server.statuses = [503, 429, 200]
    assert run(server.source(), tmp_path).read_bytes() == CONTENT
    assert len(server.ranges) == 3


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
    assert server.ranges == []


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


def test_a_server_that_sends_more_than_the_file_has_is_stopped(server, tmp_path):
    server.content, server.says_length = CONTENT * 4, False
    with pytest.raises(InputError, match=r"sends more than the 300,000 bytes that are expected; stopped"):
        fetch([server.source()], tmp_path, pause_seconds=0)
    assert not list(tmp_path.iterdir())
