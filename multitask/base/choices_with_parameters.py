"""Classes that are chosen by name, with parameters: `--objective vicreg:ratio=1.5`, `--scheduler cagrad:c=0.4`.

A `Registry` has the classes of one kind by name. The annotated fields of a class are its parameters; the types give
their ranges, and the docstrings under them are their help. A `Choice` is a setting that names a class of a registry.
Imports no torch, because settings do.
"""

import inspect
from collections.abc import Mapping
from pkgutil import resolve_name
from types import NoneType
from typing import Annotated, Any, ClassVar, Self, TypeVar, dataclass_transform, get_args, get_origin

from pydantic import ConfigDict, Field, ValidationError, model_serializer, model_validator
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from minbert.errors import InputError, did_you_mean
from minbert.settings import help_texts, settings

Kind = TypeVar("Kind")
ParameterValue = Annotated[float, Field(allow_inf_nan=True)] | str | None  # a registry says what is wrong with a value
_BOUNDS = {"gt": "above", "ge": "at least", "le": "at most"}


@dataclass_transform(frozen_default=True, field_specifiers=(Field,))
def validated(kind: type[Kind]) -> type[Kind]:
    """Class decorator: a frozen dataclass that checks its values when it is made."""
    made: Any = dataclass(kind, frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
    return made


def parameter_class(kind: type, base: type) -> type:
    """A checked dataclass of the annotated fields with a default of a class and of its bases below `base`."""
    own = kind.__mro__[: kind.__mro__.index(base)]
    annotated = [item for part in reversed(own) for item in inspect.get_annotations(part, eval_str=True).items()]
    hints = {name: hint for name, hint in annotated if hasattr(kind, name) and ClassVar not in (hint, get_origin(hint))}
    fields = {name: getattr(kind, name) for name in hints}
    return validated(type(kind.__name__, (), {"__annotations__": hints} | fields))


def parameters(kind: type) -> dict[str, FieldInfo]:
    """The parameters of a class by name, in the order of their declaration."""
    checking: Any = getattr(kind, "Parameters", kind)
    return dict(checking.__pydantic_fields__)


def bounds(parameter: FieldInfo) -> dict[str, float]:
    """The bounds of a number: above `gt`, at least `ge`, at most `le`."""
    return {name: getattr(part, name) for part in parameter.metadata for name in _BOUNDS if hasattr(part, name)}


def choices(parameter: FieldInfo) -> tuple[str, ...]:
    """The texts that a parameter takes; empty for a number."""
    return tuple(choice for choice in get_args(parameter.annotation) if isinstance(choice, str))


def optional(parameter: FieldInfo) -> bool:
    """Whether a parameter can be off."""
    return NoneType in get_args(parameter.annotation)


def expected(parameter: FieldInfo) -> str:
    """The valid values in words, e.g. "a number above 0 or none (off)"."""
    if texts := choices(parameter):
        return " or ".join(f'"{text}"' for text in texts)
    limits = " and ".join(f"{_BOUNDS[name]} {bound:g}" for name, bound in bounds(parameter).items())
    return f"a number {limits}".rstrip() + " or none (off)" * optional(parameter)


def text_of(value: float | str | None) -> str:
    """A parameter's value as the command line reads it."""
    if isinstance(value, str):
        return value
    return "none" if value is None else repr(value).removesuffix(".0")


def _value(text: str) -> ParameterValue:
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        return text


class Registry(dict[str, type[Kind]]):
    """Classes of one kind by name."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind  # such as "objective"

    def build(self, name: str, given: Mapping[str, Any]) -> Any:
        """The named class's parameters with these values: an instance of the class itself, or of its `Parameters`.

        Raises ValueError for an unknown name or parameter (the message lists the valid ones), or a value out of range.
        """
        if name not in self:
            known = ", ".join(sorted(self)) + did_you_mean(name, self)
            raise ValueError(f'unknown {self.kind} "{name}"; expected one of: {known}')
        declared = parameters(self[name])
        for parameter in given:
            if parameter not in declared:
                valid = "; ".join(f"{known}: {expected(field)}" for known, field in declared.items()) or "none"
                hint = did_you_mean(parameter, declared)
                raise ValueError(f'{name} has no parameter "{parameter}"; it takes {valid}{hint}')
        try:
            return getattr(self[name], "Parameters", self[name])(**given)
        except ValidationError as error:
            first = error.errors()[0]
            problem = str(first.get("ctx", {}).get("error"))  # of a check of several parameters
            if first["loc"]:
                parameter, value = str(first["loc"][0]), first["input"]
                shown = f'"{value}"' if isinstance(value, str) else text_of(value)
                problem = f"{parameter} is {shown}; expected {expected(declared[parameter])}"
            raise ValueError(f"{name}: {problem}") from None

    def describe(self, name: str) -> str:
        """What a class and its bases are, and its parameters with range, default and help, as plain text.

        `all` lists the names with the first lines of their docstrings. Raises ValueError for an unknown name; the
        message lists the valid ones.
        """
        docs = {each: inspect.cleandoc(kind.__doc__ or "") for each, kind in self.items()}
        if name == "all":
            return "\n".join(f"{each}: {doc.partition(chr(10))[0]}" for each, doc in docs.items())
        self.build(name, {})
        kind: Any = self[name]
        root = [base for base in kind.__mro__ if "notes" in vars(base)][-1]  # of all classes of this kind
        bases = [base for base in kind.__mro__[1 : kind.__mro__.index(root)] if base.__doc__]
        inherited = [f"{base.__name__} (base class):\n{inspect.cleandoc(base.__doc__)}" for base in bases]
        lines, texts = ["Parameters:" if parameters(kind) else "Parameters: none"], help_texts(kind)
        for parameter, field in parameters(kind).items():
            lines += [f"  {parameter}: {expected(field)}; default {text_of(field.default)}"]
            lines += [f"      {texts[parameter]}"] if parameter in texts else []
        return "\n\n".join([name, docs[name], *inherited, *kind.notes(), "\n".join(lines)])


@settings
class Choice:
    """The name of a class and the parameters given for it. All others keep the defaults of the class.

    `parse`, `build` and `changed` check names and values and raise InputError; the constructor does not, because it
    would import torch.
    """

    form: ClassVar[str] = "NAME[:PARAMETER=VALUE,...]"
    """What `parse` reads, for help pages."""
    example: ClassVar[str]
    classes: ClassVar[str]
    """Where the registry is, as `module:name`. It imports torch, and some of its classes import settings."""

    name: str = ""
    """A name from the registry."""
    parameters: tuple[tuple[str, ParameterValue], ...] = ()
    """(name, value) of each given parameter, sorted by name; None switches a component off. Lists, as JSON has them,
    become tuples: `Choice(**dataclasses.asdict(choice))` equals `choice`."""

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
    def registry(cls) -> Registry[Any]:
        """The classes. Imports torch."""
        found: Registry[Any] = resolve_name(cls.classes)
        return found

    @classmethod
    def of(cls, name: str, /, **parameters: ParameterValue) -> Self:
        """A choice by name, e.g. `ObjectiveConfig.of("vicreg", dissipation=0.3, weight=0.05)`."""
        return cls(name, tuple(parameters.items()))

    @classmethod
    def parse(cls, text: str) -> Self:
        """A choice from a text such as `vicreg:dissipation=0.3,weight=0.05`; `none` switches a component off."""
        name, colon, rest = text.partition(":")
        given: list[tuple[str, ParameterValue]] = []
        for part in rest.split(",") if colon else ():
            parameter, _, value = (word.strip() for word in part.partition("="))
            if not parameter or not value:
                raise InputError(f'"{text}": "{part}" is not PARAMETER=VALUE; expected, for example, {cls.example}')
            given.append((parameter, _value(value)))
        found = cls(name.strip(), tuple(given))
        if found != cls():  # the default is valid, and a mistake elsewhere should not wait for torch
            found.build()
        return found

    def __str__(self) -> str:
        """The text that `parse` reads."""
        given = ",".join(f"{name}={text_of(value)}" for name, value in self.parameters)
        return f"{self.name}:{given}" if given else self.name

    @model_serializer
    def _as_text(self) -> str:
        return str(self)

    @classmethod
    def explain(cls, name: str) -> str:
        """The description of a class, as plain text. Imports torch. Raises InputError for an unknown name."""
        try:
            return cls.registry().describe(name)
        except ValueError as error:
            raise InputError(str(error)) from None

    def build(self) -> Any:
        """What the registry builds. Imports torch. Errors list the valid names and values."""
        try:
            return self.registry().build(self.name, dict(self.parameters))
        except ValueError as error:
            raise InputError(str(error)) from None

    def changed(self) -> dict[str, ParameterValue]:
        """The parameters that differ from the defaults of the class, by name in order. Imports torch."""
        self.build()
        declared = parameters(self.registry()[self.name])
        return {name: value for name, value in self.parameters if value != declared[name].default}

    def in_key(self) -> Any:
        """What a run's key has of it."""
        return {"name": self.name, **self.changed()}
