"""A grid: the stages of all rows and seeds as one graph. Each stage is computed once, parents before children.

`run_preset` computes a preset's grid and records its tables. The key of a stage's run is known before anything is
computed, and is the same as that of the command line. While the grid is computed, a terminal shows one live line, and a
log has a line for each stage.
"""

import json
import logging
import re
import shutil
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, Self

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from minbert.errors import InputError
from minbert.files import atomic_file
from multitask.base import logger
from multitask.base.keys import RunKey
from multitask.base.locks import refuse_link
from multitask.base.options import RunOptions
from multitask.base.runs import Run, Weights, locate_model
from multitask.experiments.compare_rows import PresetResults
from multitask.experiments.engines import Engine, Failed, Job
from multitask.experiments.table_definitions import Experiment, Node, Preset, PresetRecord, RecordedRun, Row
from multitask.stages.reads import SPLITS_BY_USE
from multitask.stages.registry import stage_named
from multitask.stages.run_stage import Identity, identity_of, key_of, run_stage, runtime_of
from multitask.stages.settings_without_training import ENSEMBLE, EnsembleConfig

SECONDS_BETWEEN_REFRESHES = 1.0


class GridProgress:
    """Reports the stages of a grid as they begin and end. A context, which ends with the grid.

    The time that is left follows from the stages that ended here: a stage takes as long as others of its kind did, or
    as long as all did on average where none of its kind has ended. `live` is whether to show the live line on a
    terminal; stages that are computed in this process show bars of their own.
    """

    def __init__(self, stages: Iterable[Node], name: Callable[[Node], str], live: bool = True) -> None:
        self.open = dict.fromkeys(stages)
        self.total = len(self.open)
        self.name = name
        self.running: dict[Node, float] = {}  # when each began
        self.took: dict[str, list[float]] = defaultdict(list)  # seconds, by the stage's name
        self.at_once = 1
        self.began = time.monotonic()
        self.over = threading.Event()
        # None: on a terminal only.
        self.bar: tqdm[Any] = tqdm(total=self.total, bar_format="{desc}", disable=None if live and self.total else True)
        self.redirected = logging_redirect_tqdm([logging.getLogger()])

    def __enter__(self) -> Self:
        if not self.bar.disable:
            self.redirected.__enter__()
            threading.Thread(target=self._refresh, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.over.set()
        self.bar.close()
        if not self.bar.disable:
            self.redirected.__exit__(None, None, None)

    def began_stage(self, node: Node) -> None:
        """Count a stage as running."""
        self.running[node] = time.monotonic()
        self.at_once = max(self.at_once, len(self.running))
        self._show()

    def ended_stage(self, node: Node, error: str | None = None) -> None:
        """Count a running stage as over, and say so in a log; `error` says why it failed."""
        seconds = time.monotonic() - self.running.pop(node)
        self.took[node.stage].append(seconds)
        self.left_out(node)
        if error is not None or self.bar.disable:
            result = f"{seconds:.0f} s" if error is None else f"failed: {error}"
            logger.info("%s %s: %s (%s)", self._place(), self.name(node), result, self._times())

    def left_out(self, node: Node) -> None:
        """Count a stage as over that is not computed here: another grid was faster, or what it starts from failed."""
        self.open.pop(node, None)
        self._show()

    def seconds_left(self) -> float | None:
        """Until all stages are over; None before the first one is."""
        if not self.took:
            return None
        usual = fmean(seconds for took in self.took.values() for seconds in took)
        now = time.monotonic()
        left = 0.0
        for node in list(self.open):  # the live line is refreshed by a thread of its own
            expected = fmean(self.took[node.stage]) if node.stage in self.took else usual
            left += max(expected - (now - self.running.get(node, now)), 0.0)
        return left / self.at_once

    def _place(self) -> str:
        return f"[{self.total - len(self.open)}/{self.total}]"

    def _times(self) -> str:
        left = self.seconds_left()
        so_far = f"{tqdm.format_interval(time.monotonic() - self.began)} so far"
        return so_far if left is None else f"{so_far}, {tqdm.format_interval(left)} left"

    def _show(self) -> None:
        if not self.bar.disable:
            now = "; ".join(map(self.name, list(self.running)))
            self.bar.set_description_str(f"{self._place()} {self._times()}: {now}"[: self.bar.ncols or 10_000])

    def _refresh(self) -> None:
        while not self.over.wait(SECONDS_BETWEEN_REFRESHES):
            self._show()


LOGS = "logs"

Outcomes = Mapping[Node, Run | Failed]


class Grid:
    """All stages of some experiments, for the seeds 0 to `seeds` - 1. The first seed of all rows comes first.

    Attributes:
        chains: the stages of each table's row and seed, parents before children, the one that scores last.
        models: the stage that makes each such row's model.
        targets: the stages whose runs rows name: models and their evaluations.
        stages: every stage, parents before children, with the first row that needs it.
        needed: how many rows need each stage of the first seed, counted over tables.
    """

    def __init__(self, experiments: Sequence[Experiment], seeds: int, options: RunOptions) -> None:
        self.seeds, self.options = seeds, options
        self.chains: dict[tuple[str, str, int], list[Node]] = {}
        self.models: dict[tuple[str, str, int], Node] = {}
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
            self.models[experiment.table.key, row.key, seed] = model
            self.targets |= {model, chain[-1]}
            if seed == 0:
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

    def inputs(self, preset: Preset) -> dict[str, str]:
        """Hashes of the preset's start weights, and of what the stages read of its data and of suites, by name."""
        found: dict[str, Any] = {}
        for node in self.stages:
            read, uses = self.key(node).inputs, ("files", *(SPLITS_BY_USE if node.data == preset.data else ()))
            found |= {f"{use} {name}": fingerprint for use in uses for name, fingerprint in read.get(use, {}).items()}
        if preset.start in self._identities:
            found["start"] = self._identities[preset.start]
        return {
            name: sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16] for name, value in found.items()
        }

    def find(self, node: Node) -> Run | None:
        """The complete run of a stage; None if it is not computed. Raises InputError if it is damaged."""
        artefact = Run.find(self.options.runs, self.key(node))
        if artefact is None or not artefact.done:
            return None
        artefact.check()
        return artefact

    def found(self) -> dict[Node, Run]:
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
            Weights(str(p.folder)) if isinstance(p, Run) else p for p in parents if not isinstance(p, Failed)
        )
        return Job(node, models, replace(self.options, name=name), self.log(node, name))


