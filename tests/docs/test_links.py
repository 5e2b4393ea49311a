"""Pages: links lead somewhere, command lines and blocks are accepted, run and written back, also on the site."""

import base64
import re
import shlex
import unicodedata
from dataclasses import MISSING
from pathlib import Path

import pytest

from multitask.cli.arguments import Command, build, parse
from multitask.cli.main import find_command
from multitask.cli.settings_file import settings_of
from scripts.doc_blocks import PAGES as RUN_PAGES
from scripts.doc_blocks import blocks, refreshed
from tests.conftest import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "data/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s:]*)(#[^)\s]*)?\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.*)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    kept = ("".join(c for c in text.lower() if c in " -_" or unicodedata.category(c)[0] in "LN") for text in headings)
    return {text.replace(" ", "-") for text in kept}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    dead = [path for path in re.findall(r"(?<![\w/.])tests/[\w/.]*\w", text) if not (ROOT / path).exists()]
    for target, anchor in LINK.findall(FENCED.sub("", text)):
        found = (page.parent / target).resolve() if target else page
        generated = found.parent == ROOT / "docs" / "reference"  # the site's build checks links to generated anchors
        if not (found.exists() or (generated and found.name == "commands.md")):
            dead.append(target)
        elif anchor and found.suffix == ".md" and not generated and anchor[1:] not in anchors(found):
            dead.append(target + anchor)
    assert not dead


@pytest.mark.parametrize("name", ["SECURITY.md", "docs/reliability.md"])
def test_the_tests_of_promises_exist(name):
    named = re.findall(r"`((?:\w+/)*test_\w+\.py)`", (ROOT / name).read_text(encoding="utf-8"))
    assert named
    assert [test for test in named if not list((ROOT / "tests").rglob(test))] == []


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 130


# The command lines in the documentation are accepted as they stand there.


COMMAND_PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "data" / "README.md",
    *(ROOT / "docs").rglob("*.md"),
]


