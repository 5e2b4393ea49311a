"""What a study consists of: tables, claims and figures. Each folder here that has a module `study` is a study."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

import studies

if TYPE_CHECKING:  # the engine reads this module, and must not import what draws figures
    import pandas

    from studies.engine.experiments import Experiment
    from studies.engine.recipes import Recipes
    from studies.report.claims import Numbers
    from studies.report.preset_results import PresetResults
    from studies.report.sections import Section


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
        folder: the folder; its file `claims.toml` has the papers' claims, if it has any.
        tables: a function for each table, from a preset's recipes to the table and the recipes of its rows.
        papers: the papers whose claims are checked.
        sections: makers of the page's sections; each returns None if its results are missing.
        numbers: from results to further kinds of numbers that claims are about; see `claims.judge`.
    """

    folder: Path
    tables: "tuple[Callable[[Recipes], Experiment], ...]"
    papers: tuple[Paper, ...] = ()
    sections: "tuple[Callable[[PresetResults], Section | None], ...]" = ()
    numbers: "Callable[[PresetResults], dict[str, Numbers]]" = lambda results: {}

    def judge(self, results: "PresetResults") -> "pandas.DataFrame":
        """The papers' claims with their verdicts, as `claims.judge` gives them."""
        from studies.report.claims import judge, read_claims

        file = self.folder / "claims.toml"
        claims = read_claims(file) if file.is_file() else ()
        return judge(claims, results.finished_tables, self.numbers(results))


def studies_by_name() -> dict[str, Study]:
    """The studies of all folders here, by the folder's name."""
    names = [module.name for module in iter_modules(studies.__path__) if module.ispkg]
    return {name: import_module(f"studies.{name}.study").STUDY for name in names if find_spec(f"studies.{name}.study")}


def all_studies() -> tuple[Study, ...]:
    """The studies of all folders here, by the folder's name."""
    return tuple(studies_by_name().values())
