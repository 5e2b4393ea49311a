"""Labels as files write them: one name for equal numbers, in an order that does not depend on the rows'."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multitask.tasks.labels import canonical, class_order, number, parts


@pytest.mark.parametrize(
    "same", [(1, 1.0, "1", "1.0", " 1 ", "+1", "1e0", "01"), (0.5, "0.5", ".5", "0.50", "5e-1"), (0, -0.0, "-0")]
)
def test_equal_numbers_are_one_class(same):
    assert len({canonical(value) for value in same}) == 1


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_and_its_text_are_one_class(value):
    if isinstance(value, int) or abs(value) < 2**53:
        assert canonical(value) == canonical(str(value)) == canonical(json.loads(json.dumps(value)))


@given(st.one_of(st.integers(), st.floats(), st.text(), st.booleans()))
def test_a_name_is_its_own_name(value):
    name = canonical(value)
    assert name is None or canonical(name) == name


@given(st.integers(), st.integers())
def test_different_whole_numbers_are_different_classes(first, second):
    assert (canonical(str(first)) == canonical(str(second))) == (first == second)


def test_blank_and_other_values():
    assert [read(value) for value in (None, "", "  ", math.nan) for read in (canonical, number)] == [None] * 8
    assert [canonical(value) for value in (True, "True", "a b", "1_0", "nan", "٣", "1e999")] == [
        *("True", "True", "a b", "1_0", "nan", "٣", "1e999"),
    ]
    for value in ([1], {"a": 1}, b"a"):
        with pytest.raises(ValueError, match="expected a name or a number"):
            canonical(value)


@given(st.integers(-(10**30), 10**30) | st.floats(-1e30, 1e30))
def test_numbers_are_read_as_python_reads_them(value):
    assert number(value) == number(str(value)) == number(f" {value}\t") == float(value)


@pytest.mark.parametrize(
    "value", ["nan", "inf", "1_0", "٣", "4,5", "high", "1e39", 10**400, math.inf, True, [1], "0x1"]
)
def test_what_is_no_finite_number_of_fp32_is_nan(value):
    found = number(value)
    assert found is not None
    assert math.isnan(found)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([["b", 1, "b", ""], '["b", 1.0, "b", null]', "b|1|b|", " b | 1 "], ["b", "1"]),
        ([None, "", " "], None),
        ([[], "[]"], []),
        ([3], ["3"]),
    ],
)
def test_several_labels_are_read_once_each_and_none_is_not_blank(values, found):
    assert all(parts(value, "|") == found for value in values)


def test_a_broken_list_says_what_is_expected():
    for value in ("[a, b]", "[" * 100_000, "[1"):
        with pytest.raises(ValueError, match=r"^expected names with \| between them, or a JSON list$"):
            parts(value, "|")


@given(st.lists(st.sampled_from(["10", "9", "-1", "1e999", "2e999", "0.5"])) | st.lists(st.text()), st.randoms())
def test_the_order_of_classes_does_not_depend_on_the_rows(names, random):
    order = class_order(names)
    assert sorted(order) == sorted(set(names))
    random.shuffle(names)
    assert class_order(names) == order
    assert class_order(["10", "9", "-1", "2.5"]) == ("-1", "2.5", "9", "10")  # by value
    assert class_order(["10", "9", "b", "a"]) == ("10", "9", "a", "b")  # by the alphabet
