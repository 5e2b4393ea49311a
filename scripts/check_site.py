"""Check a built site: no page loads anything from another host, and search has an index of every section.

`python -m scripts.check_site FOLDER` exits with 1 and one line for each thing that is wrong.
"""

import json
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Elements that make a browser load something, and the attribute that says what."""
FOREIGN = re.compile(r"^(https?:)?//")


class Loaded(HTMLParser):
    """Collects the addresses that a page loads; what a reader may click does not count."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if address := dict(attrs).get(LOADED.get(tag, "")):
            self.addresses.append(address)


def problems(site: Path) -> Iterator[str]:
    """What is wrong with a site, one line each."""
    pages = sorted(site.rglob("*.html"))
    for page in pages:
        parser = Loaded()
        parser.feed(page.read_text(encoding="utf-8"))
        for address in filter(FOREIGN.match, parser.addresses):
            yield f"{page.relative_to(site)}: loads {address}"
    for sheet in site.rglob("*.css"):
        for address in re.findall(r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"')]+)", sheet.read_text("utf-8")):
            yield f"{sheet.relative_to(site)}: loads {address}"
    index = site / "search" / "search_index.json"
    indexed = {entry["location"].partition("#")[0] for entry in json.loads(index.read_text("utf-8"))["docs"]}
    for page in pages:
        if (name := page.relative_to(site).as_posix()) not in indexed | {"404.html"}:
            yield f"{name}: search does not find it"


if __name__ == "__main__":
    found = list(problems(Path(sys.argv[1])))
    print("\n".join(found) or "the site loads nothing from other hosts, and search finds every page")
    sys.exit(bool(found))
