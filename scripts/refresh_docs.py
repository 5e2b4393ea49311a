"""Run what the documentation shows, and write the outputs back: `python -m scripts.refresh_docs [NAME ...]`.

A name is a tutorial (`own_csv`) or a page (`README.md`, `docs/how-to/prune.md`); without names, all are refreshed.
`./run_tests.sh docs` runs the same and compares the outputs with those that are shown.
"""

import sys

from minbert.files import write_text
from scripts.doc_blocks import PAGES, ROOT, refreshed
from scripts.notebooks import TUTORIALS, executed, written


def main(names: list[str]) -> None:
    for source in TUTORIALS:
        if not names or source.stem in names:
            print(source.relative_to(ROOT), flush=True)
            write_text(source.with_suffix(".ipynb"), written(executed(source)))
    for page in PAGES:
        if not names or page.relative_to(ROOT).as_posix() in names:
            print(page.relative_to(ROOT), flush=True)
            write_text(page, refreshed(page))


if __name__ == "__main__":
    main(sys.argv[1:])
