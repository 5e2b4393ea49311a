"""Links between files of the project lead somewhere, also where the site is not built."""

import re
import unicodedata
from pathlib import Path

import pytest

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
def test_links_lead_somewhere(page: Path) -> None:
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
def test_the_tests_of_promises_exist(name: str) -> None:
    named = re.findall(r"`((?:\w+/)*test_\w+\.py)`", (ROOT / name).read_text(encoding="utf-8"))
    assert named
    assert [test for test in named if not list((ROOT / "tests").rglob(test))] == []


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 130
