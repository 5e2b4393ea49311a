"""Results of a preset: its record and the results of every table, read from the folder of artefacts."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from multitask.base.runs import Artefact
from studies.engine.record import Record
from studies.report.run_results import RunResult, Samples
from studies.report.table_results import TableResults


@dataclass(frozen=True)
class PresetResults:
    """All that a report shows: what the preset ran, the results of every table with scores, the folder of all runs."""

    record: Record
    tables: tuple[TableResults, ...]
    folder: Path

    @classmethod
    def read(cls, folder: Path, preset: str) -> Self:
        """Read a preset's record and results. Raises InputError when it was never run, or a run is damaged."""

        def artefact(name: str) -> Artefact:
            return Artefact(folder / name)

        record = Record.read(folder, preset)
        for name in sorted(record.artefacts()):
            artefact(name).check()
        runs: dict[tuple[str, str], tuple[RunResult, ...]] = {}
        for table in record.tables:
            metrics = {task: first for task, (first, *_) in table.metrics.items()}
            for row in table.rows:
                runs[table.key, row.key] = tuple(
                    RunResult(folder / run.model, folder / run.evaluation, run.seed, chain, metrics)
                    for run in record.of_row(table.key, row.key)
                    if run.model is not None and run.evaluation is not None
                    for chain in [tuple(map(artefact, run.chain))]
                )
        samples = Samples([run for of in runs.values() for run in of])
        tables = (
            TableResults(table, {row.key: runs[table.key, row.key] for row in table.rows}, samples)
            for table in record.tables
            if table.kind != "simulations"
        )
        return cls(record, tuple(tables), folder)

    @cached_property
    def finished_tables(self) -> dict[str, TableResults]:
        """The tables with a finished run, by key."""
        return {results.table.key: results for results in self.tables if any(results.runs.values())}

    def last_stage(self, table: str) -> Artefact | None:
        """The last complete run of a table's first run, for tables without scores. None if nothing was computed."""
        names = (run.chain[-1] for run in self.record.runs if run.table == table and run.chain)
        return next((Artefact(self.folder / name) for name in names), None)
