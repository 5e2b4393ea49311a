"""Objectives by name, as values and as the text of a configuration; what is refused."""

import copy
import json
import math
import pickle
from dataclasses import FrozenInstanceError, asdict, fields
from typing import Annotated

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field
from torch import Tensor

from minbert.errors import InputError
from minbert.settings import as_json, read_as
from multitask.objectives import OBJECTIVES, Objective, build_objective
from multitask.objectives.base import UnitPairs, register
from multitask.training.settings import ObjectiveConfig

from .batches import ALL_OBJECTIVES

VICREG = ObjectiveConfig.of("vicreg", uniformity_weight=1, dissipation=0.3, weight=0.05, ratio=1.5)


@pytest.mark.parametrize(
    "text",
    [
        "infonce(temperature=0.05, hard_negative_weight=0.0)",
        *(f"arccon(temperature=0.05, hard_negative_weight=0.0, angle={math.radians(10)})", "mnrl(scale=20.0)"),
        *("mpt(margin=0.23)", "met(margin=0.45)", "mat(margin=0.15)", "dcl(temperature=0.05)"),
        *("dcl_positive(temperature=0.05)", "align_uniform(uniformity_weight=0.5, alpha=2.0, t=2.0)"),
        "gradient(dissipation=0.3, weight=0.05, ratio=1.0, power=None)",
        "mhe(uniformity_weight=10.0, dissipation=None, weight=None, ratio=None)",
        "mhs(uniformity_weight=1.0, dissipation=None, ratio=None)",
        "barlow_twins(uniformity_weight=30.0, dissipation=None, weight=None, ratio=None, power=None)",
        *("vicreg(uniformity_weight=30.0, dissipation=None, weight=None, ratio=None, power=None)", "byol()"),
        *("cosine()", "cosent(scale=20.0)", "quora_pairs(temperature=0.05, form=bounded)"),
        "mixed(dissipation_of=infonce, weight_of=infonce, ratio_of=infonce)",
    ],
)
def test_every_published_name_has_the_papers_defaults(text):
    assert str(build_objective(text.partition("(")[0])) == text


def test_a_description_has_formula_source_and_parameters_also_of_base_classes():
    text = OBJECTIVES.describe("vicreg")
    assert text.startswith("vicreg\n\nVICReg in gradient form")
    assert "GradientForm (base class):\nV(u, v) + V(v, u)" in text
    assert "weight: a number at least 1e-06 or none (off); default none\n      Temperature τ" in text
    assert all("Source: " in OBJECTIVES.describe(name) for name in OBJECTIVES)


def config_of(objective: Objective) -> ObjectiveConfig:
    """Every parameter of an objective, those at their defaults too."""
    return ObjectiveConfig.of(objective.name, **{f.name: getattr(objective, f.name) for f in fields(objective)})


@pytest.mark.parametrize("objective", ALL_OBJECTIVES, ids=str)
def test_an_objective_is_a_value_that_text_json_and_pickle_lead_back_to(objective):
    assert pickle.loads(pickle.dumps(objective)) == copy.deepcopy(objective) == objective
    assert len({objective, copy.copy(objective)}) == 1
    config = config_of(objective)
    assert config.build() == objective
    assert ObjectiveConfig.parse(str(config)) == config
    assert ObjectiveConfig(**json.loads(json.dumps(asdict(config)))) == config
    assert as_json(config) == str(config)
    assert read_as(ObjectiveConfig, json.dumps(as_json(config))) == config
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(FrozenInstanceError):
        objective.temperature = 1.0


@given(st.floats(min_value=1e-6, allow_infinity=False))
def test_no_digit_is_lost_in_the_text(temperature):
    config = ObjectiveConfig.of("infonce", temperature=temperature)
    assert ObjectiveConfig.parse(str(config)).build() == build_objective("infonce", temperature=temperature)


def test_the_text_is_short_and_sorted():
    assert str(VICREG) == "vicreg:dissipation=0.3,ratio=1.5,uniformity_weight=1,weight=0.05"
    assert ObjectiveConfig.parse("vicreg:weight=0.05,ratio=1.5,dissipation=.3,uniformity_weight=1.0") == VICREG
    assert str(ObjectiveConfig.parse(" gradient : ratio = 2 , dissipation=None")) == "gradient:dissipation=none,ratio=2"
    assert str(ObjectiveConfig.parse("mixed:ratio_of=met")) == "mixed:ratio_of=met"


