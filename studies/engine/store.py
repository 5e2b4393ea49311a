"""The runs of planned stages: their keys, known before anything is computed, and what of all runs is still needed."""

from collections.abc import Sequence
from pathlib import Path

from minbert.errors import InputError
from multitask.runs.artefact import LOCKS, Artefact, Weights
from multitask.runs.garbage import KEEP_LISTS, keep_lists, remove, unneeded
from multitask.runs.locks import is_free
from multitask.runs.run_hash import RunKey
from multitask.runtime.options import RunOptions
from multitask.stages.registry import stage_named
from multitask.stages.run_stage import Identity, identity_of, key_of, runtime_of
from studies.engine.recipes import Node

LOGS = "logs"
GRIDS = "experiments"  # a lock that everyone shares who computes a grid


class Store:
    """The keys of planned stages, the same as those of the command line.

    Args:
        options: the folder of runs, device, precision and threads.
    """

    def __init__(self, options: RunOptions) -> None:
        self.options = options
        self._keys: dict[Node, RunKey] = {}
        self._identities: dict[Weights, Identity] = {}

    def key(self, node: Node) -> RunKey:
        """The key of a stage's run. Raises InputError if start weights or a file cannot be read."""
        if node not in self._keys:
            stage = stage_named(node.stage)
            parents = [self._identity(parent) for parent in node.parents]
            runtime = runtime_of(stage, self.options)
            self._keys[node] = key_of(stage, parents, node.data, node.config, runtime)
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

    def log(self, node: Node, label: str) -> Path:
        """Where a stage's log goes."""
        return self.options.runs / LOGS / f"{node.stage}-{label}-{self.key(node).digest()}.log"


def garbage(runs: Path, named: Sequence[str] = ()) -> list[Path]:
    """What no preset's tables need: runs that grids made, complete or not; and logs of such runs.

    Args:
        runs: folder of all runs.
        named: names or hashes of runs that people made by hand and that may go too.

    Raises:
        InputError: a damaged keep-list, or a name of no run or of a needed one.
    """
    unused = [artefact.folder for artefact in unneeded(runs, named)]
    lists = keep_lists(runs)
    if unlisted := [path for path in sorted(runs.glob(f"{GRIDS}-*.json")) if path.stem not in lists]:
        raise InputError(
            f"{unlisted[0]}: no list in {runs / KEEP_LISTS} says what it needs; "
            f"`multitask experiments run {unlisted[0].stem.removeprefix(f'{GRIDS}-')}` writes one"
        )
    needed = {name for names in lists.values() for name in names}
    logs = [path for path in (runs / LOGS).glob("*.log") if path.relative_to(runs).as_posix() not in needed]
    return [*unused, *sorted(logs)]


def collect(runs: Path, paths: Sequence[Path]) -> None:
    """Delete what `garbage` found. Raises InputError while experiments run, whose runs may not be recorded yet."""
    if not is_free(runs / LOCKS / GRIDS):
        raise InputError(f"{runs}: experiments are running there; wait for their end")
    remove(paths)
