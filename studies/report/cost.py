"""Cost of rows, and what exactly they ran. Artefacts that rows share are counted and shown once."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from minbert.files import read_json
from studies.engine.table import Row, Table
from studies.report.preset_results import PresetResults
from studies.report.run_results import RunResult, history
from studies.results import Spent


@dataclass(frozen=True)
class RowCost:
    """Cost of all artefacts of a row, all seeds together.

    Args:
        table: the table's title.
        label: of the row.
        stages: the number of stages of each kind in one seed, without evaluations.
        seeds: the number of seeds.
        tokens: trained on, without padding.
        training_seconds: of the training steps.
        seconds: of all stages.
        added: of the stages that no earlier row has.
    """

    table: str
    label: str
    stages: dict[str, int]
    seeds: int
    tokens: int
    training_seconds: float
    seconds: float
    added: float

    @property
    def tokens_per_second(self) -> float:
        """Of the training steps; 0 without training."""
        return self.tokens / self.training_seconds if self.training_seconds else 0.0


@dataclass(frozen=True)
class Cost:
    """Costs of all rows, and the names of the machines that computed them."""

    rows: tuple[RowCost, ...]
    machines: tuple[str, ...]

    @property
    def spent(self) -> float:
        """Seconds of all artefacts, each counted once."""
        return sum(row.added for row in self.rows)

    @property
    def alone(self) -> float:
        """Seconds that the rows would have taken without sharing stages."""
        return sum(row.seconds for row in self.rows)

    @property
    def saved(self) -> float:
        """Share of the time that sharing stages saved."""
        return 1 - self.spent / self.alone if self.alone else 0.0


def cost_of(results: PresetResults) -> Cost:
    """Costs of all finished rows in the tables' order. A figure's row counts only if no table has its stages."""
    seen: set[str] = set()
    rows = []
    for table, row, runs in _rows(results):
        stages = {stage.artefact: stage for run in runs for stage in run.chain}
        if table.kind == "curves" and set(stages) <= seen:
            continue
        last = [lines[-1] for name in stages if (lines := history(results.folder / name))]
        rows.append(
            RowCost(
                table.numbered_title,
                row.label,
                Counter(stage.stage for stage in runs[0].chain if stage.stage != "evaluate"),
                len(runs),
                sum(line["tokens"] for line in last),
                sum(line["seconds"] for line in last),
                sum(stage.seconds for stage in stages.values()),
                sum(stage.seconds for name, stage in stages.items() if name not in seen),
            )
        )
        seen |= set(stages)
    return Cost(tuple(rows), machines_of(seen, results.folder))


def spent_on(runs: Mapping[str, Sequence[RunResult]], folder: Path) -> Spent:
    """What the stages of a table took.

    Args:
        runs: the finished runs of each row.
        folder: of all artefacts.
    """
    seconds = {stage.artefact: stage.seconds for of in runs.values() for run in of for stage in run.chain}
    return Spent(len(seconds), sum(seconds.values()), machines_of(seconds, folder))


def machines_of(artefacts: Iterable[str], folder: Path) -> tuple[str, ...]:
    """The names of the machines that computed artefacts, as far as they were noted."""
    named = {str(read_json(folder / artefact / "inputs.json", dict).get("machine", "")) for artefact in artefacts}
    return tuple(sorted(named - {""}))


@dataclass(frozen=True)
class StageDetails:
    """What exactly a stage ran, with all seeds.

    Args:
        label: of the first row that has it.
        stage: its name.
        artefacts: names of the folders, one for each seed.
        config: the first seed's full configuration.
        inputs: hashes of the first seed's inputs, device and precision.
    """

    label: str
    stage: str
    artefacts: tuple[str, ...]
    config: dict[str, Any]
    inputs: dict[str, Any]


def stages_of(results: PresetResults) -> list[StageDetails]:
    """Every stage once, without evaluations, in the tables' order."""
    seen: set[str] = set()
    details = []
    for table, row, runs in _rows(results):
        for same in zip_longest(*(run.chain for run in runs)):  # chains of one row differ only by the seed
            stages = [stage for stage in same if stage is not None and stage.stage != "evaluate"]
            if stages and stages[0].artefact not in seen:
                names = tuple(stage.artefact for stage in stages)
                seen |= set(names)
                label, folder = f"{table.numbered_title}, {row.label}", results.folder / names[0]
                config, inputs = read_json(folder / "config.json"), read_json(folder / "inputs.json")
                details.append(StageDetails(label, stages[0].stage, names, config, inputs))
    return details


def _rows(results: PresetResults) -> Iterator[tuple[Table, Row, tuple[RunResult, ...]]]:
    """Finished rows. Rows of figures come last: most of them are rows of tables, too."""
    for of in sorted(results.tables, key=lambda of: of.table.kind == "curves"):
        for row, runs in of.rows:
            if runs:
                yield of.table, row, runs