def command_lines() -> list[str]:
    """The lines that begin with `multitask`, after a prompt or torchrun or not; a backslash continues a line."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in COMMAND_PAGES).replace("\\\n", " ")
    return re.findall(r"^(?:\$ )?(?:torchrun .*)?multitask (\w.*)$", text, re.MULTILINE)


@pytest.mark.parametrize("line", command_lines())
def test_documented_command_lines_are_accepted(line):
    prog, command, arguments = find_command(shlex.split(line, comments=True))
    assert isinstance(command, Command)
    options, given = command.declared(), parse(prog, command, arguments)
    given |= settings_of(given.pop("set", []), prog, options)
    values = {o.name: o.read(given[o.name]) if o.name in given else o.default for o in options}
    build(command.options, options, {name: "x" if value is MISSING else value for name, value in values.items()})


# The blocks of a page are run as their marks say, and their outputs are written back.


def page(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text.replace("~~~", "```"), encoding="utf-8")
    return path


def test_outputs_are_written_back(tmp_path):
    first, second = "$ echo new\nold\n", "$ echo 1; \\\n  echo 2\n"
    blocks_of = "<!-- run -->\n~~~console\n{}~~~\n"
    old = f"A.\n\n{blocks_of.format(first)}\nB.\n\n{blocks_of.format(second)}"
    new = old.replace("new\nold\n", "new\nnew\n").replace("echo 2\n", "echo 2\n1\n2\n")
    assert refreshed(page(tmp_path, old)) == new.replace("~~~", "```")


def test_only_chosen_lines_are_shown(tmp_path):
    text = "<!-- run, show: ^[bd] -->\n~~~console\n$ printf 'a\\nb\\nc\\nc\\nd\\n'\n~~~\n"
    shown = refreshed(page(tmp_path, text)).splitlines()
    assert shown[2:-1] == [r"$ printf 'a\nb\nc\nc\nd\n'", "...", "b", "...", "d"]


def test_run_stands_for_the_run_that_was_printed_last(tmp_path):
    text = "<!-- setup: echo runs/one-1 -->\n<!-- run -->\n~~~console\n$ echo RUN/DONE\n~~~\n"
    assert "$ echo RUN/DONE\nRUN/DONE\n" in refreshed(page(tmp_path, text))
    literal = page(tmp_path, "<!-- setup: echo runs/one-1 -->\n<!-- run -->\n~~~bash\ntest RUN = runs/one-1\n~~~\n")
    refreshed(literal)


def test_a_block_has_the_contents_of_a_file(tmp_path):
    text = "<!-- file: data/own/tasks.toml -->\n~~~toml\nold\n~~~\n"
    assert (ROOT / "data" / "own" / "tasks.toml").read_text(encoding="utf-8") in refreshed(page(tmp_path, text))


def test_a_command_that_fails_names_the_page_and_the_line(tmp_path):
    with pytest.raises(RuntimeError, match=r"page\.md:4: false\nexit code 1"):
        refreshed(page(tmp_path, "Text.\n\n<!-- run -->\n~~~bash\nfalse\n~~~\n"))


def test_python_that_fails_is_an_error(tmp_path):
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
def test_a_block_without_a_proper_mark_is_refused(tmp_path, text):
    with pytest.raises(ValueError, match=r"page\.md:\d+: expected"):
        list(blocks(page(tmp_path, text)))


def test_listings_need_no_mark(tmp_path):
    assert not list(blocks(page(tmp_path, "~~~text\na picture\n~~~\n")))


# What the documentation shows is what the code does: tutorials and blocks run, with the outputs that are shown.


RUNNING = [page for page in RUN_PAGES if any(block.kind in ("run", "file") for block in blocks(page))]


def masked(text: str) -> str:
    """A text without numbers and their signs, and without the spaces, dashes and stars that depend on them."""
    return re.sub(r"[\s*†–-]+", " ", re.sub(r"\b[0-9a-f]{16}\b|[+−]?\d[\d.,]*(e-?\d+)?", "0", text))


@pytest.mark.parametrize("page", RUN_PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_says_whether_it_runs(page):
    assert all(block.kind for block in blocks(page))  # one that says nothing is a ValueError


def test_hashes_are_masked_whatever_they_begin_with():
    assert masked("runs/a-6eca059e52001d50 1.5") == masked("runs/a-eca6059e52001d5a −2")
    assert masked("of 16 words") != masked("of 16 rows")


@pytest.mark.docs
@pytest.mark.parametrize("page", RUNNING, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_blocks_run_with_the_outputs_that_are_shown(page):
    assert masked(refreshed(page)) == masked(page.read_text(encoding="utf-8"))


@pytest.mark.docs
@pytest.mark.parametrize("source", sorted((ROOT / "docs" / "tutorials").glob("*.py")), ids=lambda path: path.stem)
def test_a_tutorial_runs_with_the_outputs_that_are_shown(source):
    nbformat = pytest.importorskip("nbformat", reason="./run_tests.sh docs installs it")
    from scripts.refresh_docs import executed, texts

    shown = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    assert [masked(text) for text in texts(executed(source))] == [masked(text) for text in texts(shown)]


# The site: links that lead out of docs/, and pages of notebooks.


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[a](../../data/README.md#real-data)", "[a](../reference/data.md#real-data)"),
        ("[a](../../README.md#speed)", "[a](../index.md)"),
        ("[`a`](../../multitask/cli/main.py)", "`a`"),
        ("[a](prune.md#x)", "[a](prune.md#x)"),
        ("[a](../tutorials/own_csv.ipynb)", "[a](../tutorials/own_csv.md)"),
        ("[a](https://elsewhere.example/x.ipynb)", "[a](https://elsewhere.example/x.ipynb)"),
        ("[a](../../no/such/file.py)", "[a](../../no/such/file.py)"),
    ],
)
def test_links_of_a_page_become_links_of_the_site(link, expected):
    pytest.importorskip("mkdocs", reason="./run_tests.sh docs installs it")
    from scripts.docs_hooks import rewritten

    assert rewritten(link, "docs/how-to/serve.md", "docs/how-to/serve.md") == expected


def test_the_page_of_a_notebook_has_its_text_code_outputs_and_figures():
    pytest.importorskip("mkdocs", reason="./run_tests.sh docs installs it")
    from scripts.docs_hooks import notebook_files, rewritten

    picture = base64.b64encode(b"png").decode()
    figure = {"output_type": "display_data", "data": {"image/png": picture, "text/plain": "<Figure>"}}
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "\n", "Text."]},
        {"cell_type": "code", "source": "!ls\n!pwd", "outputs": [{"text": "a\n"}]},
        {"cell_type": "code", "source": "# A curve\nplot()", "outputs": [figure]},
        {"cell_type": "code", "source": "%%writefile a.toml\nb = 1", "outputs": [{"text": "Writing a.toml"}]},
    ]
    files = dict(notebook_files({"cells": cells}, "name"))
    assert files["name-1.png"] == b"png"
    parts = str(files["name.md"]).split("\n\n")
    assert '<a href="name.ipynb" download>' in rewritten(parts[-1], "docs/tutorials/name.md", "docs/tutorials/name.md")
    assert parts[:7] == [
        "# Title",
        "Text.",
        "```console\n$ ls\n$ pwd\n```",
        "```text\na\n```",
        "```python\n# A curve\nplot()\n```",
        "![A curve](name-1.png)",
        '```toml title="a.toml"\nb = 1\n```',
    ]
