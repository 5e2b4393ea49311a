"""The site: links that lead out of docs/, pages of notebooks, and the check of what a page loads."""

import base64
import json
from pathlib import Path

import pytest

from scripts.check_site import problems


def site(folder: Path, page: str, indexed: tuple[str, ...] = ("page.html",)) -> Path:
    (folder / "search").mkdir()
    (folder / "page.html").write_text(page)
    (folder / "search" / "search_index.json").write_text(json.dumps({"docs": [{"location": name} for name in indexed]}))
    return folder


def test_a_page_that_loads_only_its_own_files_passes(tmp_path: Path) -> None:
    page = """<link href="a.css"><script src="a.js"></script><style>b { background: url(own.png) }</style>
        <img srcset="a.png 1x, b.png 2x"><a href="https://elsewhere.example">link</a><p>url(https://a.example)</p>"""
    assert list(problems(site(tmp_path, page))) == []


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://a.example/x.js"></script>',
        '<link href="//a.example/x.css">',
        '<base href="https://a.example/">',
        '<img src="HTTP://a.example/x">',
        '<img srcset="own.png 1x, https://a.example/x.png 2x">',
        '<video poster="//a.example/x"></video>',
        '<object data="https://a.example/x"></object>',
        '<svg><image xlink:href="https://a.example/x"/></svg>',
        "<p style=\"background: url('https://a.example/x')\">",
        "<style>@import 'https://a.example/x.css';</style>",
    ],
)
def test_what_is_loaded_from_another_host_is_found(tmp_path: Path, page: str) -> None:
    (problem,) = problems(site(tmp_path, page))
    assert problem.startswith("page.html: loads ")
    assert "//a.example/" in problem


@pytest.mark.parametrize("name", ["mermaid", "md-source"])
def test_what_the_theme_would_ask_another_host_for_is_found(tmp_path: Path, name: str) -> None:
    assert list(problems(site(tmp_path, f'<div class="x {name}">'))) == [f"page.html: loads {name}"]


def test_fonts_of_a_style_sheet_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text(
        "@font-face { src: url('https://a.example/font.woff2') } b { background: url(own.png) }"
    )
    assert list(problems(site(tmp_path, ""))) == ["a.css: loads https://a.example/font.woff2"]


@pytest.mark.parametrize(
    ("indexed", "missing"),
    [
        pytest.param(("page.html", "page.html#part"), [], id="nothing"),
        pytest.param(("page.html#part",), ["page.html"], id="the page"),
        pytest.param(("page.html", "other.html#part"), ["page.html#part"], id="a section"),
    ],
)
def test_what_search_does_not_know_is_found(tmp_path: Path, indexed: tuple[str, ...], missing: list[str]) -> None:
    page = '<h1 id="title">Title</h1><h2 id="part">Part</h2>'
    expected = [f"{name}: search does not find it" for name in missing]
    assert list(problems(site(tmp_path, page, indexed))) == expected


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
def test_links_of_a_page_become_links_of_the_site(link: str, expected: str) -> None:
    pytest.importorskip("mkdocs", reason="./run_tests.sh docs installs it")
    from scripts.docs_hooks import rewritten

    assert rewritten(link, "docs/how-to/serve.md", "docs/how-to/serve.md") == expected


def test_the_page_of_a_notebook_has_its_text_code_outputs_and_figures() -> None:
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
