"""Fields of dataclasses as options."""

from dataclasses import MISSING, dataclass, field, make_dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from minbert.errors import InputError
from multitask.cli.arguments import parse
from multitask.cli.command import Command
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
        Option(("place",), Path, MISSING, "Where.", positional=True),
        Option(("inner", "width"), int, 7, "Width, in words.", "What is inside", may_be_none=True),
        Option(("names",), str, (), "Names.", several=True),
        Option(("mode",), Literal["a", "b"], "a", "Mode.", choices=("a", "b")),
    ]
    assert help_texts(Outer) == {"place": "Where.", "names": "Names."}


def test_values_make_the_dataclass() -> None:
    values = {"place": Path("x"), "width": None, "names": ("n",), "mode": "b"}
    assert build(Outer, values) == Outer(Path("x"), Inner(None), ("n",), "b")


def command_of(kind: Any) -> Command:
    """A command with an option `--the-name` of this type."""
    options = make_dataclass("Options", [("the_name", kind, field(default=None, metadata={"help": "A name."}))])
    return Command("name", options, lambda _: 0)


@pytest.mark.parametrize(
    ("kind", "texts", "value"),
    [
        (int, ["12"], 12),
        (float, ["1e-5"], 1e-5),
        (float, ["2"], 2.0),
        (int | None, ["none"], None),
        (float | None, ["none"], None),
        (str | None, ["x"], "x"),
        (str, ["12"], "12"),
        (Path, ["a b"], Path("a b")),
        (tuple[int, ...], ["1", "2"], (1, 2)),
        (tuple[str, ...] | None, ["none"], None),
        (tuple[str, ...] | None, [], ()),
        (Literal["a", "b"], ["b"], "b"),
        (Literal["a", "b"] | None, ["none"], None),
        (tuple[Literal["a", "b"], ...], ["b", "a"], ("b", "a")),
    ],
)
def test_text_of_the_command_line(kind, texts, value) -> None:
    read = parse("name", command_of(kind), ["--the-name", *texts])["the_name"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(("arguments", "value"), [(["--the-name"], True), (["--no-the-name"], False)])
def test_switches(arguments, value) -> None:
    assert parse("name", command_of(bool), arguments) == {"the_name": value}


@pytest.mark.parametrize(("value", "positional"), [((), []), (("1", "2"), ["1", "2"])])
def test_several_positional_values(value, positional) -> None:
    options = make_dataclass("Options", [("names", tuple[str, ...], field(default=(), metadata=POSITIONAL))])
    command = Command("name", options, lambda _: 0)
    assert {"names": ()} | parse("name", command, positional) == {"names": value}


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (int, "1.0", r'--the-name is "1\.0"; expected a whole number'),
        (float | None, "x", '--the-name is "x"; expected a number, or "none"'),
        (tuple[int, ...], "x", r'--the-name is \["x"\]; expected a list, each item a whole number'),
        (tuple[Literal["a"], ...], "b", r'--the-name is \["b"\]; expected a list, each item one of: a'),
        (Literal["a"], "b", '--the-name is "b"; expected one of: a'),
    ],
)
def test_text_of_another_type(kind, text, message) -> None:
    with pytest.raises(InputError, match=message):
        parse("name", command_of(kind), ["--the-name", text])
