"""The model of data-parallel training on paper, against closed forms and a ring that is played step by step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import scaling
from benchmarks.scaling import allgather_seconds, allreduce_seconds, efficiency, parameters, tables, tokens_for
from tests.conftest import ROOT

links = st.sampled_from(scaling.LINKS)
ranks = st.integers(2, 2000)
seconds = st.floats(1e-6, 10)


@pytest.mark.parametrize("count", [2, 3, 8])
def test_a_ring_played_step_by_step_sends_what_the_formula_says(count):
    """Every rank has one chunk for each rank. A step sends one chunk to the neighbour, first to add, then to copy."""
    held = [[{rank} for _ in range(count)] for rank in range(count)]  # whose gradients each rank's chunks contain
    sent = [0] * count
    for step in range(2 * (count - 1)):
        moves = [(rank, (rank - step + step // (count - 1) * count) % count) for rank in range(count)]
        for (rank, chunk), content in zip(moves, [set(held[rank][chunk]) for rank, chunk in moves], strict=True):
            held[(rank + 1) % count][chunk] |= content
            sent[rank] += 1
    assert all(chunk == set(range(count)) for chunks in held for chunk in chunks)
    expected = sent[0] * (1e9 / count * 8 / 10e9 + scaling.LATENCY)
    assert set(sent) == {sent[0]}
    assert allreduce_seconds(1e9, count, 10) == pytest.approx(expected)


@given(ranks, links)
def test_a_large_allreduce_takes_twice_the_time_of_its_bytes_over_the_link(count, link):
    once = 1e12 * 8 / (link * 1e9)
    assert once <= allreduce_seconds(1e12, count, link) <= 2 * once + 2 * count * scaling.LATENCY
    assert allgather_seconds(1e12 / count, count, link) <= once + count * scaling.LATENCY


@given(seconds, seconds)
def test_efficiency_is_the_share_of_computing_and_overlap_hides_two_thirds_of_it(computing, sending):
    assert efficiency(computing, sending, overlapped=False) == pytest.approx(computing / (computing + sending))
    hidden = efficiency(computing, sending, overlapped=True)
    assert hidden == 1 if 3 * sending <= 2 * computing else hidden < 1
    assert efficiency(computing, sending, overlapped=False) <= hidden


@given(seconds, st.booleans(), st.sampled_from(["minilm", "bert-base"]), st.floats(0.1, 0.99))
def test_the_tokens_for_an_efficiency_have_it(sending, overlapped, shape, goal):
    tokens = tokens_for(goal, shape, sending, overlapped)
    assert efficiency(scaling.step_seconds(shape, tokens), sending, overlapped) == pytest.approx(goal)


def test_encoders_have_their_published_numbers_of_parameters():
    assert (parameters("minilm"), parameters("bert-base")) == (22_713_216, 109_482_240)


def test_every_row_of_the_page_is_part_of_one_that_the_program_prints():
    def rows(text: str) -> list[list[str]]:
        return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith(("| minilm", "| bert"))]

    made = [row for table in tables() for row in rows(table)]
    shown = rows((ROOT / "docs" / "scaling.md").read_text(encoding="utf-8"))
    assert shown
    for row in shown:
        assert any(is_part(row, of) for of in made), f"`python -m benchmarks.scaling` does not print {row}"


def is_part(row: list[str], of: list[str]) -> bool:
    """Whether a row has some cells of another one, in order."""
    cells = iter(of)
    return all(cell in cells for cell in row)
