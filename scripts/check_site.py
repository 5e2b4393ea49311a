"""Check a built site: its files name nothing to load from another host, and search has an index of every section.

`python -m scripts.check_site FOLDER` exits with 1 and one line for each thing that is wrong. Scripts are not run. The
theme's script asks other hosts in three cases: for mermaid diagrams and for the numbers of a linked repository, which
are therefore refused, and in browsers older than 2020, which lack ResizeObserver.
"""

import json
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

LOADED = {"src", "srcset", "data", "poster", "background"}
"""Attributes that make a browser load something, whatever the element."""
LINKED = {"link", "base", "image", "use"}
"""Elements whose href is loaded, or is what other addresses are relative to. That of `a` is for the reader to click."""
FOREIGN = re.compile(r"(?:^|[\s,])((?:https?:)?//[^\s,]+)", re.IGNORECASE)
FOREIGN_IN_STYLE = re.compile(r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"')\s;]+)", re.IGNORECASE)
ASKS_OTHER_HOSTS = {"mermaid", "md-source"}
"""Classes of elements for which the theme's script loads something from another host."""


class Page(HTMLParser):
    """What a page loads from other hosts, and the anchors of its sections."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.foreign: list[str] = []
        self.sections: list[str] = []
        self.in_style = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.in_style = tag == "style"
        for name, value in attrs:
            if name in LOADED or (name.endswith("href") and tag in LINKED):
                self.foreign += FOREIGN.findall(value or "")
            elif name == "style":
                self.foreign += FOREIGN_IN_STYLE.findall(value or "")
            elif name == "class":
                self.foreign += sorted(ASKS_OTHER_HOSTS.intersection((value or "").split()))
            elif name == "id" and re.fullmatch("h[2-6]", tag):
                self.sections.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        self.in_style = False

    def handle_data(self, data: str) -> None:
        if self.in_style:
            self.foreign += FOREIGN_IN_STYLE.findall(data)


def problems(site: Path) -> Iterator[str]:
    """What is wrong with a site, one line each."""
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    indexed = {entry["location"] for entry in index["docs"]}
    for path in sorted(site.rglob("*.html")):
        name, page = path.relative_to(site).as_posix(), Page(path.read_text("utf-8"))
        for address in page.foreign:
            yield f"{name}: loads {address}"
        if name != "404.html":
            for location in [name, *(f"{name}#{section}" for section in page.sections)]:
                if location not in indexed:
                    yield f"{location}: search does not find it"
    for sheet in sorted(site.rglob("*.css")):
        for address in FOREIGN_IN_STYLE.findall(sheet.read_text("utf-8")):
            yield f"{sheet.relative_to(site).as_posix()}: loads {address}"


if __name__ == "__main__":
    found = list(problems(Path(sys.argv[1])))
    print("\n".join(found) or "the site's files load nothing from other hosts, and search finds every page and section")
    sys.exit(bool(found))
