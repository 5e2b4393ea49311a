"""What a study consists of: tables, claims and figures. Each folder here that has a module `study` is a study."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import studies
from minbert.errors import InputError

if TYPE_CHECKING:  # the engine reads this module, and must not import what draws figures
    import pandas

    from multitask.experiments.compare_rows import PresetResults
    from multitask.experiments.report_page import Section
    from multitask.experiments.table_definitions import Experiment
    from studies.engine.recipes import Recipes
    from studies.report.claims import Claim


@dataclass(frozen=True)
class Paper:
    """A paper whose claims are checked."""

    key: str
    name: str
    reference: str  # arXiv number, or venue and year
    title: str

    @property
    def citation(self) -> str:
        """`SparseCSE (arXiv 2311.03881)`."""
        return f"{self.name} ({self.reference})"


@dataclass(frozen=True)
class Study:
    """The object `STUDY` of a folder's module `study`."""

    tables: "tuple[Callable[[Recipes], Experiment], ...]"
    papers: tuple[Paper, ...] = ()  # the papers whose claims are checked
    # sections of the page; a function returns None if results are missing
    sections: "tuple[Callable[[PresetResults], Section | None], ...]" = ()
    claims: "tuple[Claim, ...]" = ()  # what the papers claim, as functions of results
    # what claims without tables read; None if it is missing
    simulations: "Callable[[PresetResults], Any]" = lambda results: None

    def judge(self, results: "PresetResults") -> "pandas.DataFrame":
        """The papers' claims with their verdicts, as `claims.judge` gives them."""
        from studies.report.claims import judge

        return judge(self.claims, results.finished_tables, self.simulations(results))


def studies_by_name() -> dict[str, Study]:
    """The studies of all folders here, by the folder's name."""
    names = [module.name for module in iter_modules(studies.__path__) if module.ispkg]
    return {name: import_module(f"studies.{name}.study").STUDY for name in names if find_spec(f"studies.{name}.study")}


def all_studies() -> tuple[Study, ...]:
    """The studies of all folders here."""
    return tuple(studies_by_name().values())


def all_experiments(recipes: "Recipes") -> "tuple[Experiment, ...]":
    """Every table of every study: the report's numbered tables in their order, then the others by key."""
    found = [make(recipes) for study in all_studies() for make in study.tables]
    return tuple(sorted(found, key=lambda experiment: _place(experiment.table.key)))


def study_of_tables(recipes: "Recipes") -> dict[str, str]:
    """The folder of the study that has each table, by the table's key."""
    found = studies_by_name().items()
    return {make(recipes).table.key: name for name, study in found for make in study.tables}


def choose_tables(experiments: "tuple[Experiment, ...]", keys: Collection[str]) -> "tuple[Experiment, ...]":
    """The experiments whose tables have these keys, in the usual order. Raises InputError for an unknown key."""
    known = [experiment.table.key for experiment in experiments]
    if unknown := [key for key in keys if key not in known]:
        raise InputError(f"--tables {','.join(keys)}: no table {', '.join(unknown)}; there are {', '.join(known)}")
    return tuple(experiment for experiment in experiments if experiment.table.key in keys)


def _place(key: str) -> tuple[bool, int, str]:
    return (not key.isdigit(), int(key) if key.isdigit() else 0, key)
