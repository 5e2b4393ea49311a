"""Building objectives by name, their parameters, and what is refused."""

import copy
import math
import pickle
from dataclasses import FrozenInstanceError
from typing import Annotated

import pytest
import torch
from pydantic import Field
from torch import Tensor

from minbert.errors import InputError
from minbert.settings import help_texts, settings
from multitask.objectives import OBJECTIVES, Objective, build_objective, describe
from multitask.objectives.base import Pairs, register
from multitask.objectives.parameters import expected, parameters

from .batches import ALL_OBJECTIVES


def test_every_published_name_is_there() -> None:
    contrastive = {"infonce", "mnrl", "arccon", "mpt", "met", "mat", "dcl", "dcl_positive", "align_uniform", "gradient"}
    non_contrastive = {"mhe", "mhs", "barlow_twins", "vicreg"}
    assert set(OBJECTIVES) == contrastive | non_contrastive | {"cosine", "quora_pairs", "mixed"}


def test_defaults_are_those_of_the_papers() -> None:
    assert str(build_objective("infonce")) == "infonce(temperature=0.05, hard_negative_weight=0.0)"
    assert build_objective("arccon").angle == pytest.approx(math.radians(10))
    margins = {name: build_objective(name).margin for name in ("mpt", "met", "mat")}
    assert margins == {"mpt": 0.23, "met": 0.45, "mat": 0.15}
    assert str(build_objective("align_uniform")) == "align_uniform(uniformity_weight=0.5, alpha=2.0, t=2.0)"
    assert str(build_objective("gradient")) == "gradient(dissipation=0.3, weight=0.05, ratio=1.0, power=None)"
    weights = {name: OBJECTIVES[name]().uniformity_weight for name in ("mhe", "mhs", "barlow_twins", "vicreg")}
    assert weights == {"mhe": 10, "mhs": 1, "barlow_twins": 30, "vicreg": 30}


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_every_parameter_has_a_help_text_and_a_valid_default(name: str) -> None:
    kind = OBJECTIVES[name]
    for parameter, field in parameters(kind).items():
        assert len(help_texts(kind)[parameter]) > 15
        assert getattr(build_objective(name, **{parameter: field.default}), parameter) == field.default


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_a_description_has_formula_source_and_parameters(name: str) -> None:
    text = describe(name)
    assert text.startswith(f"{name}\n\n")
    assert "Source: " in text
    assert "Args:" not in text
    assert max(len(line) for line in text.splitlines()) <= 120
    *_, declared = text.partition("\nParameters:")
    for parameter, field in parameters(OBJECTIVES[name]).items():
        assert f"  {parameter}: {expected(field)}; default " in declared
        assert help_texts(OBJECTIVES[name])[parameter] in declared


def test_descriptions_include_the_formulas_of_base_classes() -> None:
    text = describe("vicreg")
    assert "GradientForm (base class):\nV(u, v) + V(v, u)" in text
    assert "weight: a number above 0 or none (off); default none\n      Temperature τ" in text
    assert "uniformity_weight: a number at least 0; default 30\n      Weight λ" in text
    assert "Parameters: none" in describe("cosine")
    assert "Labels: similarity from 0 to 1" in describe("cosine")
    assert "Hard negatives: optional" in describe("infonce")
    with pytest.raises(InputError, match='unknown objective "infonse"; expected one of: align_uniform'):
        describe("infonse")


@pytest.mark.parametrize("objective", ALL_OBJECTIVES, ids=str)
def test_an_objective_is_a_value(objective: Objective) -> None:
    assert copy.deepcopy(objective) == objective
    assert pickle.loads(pickle.dumps(objective)) == objective
    assert len({objective, copy.copy(objective)}) == 1


def test_whole_numbers_are_the_same_parameters_as_fractions() -> None:
    assert str(build_objective("mnrl", scale=20)) == str(build_objective("mnrl", scale=20.0))


