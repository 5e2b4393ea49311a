"""The blocks of a page are run as their marks say, and their outputs are written back."""

from pathlib import Path

import pytest

from scripts.doc_blocks import blocks, refreshed
from tests.conftest import ROOT


def page(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text.replace("~~~", "```"), encoding="utf-8")
    return path


def test_outputs_are_written_back(tmp_path: Path) -> None:
    first, second = "$ echo new\nold\n", "$ echo 1; \\\n  echo 2\n"
    blocks_of = "<!-- run -->\n~~~console\n{}~~~\n"
    old = f"A.\n\n{blocks_of.format(first)}\nB.\n\n{blocks_of.format(second)}"
    new = old.replace("new\nold\n", "new\nnew\n").replace("echo 2\n", "echo 2\n1\n2\n")
    assert refreshed(page(tmp_path, old)) == new.replace("~~~", "```")


def test_only_chosen_lines_are_shown(tmp_path: Path) -> None:
    text = "<!-- run, show: ^[bd] -->\n~~~console\n$ printf 'a\\nb\\nc\\nc\\nd\\n'\n~~~\n"
    shown = refreshed(page(tmp_path, text)).splitlines()
    assert shown[2:-1] == [r"$ printf 'a\nb\nc\nc\nd\n'", "...", "b", "...", "d"]


def test_run_stands_for_the_run_that_was_printed_last(tmp_path: Path) -> None:
    text = "<!-- setup: echo runs/one-1 -->\n<!-- run -->\n~~~console\n$ echo RUN/DONE\n~~~\n"
    assert "$ echo RUN/DONE\nRUN/DONE\n" in refreshed(page(tmp_path, text))
    literal = page(tmp_path, "<!-- setup: echo runs/one-1 -->\n<!-- run -->\n~~~bash\ntest RUN = runs/one-1\n~~~\n")
    refreshed(literal)


def test_a_block_has_the_contents_of_a_file(tmp_path: Path) -> None:
    text = "<!-- file: data/own/tasks.toml -->\n~~~toml\nold\n~~~\n"
    assert (ROOT / "data" / "own" / "tasks.toml").read_text(encoding="utf-8") in refreshed(page(tmp_path, text))


def test_a_command_that_fails_names_the_page_and_the_line(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"page\.md:4: false\nexit code 1"):
        refreshed(page(tmp_path, "Text.\n\n<!-- run -->\n~~~bash\nfalse\n~~~\n"))


def test_python_that_fails_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="AssertionError"):
        refreshed(page(tmp_path, "<!-- run -->\n~~~python\nassert 1 == 2\n~~~\n"))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("~~~bash\nls\n~~~\n", id="no mark"),
        pytest.param("<!-- run -->\n~~~\nls\n~~~\n", id="no language"),
        pytest.param("<!-- not run -->\n~~~bash\nls\n~~~\n", id="no reason"),
        pytest.param("<!-- ran -->\n~~~bash\nls\n~~~\n", id="unknown mark"),
    ],
)
def test_a_block_without_a_proper_mark_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"page\.md:\d+: expected"):
        list(blocks(page(tmp_path, text)))


def test_listings_need_no_mark(tmp_path: Path) -> None:
    assert not list(blocks(page(tmp_path, "~~~text\na picture\n~~~\n")))
