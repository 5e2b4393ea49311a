"""A grid: the stages of all rows and seeds as one graph. Each stage is computed once, parents before children.

The key of a stage's run is known before anything is computed, and is the same as that of the command line.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from multitask.base.keys import RunKey
from multitask.base.locks import refuse_link
from multitask.base.options import RunOptions
from multitask.base.runs import Artefact, Weights
from multitask.stages.registry import stage_named
from multitask.stages.run_stage import Identity, identity_of, key_of, runtime_of
from studies.engine.engines import Engine, Failed, Job
from studies.engine.experiments import Experiment
from studies.engine.progress import GridProgress
from studies.engine.recipes import Node
from studies.engine.table import Row

LOGS = "logs"

Outcomes = Mapping[Node, Artefact | Failed]


class Grid:
    """All stages of some experiments, for the seeds 0 to `seeds` - 1. The first seed of all rows comes first.

    Attributes:
        chains: the stages of each table's row and seed, parents before children, the one that scores last.
        targets: the stages whose runs rows name: models and their evaluations.
        stages: every stage, parents before children, with the first row that needs it.
        needed: how many rows need each stage, counted over tables and seeds.
    """

    def __init__(self, experiments: Sequence[Experiment], seeds: int, options: RunOptions) -> None:
        self.seeds, self.options = seeds, options
        self.chains: dict[tuple[str, str, int], list[Node]] = {}
        self.targets: set[Node] = set()
        self.stages: dict[Node, Row] = {}
        self.needed: Counter[Node] = Counter()
        self._keys: dict[Node, RunKey] = {}
        self._identities: dict[Weights, Identity] = {}
        places = [(e, row) for e in experiments for row in e.table.rows if row.key in e.models]
        for seed, (experiment, row) in product(range(seeds), places):
            model = experiment.models[row.key].seeded(seed)
            chain = list(experiment.evaluation(model).chain())
            self.chains[experiment.table.key, row.key, seed] = chain
            self.targets |= {model, chain[-1]}
            self.needed.update(chain)
            for node in chain:
                self.stages.setdefault(node, row)

    def key(self, node: Node) -> RunKey:
        """The key of a stage's run. Raises InputError if start weights or a file cannot be read."""
        if node not in self._keys:
            stage = stage_named(node.stage)
            parents = [self._identity(parent) for parent in node.parents]
            self._keys[node] = key_of(stage, parents, node.data, node.config, runtime_of(stage, self.options))
        return self._keys[node]

    def _identity(self, parent: Node | Weights) -> Identity:
        if isinstance(parent, Node):
            return self.key(parent).digest()
        if parent not in self._identities:
            self._identities[parent] = identity_of(parent)
        return self._identities[parent]

    def find(self, node: Node) -> Artefact | None:
        """The complete run of a stage; None if it is not computed. Raises InputError if it is damaged."""
        artefact = Artefact.find(self.options.runs, self.key(node))
        if artefact is None or not artefact.done:
            return None
        artefact.check()
        return artefact

    def found(self) -> dict[Node, Artefact]:
        """The complete runs of all stages."""
        return {node: run for node in self.stages if (run := self.find(node))}

    def missing(self, found: Mapping[Node, object]) -> list[Node]:
        """The stages to compute, in order: the targets that were not found, and their parents that were not found."""
        needed: set[Node] = set()
        for node in reversed(list(self.stages)):
            if node not in found and (node in self.targets or any(node in child.needs for child in needed)):
                needed.add(node)
        return [node for node in self.stages if node in needed]

    def name(self, node: Node) -> str:
        """For readers: `finetune of NLI, seed 0`, with the first row that needs the stage."""
        seed = getattr(node.config, "seed", None)
        return f"{node.stage} of {self.stages[node].label}" + ("" if seed is None else f", seed {seed}")

    def log(self, node: Node, label: str) -> Path:
        """Where a stage's log goes. Raises InputError if there is a link, which would be written through."""
        path = self.options.runs / LOGS / f"{node.stage}-{label}-{self.key(node).digest()}.log"
        refuse_link(path.parent)
        refuse_link(path)
        return path

    def job(self, node: Node, outcomes: Outcomes) -> Job:
        """The job of a stage whose parents are computed."""
        name = re.sub(r"\W+", "-", self.stages[node].key.lower()).strip("-")
        parents = [outcomes[parent] if isinstance(parent, Node) else parent for parent in node.parents]
        models = tuple(
            Weights(str(p.folder)) if isinstance(p, Artefact) else p for p in parents if not isinstance(p, Failed)
        )
        return Job(node, models, replace(self.options, name=name), self.log(node, name))


def compute_grid(grid: Grid, engine: Engine, report: Callable[[Outcomes], object]) -> Outcomes:
    """Compute the missing stages; returns the run or the failure of every stage.

    `report` is called after every stage with all outcomes so far.

    Raises:
        Interrupted: a signal asked to stop; the same call resumes.
        OSError: a disk is full or read-only; the same call resumes.
    """
    outcomes: dict[Node, Artefact | Failed] = {**grid.found()}
    waiting = grid.missing(outcomes)
    running = 0
    with GridProgress(waiting, grid.name, live=engine.slots > 1) as progress:
        while waiting or running:
            for node in list(waiting):
                parents = [outcomes.get(parent) for parent in node.needs]
                if failed := next((parent for parent in parents if isinstance(parent, Failed)), None):
                    outcomes[node] = failed
                    progress.left_out(node)
                elif run := grid.find(node):  # another grid was faster
                    outcomes[node] = run
                    progress.left_out(node)
                elif running < engine.slots and None not in parents:
                    engine.submit(grid.job(node, outcomes))
                    progress.began_stage(node)
                    running += 1
                else:
                    continue
                waiting.remove(node)
            if running:
                job, outcome = engine.wait()
                running -= 1
                if isinstance(outcome, Failed) and outcome.disk is not None:
                    raise outcome.disk
                outcomes[job.node] = outcome
                progress.ended_stage(job.node, outcome.error if isinstance(outcome, Failed) else None)
            report(outcomes)
    return outcomes


def plan(grid: Grid) -> list[list[str]]:
    """The plan of a grid as a table: each stage with all its seeds below the stage that it starts from.

    Computes nothing and loads no weights, but hashes all files that the stages depend on. Columns are the stage, the
    first row that needs it, how many rows do, and the state; `not needed` is what only complete stages start from. The
    last line counts the stages that have to be computed.
    """
    found = grid.found()
    missing = grid.missing(found)
    lines = [["stage", "first needed by", "rows", "state"]]
    total = 0
    for node, depth in _tree([node for node in grid.stages if node.seeded(0) == node]):
        seeds = {node.seeded(seed) for seed in range(grid.seeds)}
        total += len(seeds)
        cached = len(seeds & found.keys())
        state = "cached" if cached == len(seeds) else "to do" if seeds & set(missing) else "not needed"
        if 0 < cached < len(seeds):
            state = f"{cached} of {len(seeds)} cached"
        lines.append(["  " * depth + node.stage, grid.stages[node].label, str(grid.needed[node]), state])
    return [*lines, [f"to do: {len(missing)} of {total} stages"]]


def _tree(nodes: list[Node], parent: Node | None = None, depth: int = 0) -> Iterator[tuple[Node, int]]:
    """Every stage with its depth, below the first stage that it starts from."""
    for node in nodes:
        if (node.needs[0] if node.needs else None) == parent:
            yield node, depth
            yield from _tree(nodes, node, depth + 1)
