"""What is pruned: the share of heads and of neurons that each layer loses, as a section of the study's page."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minbert.files import read_arrays
from multitask.evaluation.statistics import Values
from studies.report import figures
from studies.report.preset_results import PresetResults
from studies.report.run_results import RunResult
from studies.report.sections import Illustration, Section
from studies.sparse_cse.claims import ENCODERS, OWN, START
from studies.sparse_cse.tables import SHARES, pruned

KINDS = {"head": "heads", "neuron": "neurons"}


def pruned_section(key: str, results: PresetResults) -> Section | None:
    """A heat map of each kind of units, layers by shares, means over seeds. None without pruned runs."""
    found = results.finished_tables.get(key)
    if found is None:
        return None
    by_share = {share: removed(found.runs.get(pruned(share, "score"), ())) for share in SHARES}
    known = {share: parts for share, parts in by_share.items() if parts is not None}
    if not known:
        return None
    panels = {name: np.stack([parts[place] for parts in known.values()]) for place, name in enumerate(KINDS.values())}
    rows = [f"{share:.0%}" for share in known]
    layers = [str(layer) for layer in range(panels["heads"].shape[1])]
    described = "; ".join(
        f"{name}, {row} removed: {', '.join(f'{value:.0%}' for value in line)}"
        for name, matrix in panels.items()
        for row, line in zip(rows, matrix, strict=True)
    )
    svg = figures.heat_maps(panels, rows, layers, "share removed of all", "layer", f"Removed by layer, {described}")
    caption = "Share of each layer's units that is removed, in percent, mean over seeds. Each layer keeps a head."
    title = f"What is pruned: {ENCODERS[key][0].lower()}{ENCODERS[key][1:]}"
    text = "Units are removed by the gradient of alignment and uniformity."
    return Section(f"{key}-pruned", title, text, (Illustration(svg, caption),), wide=True)


def removed(runs: Sequence[RunResult]) -> tuple[Values, Values] | None:
    """The share of each layer's heads and neurons that was removed, [layers] each, means over runs.

    None without a run that was pruned.
    """
    found = [
        [_shares(arrays, kind) for kind in KINDS]
        for run in runs
        for stage in run.chain
        if stage.stage == "prune"
        for arrays in [read_arrays(run.folder.parent / stage.artefact / "scores.npz")]
    ]
    if not found:
        return None
    heads, neurons = np.mean(found, axis=0)
    return heads, neurons


def _shares(arrays: dict[str, NDArray[Any]], kind: str) -> Values:
    """Layers of a start that was pruned before are padded with NaN."""
    there = ~np.isnan(arrays[f"{kind}_scores"])
    return 1 - (arrays[f"{kind}s_kept"] & there).sum(1) / there.sum(1)


SECTIONS = (partial(pruned_section, START), partial(pruned_section, OWN))
