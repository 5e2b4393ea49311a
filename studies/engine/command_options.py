"""Options of `multitask experiments`, as dataclasses: what `--help` shows. `cli_experiments.py` runs them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from multitask.runtime.options import Device, Precision
from studies.engine.presets import PresetName


@dataclass(frozen=True)
class Tables:
    """Which tables, from what, and where."""

    preset: tyro.conf.Positional[PresetName]
    """`sample`: the bundled data, minutes on a processor; `small`: real data, sub-sampled for a processor; `best`: the
    best recipe on real data; `paper`: real data with the report's settings."""
    start: str | None = None
    """Start weights in place of the preset's: a folder or a hub id."""
    data: Path | None = None
    """Folder with the tasks' files in place of the preset's."""
    suites_data: Path | None = None
    """SentEval's data folder, for tables that need it, in place of the preset's data/senteval."""
    tables: str | None = None
    """Only these, e.g. `2,7,figure2`."""
    seeds: int = 1
    """Compute every row with so many seeds, from 0, along its whole chain."""
    runs: Path = Path("runs")
    """Folder of all artefacts."""
    device: Device = "auto"
    precision: Precision = "auto"


@dataclass(frozen=True)
class RunTables(Tables):
    """Compute a preset's tables and write the report. What was computed before is taken from the store."""

    engine: Literal["local", "ray"] = "local"
    """This machine, or a Ray cluster (the one that `ray start` began, else one of its own) with a shared folder."""
    workers: int | None = None
    """Processes that compute at once here; when left out one for each GPU, or one for each core up to four."""
    report: Path = Path("report")
    """Folder of the report."""
    predictions: Path = Path("predictions")
    """Folder of the best models' prediction files."""
    save_every: float = 120.0
    """Seconds between saved states, the most that a kill can cost."""


@dataclass(frozen=True)
class PlanTables(Tables):
    """Show a preset's stages, how many rows share each, what is computed already, and an estimate of the rest."""


@dataclass(frozen=True)
class ListArtefacts:
    """List all artefacts with their sizes and the presets whose tables rest on them."""

    runs: Path = Path("runs")
    """Folder of all artefacts."""


@dataclass(frozen=True)
class ShowArtefact:
    """Show what an artefact was made from, and its scores."""

    artefact: tyro.conf.Positional[str]
    """Its name, or the hash at the end of it."""
    runs: Path = Path("runs")
    """Folder of all artefacts."""


@dataclass(frozen=True)
class CollectGarbage:
    """List what no preset's tables rest on, unfinished runs included, and with --delete remove it."""

    runs: Path = Path("runs")
    """Folder of all artefacts."""
    delete: bool = False
    """Remove it. Runs that were made by hand are among it."""


@dataclass(frozen=True)
class Experiments:
    """The report's tables: run them, plan them, look after their artefacts."""

    action: (
        Annotated[RunTables, tyro.conf.subcommand("run")]
        | Annotated[PlanTables, tyro.conf.subcommand("plan")]
        | Annotated[ListArtefacts, tyro.conf.subcommand("list")]
        | Annotated[ShowArtefact, tyro.conf.subcommand("show")]
        | Annotated[CollectGarbage, tyro.conf.subcommand("gc")]
    )
