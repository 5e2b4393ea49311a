"""Labels as files write them: a name for each way of writing, in an order that does not depend on the rows'."""

import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multitask.data.messages import spelled
from multitask.data.texts import is_blank
from multitask.tasks.labels import class_order, flag, label_name, number, parts


@given(st.text())
def test_a_name_is_the_text_as_it_is_written(text):
    name = label_name(f" {text}\t")
    assert name is None if is_blank(text) else name == text.strip()


def test_a_number_that_is_not_text_has_no_point_if_it_is_whole():
    values = (1, 1.0, -0.0, 2.5, 1e16, 10**20, True)
    assert [*map(label_name, values)] == ["1", "1", "0", "2.5", "1" + 16 * "0", "1" + 20 * "0", "True"]
    for value in ([1], {"a": 1}, b"a"):
        with pytest.raises(ValueError, match="expected a name or a number"):
            label_name(value)


def test_blank_values():
    blank = (None, "", "  ", math.nan)
    assert [read(value) for value in blank for read in (label_name, number, flag)] == [None] * 12
    assert [read(value) for value in ("\u200b", " \ufeff\u2060 ") for read in (label_name, flag)] == [None] * 4


def test_nobody_sees_a_format_character_but_for_those_that_have_a_shape():
    """Of Unicode's format characters, signs of Arabic, Syriac and Kaithi numbers and of hieroglyphs are seen."""
    formats = [chr(i) for i in range(0x110000) if unicodedata.category(chr(i)) == "Cf"]
    seen = [c for c in formats if not is_blank(c)]
    names = ("ARABIC", "SYRIAC", "KAITHI", "EGYPTIAN", "SHORTHAND")
    assert [c for c in seen if not unicodedata.name(c).startswith(names)] == []
    assert not any(map(is_blank, ("a", "\u200ba", "\u0301", "\U0001f600", "\ue000", "-")))
    assert spelled('a\u200b"\\') == '"a\\u200b\\"\\\\"'
    assert (spelled("cafe\u0301"), spelled("caf\xe9"), spelled("\U000e0020")) == (
        *('"cafe\\u0301"', '"caf\xe9"', '"\\U000e0020"'),
    )


def test_flags():
    yes, no = (1, 1.0, True, "1", "1.0", " TRUE "), (0, 0.0, False, "0", "0.00", "False")
    assert [*map(flag, (*yes, *no))] == [True] * 6 + [False] * 6
    for value in (2, "yes", "-1", 0.5):
        with pytest.raises(ValueError, match="expected 0 or 1"):
            flag(value)


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
        ([["b", 1.0, "b", ""], '["b", 1, "b", null]', "b|1|b|", " b | 1 "], ["b", "1"]),
        (['[1.10, 1.1, "1.1"]', "1.10|1.1", ["1.10", 1.1]], ["1.10", "1.1"]),
        ([None, "", " ", "\u200b"], None),
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
