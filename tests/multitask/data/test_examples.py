"""Rows of tokens are those of the tokenizer; batches contain every row once; texts of columns and fixed words."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minbert.errors import InputError
from minbert.tokenizer import Tokenizer, load_tokenizer
from multitask.data import markup
from multitask.data.examples import (
    Examples,
    LabelledData,
    TextCounts,
    batches_by_tokens,
    batches_of_similar_length,
    drawn_rows,
    epoch_rows,
    rows_from,
    tokenise,
)
from multitask.data.texts import joined, template, with_content

TEXTS = ["A band seemed to have a good time.", "", "time " * 200, "ünïcödé \u4e2d\u6587 🙂"]
SECOND = ["It was loud.", "an answer", "", "short " * 100]
ROWS = np.array([1, 0, 3, 1])


@pytest.fixture
def tokenizer(tiny_encoder) -> Tokenizer:
    return load_tokenizer(str(tiny_encoder))


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("max_length", [None, 11])
def test_labelled_rows_come_as_all_first_then_all_second_sentences(tokenizer, max_length, joint, caplog):
    examples = Examples((TEXTS, SECOND), None, (), None, "data.csv")
    data = LabelledData.tokenised(examples, tokenizer, max_length, joint)
    first, second = tokenizer.encode(TEXTS, max_length), tokenizer.encode(SECOND, max_length)
    expected = [first[i] for i in ROWS] + [second[i] for i in ROWS]
    lengths = [len(a) + len(b) for a, b in zip(first, second, strict=True)]
    types = [np.zeros(len(row)) for row in expected]
    whole = [*tokenizer.lengths(TEXTS)[0], *tokenizer.lengths(SECOND)[0]]
    if joint:
        encoded, kinds, *_ = tokenizer.encode_and_count([*zip(TEXTS, SECOND, strict=True)], max_length)
        assert {0, 1} == {int(kind) for row in kinds for kind in row}
        expected, types, lengths = [encoded[i] for i in ROWS], [kinds[i] for i in ROWS], list(map(len, encoded))
        whole = [a + b - 1 for a, b in zip(whole[:4], whole[4:], strict=True)]  # one [CLS]
    found = data.sequences(ROWS)
    for rows, wanted in zip(found, (expected, types), strict=True):
        assert [list(row) for row in rows] == [list(row) for row in wanted]
    np.testing.assert_array_equal(data.lengths, lengths)
    limit = max_length or tokenizer.max_length
    cut = sum(int(length) > limit for length in whole)
    said = f"data.csv: cut {cut} of {len(whole)} texts to {limit} tokens (max_length of the training)"
    assert caplog.messages == [said]


@pytest.mark.parametrize("joint", [False, True])
def test_texts_that_the_tokenizer_cannot_read_are_counted(tokenizer, joint, caplog):
    """Khmer is not in the vocabulary, and of an accent alone an uncased BERT keeps nothing."""
    examples = Examples(
        (["\u1781 \u1782", "A band", "\u0301", ""], ["\u1781", "\u1781", "\u0301", ""]), None, (), None, "x"
    )
    LabelledData.tokenised(examples, tokenizer, None, joint)
    (message,) = caplog.messages  # of the pair with "A band", two of three tokens are known
    assert message.startswith(f"x: most tokens of {2 if joint else 5} of {4 if joint else 8} texts are unknown ([UNK])")


def test_of_no_rows_there_are_no_tokens(tokenizer):
    tokens = tokenise([], tokenizer, None)
    assert (len(tokens), tokens.ids.dtype, tokens.lengths.tolist()) == (0, np.int32, [])


# Batches contain every row once and depend on nothing but the arguments.


SIZES = st.integers(1, 40)
SEEDS = st.tuples(st.integers(0, 2**40), st.integers(0, 5))
LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=200)


def stream(size, take, epochs, seed):
    return np.concatenate([epoch_rows(size, take, epoch, *seed) for epoch in range(epochs)])


@given(SIZES, SIZES, SEEDS)
def test_epochs_run_through_fresh_permutations(size, take, seed):
    epochs = -(-3 * size // take)
    rows = stream(size, take, epochs, seed)
    np.testing.assert_array_equal(rows, stream(size, take, epochs, seed))
    assert len(rows) == epochs * take
    for start in range(0, len(rows) - size + 1, size):
        assert sorted(rows[start : start + size]) == list(range(size))


@given(SIZES, st.lists(st.integers(0, 50), min_size=1, max_size=6), SEEDS)
def test_epochs_of_different_lengths_run_through_the_same_rows(size, takes, seed):
    starts = np.cumsum([0, *takes])
    parts = [rows_from(size, int(first), take, *seed) for first, take in zip(starts, takes, strict=False)]
    assert [len(part) for part in parts] == takes
    np.testing.assert_array_equal(np.concatenate(parts), epoch_rows(size, sum(takes) or 1, 0, *seed)[: sum(takes)])


def test_epochs_and_seeds_differ():
    orders = [epoch_rows(100, 100, epoch, *seed) for epoch in (0, 1) for seed in ((0, "a"), (0, "b"), (1, "a"))]
    assert len({tuple(order) for order in orders}) == len(orders)


@given(LENGTHS, st.integers(1, 9), st.data())
def test_batches_of_similar_length_partition_the_rows(lengths, batch_size, data):
    lengths = np.array(lengths)
    rows = np.array(data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=600)))  # may repeat
    batches = batches_of_similar_length(rows, lengths, batch_size, np.random.default_rng(0))
    assert sorted(np.concatenate(batches)) == sorted(rows)
    sizes = sorted(map(len, batches))
    assert sizes[1:] == [batch_size] * (len(batches) - 1)
    assert sizes[0] == (len(rows) % batch_size or batch_size)


def test_batches_of_similar_length_have_similar_lengths_in_random_order():
    generator = np.random.default_rng(0)
    lengths, rows = generator.integers(1, 100, 2000), generator.permutation(2000)
    batches = batches_of_similar_length(rows, lengths, 8, np.random.default_rng(1))
    assert np.mean([np.ptp(lengths[batch]) for batch in batches]) < 10  # a random batch of 8 spans 78
    means = np.array([lengths[batch].mean() for batch in batches])
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.2
    again = batches_of_similar_length(rows, lengths, 8, np.random.default_rng(1))
    assert [list(batch) for batch in batches] == [list(batch) for batch in again]
    other = batches_of_similar_length(rows, lengths, 8, np.random.default_rng(2))
    assert [list(batch) for batch in batches] != [list(batch) for batch in other]


@given(LENGTHS, st.integers(1, 200), st.none() | st.integers(1, 7))
def test_batches_by_tokens_partition_within_budget(lengths, budget, most_rows):
    lengths = np.array(lengths)
    batches = list(batches_by_tokens(lengths, budget, most_rows))
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    flat = lengths[np.concatenate(batches)]
    assert (np.diff(flat) <= 0).all()  # longest first
    for batch, following in zip(batches, [*batches[1:], None], strict=True):
        assert lengths[batch].sum() <= budget or len(batch) == 1
        assert most_rows is None or len(batch) <= most_rows
        if following is not None and len(batch) != most_rows:  # as full as can be
            assert lengths[batch].sum() + lengths[following[0]] > budget


@pytest.mark.parametrize("most_rows", [0, -1])
def test_batches_have_a_row_or_more(most_rows):
    with pytest.raises(InputError, match=f"batch_size is {most_rows}; expected at least 1"):
        next(batches_by_tokens(np.array([3]), 10, most_rows))


@given(size=st.integers(0, 300), limit=st.integers(1, 400))
def test_a_limit_draws_rows_from_anywhere_but_always_the_same(size, limit):
    rows = drawn_rows(size, limit)
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert len(rows) == min(size, limit)
    assert set(rows.tolist()) <= set(range(size))
    assert drawn_rows(size, limit).tolist() == rows.tolist()
    assert drawn_rows(size, None).tolist() == list(range(size))
    tenths = np.bincount(drawn_rows(8544, 480) // 854, minlength=10)  # a file may be sorted
    assert (abs(tenths[:10] - 48) < 25).all()


# Texts of columns and fixed words: as `str.format` makes them, and by hand where a column is empty.


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


def test_texts_that_another_thread_counts_while_a_warning_is_written_are_in_the_next_one(monkeypatch, caplog):
    counts = TextCounts()
    counts.add_long(9, 1, 8, "head")
    with monkeypatch.context() as patch:
        patch.setattr("multitask.data.examples.logger.warning", lambda *_: counts.add_long(7, 2, 16, "head"))
        counts.warn("texts")
    counts.warn("texts")
    assert "2 of 7" in caplog.text


# Text for LaTeX is plain ASCII with every special sign escaped.


@given(st.text())
def test_latex_text_is_plain_ascii_with_every_special_escaped(text):
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
def test_latex_text(text, escaped):
    assert markup.latex(text) == escaped
