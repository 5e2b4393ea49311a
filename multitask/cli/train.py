"""Commands that train: each stage with its models, data, configuration and `RunOptions`, and tune."""

import json
import logging
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, field, replace
from functools import cache, reduce
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from minbert.errors import InputError
from minbert.files import read_toml, write_text
from minbert.settings import Count, Positive, Seed, read_as, settings
from multitask.base import logger
from multitask.base.options import RunOptions
from multitask.base.runs import Weights, locate_model
from multitask.cli.arguments import POSITIONAL, TRAIN, Command, Option, build, named_as_given, options_of
from multitask.cli.settings_file import values_from, write_settings
from multitask.cli.use_models import Data
from multitask.data.markup import markdown_table, markdown_text, text_rows
from multitask.data.messages import listed
from multitask.stages.registry import Stage, stages

if TYPE_CHECKING:
    from multitask.stages.tune import Chosen, Space

MODELS = "The models: runs or model folders. Those named first win ties."
REVISION = "Revision of a hub id: a branch, tag or commit."
DATA_HELP = "Folder with the course's files and other training sentences."
TASKS_FILE = "Tasks file, which declares tasks of your own. Further training sentences come from its folder."


@cache
def stage_commands() -> dict[str, Command]:
    """The commands of all stages that are commands, by name."""
    return {name: stage_command(stage) for name, stage in sorted(stages().items()) if stage.command}


def stage_command(stage: Stage) -> Command:
    """The command of a stage."""
    kinds: dict[str, Any] = {}
    defaults: dict[str, Any] = {}

    def declare(name: str, kind: Any, default: Any, text: str) -> None:
        kinds[name], defaults[name] = kind, field(default=default, metadata={"help": text})

    inputs = sorted(stage.inputs, key=lambda model: not model.several)  # required fields come first
    for model in inputs:
        if model.several:
            declare(model.option, tuple[str, ...], MISSING, model.help)
        else:
            declare(model.option, str | None if model.default is None else str, model.default, model.help)
            declare(model.revision, str | None, None, REVISION)
    if stage.inputs:
        declare("data", Path, Path("data/sample"), DATA_HELP)
        declare("tasks_file", Path | None, None, TASKS_FILE)
    else:
        declare("model", tuple[str, ...], MISSING, MODELS)
    kinds |= {"config": stage.config, "options": RunOptions}
    here = RunOptions() if "precision" in stage.computing else RunOptions(precision="fp32")
    defaults |= {"config": field(default_factory=stage.config), "options": field(default=here)}
    about = {"__doc__": stage.help, "stage": stage, "refused": without_use(stage), "__annotations__": kinds}
    always = [model.option for model in inputs if model.several or model.default is not None] or ["model"]
    return Command(
        stage.name,
        settings(type(stage.name, () if stage.inputs else (Data,), {**about, **defaults})),
        train,
        TRAIN,
        (*always, "data", "tasks_file", *stage.common, "runs", "device"),
        stage=stage,
    )


def without_use(stage: Stage) -> dict[str, str]:
    """The fields of `RunOptions` that a stage has no use for, with reasons: `computing` says what it computes."""
    of_training = ("save_every", "tensorboard", "fast") if "kernels" not in stage.computing else ()
    of_gradients = ("recompute",) if "threads" not in stage.computing else ()
    found = dict.fromkeys(
        (*of_training, *of_gradients), f"has no use in {stage.name}, which trains nothing; leave it out"
    )
    if "precision" not in stage.computing:
        found["precision"] = f"has no use in {stage.name}, which computes in fp32; leave it out"
    return found


def refuse_undeclared(built: Any, options: Sequence[Option], given: Collection[str]) -> None:
    """Raise InputError for a given value that `of_declared` would replace as a default: the data lack its tasks."""
    from multitask.tasks.declarations import chosen_tasks, load_tasks

    if (of_declared := getattr(getattr(built, "config", None), "of_declared", None)) is None:
        return
    data = built.tasks_file or built.data
    taken = replace(built, config=of_declared(load_tasks(data)))
    for option in options:
        names, kept = (reduce(getattr, option.path, values) for values in (built, taken))
        if option.name in given and names != kept:
            chosen_tasks(data, names)
            means = f"this order is the default, which means {listed(kept) or 'none'} with the tasks of {data}"
            raise InputError(f"{option.name} is {' '.join(names)}; {means}; take another order")


