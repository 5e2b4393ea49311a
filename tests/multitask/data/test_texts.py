"""Texts of columns and fixed words: as `str.format` makes them, and by hand where a column is empty."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minbert.errors import InputError
from multitask.data.texts import joined, template, with_content

VALUE = st.text(min_size=1, max_size=5).map(str.strip).filter(bool)
PARTS = st.lists(st.sampled_from(["{a}", "{b}", "{{", "}}", " ", ". ", "query: ", "\n"]), max_size=6)


@given(PARTS, VALUE, VALUE)
def test_a_text_is_what_str_format_makes_of_the_columns(parts, a, b):
    written = "".join([*parts, "{a}"])
    made = template(written)
    values = {"a": a, "b": b}
    assert made.text([values[column] for column in made.columns]) == written.format(**values).strip()
    content = made.content.text([values[column] for column in made.columns])
    assert made.around.text([content]) == made.text([values[column] for column in made.columns])
    assert content == (a if made.columns == ("a",) else written.format(**values).strip())


@pytest.mark.parametrize(
    ("written", "values", "text"),
    [
        ("subject", ["a"], "a"),
        ("{subject}. {body}", ["a", "b"], "a. b"),
        ("{subject}. {body}", ["a", ""], "a."),
        ("{subject}. {body}", ["", "b"], ". b"),
        ("{subject}. {body}", ["", ""], ""),  # fixed words alone are no text
        ("query: {text}", [""], ""),
        (joined(["subject", "body", "{n} stars"]), ["a", "b", "3"], "a b 3 stars"),
        (joined(["a", "b", "c"]), ["x", "", "y"], "x y"),
        (joined(["a", "b"]), ["", "y"], "y"),
        (joined(["{a}{b}", "c"]), ["x", "y", "z"], "xy z"),
        (with_content("query: {text} {{", "body"), ["a"], "query: a {"),
        (with_content("query: {text}", "{title}: {body}"), ["a", "b"], "query: a: b"),
        (with_content("{subject} {body}", "text"), ["a"], "a"),
        (with_content("subject", "{{text}}"), ["a"], "a"),
    ],
)
def test_an_empty_column_takes_the_space_before_it_along(written, values, text):
    assert template(written).text(values) == text


def test_a_name_without_braces_is_a_column_and_a_brace_alone_is_refused():
    assert template("text {{de}} ").columns == ("text {de} ",)
    assert template("{ticket.body}").columns == ("ticket.body",)
    for written in ("{", "query: }", "{}", "{a {b}"):
        with pytest.raises(InputError, match=r"expected \{COLUMN\}, and \{\{ or \}\} for a brace itself"):
            template(written)
