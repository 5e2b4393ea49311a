"""The queue: what waits is computed together, in turns; what is cancelled is dropped; what is too much is refused."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest
import torch
from tokenizers import Regex
from tokenizers.normalizers import Replace
from torch import Tensor

from minbert.errors import InputError
from multitask.service.batching import Batcher, Metrics, QueueFull
from tests.multitask.service.conftest import Gated

WORDS = ["time", "band", "good", "movie", "film", "man", "woman", "the", "a", "of"]


Finish = Callable[[Tensor, int], Tensor]


def texts(count: int, seed: int = 0) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(1, 20))) for _ in range(count)]


def embeddings(found: Tensor, _tokens: int) -> Tensor:
    return found


def expected(encoder: Gated, inputs: list[str]) -> Tensor:
    """Each text alone, by the padded encoder and a mean by hand."""
    rows = []
    for ids in encoder.tokenizer.encode(inputs, encoder.max_length):
        with torch.no_grad():
            hidden = encoder.model(torch.from_numpy(ids)[None].long(), torch.ones(1, len(ids), dtype=torch.int64))
        rows.append(hidden.last_hidden_state[0].mean(0))
    return torch.stack(rows)


def queue(encoder: Gated, test: Callable[[Batcher], Awaitable[None]]) -> None:
    """Run a test with a queue that has begun its first batch: one text, which waits at the gate."""

    async def run() -> None:
        batcher = Batcher(encoder, 10_000, Metrics())
        batcher.start()
        first = asyncio.create_task(batcher.run(["time"], embeddings))
        while not encoder.batches:
            await asyncio.sleep(0.001)
        await test(batcher)
        encoder.gate.set()
        await first
        await batcher.close()
        assert batcher.waiting == 0

    asyncio.run(run())


async def submitted(batcher: Batcher, *requests: list[str], finish: Finish = embeddings) -> list[asyncio.Task[Tensor]]:
    tasks = [asyncio.create_task(batcher.run(list(inputs), finish)) for inputs in requests]
    before = len(batcher._jobs)
    while len(batcher._jobs) < before + len([task for task in tasks if not task.done()]):  # all are split into tokens
        await asyncio.sleep(0.001)
    return tasks


def test_requests_that_wait_are_computed_together(gated):
    requests = [texts(1, seed) for seed in range(40)] + [texts(7, 99)]

    async def test(batcher: Batcher) -> None:
        tasks = await submitted(batcher, *requests)
        gated.gate.set()
        for request, found in zip(requests, await asyncio.gather(*tasks), strict=True):
            torch.testing.assert_close(found, expected(gated, request), rtol=0, atol=1e-5)

    queue(gated, test)
    assert gated.batches == [1, 47]


def test_a_long_request_is_spread_over_batches_and_a_short_one_does_not_wait_for_it(gated):
    long, short = texts(900, 1), texts(3, 2)

    async def test(batcher: Batcher) -> None:
        tasks = await submitted(batcher, long, short)
        gated.gate.set()
        torch.testing.assert_close(await tasks[1], expected(gated, short), rtol=0, atol=1e-5)
        assert not tasks[0].done()
        torch.testing.assert_close(await tasks[0], expected(gated, long), rtol=0, atol=1e-5)

    queue(gated, test)
    assert 3 < len(gated.batches) < 9  # 9,000 tokens


def test_equal_requests_of_half_a_batch_end_one_after_another(gated):
    request = [" ".join(["time"] * 20)] * 32  # 704 tokens
    ended: list[int] = []  # number of batches when each request ended; the computing thread calls this

    def finish(found: Tensor, _tokens: int) -> Tensor:
        ended.append(len(gated.batches))
        return found

    async def test(batcher: Batcher) -> None:
        tasks = await submitted(batcher, *[request] * 9, finish=finish)
        gated.gate.set()
        await asyncio.gather(*tasks)

    queue(gated, test)
    assert len(gated.batches) == 4  # the first text, then 6,336 tokens
    assert ended[0] == 2
    assert ended[4] < 4


@pytest.mark.parametrize("characters", [1, 30, 5000])
def test_a_batch_has_about_its_tokens(gated, characters):
    """A turn of a request ends after 32 texts or about half a batch. A batch ends with the turn that fills it."""

    async def test(batcher: Batcher) -> None:
        gated.gate.set()
        await batcher.run(["a" * characters] * 300, embeddings)

    queue(gated, test)
    assert sum(gated.batches) == 301
    tokens = len(gated.tokenizer.encode(["a" * characters], gated.max_length)[0])
    for size in gated.batches[1:-1]:
        assert size * tokens >= 2048
        assert (size - 1) * tokens <= 2048 + 1024 + 32 * tokens


def test_the_rest_of_a_request_that_is_cancelled_half_way_is_dropped(gated):
    async def test(batcher: Batcher) -> None:
        (task,) = await submitted(batcher, texts(900))
        gated.gate.set()
        while len(gated.batches) < 2:
            await asyncio.sleep(0)
        task.cancel()

    queue(gated, test)
    assert sum(gated.batches) < 900


def test_one_request_may_be_larger_than_the_queue(gated):
    """Otherwise a model whose tasks read texts in many ways would never answer it."""
    gated.gate.set()
    large = texts(11)

    async def run() -> None:
        batcher = Batcher(gated, 10, Metrics())
        batcher.start()
        first = asyncio.create_task(batcher.run(list(large), embeddings))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await batcher.run(["time"], embeddings)
        torch.testing.assert_close(await first, expected(gated, large), rtol=0, atol=1e-5)
        assert len(await batcher.run(["time"], embeddings)) == 1
        await batcher.close()

    asyncio.run(run())


@pytest.mark.parametrize("kind", [RuntimeError, BaseException])  # a panic of Rust code is no Exception
def test_a_request_that_fails_does_not_fail_its_neighbours(gated, kind):
    def fail(_found: Tensor, _tokens: int) -> Tensor:
        raise kind("not finite")

    async def test(batcher: Batcher) -> None:
        (failing,) = await submitted(batcher, ["time"], finish=fail)
        (fine,) = await submitted(batcher, texts(3))
        gated.gate.set()
        with pytest.raises(RuntimeError, match="not finite"):  # the service answers with 500
            await failing
        assert len(await fine) == 3

    queue(gated, test)
    assert gated.batches == [1, 4]


def test_a_text_on_which_the_tokenizer_panics_fails_alone(gated):
    """The regular expression gives up, and Rust code panics."""
    gated.tokenizer.backend.normalizer = Replace(Regex("(a+)+$"), "x")

    async def test(batcher: Batcher) -> None:
        panics, fine = await submitted(batcher, ["time", "a" * 60 + "b"], texts(3))
        gated.gate.set()
        with pytest.raises(InputError, match="cannot split the text"):
            await panics
        assert len(await fine) == 3

    queue(gated, test)


def test_a_batch_that_fails_does_not_stop_the_queue(gated, monkeypatch):
    real = Gated.embed

    def out_of_memory(self: Gated, *_: object) -> Tensor:
        monkeypatch.setattr(Gated, "embed", real)
        raise RuntimeError("out of memory")

    async def test(batcher: Batcher) -> None:
        monkeypatch.setattr(Gated, "embed", out_of_memory)
        (task,) = await submitted(batcher, texts(900))
        gated.gate.set()
        with pytest.raises(RuntimeError, match="out of memory"):
            await task
        assert len(await batcher.run(texts(5), embeddings)) == 5

    queue(gated, test)
    assert sum(gated.batches) < 900
