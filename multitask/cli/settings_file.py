"""Settings in TOML files and in runs: what `--config` and `--set` read, and `--save-config` writes.

Keys are the options' names. The settings of a nested class may be at the top level or in a table of its name.
"""

import argparse
import json
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import shtab

from minbert.errors import InputError, did_you_mean
from minbert.files import parse_toml, read_json, read_toml, write_text
from multitask.base import logger
from multitask.base.runs import Run, Weights, is_run
from multitask.cli.arguments import Command, Group, Option, parser_of
from multitask.data.messages import plain
from multitask.stages.registry import Stage


def read_settings(
    path: Path, prog: str, stage: Stage | None, options: Sequence[Option], given: Collection[str] = ()
) -> dict[str, Any]:
    """The values that a TOML file or a run's folder gives, by the options' names.

    Args:
        path: the file or folder.
        prog: the command, for messages.
        stage: the stage whose runs the command takes, if any.
        options: the command's options.
        given: the names of those that the command line gives, which override a run's.

    Raises:
        InputError: no such file, a run of another stage, an unknown key, or a key given twice.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file or run")
    found = _read_run(path, prog, stage, given) if path.is_dir() else read_toml(path)
    return values_from(found, prog, options, str(path))


def settings_of(texts: Sequence[str], prog: str, options: Sequence[Option]) -> dict[str, Any]:
    """The values of `--set NAME=VALUE`, by the options' names. Raises InputError for other texts and unknown names."""
    given: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise InputError(f"--set {plain(text)}: expected NAME=VALUE")
        if (name := name.strip()) in given:
            raise InputError(f"--set {plain(name)} is given twice; leave one out")
        try:
            (given[name],) = parse_toml(f"value = {value}").values()
        except ValueError:  # a text without quotes
            given[name] = value.strip()
    return values_from(given, prog, options, "--set")


def values_from(settings: Mapping[str, Any], prog: str, options: Sequence[Option], place: str) -> dict[str, Any]:
    """Values by the options' names, from keys in tables or at the top level. Raises InputError for an unknown key."""
    known = {".".join(option.path[start:]): option for option in options for start in range(len(option.path))}
    values: dict[str, Any] = {}
    for key, value in _entries(settings, known):
        if key not in known:
            names = [option.name for option in options if not option.refused]
            hint = did_you_mean(key, names) or "; `--help-all` shows all options"
            raise InputError(f"{place}: {plain(key)}: no such setting of `{prog}`{hint}")
        if known[key].name in values:
            raise InputError(f"{place}: {known[key].name} is given twice, at the top level and in a table")
        values[known[key].name] = value
    return values


def write_settings(path: Path, prog: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Write the given values that differ from the defaults, atomically."""
    texts = {name: _toml(value) for name, value in given.items()}
    changed = [f"{n} = {text}" for n, text in texts.items() if n not in defaults or text != _toml(defaults[n])]
    write_text(path, "\n".join([f"# Settings of: {prog} --config {path.name}", *changed]) + "\n")


def _toml(value: Any) -> str:
    """A value as JSON. TOML differs from it in two things."""
    text = json.dumps("none" if value is None else value, ensure_ascii=False, default=str)
    return text.replace("\x7f", "\\u007f")


def _read_run(folder: Path, prog: str, stage: Stage | None, given: Collection[str]) -> dict[str, Any]:
    """The configuration of a run, its precision, and the start weights and data that people gave it."""
    from multitask.base.device import resolve_runtime

    if not is_run(folder):
        raise InputError(f"{folder}: not a run (it has no inputs.json); expected a TOML file or a run")
    inputs = read_json(folder / "inputs.json", dict)
    found = inputs.get("stage", "an older version")
    if stage is None or found != stage.name:
        takes = f"a TOML file or a run of {stage.name}" if stage else "a TOML file"
        raise InputError(f"{folder}: a run of {found}; `{prog} --config` takes {takes}")
    settings = read_json(folder / "config.json", dict)
    computing = {"precision": inputs.get("precision"), "fast": inputs.get("kernels") == "fast"}
    settings |= {name: value for name, value in computing.items() if value and name not in given}
    if "precision" in settings and settings["precision"] != (usual := resolve_runtime("auto", "auto").precision):
        logger.warning(
            "%s: computed in %s, which may be slow on this machine; --precision auto takes %s here",
            *(folder, settings["precision"], usual),
        )
    labels = Run(folder).labels
    for model in stage.inputs:
        label = labels.get(model.option)
        if label and model.several:
            settings[model.option] = shlex.split(label)
        elif label:
            start = Weights.parse(label)
            settings |= {model.option: start.name} | ({model.revision: start.revision} if start.revision else {})
    if not stage.inputs and (members := labels.get("members")):
        settings["model"] = shlex.split(members)
    if (data := labels.get("data")) and (stage.inputs or "model" not in given):  # other models have data of their own
        settings |= {"tasks_file" if data.endswith(".toml") else "data": data}
    return settings


def _entries(settings: Mapping[str, Any], known: Collection[str], table: str = "") -> Iterator[tuple[str, Any]]:
    """All keys and values, those in tables with dotted keys."""
    for key, value in settings.items():
        if isinstance(value, dict) and table + key not in known:
            yield from _entries(value, known, f"{table}{key}.")
        else:
            yield table + key, value


def completion(prog: str, commands: Iterable[Command | Group], shell: Sequence[str]) -> str:
    """The script for a shell. Raises InputError for shells that are not supported."""
    if len(shell) != 1 or shell[0] not in shtab.SUPPORTED_SHELLS:
        raise InputError(f"--print-completion takes one of: {', '.join(shtab.SUPPORTED_SHELLS)}")
    parser = argparse.ArgumentParser(prog)
    _add(parser, commands)
    return shtab.complete(parser, shell[0])


def _add(parser: argparse.ArgumentParser, commands: Iterable[Command | Group]) -> None:
    added = parser.add_subparsers()
    for found in commands:
        text = found.help.partition("\n")[0].replace("%", "%%")
        if isinstance(found, Group):
            _add(added.add_parser(found.name, help=text), found.commands)
        else:
            command = added.add_parser(found.name, help=text, parents=[parser_of(found.name, found)])
            command.add_argument("--help-all", help="show all options")
