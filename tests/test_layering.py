"""Who may import whom: the encoder knows nothing of tasks, objectives nothing of models, nothing imports upwards."""

import ast
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.conftest import ROOT

# A room imports from rooms of earlier layers and from itself only: training and evaluation know nothing of each other.
# A new room has to be put here.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("base",),
    ("objectives", "data"),
    ("tasks",),
    ("models",),
    ("training", "evaluation"),
    ("stages",),
    ("use",),
    ("experiments",),
    ("service",),
    ("cli",),
)
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
MINBERT_NEEDS = {"minbert", "torch", "tokenizers", "safetensors", "numpy", "huggingface_hub", "pydantic"}


def modules(package: str) -> list[Path]:
    """The package's modules but for its __init__.py, which only names the public ones."""
    files = [path.relative_to(ROOT) for path in sorted((ROOT / package).rglob("*.py"))]
    assert files, f"{package}: no modules"
    return [path for path in files if path != Path(package, "__init__.py")]


@cache
def imports(path: Path) -> frozenset[str]:
    """Dotted names of all that a module imports, within functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}  # modules, or names in them
            found |= {str(node.module)} - {"multitask", "minbert"}
    return frozenset(found)


def foreign(path: Path) -> set[str]:
    """Top-level packages outside the standard library."""
    return {name.partition(".")[0] for name in imports(path)} - sys.stdlib_module_names


def test_nothing_imports_upwards():
    for path in modules("multitask"):
        own = path.with_suffix("").parts[1]
        if own == "__main__":
            continue
        assert own in LAYER, f"{path}: say in LAYERS where it belongs"
        for name in imports(path):
            package, _, rest = name.partition(".")
            other = rest.partition(".")[0]
            if package == "multitask" and other != own:
                assert LAYER[other] < LAYER[own], f"{path} imports {name}"


def test_the_library_does_not_know_the_studies():
    assert [path for path in modules("minbert") + modules("multitask") if "studies" in foreign(path)] == []


@pytest.mark.parametrize("path", modules("minbert"), ids=str)
def test_the_encoder_stands_alone(path):
    assert foreign(path) <= MINBERT_NEEDS


def dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def test_there_is_no_import_circle():
    """Imports for type checking and within functions count too."""
    files = [path for package in ("minbert", "multitask", "studies") for path in modules(package)]
    known = {dotted(path): path for path in files}
    named = {name for path in files for name in imports(path) if name.count(".") == 1}
    offered = {name for name in named if name.startswith(("minbert.", "multitask.")) and name not in known}
    assert offered == set(), "import from modules, not what the package offers"
    graph = {name: imports(path) & known.keys() for name, path in known.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


@pytest.mark.parametrize("path", modules("multitask/objectives"), ids=str)
def test_objectives_know_tensors_only(path):
    assert foreign(path) <= {"torch", "pydantic", "multitask"}
    ours = {name for name in imports(path) if name.startswith("multitask")}
    assert all(name.startswith(("multitask.objectives", "multitask.base.choices_with_parameters")) for name in ours)


ALLOWED = {"transformers_model.py": {"transformers"}, "sentence_transformers_encoder.py": {"sentence_transformers"}}


def test_transformers_is_for_tests_and_other_architectures_only():
    for path in modules("minbert") + modules("multitask"):
        allowed = ALLOWED.get(path.name, set())
        found = foreign(path) & {"transformers", "sentence_transformers", "pytest", "tests"}
        assert found <= allowed, path


def test_each_module_has_one_layer():
    assert sum(map(len, LAYERS)) == len(LAYER)
