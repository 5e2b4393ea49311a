"""A Ray cluster of two nodes on this machine, of which one can be lost as if its machine broke down."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

PORTS = (
    *("dashboard-agent-grpc-port", "dashboard-agent-listen-port", "metrics-export-port"),
    *("runtime-env-agent-port", "node-manager-port", "object-manager-port"),
)
"""With given ports, a node need not wait until its agents have chosen theirs."""
STARTED = "Ray runtime started"
STARTS = 5
"""How often Ray may give up the start of a node."""


class Nodes:
    """Two nodes with room for one job each. A context manager; drivers find the cluster by RAY_ADDRESS.

    Args:
        folder: the current folder of the nodes, and where they log.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started = 0
        self.temporary = tempfile.mkdtemp(prefix="ray-")  # paths of sockets must be short

    def __enter__(self) -> Self:
        [port] = _free_ports(1)
        os.environ["RAY_ADDRESS"] = f"127.0.0.1:{port}"
        self.head = self._start("--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={self.temporary}")
        self.second = self._second()
        return self

    def __exit__(self, *exception: object) -> None:
        for node in (self.second, self.head):
            _kill(node)
        shutil.rmtree(self.temporary, ignore_errors=True)
        del os.environ["RAY_ADDRESS"]

    def lose_one(self) -> None:
        """Kill the second node with all its processes, and start another one."""
        _kill(self.second)
        self.second = self._second()

    def _second(self) -> "subprocess.Popen[bytes]":
        return self._start(f"--address={os.environ['RAY_ADDRESS']}")

    def _start(self, *options: str) -> "subprocess.Popen[bytes]":
        """Start a node; on a busy machine, Ray may give up a start."""
        for _ in range(STARTS):
            if (node := self._try_to_start(*options)) is not None:
                return node
        raise SystemExit(f"{self.folder}: no node starts; the last one's log is node-{self.started}.log")

    def _try_to_start(self, *options: str) -> "subprocess.Popen[bytes] | None":
        """Start a node, in a process group of its own. None if Ray gives up."""
        ports = [f"--{name}={port}" for name, port in zip(PORTS, _free_ports(len(PORTS)), strict=True)]
        small = ["--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats"]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *small, *ports, *options]
        self.started += 1
        log = self.folder / f"node-{self.started}.log"
        with log.open("wb") as output:
            node = subprocess.Popen(
                command, cwd=self.folder, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        while STARTED not in log.read_text(errors="replace"):
            if node.poll() is not None:
                _kill(node)
                return None
            time.sleep(0.1)
        return node


def _kill(node: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(node.pid, signal.SIGKILL)
    node.wait()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [found.getsockname()[1] for found in sockets]
    for found in sockets:
        found.close()
    return ports
