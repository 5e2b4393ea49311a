"""Which objective a training uses, as a value that configurations hold. Imports no torch, so `--help` stays fast.

The objectives themselves depend on tensors alone and raise ValueError, which becomes an InputError here.
"""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from minbert.errors import InputError, did_you_mean
from minbert.settings import settings
from multitask import objectives  # which imports torch on first use
from multitask.objectives.parameters import parameters, text_of

if TYPE_CHECKING:
    from multitask.objectives.base import Objective

Value = Annotated[float, Field(allow_inf_nan=True)] | str | None  # objectives say what is wrong with their values


@settings
class ObjectiveConfig:
    """The name of an objective and the parameters given for it. All others keep the defaults of the objective's class.

    `parse`, `build` and `changed` check names and values and raise InputError; the constructor does not, because it
    would import torch.
    """

    form: ClassVar[str] = "NAME[:PARAMETER=VALUE,...]"
    """What `parse` reads, for help pages."""

    name: str = "infonce"
    """A name from `OBJECTIVES`."""
    parameters: tuple[tuple[str, Value], ...] = ()
    """(name, value) of each given parameter, sorted by name; None switches a component off. Lists, as JSON has them,
    become tuples: `ObjectiveConfig(**dataclasses.asdict(config))` equals `config`."""

    def __post_init__(self) -> None:
        given = dict(self.parameters)
        if len(given) < len(self.parameters):
            raise InputError(f"{self.name}: a parameter is given twice; expected each once")
        object.__setattr__(self, "parameters", tuple(sorted(given.items())))  # the class is frozen

    @model_validator(mode="before")
    @classmethod
    def _of_text_or_json(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(given := value.get("parameters"), list):
            return value | {"parameters": tuple(tuple(pair) if isinstance(pair, list) else pair for pair in given)}
        if not isinstance(value, str):
            return value
        try:
            return vars(cls.parse(value))
        except InputError as error:
            raise ValueError(str(error)) from None

    @classmethod
    def of(cls, name: str, /, **parameters: Value) -> Self:
        """An objective by name, e.g. `ObjectiveConfig.of("vicreg", dissipation=0.3, weight=0.05)`."""
        return cls(name, tuple(parameters.items()))

    @classmethod
    def parse(cls, text: str) -> Self:
        """An objective from a text such as `vicreg:dissipation=0.3,weight=0.05`; `none` switches a component off."""
        name, colon, rest = text.partition(":")
        given: list[tuple[str, Value]] = []
        for part in rest.split(",") if colon else ():
            parameter, _, value = (word.strip() for word in part.partition("="))
            if not parameter or not value:
                raise InputError(
                    f'objective "{text}": "{part}" is not PARAMETER=VALUE; '
                    "expected, for example, vicreg:dissipation=0.3,weight=0.05"
                )
            given.append((parameter, _value(value)))
        config = cls(name.strip(), tuple(given))
        config.build()
        return config

    def __str__(self) -> str:
        """The text that `parse` reads."""
        given = ",".join(f"{name}={text_of(value)}" for name, value in self.parameters)
        return f"{self.name}:{given}" if given else self.name

    @staticmethod
    def explain(name: str) -> str:
        """The description of an objective, as plain text. Imports torch. Raises InputError for an unknown name."""
        if name != "all":
            ObjectiveConfig(name).build()
        return objectives.describe(name)

    def build(self) -> "Objective":
        """The objective itself. Imports torch. Errors list the valid names and values."""
        try:
            return objectives.build_objective(self.name, **dict(self.parameters))
        except ValueError as error:
            unknown = self.name not in objectives.OBJECTIVES
            hint = did_you_mean(self.name, objectives.OBJECTIVES) if unknown else ""
            raise InputError(f"{error}{hint}") from None

    def changed(self) -> dict[str, Value]:
        """The parameters that differ from the defaults of the objective's class, by name in order. Imports torch."""
        declared = parameters(type(self.build()))
        return {name: value for name, value in self.parameters if value != declared[name].default}


def _value(text: str) -> Value:
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        return text
