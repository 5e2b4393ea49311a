"""The plan of a preset: its stages, which of them are computed already, and how long the others may take."""

from collections.abc import Iterator
from dataclasses import dataclass

from multitask.runtime.options import RunOptions
from studies.engine.grid import Grid
from studies.engine.presets import Preset
from studies.engine.recipes import Node
from studies.engine.record import duration
from studies.engine.run import check_preset
from studies.engine.store import Store


@dataclass(frozen=True)
class PlannedStage:
    """A stage with all its seeds.

    Args:
        depth: the number of stages before it.
        stage: the stage's name.
        label: of the first row that needs it.
        rows: how many rows need it.
        seeds: how many seeds are wanted.
        cached: how many seeds are computed already.
        missing: how many seeds have to be computed. A seed that no missing stage needs is neither cached nor missing.
        seconds: that a seed took or may take; None if no similar stage was measured yet.
    """

    depth: int
    stage: str
    label: str
    rows: int
    seeds: int
    cached: int
    missing: int
    seconds: float | None


@dataclass(frozen=True)
class Plan:
    """All stages of a preset, each below the stage that it starts from."""

    stages: tuple[PlannedStage, ...]

    @property
    def seconds_left(self) -> float | None:
        """Estimated time of all missing stages, one after the other. None if a stage cannot be estimated."""
        left = [(stage.missing, stage.seconds) for stage in self.stages if stage.missing]
        known = [missing * seconds for missing, seconds in left if seconds is not None]
        return sum(known) if len(known) == len(left) else None

    @property
    def shared(self) -> float | None:
        """Share of the time of all rows that they save by sharing stages. None if no time is known."""
        known = [(stage.seconds * stage.seeds, stage.rows) for stage in self.stages if stage.seconds is not None]
        apart = sum(seconds * rows for seconds, rows in known)
        return 1 - sum(seconds for seconds, _ in known) / apart if apart else None


def make_plan(preset: Preset, seeds: int, options: RunOptions) -> Plan:
    """The plan of a preset. Computes nothing and loads no weights, but reads all files that the stages depend on.

    Raises:
        InputError: as `run_preset`.
    """
    check_preset(preset, seeds)
    grid, store = Grid.of(preset.experiments, seeds), Store(options)
    notes = {node: note for node in grid.stages if (note := store.note(node))}
    missing = set(grid.missing(notes))
    first = [node for node in grid.stages if node.seeded(0) == node]

    def planned(node: Node, depth: int) -> PlannedStage:
        copies = dict.fromkeys(node.seeded(seed) for seed in range(seeds))
        measured = [notes[copy].seconds for copy in copies if copy in notes]
        return PlannedStage(
            depth,
            node.stage,
            grid.stages[node].label,
            grid.needed[node],
            len(copies),
            len(measured),
            len(missing & set(copies)),
            sum(measured) / len(measured) if measured else store.estimate(node),
        )

    return Plan(tuple(planned(node, depth) for node, depth in _tree(first)))


def _tree(nodes: list[Node]) -> Iterator[tuple[Node, int]]:
    """Every stage with its depth, below the first stage that it starts from."""

    def below(parent: Node | None, depth: int) -> Iterator[tuple[Node, int]]:
        for node in nodes:
            if (node.needs[0] if node.needs else None) == parent:
                yield node, depth
                yield from below(node, depth + 1)

    return below(None, 0)


def rows_of(plan: Plan) -> list[list[str]]:
    """The plan's stages as cells: stage, first row, rows, state, time. The first line is the heading."""
    lines = [["stage", "first needed by", "rows", "state", "time"]]
    for stage in plan.stages:
        state = "cached" if stage.cached == stage.seeds else "to do" if stage.missing else "not needed"
        if stage.seeds > 1 and 0 < stage.cached < stage.seeds:
            state = f"{stage.cached} of {stage.seeds} cached"
        time = ("" if stage.cached else "about ") + duration(stage.seconds)
        lines.append(["  " * stage.depth + stage.stage, stage.label, str(stage.rows), state, time])
    return lines
