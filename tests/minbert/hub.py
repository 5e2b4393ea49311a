"""A local server that answers downloads as the Hugging Face hub does."""

import contextlib
import hashlib
import http.server
import json
import re
import threading
from collections.abc import Iterator

COMMIT = {"main": "a" * 40, "v1": "b" * 40}


class Hub(http.server.ThreadingHTTPServer):
    """Answers as the hub does; `repositories` maps id to revision to file name to content."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.repositories: dict[str, dict[str, dict[str, bytes]]] = {}
        self.gated: set[str] = set()  # ids of those that this user may not read
        self.requested: list[str] = []
        self.sizes: dict[str, int] = {}  # that are claimed of files
        self.damaged: dict[str, bytes] = {}  # what is sent instead of the files' content


def checksum(file: str, content: bytes) -> str:
    """The hub's: SHA-256 of large files, and git's SHA-1 of others."""
    if file.endswith((".safetensors", ".bin")):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class HubHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        if self.path.startswith("/api/models/"):
            self.answer_api()
        else:
            self.answer(with_body=True)

    def answer(self, with_body: bool) -> None:
        self.server.requested.append(self.path)
        name, _, rest = self.path.lstrip("/").partition("/resolve/")
        revision, _, file = rest.partition("/")
        revision = {commit: branch for branch, commit in COMMIT.items()}.get(revision, revision)
        headers = {"X-Repo-Commit": COMMIT.get(revision, ""), "X-Linked-Size": "0"}
        content, status = b"", 404
        if name in self.server.gated:
            headers, status = {"X-Error-Code": "GatedRepo"}, 403
        elif name not in self.server.repositories:
            headers = {"X-Error-Code": "RepoNotFound"}
        elif revision not in self.server.repositories[name]:
            headers = {"X-Error-Code": "RevisionNotFound"}
        elif file not in self.server.repositories[name][revision]:
            headers["X-Error-Code"] = "EntryNotFound"
        else:
            content, status = self.server.repositories[name][revision][file], 200
            size = self.server.sizes.get(file, len(content))
            headers |= {"ETag": f'"{checksum(file, content)}"', "X-Linked-Size": str(size)}
            content = self.server.damaged.get(file, content)
        self.send_response(status)
        for key, value in (headers | {"Content-Length": str(len(content))}).items():
            self.send_header(key, value)
        self.end_headers()
        if with_body:
            self.wfile.write(content)

    def answer_json(self, value: object, status: int = 200) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def answer_api(self) -> None:
        """Whether there is a repository, the commit of a revision, or its files."""
        self.server.requested.append(self.path)
        if (name := self.path.removeprefix("/api/models/")) in self.server.repositories:
            self.answer_json({"id": name})
            return
        if (found := re.match("/api/models/(.+)/(revision|tree)/([^?]+)", self.path)) is None:
            self.answer_json({"error": "no such repository"}, 404)
            return
        name, kind, revision = found.groups()
        revision = {commit: branch for branch, commit in COMMIT.items()}.get(revision, revision)
        files = self.server.repositories[name][revision]
        listed = [{"type": "file", "path": path, "size": len(files[path]), "oid": path} for path in files]
        self.answer_json(listed if kind == "tree" else {"id": name, "sha": COMMIT[revision]})

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def running(hub: Hub) -> Iterator[None]:
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
