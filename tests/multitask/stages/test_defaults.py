"""A snapshot of every stage's defaults and version, because a run's hash leaves out settings that have their defaults.

A changed default would make old runs pass for new ones. Whoever changes one raises the stage's version and writes the
snapshot anew: `python -m tests.multitask.stages.test_defaults`.
"""

import inspect
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from multitask.base.choices_with_parameters import parameters
from multitask.objectives import OBJECTIVES
from multitask.stages.registry import Stage, stages
from multitask.training.schedulers import SCHEDULERS

SNAPSHOT = Path(__file__).with_name("defaults.json")
NAMES = sorted(stages())


def of_stage(stage: Stage) -> dict[str, Any]:
    """The stage's version and defaults, as JSON types."""
    settings: dict[str, Any] = {"version": stage.version, "defaults": asdict(stage.config())}
    for registry in (OBJECTIVES, SCHEDULERS):  # whose own defaults are not in the configuration, but decide its result
        if registry.kind in str(settings["defaults"]):
            settings[f"{registry.kind}s"] = {
                name: {parameter: field.default for parameter, field in parameters(kind).items()}
                for name, kind in sorted(registry.items())
            }
    return json.loads(json.dumps(settings))


def differences(then: Any, now: Any, place: str = "") -> list[str]:
    """Settings whose value is not that of the snapshot, or that only one of the two has."""
    if isinstance(then, dict) and isinstance(now, dict):
        names = sorted(then.keys() | now.keys())
        return [d for name in names for d in differences(then.get(name, ...), now.get(name, ...), f"{place}.{name}")]
    return [] if then == now else [f"{place.lstrip('.')}: {then} -> {now}"]


def changed(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Differences without a new version. A new setting is none: its default is what older runs did."""
    found = differences(then, now) if then.get("version") == now["version"] else []
    return [line for line in found if ": Ellipsis ->" not in line]


@pytest.mark.parametrize("name", NAMES)
def test_no_default_changes_without_a_new_version(name):
    now = of_stage(stages()[name])
    then = json.loads(SNAPSHOT.read_text()).get(name, {})
    assert not changed(then, now), f"raise the version of {name}"
    for kind in {"objectives", "schedulers"} & then.keys():  # one that the snapshot lacks is new: no older run has it
        now[kind] = {name: now[kind][name] for name in then[kind]}
    assert then == now, f"write the snapshot anew: {__doc__}"


@pytest.mark.parametrize("name", NAMES)
def test_a_stage_has_its_functions_by_name(name):
    functions = stages()[name].functions
    assert len(inspect.signature(functions.compute).parameters) == 4
    for optional, takes in {"reads": 2, "summary": 1, "check": 2}.items():
        found = getattr(functions, optional, None)
        assert found is None or len(inspect.signature(found).parameters) == takes, optional


def test_a_changed_or_removed_default_is_found():
    then = {"version": 1, "defaults": {"epochs": 10, "heads": {"dropout": 0.3}, "old": 1}}
    now = {"version": 1, "defaults": {"epochs": 10, "heads": {"dropout": 0.1, "width": None}}}
    assert changed(then, now) == ["defaults.heads.dropout: 0.3 -> 0.1", "defaults.old: 1 -> Ellipsis"]
    assert not changed(then, now | {"version": 2})


if __name__ == "__main__":
    old = json.loads(SNAPSHOT.read_text())
    new = {name: of_stage(stages()[name]) for name in NAMES}
    if problems := [f"{name}.{line}" for name in NAMES for line in changed(old.get(name, {}), new[name])]:
        raise SystemExit("raise the versions first: " + "; ".join(problems))
    SNAPSHOT.write_text(json.dumps(new, indent=1) + "\n")
