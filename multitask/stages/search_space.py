"""What a search chooses from: numbers of a range, or listed values. `tune` searches."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minbert.errors import InputError
from minbert.settings import settings


@settings
class Range:
    """Numbers from `low` to `high`: whole ones if both are. With `log`, their logarithms are equally likely."""

    low: int | float
    high: int | float
    log: bool = False

    def __post_init__(self) -> None:
        if self.low >= self.high:
            raise InputError(f"low is {self.low}; expected below high, which is {self.high}")
        if self.log and self.low <= 0:
            raise InputError(f"low is {self.low}; expected above 0 with log")

    @property
    def values(self) -> tuple[Any, ...]:
        """Both ends."""
        return self.low, self.high

    def stored(self, value: Any) -> Any:
        """A value as Optuna stores it; None if it is not in the range."""
        return value if isinstance(value, int | float) and self.low <= value <= self.high else None

    def suggest(self, trial: Any, name: str) -> Any:
        """The value of one of Optuna's trials."""
        suggest = trial.suggest_int if isinstance(self.low, int) else trial.suggest_float
        return suggest(name, self.low, self.high, log=self.log)


@dataclass(frozen=True)
class Choices:
    """Listed values, as JSON types. Optuna, which takes no lists, stores them as texts."""

    values: tuple[Any, ...]

    def stored(self, value: Any) -> str | None:
        """A value as Optuna stores it; None if it is not listed."""
        return next((json.dumps(listed) for listed in self.values if listed == value), None)

    def suggest(self, trial: Any, name: str) -> Any:
        """The value of one of Optuna's trials."""
        return json.loads(trial.suggest_categorical(name, [*map(json.dumps, self.values)]))


Space = Mapping[str, Range | Choices]
Chosen = Mapping[str, Any]
"""A value of each option that is searched, by the options' names."""


def each_value(space: Space) -> list[dict[str, Any]]:
    """Choices that have every value at least once: all options but one have their first value."""
    first = {name: values.values[0] for name, values in space.items()}
    return [first | {name: value} for name, values in space.items() for value in values.values]


def chosen_by(trial: Any) -> dict[str, Any]:
    """What one of Optuna's trials has tried."""
    return {name: json.loads(value) if isinstance(value, str) else value for name, value in trial.params.items()}
