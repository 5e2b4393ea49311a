"""Timings take turns and leave the first round out; memory is that of a new process; tables are Markdown."""

from benchmarks import measure
from benchmarks.measure import added_memory, alternate, table


def test_sides_take_turns_and_the_first_round_does_not_count():
    called: list[tuple[str, int]] = []
    seconds = alternate({name: lambda k, name=name: called.append((name, k)) for name in "ab"}, 2)
    assert called == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert {name: len(taken) for name, taken in seconds.items()} == {"a": 2, "b": 2}
    assert min(min(taken) for taken in seconds.values()) >= 0


def test_added_memory_is_what_the_peak_grows_by(monkeypatch):
    peaks = [10.0]
    monkeypatch.setattr(measure, "peak_memory", lambda: max(peaks))
    assert added_memory(lambda: peaks.append(15.0)) == 5


def test_a_table():
    assert list(table(["a", "b"], [["x", 1]])) == ["| a | b |", "| --- | ---: |", "| x | 1 |"]
