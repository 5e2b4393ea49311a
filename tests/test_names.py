"""A name has one meaning: nothing public is defined in two modules, and a variable says what it holds."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT

CONVENTIONS = {
    "[A-Z][a-z]": {"Answer", "Array", "AtLeastZero", "Positive"},  # type variables and aliases of the same types
    "[A-Z][A-Z0-9_]*$": {"CLAIMS", "COMMAND", "COMMANDS", "DESCRIBED", "SECTIONS", "STUDY", "T", "TABLES"},
    "[a-z]": {"check", "compute", "logger", "main", "reads", "register", "router", "summary"},
}
"""Kinds of names, and what means the same wherever it stands: parts of studies, stages, command groups and the like."""


def names(node: ast.stmt) -> Iterator[str]:
    """What a statement defines."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    for part in (part for target in targets if target for part in ast.walk(target)):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id


FILES = [path for package in ("minbert", "multitask", "studies") for path in (ROOT / package).rglob("*.py")]


@pytest.mark.parametrize("kind", CONVENTIONS)
def test_no_public_name_is_defined_twice(kind: str) -> None:
    places = defaultdict(set)
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if path.parent == ROOT / "multitask/cli" and isinstance(node, ast.FunctionDef):
                continue  # functions there have the names of their commands
            for name in filter(re.compile(kind).match, names(node)):
                places[name].add(str(path.relative_to(ROOT)))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert {name: found for name, found in twice.items() if name not in CONVENTIONS[kind]} == {}


def test_no_variable_has_a_name_that_fits_anything() -> None:
    found = []
    for path in (*FILES, *(ROOT / "scripts").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            name = node.arg if isinstance(node, ast.arg) else node.id if isinstance(node, ast.Name) and stored else ""
            if name in {"of", "said", "told", "untold"}:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")
    assert found == []
