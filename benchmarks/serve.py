"""Load test of `multitask serve` beside a plain FastAPI + transformers server, over loopback.

    python -m benchmarks.serve [--model all-minilm-l6-v2] [--seconds 10] [--rounds 3] [--clients 1 8 64] [--texts 1 32]

Every server has one core and one thread, and the clients have another core. A client sends its next request when the
last is answered. The plain server computes one request at a time: it pads, truncates and takes the mean as a careful
user would, in inference mode, with weights in fp32 or in bf16, and writes JSON as fast as ours. All servers take turns,
so that a busy machine slows them alike; the first turn of each does not count. The reported cosine is the smallest
between ours and the others' embeddings of a sentence. Overload: twice as many clients as the queue has places.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from threading import Lock
from urllib.request import urlopen

import numpy as np
import torch

from benchmarks.measure import hide_gpus, machine, print_table
from multitask.base.runs import locate_model

SERVERS_CORE, CLIENTS_CORE = 0, 1
QUEUE = 384  # texts that may wait, under overload
PORT = 8765
LENGTH = 256  # tokens of a text, for the plain server; all-MiniLM-L6-v2's own limit


@dataclass
class Load:
    """What clients saw in a turn: answers within its time a second, seconds of each answer, and counts of statuses."""

    rate: float = 0
    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)


async def request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, texts: Sequence[str]
) -> tuple[int, bytes]:
    """One request on a connection that stays open. A client library would take more time than some servers."""
    body = json.dumps({"texts": texts}).encode()
    lines = ("POST /v1/embed HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json")
    head = "\r\n".join((*lines, f"Content-Length: {len(body)}", "", ""))
    writer.write(head.encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(answer.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return int(answer.split(b" ", 2)[1]), await reader.readexactly(length)


async def load(port: int, clients: int, texts: int, duration: float, sentences: list[str]) -> Load:
    found = Load()
    end = time.perf_counter() + duration

    async def client(seed: int) -> None:
        random = np.random.default_rng(seed)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
        while (start := time.perf_counter()) < end:
            chosen = [sentences[row] for row in random.integers(len(sentences), size=texts)]
            status, _ = await request(reader, writer, chosen)
            found.statuses[status] += 1
            if status == 200:
                now = time.perf_counter()
                found.seconds.append(now - start)
                found.rate += (now <= end) / duration
            else:
                await asyncio.sleep(0.1)
        writer.close()

    await asyncio.gather(*map(client, range(clients)))
    return found


async def embeddings(port: int, sentences: list[str]) -> np.ndarray:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    status, body = await request(reader, writer, sentences)
    writer.close()
    assert status == 200, f"port {port} answered {status}: {body[:500]!r}"
    rows = np.array(json.loads(body)["embeddings"])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@contextmanager
def running(port: int, *command: str) -> Iterator[int]:
    """A server on a core of its own; its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command, "--port", str(port)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: os.sched_setaffinity(0, {SERVERS_CORE}),
    )
    try:
        answers = False
        while not answers:
            time.sleep(0.2)
            with suppress(OSError):
                urlopen(f"http://127.0.0.1:{port}/healthz").close()
                answers = True
            if process.poll() is not None:  # also if another server answered on its port
                raise SystemExit(f"the server ended: python -m {' '.join(command)} --port {port}")
        yield port
    finally:
        process.terminate()
        process.wait()


