"""Mistakes in a tasks file or its data: each ends in one line that says where, what is wrong, and what was expected.

`python -m tests.multitask.cli.test_bad_input` writes docs/bad-input.md from the same list.
"""

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from minbert.files import write_text
from multitask.cli.main import main
from tests.multitask.cli.mistakes import DEV, MISTAKES, QUESTIONS, Mistake

PAGE = Path(__file__).parents[3] / "docs" / "bad-input.md"
HEAD = """# Mistakes in a tasks file or its data, and what is printed

Each row shows the line that `multitask data check --tasks-file tasks.toml` prints. Rows with (F) show the line that
`multitask finetune --tasks-file tasks.toml` prints. A test makes the mistakes again, and
`python -m tests.multitask.cli.test_bad_input` writes this page.

| Mistake | Line |
|---|---|
"""


def printed(mistake: Mistake, folder: Path, model: str) -> tuple[int, str]:
    """Exit code and errors of a mistake that is made in a folder, which is the working directory."""
    contents = {"tasks.toml": mistake.tasks, "train.csv": QUESTIONS, "dev.csv": DEV, **mistake.files}
    for name, content in contents.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    if mistake.finetune is None:
        command = ["data", "check", "--model", model]
    else:
        command = ["finetune", "--start", model, "--device", "cpu", "--runs", str(folder / "runs"), *mistake.finetune]
    errors = StringIO()
    with redirect_stdout(StringIO()), redirect_stderr(errors):
        code = main([*command, "--tasks-file", mistake.file])
    return code, errors.getvalue()


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.what)
def test_a_mistake_ends_in_one_line(mistake, tiny_encoder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert printed(mistake, tmp_path, str(tiny_encoder)) == (2, f"error: {mistake.line}\n")


def test_without_a_mistake_nothing_is_printed(tiny_encoder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert printed(Mistake("none", ""), tmp_path, str(tiny_encoder)) == (0, "")


def page() -> str:
    """The page of all mistakes."""

    def row(mistake: Mistake) -> str:
        return f"| {mistake.what}{'' if mistake.finetune is None else ' (F)'} | `{mistake.line}` |\n"

    return HEAD + "".join(map(row, MISTAKES))


def test_the_page_lists_every_mistake():
    assert PAGE.read_text(encoding="utf-8") == page()


if __name__ == "__main__":
    write_text(PAGE, page())
