"""A small part of `python -m benchmarks.reliability.load`, and that it sees what it looks for."""

import threading
from pathlib import Path

import pytest

from benchmarks.reliability import load
from benchmarks.reliability.faults import quick_reports
from benchmarks.reliability.load import (
    Usage,
    at_once,
    embedding,
    left_behind,
    settled,
    short_runs,
    try_embedding,
)
from benchmarks.reliability.world import call, copy


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder comes back afterwards."""
    monkeypatch.chdir(Path.cwd())


def test_embedding_tells_a_rate_for_each_part_but_the_first(tmp_path):
    rates, memory = embedding(tmp_path / "embed", 300, 100)
    assert len(rates) == 2
    assert min(rates) > 0
    assert memory < 100e6


@pytest.mark.parametrize(
    ("rates", "memory", "expected"),
    [([9, 10, 11], 5e8, []), ([7, 10, 11], 5e8, ["a part at 7 a second"]), ([9, 10, 11], 2e9, ["2,000 MB"])],
)
def test_a_slow_part_and_much_memory_are_problems(monkeypatch, tmp_path, rates, memory, expected):
    monkeypatch.setattr(load, "embedding", lambda *_: (rates, memory))
    assert try_embedding(tmp_path, 300, 100) == [f"embed: {problem}" for problem in expected]


def test_short_runs_are_looked_at_twice(world, tmp_path, here):
    before, after = short_runs(copy(world, tmp_path / "world"), 3, 1, lambda arguments: call(arguments)[0])
    assert before.seconds < after.seconds
    assert (after.files, after.threads) == (before.files, before.threads)


def test_what_runs_leave_behind_is_seen(world, tmp_path, here):
    kept, stop = [], threading.Event()

    def leaves(arguments: list[str]) -> int:
        kept.append((Path("data/messages.csv").open(), bytearray(b"x" * 2**20)))  # noqa: SIM115 - left open
        threading.Thread(target=stop.wait).start()
        return 0

    try:
        usages = short_runs(world, 9, 1, leaves)
    finally:
        stop.set()
        for file, _ in kept:
            file.close()
    found = {told.partition(":")[0] for told in left_behind(*usages, runs=8)}
    assert found == {"files", "threads", "memory"}
    same = settled()
    assert left_behind(same, same, 8) == []


def test_processes_that_start_a_grid_at_once_compute_each_run_once(world, tmp_path):
    with quick_reports():
        computed, trained, codes = at_once(copy(world, tmp_path / "grid" / "world"), 2)
    assert codes == [0, 0]
    assert len(computed) == 7
    assert len(trained) == 3
    assert set(computed.values()) == set(trained.values()) == {1}


def test_usage_of_this_process():
    with Path(__file__).open():
        more = Usage.of()
    assert more.files == Usage.of().files + 1
    assert more.memory > 10e6
    assert more.threads >= threading.active_count()
