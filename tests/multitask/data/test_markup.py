"""Text for LaTeX is plain ASCII with every special sign escaped."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multitask.data import markup


@given(st.text())
def test_latex_text_is_plain_ascii_with_every_special_escaped(text: str) -> None:
    escaped = markup.latex(text)
    assert escaped.isascii()
    assert escaped.isprintable()
    left = re.sub(r"\\(text\w+|ldots)\{\}|\\[&%$#_{}]|\$-\$|\$\\\w+\$|\$\^\{\\\w+\}\$|\{[\[\]*]\}", "", escaped)
    assert not set(left) & set('\\{}&%$#_^~<>|[]*"')


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("50% & a_b", r"50\% \& a\_b"),
        ("|x-y|, x*y", r"\textbar{}x-y\textbar{}, x{*}y"),
        ("naïve “τ” – 語", "naive ``$\\tau$'' -- ?"),
    ],
)
def test_latex_text(text: str, escaped: str) -> None:
    assert markup.latex(text) == escaped
