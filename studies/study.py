"""What a study consists of: tables, claims and figures. Each folder here that has a module `study` is a study."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING

import studies

if TYPE_CHECKING:  # the engine reads this module, and must not import what draws figures
    from studies.engine.experiments import Experiment
    from studies.engine.recipes import Recipes
    from studies.report.preset_results import PresetResults
    from studies.report.sections import Section
    from studies.report.verdicts import Judged


@dataclass(frozen=True)
class Paper:
    """A paper whose claims are checked.

    Args:
        key: anchor of its part of the study's page.
        name: its short name.
        reference: arXiv number, or venue and year.
        title: its title.
    """

    key: str
    name: str
    reference: str
    title: str

    @property
    def citation(self) -> str:
        """`SparseCSE (arXiv 2311.03881)`."""
        return f"{self.name} ({self.reference})"


@dataclass(frozen=True)
class Study:
    """The object `STUDY` of a folder's module `study`.

    Args:
        tables: a function for each table, from a preset's recipes to the table and the recipes of its rows.
        papers: the papers whose claims are checked.
        judge: from results to the papers' claims with their verdicts.
        sections: makers of the page's sections; each returns None if its results are missing.
    """

    tables: "tuple[Callable[[Recipes], Experiment], ...]"
    papers: tuple[Paper, ...] = ()
    judge: "Callable[[PresetResults], list[Judged]]" = lambda results: []
    sections: "tuple[Callable[[PresetResults], Section | None], ...]" = ()


def studies_by_name() -> "dict[str, Study]":
    """The studies of all folders here, by the folder's name."""
    names = [module.name for module in iter_modules(studies.__path__) if module.ispkg]
    return {name: import_module(f"studies.{name}.study").STUDY for name in names if find_spec(f"studies.{name}.study")}


def all_studies() -> tuple[Study, ...]:
    """The studies of all folders here, by the folder's name."""
    return tuple(studies_by_name().values())
