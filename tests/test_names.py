"""A name has one meaning: no class, type or function stands for two things."""

import ast
import re
from collections import defaultdict

from tests.conftest import ROOT

TWICE = {"Answer", "Array", "AtLeastZero", "Positive"}
"""Type variables and aliases, which mean the same wherever they stand."""


def test_no_public_class_or_type_is_defined_twice() -> None:
    places = defaultdict(list)
    for path in (path for package in ("minbert", "multitask", "studies") for path in (ROOT / package).rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names = (
                [node.name] if isinstance(node, ast.ClassDef) else [t.id for t in targets if isinstance(t, ast.Name)]
            )
            for name in filter(re.compile("[A-Z][a-z]").match, names):
                places[name].append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in TWICE} == {}


CONVENTIONS = {"check", "compute", "main", "reads", "register", "router", "summary"}
"""What stages, registries, scripts and routes call their functions, wherever these stand."""


def test_no_public_function_is_defined_twice() -> None:
    places = defaultdict(list)
    for path in (path for package in ("minbert", "multitask", "studies") for path in (ROOT / package).rglob("*.py")):
        if path.parent != ROOT / "multitask/cli":  # functions there have the names of their commands
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                    places[node.name].append(str(path.relative_to(ROOT)))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert {name: found for name, found in twice.items() if name not in CONVENTIONS} == {}
