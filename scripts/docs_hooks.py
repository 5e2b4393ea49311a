"""What mkdocs.yml asks for while the site is built: pages that are generated, and links that lead out of docs/.

Generated are the commands' reference, the pages of the executed notebooks, and pages of Markdown files that stand
elsewhere in the project. A link to such a file leads to its page; a link to any other file of the project becomes its
text. So links work both on the site and where the project's files are read.
"""

import base64
import json
import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from unittest.mock import patch

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from multitask.cli.arguments import Command, Group, parser_of
from multitask.cli.main import PROG, every_command

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    "data/README.md": "docs/reference/data.md",
    "CONTRIBUTING.md": "docs/reference/contributing.md",
    "CHANGELOG.md": "docs/reference/changelog.md",
    "README.md": "docs/index.md",
}
"""Files of the project outside of docs/, and where the site has them."""
COLUMNS = "72"  # of the help texts; wider ones would have to be scrolled
HEAD = """# Commands

What each command prints when `--help-all` asks for it. `--help` prints the most used options only.
"""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()#\s]*)(#[^()\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""

    def add(path: str, content: str | bytes) -> None:
        files.append(File.generated(config, path, content=content))

    add("reference/commands.md", command_reference())
    for source, page in ELSEWHERE.items():
        if page != "docs/index.md":
            add(page.removeprefix("docs/"), rewritten((ROOT / source).read_text(encoding="utf-8"), source, page))
    for path in sorted((ROOT / "docs" / "tutorials").glob("*.ipynb")):
        for name, content in notebook_files(json.loads(path.read_text(encoding="utf-8")), path.stem):
            add(f"tutorials/{name}", content)
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Mend the links of a page that stands in docs/."""
    place = f"docs/{page.file.src_uri}"
    return markdown if place in ELSEWHERE.values() and place != "docs/index.md" else rewritten(markdown, place, place)


def rewritten(markdown: str, source: str, page: str) -> str:
    """Links of a file of the project, relative to it, as links of a page of the site."""

    def replace(match: re.Match[str]) -> str:
        image, text, target, anchor = match.groups()
        if not target or ":" in target:
            return match[0]
        found = posixpath.normpath(posixpath.join(PurePosixPath(source).parent.as_posix(), target))
        path = re.sub(r"\.ipynb$", ".md", ELSEWHERE.get(found, found))
        if path.startswith("docs/"):
            kept = "" if found == "README.md" else anchor or ""
            return f"{image}[{text}]({posixpath.relpath(path, posixpath.dirname(page))}{kept})"
        return text if (ROOT / found).exists() else match[0]  # mkdocs refuses a link that leads nowhere

    return LINK.sub(replace, markdown)


def notebook_files(notebook: dict[str, Any], name: str) -> Iterator[tuple[str, str | bytes]]:
    """The page of an executed notebook, and its figures."""
    parts, figures = [], 0
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        shell = all(line.startswith("!") for line in source.splitlines())
        if source.startswith("%%writefile "):
            name_line, text = source.split("\n", 1)
            file = name_line.removeprefix("%%writefile ")
            parts.append(f'```{PurePosixPath(file).suffix[1:]} title="{file}"\n{text}\n```')
            continue
        typed = re.sub("^!", "$ ", source, flags=re.MULTILINE)
        parts.append(fence("console", typed) if shell else fence("python", source))
        for output in cell["outputs"]:
            content = output.get("data", {})
            if "image/png" in content:
                figures += 1
                image = f"{name}-{figures}.png"
                yield image, base64.b64decode(content["image/png"])
                first = source.partition("\n")[0]
                name_of_figure = first.removeprefix("# ") if first.startswith("# ") else "Figure"
                parts.append(f"![{name_of_figure}]({image})")
            elif text := "".join(output.get("text", content.get("text/plain", ""))).strip("\n"):
                parts.append(fence("text", text))
    title, rest = parts[0].split("\n", 1) if "\n" in parts[0] else (parts[0], "")
    link = f'<a href="{name}.ipynb" download>download it</a>'  # as HTML: a link in Markdown would lead to the page
    download = f"This page is a notebook that was run: {link}."
    yield f"{name}.md", "\n\n".join([title, rest.strip(), *parts[1:], "---", download]) + "\n"


def fence(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def command_reference() -> str:
    """The page as Markdown."""
    with patch.dict(os.environ, {"COLUMNS": COLUMNS}):
        sections = [f"## {prog}\n\n```text\n{page}```\n" for prog, page in _pages(PROG, every_command())]
    return "\n".join([HEAD, *sections])


def _pages(prog: str, commands: Iterable[Command | Group]) -> Iterator[tuple[str, str]]:
    """Each command as it is typed, and its help."""
    for found in commands:
        typed = f"{prog} {found.name}"
        if isinstance(found, Group):
            yield from _pages(typed, found.commands)
        else:
            yield typed, parser_of(typed, found, "--help-all").format_help()