def train(options: Any) -> None:
    """Run the stage that the options belong to."""
    from multitask.base import distributed
    from multitask.stages.run_stage import run_stage
    from multitask.use.model_data import data_for

    stage, data = options.stage, options.tasks_file or options.data
    weights: list[Weights] = []
    for model in stage.inputs:
        named = getattr(options, model.option)
        if model.several:
            weights += map(Weights, named)
        elif named is not None:
            weights.append(Weights(named, getattr(options, model.revision)))
    if not stage.inputs:
        weights = [Weights(name) for name in options.model]
        data = data_for(next(iter(options.model), ""), data).path
    early = BufferingHandler(sys.maxsize)
    early.setLevel(logging.WARNING)
    logger.addHandler(early)
    try:  # the first evaluation ends what is early
        artefact = run_stage(
            stage, weights, data, options.config, options.options, lambda *_: logger.removeHandler(early)
        )
        trained = early not in logger.handlers
    finally:
        logger.removeHandler(early)
    for record in early.buffer if trained else ():  # a long training has pushed them out of sight
        logger.warning("%s", record.getMessage())
    if distributed.is_first():  # once however many ranks there are
        if summary := getattr(stage.functions, "summary", None):
            print(summary(artefact))
        print(artefact.folder)


@settings
class Tune:
    """Search for settings of finetune, and train the best ones with several seeds.

    Trials are scored on training rows that are held out; dev sets are read for the winner only. A trial stops early if
    its score is below the median of the others after the same epoch. Every trial is a run, so nothing is computed
    twice. The same command continues a search that was stopped, and extends it if --budget or --trials is larger.
    """

    space: Path = field(kw_only=True, metadata=POSITIONAL)
    """TOML file with settings of finetune by their names: a list of choices, a range such as { low = 1e-5, high = 1e-4,
    log = true }, or a fixed value. A setting that is a list itself takes a list of lists as choices."""
    budget: Positive | None = None
    """Minutes to search. Training of the winner comes on top."""
    trials: Count | None = None
    """Trials to search, earlier calls included."""
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of each task's training rows to hold out and score on. All trials hold out the same rows."""
    seeds: Count = 3
    """Seeds to train the winner with: --seed and the next ones."""
    seed: Seed = 0
    """Seed of the search and of all trials."""
    start: str | None = None
    """Start weights: all-minilm-l6-v2, a folder, a run, or a hub id such as bert-base-uncased. Default: the file's, or
    all-minilm-l6-v2."""
    revision: str | None = None
    """Revision of a hub id: a branch, tag or commit."""
    data: Path = Path("data/sample")
    """Folder with the course's files."""
    tasks_file: Path | None = None
    """Tasks file, which declares tasks of your own."""
    options: RunOptions = field(default_factory=RunOptions)

    def __post_init__(self) -> None:
        if self.budget is None and self.trials is None:
            raise InputError("expected --budget MINUTES or --trials N")


OF_COMMAND = ("revision", "data", "tasks_file", "seed", "held_out")
"""Settings of finetune that the command line gives to all trials."""


