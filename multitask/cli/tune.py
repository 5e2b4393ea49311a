"""`multitask tune`: search for settings of finetune, and train the best of them."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from minbert.errors import InputError
from minbert.files import read_toml, write_text
from minbert.settings import read_as
from multitask.base.runs import Weights, locate_model
from multitask.cli.arguments import Option, build, named_as_given, options_of
from multitask.cli.commands import Tune
from multitask.cli.settings_file import values_from, write_settings
from multitask.cli.stage_commands import stage_commands
from multitask.data.markup import markdown_table, markdown_text, rows_of
from multitask.stages.tune import (
    Choices,
    Chosen,
    Range,
    Space,
    TuneSearch,
    best,
    dev_scores,
    each_value,
    importances,
    saved,
    table,
    ties,
)
from multitask.tasks.declarations import chosen_tasks

OF_COMMAND = ("revision", "data", "tasks_file", "seed", "held_out")
"""Settings of finetune that the command line gives to all trials."""


def tune(options: Tune) -> None:
    """Search; print tables, the settings file, and the folder of the winner's run with the first seed."""
    command = stage_commands()["finetune"]
    declared = [option for option in options_of(command.options) if option.path[0] != "options"]
    settable = [option for option in declared if option.name not in OF_COMMAND]
    given = values_from(read_toml(options.space), "multitask tune", settable, str(options.space))
    space, fixed = read_space(given, settable, options.space)
    defaults = {option.name: option.default for option in declared}
    here = {name: getattr(options, name) for name in ("start", "revision", "data", "tasks_file", "seed")}

    def settings(chosen: Chosen) -> tuple[Weights, Any]:
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
    check_values(space, settings, options.space, data)
    usual = json.loads(json.dumps({name: (defaults | here)[name] for name in space}, default=str))
    search = TuneSearch(space, settings, usual, data, options.held_out, options.seed, options.options)
    with search.study(options.space.stem) as (folder, study):
        search.run(study, options.trials, None if options.budget is None else options.budget * 60)
        chosen, trials = best(study), table(study)
        file = folder / "best.toml"
        write_settings(file, "multitask finetune", {**here, **fixed, **chosen}, defaults)
        write_text(folder / "trials.csv", trials.to_csv(index=False))
        runs = search.train(chosen, options.seeds)
        parts = [trials, importances(study), saved(study), dev_scores(runs)]
        report = "\n".join([*(markdown_table(rows_of(part.map(shown))) for part in parts if len(part)), *ties(study)])
        write_text(folder / "report.md", report)
    print(report, folder / "report.md", file, runs[options.seed].folder, sep="\n")


def read_space(values: Mapping[str, Any], options: Sequence[Option], path: Path) -> tuple[Space, dict[str, Any]]:
    """What is searched, and the fixed settings, from the values of a file. Raises InputError if nothing is searched."""
    space: dict[str, Range | Choices] = {}
    fixed: dict[str, Any] = {}
    for option in [option for option in options if option.name in values]:
        value, place = values[option.name], f"{path}: {option.name}"
        if isinstance(value, dict):
            if option.kind not in (int, float):
                raise InputError(f"{place}: a range is for numbers; expected a list of choices")
            found: Range = read_as(Range, json.dumps(value, default=str), place)
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


def check_values(space: Space, settings: Callable[[Chosen], Any], path: Path, data: Path) -> None:
    """Raise InputError for a value that is illegal or names what is not there. Values may exclude one another."""
    for chosen in each_value(space):
        try:
            start, config = settings(chosen)
        except InputError as error:
            if str(error).startswith(f"{path}: "):
                raise
            continue
        locate_model(start.name, start.revision)
        chosen_tasks(data, config.tasks)


def shown(value: Any) -> str:
    """A cell of a table."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return "-" if text in ("nan", "None") else markdown_text(text)