def compute_grid(grid: Grid, engine: Engine, report: Callable[[Outcomes], object]) -> Outcomes:
    """Compute the missing stages; returns the run or the failure of every stage.

    `report` is called after every stage with all outcomes so far.

    Raises:
        Interrupted: a signal asked to stop; the same call resumes.
        OSError: a disk is full or read-only; the same call resumes.
    """
    outcomes: dict[Node, Run | Failed] = {**grid.found()}
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
    for outcome in outcomes.values():
        if isinstance(outcome, Run) and outcome.done:  # nobody has begun it anew
            outcome.remove_state()  # a stage found complete is not run again, which would do this
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


def run_preset(preset: Preset, seeds: int, options: RunOptions, engine: Engine) -> PresetRecord:
    """Compute every row with every seed, from 0. What is in the folder of runs already is not computed again.

    Returns the record of these tables, with the errors of failed rows. The record that is written also keeps the tables
    of earlier runs that this run leaves out.

    Raises:
        InputError: the data folder or the start weights are missing.
        Interrupted: a signal asked to stop; the same call resumes.
    """
    check_preset(preset)
    grid = Grid(preset.experiments, seeds, options)
    rows = [(e.table.key, row, seed) for e in preset.experiments for row in e.models for seed in range(seeds)]
    tables = tuple(e.table for e in preset.experiments)
    nothing = PresetRecord(preset.name, preset.start.name, str(preset.data), preset.notes, tables, ())

    def recorded(place: tuple[str, str, int], outcomes: Outcomes) -> RecordedRun:
        """A row and a seed so far. While it is unfinished it has neither scores nor an error."""
        *before, scored = [outcomes.get(node) for node in grid.chains[place]]
        model = outcomes.get(grid.models[place])
        last = scored if isinstance(model, Run) else model  # scores are left of a model that is deleted
        run = RecordedRun(*place, tuple(outcome.folder.name for outcome in (*before, last) if isinstance(outcome, Run)))
        if not isinstance(last, Failed):
            return run
        return replace(run, error=last.error, log=last.log.relative_to(options.runs).as_posix())

    def record_so_far(outcomes: Outcomes) -> PresetRecord:
        runs = tuple(recorded(place, outcomes) for place in rows)
        record = united = replace(nothing, runs=runs, inputs=grid.inputs(preset))
        with suppress(InputError):  # no earlier record, or none that can be read
            united = record.with_tables_of(PresetRecord.read(options.runs, preset.name), options.runs, preset.order)
        united.write(options.runs)  # after every stage, so that results can be reported while the others run
        return record

    with engine:
        return record_so_far(compute_grid(grid, engine, record_so_far))


def check_preset(preset: Preset) -> None:
    """Raise one error for missing files before the first stage, instead of one error for each row."""
    if preset.data.suffix != ".toml" and not preset.data.is_dir():
        raise InputError(f"{preset.data}: no such folder; pass one with --data, or run `multitask data fetch` first")
    locate_model(preset.start.name, preset.start.revision)
    scored = (experiment.evaluation(model) for experiment in preset.experiments for model in experiment.models.values())
    for stage, config, folder in dict.fromkeys((node.stage, node.config, node.data) for node in scored):
        if check := getattr(stage_named(stage).functions, "check", None):
            check(config, folder)


def write_best_predictions(preset: Preset, results: PresetResults, options: RunOptions, output: Path) -> list[Path]:
    """Write prediction files of the best run, which may be an ensemble, of each group of tasks that the preset names.

    Only the preset's tables count. Returns the files. A group of tasks has none if no run succeeded, if no overall
    score is defined, or if a file is missing; a warning says so, and names the files of `output` that are of others.
    """
    paths: list[Path] = []
    for tasks in preset.predicted:
        tables = {experiment.table.key for experiment in preset.experiments}
        if best := results.best_run(tasks, tables):
            try:
                files = _predictions(Run(options.runs / best.model), preset.data, options)
            except InputError as error:
                logger.warning("no predictions for %s: %s", ", ".join(tasks), error)
                continue
            for path in files:
                with atomic_file(output / path.name) as temporary:
                    shutil.copyfile(path, temporary)
                paths.append(output / path.name)
        elif any(run.table in tables and run.scores.keys() == set(tasks) for run in results.runs):
            logger.warning("no predictions for %s: no model has an overall score", ", ".join(tasks))
    if earlier := sorted(path.name for path in output.glob("*-output.csv") if path not in paths):
        logger.warning("%s: not of these results, but there before: %s", output, ", ".join(earlier))
    return paths


def _predictions(model: Run, data: Path, options: RunOptions) -> list[Path]:
    """A model's prediction files, which ensembles write: the model is one, or makes one alone. Computed once."""
    if not (model.folder / "predictions").is_dir():
        where = replace(options, name="best")
        model = run_stage(ENSEMBLE, [model.folder], data, EnsembleConfig("average"), where)
    return sorted((model.folder / "predictions").iterdir())
