"""Run what the documentation shows, and write the outputs back: `python -m scripts.refresh_docs [NAME ...]`.

A name is a tutorial (`own_csv`) or a page (`README.md`, `docs/how-to/prune.md`); without names, all are refreshed.
`./run_tests.sh docs` runs the same and compares the outputs with those that are shown. A tutorial is
docs/tutorials/NAME.py (jupytext, py:percent), which becomes NAME.ipynb with its outputs.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from minbert.files import write_text
from scripts.doc_blocks import PAGES, ROOT, environment, refreshed, workplace

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
LIMIT = 900  # seconds a cell may take; a test's machine may be busy
FAILS = "fails"  # tag of a cell whose command is meant to end in an error
FIRST_CELL = """
%matplotlib inline
import os, subprocess
os.environ.pop("MPLBACKEND", None)  # commands do not run in the notebook

def _system(command):
    found = subprocess.run(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    passing = ("step ", "this machine is busy")  # which depend on how fast and how busy it is
    shown = "".join(line for line in found.stdout.splitlines(True) if not line.startswith(passing))
    print(shown + (f"exit code {found.returncode}\\n" if found.returncode else ""), end="")

get_ipython().system = _system  # without a terminal, so that commands show no progress bars
"""
"""Runs before a tutorial and is no part of it."""


def executed(source: Path) -> NotebookNode:
    """The notebook of a tutorial after a run from top to bottom in a new folder.

    Raises:
        CellExecutionError: its Python raises an exception.
        RuntimeError: one of its commands ends in an error.
    """
    notebook = jupytext.read(source)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(FIRST_CELL))
    with TemporaryDirectory() as folder:
        workplace(Path(folder))
        where = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, timeout=LIMIT, kernel_name="python3", resources=where)
        manager = client.create_kernel_manager()  # with sockets: two tests that start at once must not get one port
        manager.transport, manager.ip = "ipc", str(Path(folder) / ".kernel")
        client.execute(env=environment())
        notebook.cells.pop(0)
        for number, cell in enumerate(notebook.cells):
            if cell.cell_type == "code":
                cell.outputs = _cleaned(cell.outputs, folder)
                cell.execution_count = None
                failed = any("exit code" in output.get("text", "") for output in cell.outputs)
                if failed != (FAILS in cell.metadata.get("tags", ())):
                    raise RuntimeError(f"{source.name}: {cell.source}\n{cell.outputs}")
            cell.id, cell.metadata = f"cell-{number}", NotebookNode()
    notebook.metadata.pop("language_info", None)
    nbformat.validate(notebook)
    return notebook


def _cleaned(outputs: list[NotebookNode], folder: str) -> list[NotebookNode]:
    """Outputs without what differs between two runs of the same code, and without what goes to standard error."""
    kept: list[NotebookNode] = []
    for output in outputs:
        if output.get("name") == "stderr":
            continue
        output.get("data", {}).pop("text/html", None)
        if "execution_count" in output:
            output.execution_count = None
        if "text" in output:
            output.text = output.text.replace(folder, "FOLDER")
            if kept and "text" in kept[-1]:  # one text, however it was sent
                kept[-1].text += output.text
                continue
        kept.append(output)
    return kept


def texts(notebook: NotebookNode) -> Iterator[str]:
    """What a reader sees, cell by cell, but for figures."""
    for cell in notebook.cells:
        yield "".join(cell.source)
        for output in cell.get("outputs", ()):
            yield output.get("text", output.get("data", {}).get("text/plain", ""))


def main(names: list[str]) -> None:
    for source in TUTORIALS:
        if not names or source.stem in names:
            print(source.relative_to(ROOT), flush=True)
            write_text(source.with_suffix(".ipynb"), nbformat.writes(executed(source), version=4) + "\n")
    for page in PAGES:
        if not names or page.relative_to(ROOT).as_posix() in names:
            print(page.relative_to(ROOT), flush=True)
            write_text(page, refreshed(page))


if __name__ == "__main__":
    main(sys.argv[1:])
