"""Fields of dataclasses as options."""

from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from minbert.errors import InputError
from multitask.cli.options import POSITIONAL, Option, build, help_texts, options_of


@dataclass(frozen=True)
class Inner:
    """What is inside.

    More about it.
    """

    width: int | None = None
    """Width,
    in words."""


@dataclass(frozen=True)
class Base:
    """A base."""

    place: Path = field(metadata=POSITIONAL)
    """Where."""


@dataclass(frozen=True)
class Outer(Base):
    """All."""

    inner: Inner = field(default_factory=lambda: Inner(7))
    names: tuple[str, ...] = ()
    """Names."""
    """Not a help text."""
    mode: Literal["a", "b"] = field(default="a", metadata={"help": "Mode."})


def test_options_are_the_fields_with_their_docstrings() -> None:
    assert list(options_of(Outer)) == [
        Option(("place",), Path, MISSING, "Where.", "", positional=True),
        Option(("inner", "width"), int | None, 7, "Width, in words.", "What is inside"),
        Option(("names",), tuple[str, ...], (), "Names.", ""),
        Option(("mode",), Literal["a", "b"], "a", "Mode.", ""),
    ]
    assert help_texts(Outer) == {"place": "Where.", "names": "Names."}


def test_values_make_the_dataclass() -> None:
    values = {"place": Path("x"), "width": None, "names": ("n",), "mode": "b"}
    assert build(Outer, values) == Outer(Path("x"), Inner(None), ("n",), "b")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int, "12", 12),
        (float, "1e-5", 1e-5),
        (int | None, "none", None),
        (float | None, "None", None),
        (str | None, "x", "x"),
        (Path, "a b", Path("a b")),
        (bool, True, True),
        (tuple[int, ...], ["1", "2"], (1, 2)),
        (tuple[str, ...] | None, ["none"], None),
        (tuple[str, ...] | None, [], ()),
        (Literal["a", "b"], "b", "b"),
    ],
)
def test_text_of_the_command_line(kind, text, value) -> None:
    read = Option(("name",), kind, None, "", "").read_text(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(("kind", "text"), [(int, "1.0"), (float, "x"), (Literal["a"], "b"), (tuple[int, ...], ["x"])])
def test_text_of_another_type(kind, text) -> None:
    with pytest.raises(InputError, match=r"--the-name .*: expected "):
        Option(("the_name",), kind, None, "", "").read_text(text)
