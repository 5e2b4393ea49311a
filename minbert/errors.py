"""The exceptions for what is wrong outside of the program: the input, or the disk."""

import os
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]


class InputError(Exception):
    """Wrong input from outside: a file, a name, an option.

    The message is one line that says what is wrong, where (file and row), what was expected and how to fix it.
    The command line prints it without a traceback and exits with code 2.
    """


class OtherArchitectureError(InputError):
    """A `config.json` that describes an encoder that this project does not compute."""


class DiskFullError(OSError):
    """No space left on a disk. The message says what could not be written and how much is free.

    Whatever was complete before is complete still. The command line prints one line and exits with code 1.
    """


def refuse_unknown(name: str, value: object, known: Sequence[str]) -> None:
    """Raise InputError if an option has none of the known values."""
    if value not in known:
        raise InputError(f"{name} is {value!r:.60}; expected one of: {', '.join(known)}")


def did_you_mean(name: str, known: Iterable[str], folder: Path | None = None) -> str:
    """The known name that is most alike, as the end of an error, with its folder; empty if none is alike."""
    close = get_close_matches(name, known, 1)
    return f"; did you mean {folder / close[0] if folder else close[0]}?" if close else ""


def install_with(extra: str) -> str:
    """How to install the optional packages of an extra, as the end of an error: in a checkout's .venv by its script."""
    script = CHECKOUT / "scripts" / "environment.sh"
    if script.is_file() and Path(sys.prefix).resolve() == (CHECKOUT / ".venv").resolve():
        return f"install with: bash {os.path.relpath(script)} {extra}"
    return f'install with: pip install "minbert-multitask[{extra}]"'
