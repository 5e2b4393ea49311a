"""A grid: the stages of all rows and seeds as one graph. Each stage is computed once, parents before children."""

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Self

from multitask.runs.artefact import Artefact, Weights
from multitask.runtime.options import RunOptions
from studies.engine.experiments import Experiment
from studies.engine.jobs import Done, Engine, Failed, Job
from studies.engine.recipes import Node
from studies.engine.store import Store
from studies.engine.table import Row

logger = logging.getLogger("multitask")

Outcomes = Mapping[Node, Artefact | Failed]


@dataclass(frozen=True)
class Grid:
    """All stages of some experiments.

    Args:
        targets: the stages whose artefacts rows name: models and their evaluations.
        stages: every stage, parents before children, with the first row that needs it.
        needed: how many rows need each stage, counted over tables and seeds.
    """

    targets: frozenset[Node]
    stages: Mapping[Node, Row]
    needed: Mapping[Node, int]

    @classmethod
    def of(cls, experiments: Sequence[Experiment], seeds: int) -> Self:
        """The grid for the seeds 0 to `seeds` - 1. The first seed of all rows comes before the second."""
        stages: dict[Node, Row] = {}
        needed: Counter[Node] = Counter()
        targets: set[Node] = set()
        places = [(e, row) for e in experiments for row in e.table.rows if row.key in e.models]
        for seed, (experiment, row) in product(range(seeds), places):
            model = experiment.models[row.key].seeded(seed)
            chain = list(experiment.evaluation(model).chain())
            targets |= {model, chain[-1]}
            needed.update(chain)
            for node in chain:
                stages.setdefault(node, row)
        return cls(frozenset(targets), stages, needed)

    def missing(self, found: Mapping[Node, object]) -> list[Node]:
        """The stages to compute, in order: the targets that were not found, and their parents that were not found."""
        needed: set[Node] = set()
        for node in reversed(list(self.stages)):
            if node not in found and (node in self.targets or any(node in child.needs for child in needed)):
                needed.add(node)
        return [node for node in self.stages if node in needed]


def compute_grid(
    grid: Grid, store: Store, engine: Engine, options: RunOptions, report: Callable[[Outcomes], object]
) -> Outcomes:
    """Compute the missing stages.

    Args:
        grid: the stages that rows need.
        store: the stages that are computed already.
        engine: computes the others.
        options: where to compute and to write.
        report: called after every stage with all outcomes so far.

    Returns:
        The run of every computed stage, and the failure of every other stage.

    Raises:
        Interrupted: a signal asked to stop; the same call resumes.
        OSError: a disk is full or read-only; the same call resumes.
    """
    outcomes: dict[Node, Artefact | Failed] = {node: run for node in grid.stages if (run := store.find(node))}
    waiting = grid.missing(outcomes)
    total, running = len(waiting), 0
    while waiting or running:
        for node in list(waiting):
            parents = [outcomes.get(parent) for parent in node.needs]
            if failed := next((parent for parent in parents if isinstance(parent, Failed)), None):
                outcomes[node] = failed
            elif run := store.find(node):  # another grid was faster
                outcomes[node] = run
            elif running < engine.slots and None not in parents:
                engine.submit(_job(node, grid.stages[node], outcomes, store, options))
                running += 1
            else:
                continue
            waiting.remove(node)
        if running:
            job, outcome = engine.wait()
            running -= 1
            if isinstance(outcome, Failed) and outcome.disk is not None:
                raise outcome.disk
            outcomes[job.node] = outcome.artefact if isinstance(outcome, Done) else outcome
            _say(job.node, grid.stages[job.node], total - len(waiting) - running, total, outcome)
        report(outcomes)
    return outcomes


def _job(node: Node, row: Row, outcomes: Outcomes, store: Store, options: RunOptions) -> Job:
    name = re.sub(r"\W+", "-", row.key.lower()).strip("-")
    parents = [outcomes[parent] if isinstance(parent, Node) else parent for parent in node.parents]
    models = tuple(
        Weights(str(p.folder)) if isinstance(p, Artefact) else p for p in parents if not isinstance(p, Failed)
    )
    return Job(node, models, replace(options, name=name, keep=False), store.log(node, name))


def _say(node: Node, row: Row, number: int, total: int, outcome: Done | Failed) -> None:
    seed = getattr(node.config, "seed", None)
    what = f"{node.stage} of {row.label}" + ("" if seed is None else f", seed {seed}")
    result = f"{outcome.seconds:.0f} s" if isinstance(outcome, Done) else f"failed: {outcome.error}"
    logger.info("[%d/%d] %s: %s", number, total, what, result)