def tune(options: Tune) -> None:
    """Search; print tables, the settings file, and the folder of the winner's run with the first seed."""
    from multitask.stages.tune import TuneSearch, best_choice, dev_scores, importances, saved, ties, trials_table

    command = stage_commands()["finetune"]
    every = [*options_of(command.options)]
    declared = [option for option in every if option.path[0] != "options"]
    settable = [option for option in declared if option.name not in OF_COMMAND]
    given = values_from(read_toml(options.space), "multitask tune", settable, str(options.space))
    space, fixed = read_space(given, settable, options.space)
    defaults = {option.name: option.default for option in every}
    if options.start is not None:
        fixed.pop("start", None)
        if "start" in space and space["start"].stored(options.start) is None:
            lists = f"{options.space} lists other start weights; add it there, or leave it out"
            raise InputError(f"--start {options.start}: {lists}")
    here = {name: getattr(options, name) for name in ("revision", "data", "tasks_file", "seed")}
    here["start"] = defaults["start"] if options.start is None else options.start
    of_key = {name: getattr(options.options, name) for name in ("device", "precision", "fast")}

    def chosen_settings(chosen: "Chosen") -> tuple[Weights, Any]:
        """Start weights and configuration; errors name what the space gives."""
        values = {**fixed, **chosen}
        changed = {option.name: option.read(values[option.name]) for option in settable if option.name in values}
        try:
            found = build(command.options, declared, defaults | here | changed)
        except InputError as error:
            labels = {name: f"{options.space}: {name}" for name in given}
            raise InputError(named_as_given(str(error), settable, labels)) from None
        return Weights(found.start, found.revision), found.config

    data = options.tasks_file or options.data
    check_values(space, chosen_settings, options.space, data)
    usual = json.loads(json.dumps({name: (defaults | here)[name] for name in space}, default=str))
    usual = {name: "none" if value is None else value for name, value in usual.items()}  # TOML has no null
    search = TuneSearch(space, chosen_settings, usual, data, options.held_out, options.seed, options.options)
    with search.study(options.space.stem) as (folder, study):
        search.run(study, options.trials, None if options.budget is None else options.budget * 60)
        chosen, trials = best_choice(study), trials_table(study)
        file = folder / "best.toml"
        write_settings(file, "multitask finetune", {**here, **of_key, **fixed, **chosen}, defaults)
        write_text(folder / "trials.csv", trials.to_csv(index=False))
        runs = search.train(chosen, options.seeds)
        parts = [trials, importances(study), saved(study), dev_scores(runs)]
        report = "\n".join([*(markdown_table(text_rows(part.map(shown))) for part in parts if len(part)), *ties(study)])
        write_text(folder / "report.md", report)
    print(report, folder / "report.md", file, runs[options.seed].folder, sep="\n")


def read_space(values: Mapping[str, Any], options: Sequence[Option], path: Path) -> "tuple[Space, dict[str, Any]]":
    """What is searched, and the fixed settings, from the values of a file. Raises InputError if nothing is searched."""
    from multitask.stages.tune import Choices, Range

    space: dict[str, Range | Choices] = {}
    fixed: dict[str, Any] = {}
    for option in [option for option in options if option.name in values]:
        value, place = values[option.name], f"{path}: {option.name}"
        if isinstance(value, dict):
            if option.kind not in (int, float):
                raise InputError(f"{place}: a range is for numbers; expected a list of choices")
            found: Range = read_as(Range, value, place)
            whole = option.kind is int
            space[option.name] = found if whole else Range(float(found.low), float(found.high), found.log)
        elif isinstance(value, list) and (not option.several or any(isinstance(item, list) for item in value)):
            if not value:
                raise InputError(f"{place} is an empty list; expected at least one choice")
            if option.name == "tasks":
                raise InputError(f"{place}: trials of different tasks cannot be compared; expected one list of tasks")
            space[option.name] = Choices(tuple(value))
        else:
            fixed[option.name] = value
    if not space:
        raise InputError(f"{path}: nothing to search; expected choices or a range of at least one setting")
    return space, fixed


def check_values(space: "Space", settings_of: "Callable[[Chosen], Any]", path: Path, data: Path) -> None:
    """Raise InputError for a value that is illegal or names what is not there. Values may exclude one another."""
    from multitask.stages.tune import each_value
    from multitask.tasks.declarations import chosen_tasks, default_tasks

    for chosen in each_value(space):
        try:
            start, config = settings_of(chosen)
        except InputError as error:
            if str(error).startswith(f"{path}: "):
                raise
            continue
        locate_model(start.name, start.revision)
        tasks = chosen_tasks(data, (*(config.tasks or default_tasks(data)), *config.untrained))
        if not any(task.selects for task in tasks.values()):
            found = ", ".join(f"{task.metric} of {name}" for name, task in tasks.items())
            raise InputError(f"tune compares metrics where higher is better, and no task has one: {found}")


def shown(value: Any) -> str:
    """A cell of a table."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return "-" if text in ("nan", "None") else markdown_text(text)


_TUNE = ("space", "start", "data", "tasks_file", "budget", "trials", "held_out", "seeds", "seed", "runs", "device")
TUNE = Command("tune", Tune, tune, TRAIN, _TUNE, extra="tune")
