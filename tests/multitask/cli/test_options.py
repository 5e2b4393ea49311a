"""Fields of dataclasses as options."""

from dataclasses import MISSING, field
from pathlib import Path
from typing import Any, Literal

import pytest

from minbert.errors import InputError
from minbert.settings import settings
from multitask.cli.arguments import POSITIONAL, Command, Option, build, options_of, parse


@settings
class Inner:
    """What is inside.

    More about it.
    """

    width: int | None = None
    """Width,
    in words."""


@settings
class Base:
    """A base."""

    place: Path = field(metadata=POSITIONAL, kw_only=True)
    """Where."""


@settings
class Outer(Base):
    """All."""

    inner: Inner = field(default_factory=lambda: Inner(7))
    names: tuple[str, ...] = ()
    """Names."""
    """Not a help text."""
    mode: Literal["a", "b"] = field(default="a", metadata={"help": "Mode."})


def test_options_are_the_fields_with_their_docstrings() -> None:
    assert list(options_of(Outer)) == [
        Option(("place",), Path, MISSING, "Where.", positional=True),  # required, and of the base
        Option(("inner", "width"), int, 7, "Width, in words.", "What is inside", may_be_none=True),
        Option(("names",), str, (), "Names.", several=True),
        Option(("mode",), Literal["a", "b"], "a", "Mode.", choices=("a", "b")),
    ]


def test_values_make_the_settings() -> None:
    values = {"place": Path("x"), "width": None, "names": ["n"], "mode": "b"}
    built = build(Outer, list(options_of(Outer)), values)
    assert built == Outer(place=Path("x"), inner=Inner(None), names=("n",), mode="b")


def read(kind: Any, *arguments: str) -> Any:
    """The value of an option `--the-name` of this type."""
    default = field(default=None, metadata={"help": "A name."})
    options = settings(type("Options", (), {"__annotations__": {"the_name": kind}, "the_name": default}))
    command = Command("name", options, "nowhere:nothing")
    (option,) = command.declared()
    return build(options, [option], {"the_name": option.read(parse("name", command, arguments)["the_name"])}).the_name


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
    found = read(kind, "--the-name", *texts)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(("argument", "value"), [("--the-name", True), ("--no-the-name", False)])
def test_switches(argument, value) -> None:
    assert read(bool, argument) is value


@pytest.mark.parametrize(
    ("kind", "text"),
    [(int, "1.0"), (float | None, "x"), (tuple[int, ...], "x"), (tuple[Literal["a"], ...], "b"), (Literal["a"], "b")],
)
def test_text_of_another_type(kind, text) -> None:
    with pytest.raises(InputError):
        read(kind, "--the-name", text)
