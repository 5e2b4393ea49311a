"""The figures that a module renders in a test."""

from types import ModuleType

import pytest
from matplotlib.figure import Figure


def figures_of(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """A list to which every figure is added that the module's `render_panels` renders from now on."""
    found: list[Figure] = []
    original = module.render_panels

    def render(draw, *rest):  # type: ignore[no-untyped-def]
        return original(lambda figure: (found.append(figure), draw(figure)), *rest)

    monkeypatch.setattr(module, "render_panels", render)
    return found
