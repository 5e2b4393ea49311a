"""The runs of planned stages, by their keys, which are known before anything is computed."""

from pathlib import Path

from multitask.runs.artefact import Artefact, Weights
from multitask.runs.locks import refuse_link
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
        """Where a stage's log goes. Raises InputError if there is a link, which would be written through."""
        folder = self.options.runs / LOGS
        path = folder / f"{node.stage}-{label}-{self.key(node).digest()}.log"
        refuse_link(folder)
        refuse_link(path)
        return path
