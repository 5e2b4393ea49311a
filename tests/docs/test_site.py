"""The site: links that lead out of docs/, and pages of notebooks."""

import base64

import pytest


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