def test_parameters_cannot_be_changed_afterwards() -> None:
    with pytest.raises(FrozenInstanceError):
        build_objective("infonce").temperature = 1.0


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("infonse", {}, 'unknown objective "infonse"; expected one of: align_uniform, arccon, .*vicreg'),
        (
            "infonce",
            {"tau": 0.05},
            'infonce has no parameter "tau"; it takes temperature: a number above 0; hard_negative_weight: a number$',
        ),
        ("cosine", {"name": "x"}, 'cosine has no parameter "name"; it takes none'),
        ("infonce", {"temperature": 0}, "infonce: temperature is 0; expected above 0"),
        ("infonce", {"temperature": "low"}, 'temperature is "low"; expected a number'),
        ("infonce", {"temperature": None}, "temperature is null; expected a number"),
        ("infonce", {"temperature": math.nan}, "temperature is NaN; expected a finite number"),
        ("infonce", {"hard_negative_weight": math.inf}, "hard_negative_weight is Infinity; expected a finite number"),
        ("mpt", {"margin": 2.5}, "margin is 2.5; expected at most 2"),
        ("align_uniform", {"alpha": 0.5}, "alpha is 0.5; expected at least 1"),
        ("vicreg", {"weight": -1}, "weight is -1; expected above 0"),
        ("vicreg", {"weight": 0.05, "power": 2}, "weight and power are two forms"),
        ("mixed", {"ratio_of": "dcl"}, 'ratio_of is "dcl"; expected .infonce., .arccon., .mpt., .met. or .mat.'),
        ("quora_pairs", {"form": "free"}, 'form is "free"; expected .bounded. or .literal.'),
    ],
)
def test_what_is_wrong_is_named_with_what_is_valid(name: str, parameters: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        build_objective(name, **parameters)
    assert "\n" not in str(caught.value)


PAIRS_OF_3 = (torch.eye(3), torch.eye(3))
MASK_OF_3 = torch.zeros(3, 3, dtype=torch.bool)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("mpt", {"hard_negatives": torch.eye(3)}, "mpt cannot use hard negatives; .*one of: .*infonce"),
        ("infonce", {"hard_negatives": torch.eye(4)}, r"shape \[4, 4\]; expected \[hard_negatives, 3\]"),
        ("infonce", {"labels": torch.ones(3)}, "infonce takes no labels; .*one of: cosine, quora_pairs"),
        ("cosine", {}, "cosine needs labels, one for each pair: similarity from 0 to 1"),
        ("cosine", {"labels": torch.tensor([0, 1, 4.6])}, "a label is 4.6; expected similarity from 0 to 1"),
        ("cosine", {"labels": torch.tensor([0, 1, math.nan])}, "a label is nan"),
        ("quora_pairs", {"labels": torch.tensor([0, 1, 0.5])}, "a label is 0.5; expected 0 or 1"),
        ("quora_pairs", {"labels": torch.ones(3, 1)}, r"labels have shape \[3, 1\]; expected \[3\]"),
        ("infonce", {"false_negatives": MASK_OF_3[:2]}, r"false_negatives has shape \[2, 3\]"),
        ("infonce", {"false_negatives": MASK_OF_3.float()}, "torch.float32; expected .* torch.bool"),
        ("infonce", {"false_hard_negatives": MASK_OF_3}, r"false_hard_negatives has shape .*expected \[3, 0\]"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(name: str, arguments: dict[str, Tensor], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_objective(name)(*PAIRS_OF_3, **arguments)


@pytest.mark.parametrize(
    ("anchors", "positives"),
    [
        (torch.eye(3), torch.eye(2)),
        (torch.ones(3), torch.ones(3)),
        (torch.ones(0, 3), torch.ones(0, 3)),
    ],
)
def test_shapes_of_anchors_and_positives_must_agree(anchors: Tensor, positives: Tensor) -> None:
    with pytest.raises(InputError, match=r"expected \[pairs, dim\] twice"):
        build_objective("mpt")(anchors, positives)


def test_weight_of_the_own_hard_negative_needs_one_for_each_pair() -> None:
    with pytest.raises(InputError, match="2 hard negatives for 3 pairs"):
        build_objective("infonce", hard_negative_weight=1)(*PAIRS_OF_3, torch.ones(2, 3))


def test_adding_an_objective_is_one_class() -> None:
    before = set(OBJECTIVES)

    @register("product")
    @settings
    class Product(Objective):
        scale: Annotated[float, Field(gt=0)] = 1.0

        def loss(self, pairs: Pairs) -> Tensor:
            return -self.scale * pairs.positive.mean()

    try:
        objective = build_objective("product", scale=2)
        assert str(objective) == "product(scale=2.0)"
        assert objective(*PAIRS_OF_3) == -2
    finally:
        del OBJECTIVES["product"]
    assert set(OBJECTIVES) == before
