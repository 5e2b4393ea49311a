"""A grid: the recipes of all rows and seeds as one graph; each is computed once, parents before children."""

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Self

from multitask.runs.artefact import Artefact
from multitask.runtime.options import RunOptions
from studies.engine.jobs import Done, Engine, Failed, Job
from studies.engine.recipes import Node
from studies.engine.store import Note, Store
from studies.engine.tables import Table

logger = logging.getLogger("multitask")

Results = Mapping[Node, Note | Failed]


@dataclass(frozen=True)
class Grid:
    """All stages of some tables.

    Args:
        targets: what rows are made of, models and their evaluations; anything else is on the way to them.
        labels: every stage, parents before children, with the label of the first row that needs it.
        rows: how many rows need each, counted over tables and seeds.
    """

    targets: frozenset[Node]
    labels: Mapping[Node, str]
    rows: Mapping[Node, int]

    @classmethod
    def of(cls, tables: Sequence[Table], seeds: int) -> Self:
        """The grid of tables, with the seeds 0 to `seeds` less one; the first seed of all rows comes first."""
        labels: dict[Node, str] = {}
        rows: Counter[Node] = Counter()
        targets: set[Node] = set()
        places = [(table, row) for table in tables for row in table.rows]
        for seed, (table, row) in product(range(seeds), places):
            if row.model is not None:
                model = row.model.seeded(seed)
                chain = list(table.evaluation(model).chain())
                targets |= {model, chain[-1]}
                rows.update(chain)
                for node in chain:
                    labels.setdefault(node, row.label)
        return cls(frozenset(targets), labels, rows)

    def missing(self, found: Mapping[Node, object]) -> list[Node]:
        """The stages that have to be computed, in order: targets not found, and parents of those, where not found."""
        needed: set[Node] = set()
        for node in reversed(list(self.labels)):
            if node not in found and (node in self.targets or any(node in child.needs for child in needed)):
                needed.add(node)
        return [node for node in self.labels if node in needed]


def compute_grid(
    grid: Grid, store: Store, engine: Engine, options: RunOptions, report: Callable[[Results], object]
) -> Results:
    """Compute what is missing.

    Args:
        grid: what is wanted.
        store: what is there.
        engine: what computes.
        options: where to compute and to write.
        report: called after every stage with all results so far.

    Returns:
        For every stage that is there what is remembered of it, for one that is not why.

    Raises:
        Interrupted: a signal asked to stop; the same call goes on from there.
    """
    results: dict[Node, Note | Failed] = {node: note for node in grid.labels if (note := store.note(node))}
    waiting = grid.missing(results)
    total, running = len(waiting), 0
    while waiting or running:
        for node in list(waiting):
            parents = [results.get(parent) for parent in node.needs]
            if failed := next((parent for parent in parents if isinstance(parent, Failed)), None):
                results[node] = failed
            elif note := store.note(node):  # another grid was faster
                results[node] = note
            elif running < engine.slots and None not in parents:
                engine.submit(_job(node, grid.labels[node], results, store, options))
                running += 1
            else:
                continue
            waiting.remove(node)
        if running:
            job, outcome = engine.wait()
            running -= 1
            if isinstance(outcome, Done):
                results[job.node] = store.remember(job.node, outcome.artefact, outcome.seconds)
            else:
                results[job.node] = outcome
            _say(job.node, grid.labels[job.node], total - len(waiting) - running, total, outcome)
        report(results)
    return results


def _job(node: Node, label: str, results: Results, store: Store, options: RunOptions) -> Job:
    name = re.sub(r"\W+", "-", label.lower()).strip("-")
    notes = [results[parent] for parent in node.needs]
    parents = tuple(Artefact(options.runs / note.artefact) for note in notes if isinstance(note, Note))
    return Job(node, parents, replace(options, name=name, keep=False), store.log(node, name))


def _say(node: Node, label: str, number: int, total: int, outcome: Done | Failed) -> None:
    seed = getattr(node.config, "seed", None)
    what = f"{node.stage} of {label}" + ("" if seed is None else f", seed {seed}")
    result = f"{outcome.seconds:.0f} s" if isinstance(outcome, Done) else f"failed: {outcome.error}"
    logger.info("[%d/%d] %s: %s", number, total, what, result)
