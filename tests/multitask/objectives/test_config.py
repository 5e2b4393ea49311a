"""The objective in a configuration: as text, as JSON, and what it builds."""

import json
import pickle
import subprocess
import sys
from dataclasses import asdict, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minbert.errors import InputError
from multitask.objectives import OBJECTIVES, Objective, build_objective
from multitask.objectives.config import ObjectiveConfig
from tests.conftest import ROOT

from .batches import ALL_OBJECTIVES

VICREG = ObjectiveConfig.of("vicreg", uniformity_weight=1, dissipation=0.3, weight=0.05, ratio=1.5)


def config_of(objective: Objective) -> ObjectiveConfig:
    """Every parameter of an objective, those at their defaults too."""
    return ObjectiveConfig.of(objective.name, **{f.name: getattr(objective, f.name) for f in fields(objective)})


@pytest.mark.parametrize("objective", ALL_OBJECTIVES, ids=str)
def test_text_json_and_pickle_lead_back_to_the_same_objective(objective: Objective) -> None:
    config = config_of(objective)
    assert config.build() == objective
    assert ObjectiveConfig.parse(str(config)) == config
    assert ObjectiveConfig(**json.loads(json.dumps(asdict(config)))) == config
    assert pickle.loads(pickle.dumps(config)) == config


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False))
def test_no_digit_is_lost_in_the_text(temperature: float) -> None:
    config = ObjectiveConfig.of("infonce", temperature=temperature)
    assert ObjectiveConfig.parse(str(config)).build() == build_objective("infonce", temperature=temperature)


def test_the_text_is_short_and_sorted() -> None:
    assert str(VICREG) == "vicreg:dissipation=0.3,ratio=1.5,uniformity_weight=1,weight=0.05"
    assert str(ObjectiveConfig()) == "infonce"
    assert str(ObjectiveConfig.parse(" gradient : ratio = 2 , dissipation=None")) == "gradient:dissipation=none,ratio=2"
    assert str(ObjectiveConfig.parse("mixed:ratio_of=met")) == "mixed:ratio_of=met"


def test_a_config_is_a_value() -> None:
    same = ObjectiveConfig.parse("vicreg:weight=0.05,ratio=1.5,dissipation=.3,uniformity_weight=1.0")
    assert len({VICREG, same}) == 1
    assert ObjectiveConfig("vicreg") != VICREG
    assert VICREG.build() == build_objective("vicreg", uniformity_weight=1, dissipation=0.3, weight=0.05, ratio=1.5)


def test_none_switches_a_component_off() -> None:
    assert ObjectiveConfig.parse("gradient:dissipation=none").build().dissipation is None
    assert ObjectiveConfig.parse("gradient").build().dissipation == 0.3


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_defaults_count_as_unchanged(name: str) -> None:
    assert ObjectiveConfig(name).changed() == {}
    assert config_of(OBJECTIVES[name]()).changed() == {}


def test_changed_parameters_are_those_that_differ_from_the_defaults() -> None:
    assert VICREG.changed() == {"dissipation": 0.3, "ratio": 1.5, "uniformity_weight": 1.0, "weight": 0.05}
    assert ObjectiveConfig.of("gradient", ratio=1, weight=0.1, dissipation=None).changed() == {
        "dissipation": None,
        "weight": 0.1,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("infonse", 'unknown objective "infonse"; expected one of: align_uniform, arccon, .*vicreg$'),
        ("infonce:tau=0.05", 'infonce has no parameter "tau"; it takes temperature: a number above 0; hard_negative'),
        ("infonce:temperature=-1", "infonce: temperature is -1.0; expected above 0$"),
        ("vicreg:weight=1,power=2", "weight and power are two forms"),
        ("vicreg:ratio=1,ratio=2", "vicreg: ratio is given twice"),
        ("vicreg:", 'objective "vicreg:": "" is not PARAMETER=VALUE; expected, for example, vicreg:dissipation=0.3,'),
        ("vicreg:0.3", '"0.3" is not PARAMETER=VALUE'),
        ("vicreg:ratio=", '"ratio=" is not PARAMETER=VALUE'),
        ("vicreg:ratio=1,", 'objective "vicreg:ratio=1,": "" is not PARAMETER=VALUE'),
        ("", 'unknown objective ""'),
    ],
)
def test_what_is_wrong_is_named_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        ObjectiveConfig.parse(text)
    assert "\n" not in str(caught.value)


def test_a_config_from_python_is_checked_when_it_is_built() -> None:
    wrong = ObjectiveConfig.of("infonce", margin=0.3)
    for check in (wrong.build, wrong.changed):
        with pytest.raises(InputError, match='infonce has no parameter "margin"'):
            check()
    with pytest.raises(InputError, match="ratio is given twice"):
        ObjectiveConfig("vicreg", (("ratio", 1.0), ("weight", None), ("ratio", 1.0)))


def test_the_config_does_not_import_torch() -> None:
    code = (
        "import sys\n"
        "from multitask.objectives.config import ObjectiveConfig\n"
        "str(ObjectiveConfig.of('vicreg', weight=0.1))\n"
        "assert 'torch' not in sys.modules"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
