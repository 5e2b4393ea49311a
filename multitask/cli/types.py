"""Option types that tyro cannot parse by itself. Pass `REGISTRY` to `tyro.cli`. Imports nothing heavy."""

from typing import Annotated

from tyro.conf import arg
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from multitask.objectives.config import ObjectiveConfig

REGISTRY = ConstructorRegistry()


@REGISTRY.primitive_rule
def _objective(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[ObjectiveConfig] | None:
    """One option for an objective and its parameters: `--objective vicreg:dissipation=0.3,weight=0.05`."""
    if info.type is not ObjectiveConfig:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="NAME[:PARAMETER=VALUE,...]",
        instance_from_str=lambda words: ObjectiveConfig.parse(words[0]),
        is_instance=lambda value: isinstance(value, ObjectiveConfig),
        str_from_instance=lambda config: [str(config)],
    )


def _describe_and_exit(words: list[str]) -> None:
    from multitask.objectives import describe

    print(describe(words[0]))
    raise SystemExit(0)


HelpObjective = Annotated[
    None,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="NAME",
        instance_from_str=_describe_and_exit,
        is_instance=lambda value: value is None,
        str_from_instance=lambda _: [],
    ),
    arg(
        help="Print an objective's formula, source and parameters, and exit. Objectives: infonce, mnrl, arccon, mpt, "
        "met, mat, dcl, dcl_positive, align_uniform, gradient, mhe, mhs, barlow_twins, vicreg, mixed, and with labels "
        "cosine and quora_pairs.",
        help_behavior_hint="",
    ),
]
"""An option that prints the description of an objective and ends the program, as `--help` does."""
