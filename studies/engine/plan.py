"""The plan of a preset: its stages, which of them are computed already."""

from collections.abc import Iterator
from dataclasses import dataclass

from multitask.runtime.options import RunOptions
from studies.engine.grid import Grid
from studies.engine.presets import Preset
from studies.engine.recipes import Node
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
    """

    depth: int
    stage: str
    label: str
    rows: int
    seeds: int
    cached: int
    missing: int


def make_plan(preset: Preset, seeds: int, options: RunOptions) -> list[PlannedStage]:
    """All stages of a preset, each below the stage that it starts from.

    Computes nothing and loads no weights, but hashes all files that the stages depend on.

    Raises:
        InputError: as `run_preset`.
    """
    check_preset(preset, seeds)
    grid, store = Grid.of(preset.experiments, seeds), Store(options)
    found = {node: run for node in grid.stages if (run := store.find(node))}
    missing = set(grid.missing(found))
    first = [node for node in grid.stages if node.seeded(0) == node]

    def planned(node: Node, depth: int) -> PlannedStage:
        copies = dict.fromkeys(node.seeded(seed) for seed in range(seeds))
        return PlannedStage(
            depth,
            node.stage,
            grid.stages[node].label,
            grid.needed[node],
            len(copies),
            sum(copy in found for copy in copies),
            len(missing & set(copies)),
        )

    return [planned(node, depth) for node, depth in _tree(first)]


def _tree(nodes: list[Node]) -> Iterator[tuple[Node, int]]:
    """Every stage with its depth, below the first stage that it starts from."""

    def below(parent: Node | None, depth: int) -> Iterator[tuple[Node, int]]:
        for node in nodes:
            if (node.needs[0] if node.needs else None) == parent:
                yield node, depth
                yield from below(node, depth + 1)

    return below(None, 0)


def rows_of(plan: list[PlannedStage]) -> list[list[str]]:
    """The plan's stages as cells: stage, first row, rows, state. The first line is the heading."""
    lines = [["stage", "first needed by", "rows", "state"]]
    for stage in plan:
        state = "cached" if stage.cached == stage.seeds else "to do" if stage.missing else "not needed"
        if stage.seeds > 1 and 0 < stage.cached < stage.seeds:
            state = f"{stage.cached} of {stage.seeds} cached"
        lines.append(["  " * stage.depth + stage.stage, stage.label, str(stage.rows), state])
    return lines