def test_changed_parameters_are_those_that_differ_from_the_defaults():
    assert all(config_of(kind()).changed() == {} for kind in OBJECTIVES.values())
    assert VICREG.changed() == {"dissipation": 0.3, "ratio": 1.5, "uniformity_weight": 1.0, "weight": 0.05}
    given = ObjectiveConfig.of("gradient", ratio=1, weight=0.1, dissipation=None)
    assert given.changed() == {"dissipation": None, "weight": 0.1}


@pytest.mark.parametrize(
    "text",
    [
        *("", "infonse", "vicreg:", "vicreg:0.3", "vicreg:ratio=", "vicreg:ratio=1,", "vicreg:ratio=1,ratio=2"),
        *("infonce:tau=1", "cosine:name=x", "infonce:temperature=0", "infonce:temperature=low", "mpt:margin=2.5"),
        *("infonce:temperature=none", "infonce:temperature=nan", "infonce:hard_negative_weight=inf"),
        *("vicreg:weight=0.05,power=2", "mixed:ratio_of=dcl", "mhs:weight=0.05"),
    ],
)
def test_what_no_objective_has_is_refused_in_one_line(text):
    with pytest.raises(InputError, match=r"^[^\n]*$"):
        ObjectiveConfig.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vicreg:ratio=1e30", "ratio is 1e\\+30; expected a number at least 0 and at most 1e\\+06 or none"),
        ("gradient:weight=1e-40", "weight is 1e-40; expected a number at least 1e-06"),
        ("infonce:temperature=1e-40", "temperature is 1e-40"),
        ("gradient:power=2,weight=0.5", "weight and power are two forms of one component; give one of them"),
        ("mhe:uniformity_weight=1e39", "uniformity_weight is 1e\\+39"),
    ],
)
def test_a_parameter_that_would_make_the_loss_infinite_or_has_no_effect_is_named(text, message):
    with pytest.raises(InputError, match=message):
        ObjectiveConfig.parse(text)


MASK_OF_3 = torch.zeros(3, 3, dtype=torch.bool)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("mpt", {"positives": torch.eye(2)}, r"expected \[pairs, dim\] twice"),
        ("mpt", {"anchors": torch.ones(3), "positives": torch.ones(3)}, r"expected \[pairs, dim\] twice"),
        ("mpt", {"anchors": torch.ones(0, 3), "positives": torch.ones(0, 3)}, r"expected \[pairs, dim\] twice"),
        ("cosine", {"hard_negatives": torch.eye(3), "labels": torch.ones(3)}, "cosine cannot use hard .*: .*infonce"),
        ("infonce", {"hard_negatives": torch.eye(4)}, r"shape \[4, 4\] .*; expected \[4, 3\]"),
        ("infonce", {"labels": torch.ones(3)}, "infonce takes no labels"),
        ("cosine", {}, "cosine needs labels, one for each pair: similarity from 0 to 1"),
        ("cosine", {"labels": torch.tensor([0, 1, 4.6])}, "a label is 4.6; expected similarity from 0 to 1"),
        ("cosine", {"labels": torch.tensor([0, 1, math.nan])}, "a label is nan"),
        ("quora_pairs", {"labels": torch.tensor([0, 1, 0.5])}, "a label is 0.5; expected 0 or 1"),
        ("quora_pairs", {"labels": torch.ones(3, 1)}, r"labels has shape \[3, 1\] .*; expected \[3\]"),
        ("infonce", {"false_negatives": MASK_OF_3[:2]}, r"false_negatives has shape \[2, 3\]"),
        ("infonce", {"false_negatives": MASK_OF_3.float()}, "torch.float32; expected .* torch.bool"),
        ("infonce", {"false_hard_negatives": MASK_OF_3}, r"false_hard_negatives has shape .*expected \[3, 0\]"),
        ("weighted", {"hard_negatives": torch.ones(2, 3)}, "2 hard negatives for 3 pairs"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(name, arguments, message):
    objective = build_objective("infonce", hard_negative_weight=1) if name == "weighted" else build_objective(name)
    with pytest.raises(ValueError, match=message):
        objective(**{"anchors": torch.eye(3), "positives": torch.eye(3), **arguments})


def test_adding_an_objective_is_one_class():
    @register("product")
    class Product(Objective):
        scale: Annotated[float, Field(gt=0)] = 1.0

        def loss(self, pairs: UnitPairs) -> Tensor:
            return -self.scale * pairs.positive.mean()

    try:
        objective = build_objective("product", scale=2)
        assert str(objective) == "product(scale=2.0)"
        assert OBJECTIVES.describe("product").endswith("Parameters:\n  scale: a number above 0; default 1")
        assert objective(torch.eye(3), torch.eye(3)) == -2
    finally:
        del OBJECTIVES["product"]
