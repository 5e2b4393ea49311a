"""What the documentation shows is what the code does: tutorials and blocks run, with the outputs that are shown.

Outputs are compared without numbers, because other processors round differently: an interval's end may change its sign.
"""

import re
from pathlib import Path

import pytest

from scripts.doc_blocks import PAGES, blocks, refreshed
from tests.conftest import ROOT

RUNNING = [page for page in PAGES if any(block.kind in ("run", "file") for block in blocks(page))]


def masked(text: str) -> str:
    """A text without numbers and their signs, and without the spaces, dashes and stars that depend on them."""
    return re.sub(r"[\s*†–-]+", " ", re.sub(r"\b[0-9a-f]{16}\b|[+−]?\d[\d.,]*(e-?\d+)?", "0", text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_says_whether_it_runs(page: Path) -> None:
    assert all(block.kind for block in blocks(page))  # one that says nothing is a ValueError


def test_hashes_are_masked_whatever_they_begin_with() -> None:
    assert masked("runs/a-6eca059e52001d50 1.5") == masked("runs/a-eca6059e52001d5a −2")
    assert masked("of 16 words") != masked("of 16 rows")


@pytest.mark.docs
@pytest.mark.parametrize("page", RUNNING, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_blocks_run_with_the_outputs_that_are_shown(page: Path) -> None:
    assert masked(refreshed(page)) == masked(page.read_text(encoding="utf-8"))


@pytest.mark.docs
@pytest.mark.parametrize("source", sorted((ROOT / "docs" / "tutorials").glob("*.py")), ids=lambda path: path.stem)
def test_a_tutorial_runs_with_the_outputs_that_are_shown(source: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="./run_tests.sh docs installs it")
    from scripts.notebooks import executed, texts

    shown = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    assert [masked(text) for text in texts(executed(source))] == [masked(text) for text in texts(shown)]
