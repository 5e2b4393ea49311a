"""Each kind gets as many pairs of its own sets, in the course's format."""

from pathlib import Path

import numpy as np
import pytest

from minbert.errors import InputError
from multitask.tasks.declarations import task_named
from multitask.tasks.read_examples import load_rows
from scripts.pairs_by_kind import KINDS, write


@pytest.fixture
def senteval(tmp_path: Path) -> Path:
    """Each set has six pairs that name it, one of them twice, with a quote and without a score in the last one."""
    for name in (name for sets in KINDS.values() for name in sets):
        year, subset = name.split("/")
        folder = tmp_path / "senteval" / "STS" / f"{year}-en-test"
        folder.mkdir(parents=True, exist_ok=True)
        pairs = "".join(f'{name} "{row}"\tpair {row}\n' for row in range(6))
        (folder / f"STS.input.{subset}.txt").write_text(pairs + pairs.splitlines()[0] + "\n", encoding="utf-8")
        (folder / f"STS.gs.{subset}.txt").write_text("0\n1\n2.5\n4\n5\n\n0\n", encoding="utf-8")
    return tmp_path / "senteval"


def test_every_kind_has_pairs_of_its_sets_with_their_scores(senteval: Path, tmp_path: Path) -> None:
    write(senteval, tmp_path / "kinds", pairs=12)
    for kind, sets in KINDS.items():
        rows = load_rows(task_named(tmp_path / "kinds" / kind, "similarity"), "train")
        assert len(rows) == len(set(zip(*rows.sentences, strict=True))) == 12
        firsts, seconds = rows.sentences
        assert {text.split()[0] for text in firsts} == set(sets)
        place = [int(text.split()[1]) for text in seconds]
        assert firsts == [f'{text.split()[0]} "{row}"' for text, row in zip(firsts, place, strict=True)]
        np.testing.assert_array_equal(np.asarray(rows.labels), np.array([0, 1, 2.5, 4, 5])[place])
    with pytest.raises(InputError, match="15 different pairs of captions; pass --pairs 15 or less"):
        write(senteval, tmp_path / "more", pairs=16)