def plain_server(model: str, port: int, precision: str) -> None:
    import uvicorn
    from fastapi import FastAPI, Response
    from pydantic import BaseModel
    from pydantic_core import to_json
    from transformers import AutoModel, AutoTokenizer

    folder = locate_model(model)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    encoder = AutoModel.from_pretrained(folder, dtype=torch.bfloat16 if precision == "bf16" else torch.float32).eval()
    one_at_a_time = Lock()
    app = FastAPI()

    class Texts(BaseModel):
        texts: list[str]

    @app.get("/healthz")
    def health() -> str:
        return "ok"

    @app.post("/v1/embed")
    def embed(asked: Texts) -> Response:
        with one_at_a_time, torch.inference_mode():
            batch = tokenizer(asked.texts, padding=True, truncation=True, max_length=LENGTH, return_tensors="pt")
            hidden = encoder(**batch).last_hidden_state
            mask = batch["attention_mask"][:, :, None]
            rows = ((hidden * mask).sum(1) / mask.sum(1)).float().tolist()
        return Response(to_json({"embeddings": rows}), media_type="application/json")

    uvicorn.run(app, port=port, access_log=False, log_level="warning")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="all-minilm-l6-v2")
    parser.add_argument("--sentences", type=Path, default=Path("data/sample/sentences.txt"))
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--texts", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--plain", choices=("fp32", "bf16"), help="be the plain server")
    parser.add_argument("--port", type=int, default=PORT)
    options = parser.parse_args()
    hide_gpus()
    if options.plain:
        plain_server(options.model, options.port, options.plain)
        return
    os.sched_setaffinity(0, {CLIENTS_CORE})
    print(
        f"{machine()}, one core and thread a server, {options.model}, {options.sentences}; "
        f"medians of {options.rounds} rounds of {options.seconds:g} s\n"
    )
    sentences = options.sentences.read_text(encoding="utf-8").splitlines()
    ours, plain = ("multitask", "serve", "--model", options.model), ("benchmarks.serve", "--model", options.model)
    with (
        running(options.port, *ours) as first,
        running(options.port + 1, *plain, "--plain", "fp32") as second,
        running(options.port + 2, *plain, "--plain", "bf16") as third,
    ):
        compare(options, {"ours": first, "plain, fp32": second, "plain, bf16": third}, sentences)
    with running(options.port, *ours, "--queue", str(QUEUE)) as server:
        found = asyncio.run(load(server, 2 * QUEUE, 1, options.seconds, sentences))
    counts = ", ".join(f"{count:,} with status {status}" for status, count in sorted(found.statuses.items()))
    print(f"\nOverload, {2 * QUEUE} clients and a queue of {QUEUE} texts: {counts}; no request without an answer.")


def compare(options: argparse.Namespace, servers: dict[str, int], sentences: list[str]) -> None:
    """Print the smallest cosines, and the table of all loads."""
    found = {name: asyncio.run(embeddings(port, sentences[:200])) for name, port in servers.items()}
    for name in list(servers)[1:]:
        print(f"smallest cosine of ours and {name}: {(found['ours'] * found[name]).sum(axis=1).min():.6f}")
    times = ("p50, ms", "p95, ms", "p99, ms")
    header = ["Clients", "Texts a request", "Server", "requests/s", "texts/s", *times, "ours / it"]
    print()
    print_table(header, rows(options, servers, sentences), texts=3)


def rows(options: argparse.Namespace, servers: dict[str, int], sentences: list[str]) -> Iterator[list[object]]:
    for texts, clients in product(options.texts, options.clients):
        turns: dict[str, list[Load]] = {name: [] for name in servers}
        for turn in range(options.rounds + 1):
            seconds = min(2, options.seconds) if turn == 0 else options.seconds
            for name, port in servers.items():
                turns[name].append(asyncio.run(load(port, clients, texts, seconds, sentences)))
        # The turn of median throughput.
        kept = {name: sorted(loads[1:], key=lambda one: one.rate)[options.rounds // 2] for name, loads in turns.items()}
        for name, one in kept.items():
            assert set(one.statuses) == {200}, f"{name} refused"
            quantiles = [f"{1000 * np.percentile(one.seconds, q):,.1f}" for q in (50, 95, 99)]
            speeds = [f"{one.rate:,.1f}", f"{one.rate * texts:,.0f}", *quantiles]
            yield [clients, texts, name, *speeds, f"{kept['ours'].rate / one.rate:.2f}x"]


if __name__ == "__main__":
    main()
