"""Is .venv that of this folder? environment.sh asks before any package is there: `python -I check_environment.py PART`.

The part `scripts [EXTRA ...]` refuses unknown extras and mends scripts of .venv that lead to the folder where the
checkout was before. The part `packages` exits with 1 if `import multitask` finds other files than this folder's.
"""

import re
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAD = re.compile(rb"\A#!(?:/bin/sh\n'''exec' \"?)?(/.*?)/\.venv/bin/(python[\d.]*)(?:\"? \"\$0\" \"\$@\"\n' ''')?\n")
"""How a script begins that pip installed; the form with exec is for names of folders that are long or have blanks."""


def mend_scripts() -> None:
    """Let the scripts of .venv lead to this folder."""
    environment = ROOT / ".venv"
    programs = [path for path in (environment / "bin").iterdir() if path.is_file() and not path.is_symlink()]
    contents = {path: path.read_bytes() for path in [*programs, environment / "pyvenv.cfg"]}
    heads = {path: head for path, content in contents.items() if (head := HEAD.match(content))}
    before = {head[1] for head in heads.values()} - {bytes(ROOT)}
    if not before:
        return
    print(f".venv was made in {', '.join(folder.decode() for folder in sorted(before))}: mending its scripts")
    for path, content in contents.items():
        if path in heads:
            python = b"%s/bin/%s" % (bytes(environment), heads[path][2])
            first = (
                b"#!%s\n"
                if b" " not in python and len(python) < 120
                else b"#!/bin/sh\n'''exec' \"%s\" \"$0\" \"$@\"\n' '''\n"
            )
            path.write_bytes(first % python + content[heads[path].end() :])
        elif path.name.lower().startswith("activate") or path.name == "pyvenv.cfg":
            for folder in before:
                content = content.replace(folder + b"/.venv", bytes(environment))
            path.write_bytes(content)


def refuse_unknown(extras: list[str]) -> None:
    """Exit with one line if pyproject.toml has no such extra; pip only warns."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    if unknown := [extra for extra in extras if extra not in known]:
        sys.exit(f"error: no extra {', '.join(unknown)}; expected some of {', '.join(sorted(known))}")


if __name__ == "__main__":
    part, *extras = sys.argv[1:]
    if part == "scripts":
        refuse_unknown(extras)
        mend_scripts()
    elif not (found := find_spec("multitask")) or Path(str(found.origin)).resolve() != ROOT / "multitask/__init__.py":
        print(f"multitask is {found.origin if found else 'nowhere'}: installing this folder again")
        sys.exit(1)
