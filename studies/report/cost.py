"""What the rows cost and what exactly they ran: an artefact that rows share is counted, and shown, once."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from minbert.files import read_json
from studies.engine.record import RecordedStage
from studies.engine.table import Row, Table
from studies.report.preset_results import PresetResults
from studies.report.run_results import RunResult, history


@dataclass(frozen=True)
class RowCost:
    """What a row's artefacts took, all seeds together.

    Args:
        table: its title.
        label: of the row.
        stages: of one seed, how many of each; scoring left out.
        seeds: how many.
        tokens: trained on; nothing is padded, so all of them are real.
        training_seconds: of the training steps alone.
        seconds: of all stages, as if the row had been alone.
        added: of those stages that no row above has.
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
        """Of the training steps; 0 where none were made."""
        return self.tokens / self.training_seconds if self.training_seconds else 0.0


@dataclass(frozen=True)
class Cost:
    """All rows' costs."""

    rows: tuple[RowCost, ...]

    @property
    def spent(self) -> float:
        """Seconds, every artefact once."""
        return sum(row.added for row in self.rows)

    @property
    def alone(self) -> float:
        """Seconds that the rows would have taken without sharing anything."""
        return sum(row.seconds for row in self.rows)

    @property
    def saved(self) -> float:
        """Share of the time that sharing saved."""
        return 1 - self.spent / self.alone if self.alone else 0.0


def cost_of(results: PresetResults) -> Cost:
    """Costs of all finished rows, in the tables' order; rows of a figure only if no table has them."""
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
    return Cost(tuple(rows))


@dataclass(frozen=True)
class StageDetails:
    """Exactly what a stage ran, in all seeds.

    Args:
        label: of the first row that has it.
        stage: its name.
        artefacts: names of the folders, one a seed.
        config: the first seed's full configuration.
        inputs: hashes of all that the first seed read, device and precision.
    """

    label: str
    stage: str
    artefacts: tuple[str, ...]
    config: dict[str, Any]
    inputs: dict[str, Any]


def stages_of(results: PresetResults) -> list[StageDetails]:
    """Every stage but scoring, once, in the tables' order."""
    seen: set[str] = set()
    details = []
    for table, row, runs in _rows(results):
        for same in zip_longest(*(run.chain for run in runs)):  # chains of one row differ in the seed only
            stages = [stage for stage in same if stage is not None and stage.stage != "evaluate"]
            if stages and stages[0].artefact not in seen:
                seen |= {stage.artefact for stage in stages}
                details.append(_details(f"{table.numbered_title}, {row.label}", stages, results.folder))
    return details


def _details(label: str, stages: list[RecordedStage], runs: Path) -> StageDetails:
    folder = runs / stages[0].artefact
    names = tuple(stage.artefact for stage in stages)
    return StageDetails(
        label, stages[0].stage, names, read_json(folder / "config.json"), read_json(folder / "inputs.json")
    )


def _rows(results: PresetResults) -> Iterator[tuple[Table, Row, tuple[RunResult, ...]]]:
    """Finished rows, those of figures last: they are mostly rows of tables drawn again."""
    for of in sorted(results.tables, key=lambda of: of.table.kind == "curves"):
        for row, runs in of.rows:
            if runs:
                yield of.table, row, runs
