"""Labels as files write them: a name for each way of writing; hints point out those that may be wrong."""

import math
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minbert.files import read_toml
from multitask.data.examples import Examples
from multitask.data.messages import spelled
from multitask.data.tables import RowsFrom
from multitask.data.texts import visible_text
from multitask.data.write_tables import several_labels
from multitask.tasks.declarations import load_tasks, task_of
from multitask.tasks.labels import class_order, flag, label_name, number, parts
from multitask.tasks.read_examples import load_rows, read_examples
from multitask.tasks.task import Task


@given(st.text())
def test_a_name_is_the_text_as_it_is_written(text):
    assert label_name(f" {text}\t") == (visible_text(text) or None)
    assert visible_text(text) in ("", text.strip())


def test_a_number_that_is_not_text_has_no_point_if_it_is_whole():
    values = (1, 1.0, -0.0, 2.5, 1e16, 10**20, True)
    assert [*map(label_name, values)] == ["1", "1", "0", "2.5", "1" + 16 * "0", "1" + 20 * "0", "True"]
    for value in ([1], {"a": 1}, b"a"):
        with pytest.raises(ValueError, match="expected a name or a number"):
            label_name(value)


def test_blank_values():
    assert [read(value) for value in (None, "", "  ") for read in (label_name, number, flag)] == [None] * 9
    assert parts([math.nan, "a"], "|") == ["a"]
    assert [read(value) for value in ("\u200b", " \ufeff\u2060 ") for read in (label_name, flag)] == [None] * 4


def test_nobody_sees_a_format_character_but_for_those_that_have_a_shape():
    """Of Unicode's format characters, signs of Arabic, Syriac and Kaithi numbers and of hieroglyphs are seen."""
    formats = [chr(i) for i in range(0x110000) if unicodedata.category(chr(i)) == "Cf"]
    seen = [c for c in formats if visible_text(c)]
    names = ("ARABIC", "SYRIAC", "KAITHI", "EGYPTIAN", "SHORTHAND")
    assert [c for c in seen if not unicodedata.name(c).startswith(names)] == []
    assert all(map(visible_text, ("a", "\u200ba", "\u0301", "\U0001f600", "\ue000", "-")))
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
    "value", ["nan", "inf", "1_0", "٣", "4,5", "high", "-3e38", 10**400, math.inf, True, [1], "0x1"]
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
        with pytest.raises(ValueError, match=r"^expected names with \| between them, or a JSON list, which \[ begins$"):
            parts(value, "|")


@pytest.mark.parametrize("names", [["[BUG]"], ["[1]"], ["[a", "b]"], ["a", "[1]"], ["a|b"], ["a", "b"], ["a]"]])
def test_several_labels_are_read_as_they_were_written(names):
    assert parts(several_labels(names), "|") == names


@given(st.lists(st.sampled_from(["10", "9", "-1", "1e999", "2e999", "0.5"])) | st.lists(st.text()), st.randoms())
def test_the_order_of_classes_does_not_depend_on_the_rows(names, random):
    order = class_order(names)
    assert sorted(order) == sorted(set(names))
    random.shuffle(names)
    assert class_order(names) == order
    assert class_order(["10", "9", "-1", "2.5"]) == ("-1", "2.5", "9", "10")  # by value
    assert class_order(["10", "9", "b", "a"]) == ("10", "9", "a", "b")  # by the alphabet


# Labels that may be wrong are pointed out with what makes them right; declared ones are taken as they are.


def read(folder: Path, written: list[str], kind: str = "classification", **fields: Any) -> tuple[Task, Examples]:
    """A task and its rows, which have these labels."""
    path = folder / "x.tsv"
    path.write_text("q\tc\n" + "".join(f"w {i}\t{label}\n" for i, label in enumerate(written)), encoding="utf-8")
    task = task_of("x", {"kind": kind, "text": "q", "label": "c", "quotes": False, **fields})
    return task, read_examples(task, RowsFrom(str(path)), labelled=True)


def hints(folder: Path, written: list[str], kind: str = "classification", **fields: Any) -> list[str]:
    task, examples = read(folder, written, kind, **fields)
    found = task.hints(examples)
    assert all(hint.startswith(f"{folder / 'x.tsv'}: ") for hint in found)
    return [hint.removeprefix(f"{folder / 'x.tsv'}: ") for hint in found]


@pytest.mark.parametrize(
    "alike",
    [
        *(["caf\xe9", "cafe\u0301"], ["neg", "neg\u200b", "n\xadeg"], ["pos", "Pos", "POS", "\uff50\uff4f\uff53"]),
        *(["bad", '"bad"', "\u201cbad\u201d"], ["how to", "how-to", "how_to", "how\xa0to"]),
        *(["1", "true", "True", "TRUE", "1.0"], ["0", "False", "-0.0"], ["0101", "101"], ["1.1", "1.10"]),
        *(["1E1", "10"], ["1000", "1_000", "1,000", "1e3"], ["-1", "\u22121", "\u20131"], ["a & b", "a &amp; b"]),
        ["stra\xdfe", "STRASSE"],
    ],
)
@pytest.mark.parametrize("kind", ["classification", "multilabel"])
def test_labels_that_are_alike_are_pointed_out_with_what_makes_them_one(tmp_path, alike, kind):
    labels = [*alike, alike[0], "other", "another thing"] * 2
    [hint] = hints(tmp_path, labels, kind)
    assert hint.startswith(f"{spelled(alike[0])} (4 rows), ")
    assert all(f"{spelled(name)} (2 rows)" in hint for name in alike[1:])
    assert hint.endswith(" to tasks.x; if not, declare labels")
    (tmp_path / "advice.toml").write_text(hint.partition("add ")[2].partition(" to tasks.x")[0], encoding="utf-8")
    task, examples = read(tmp_path, labels, kind, **read_toml(tmp_path / "advice.toml"))
    assert (set(examples.classes), task.hints(examples)) == ({alike[0], "other", "another thing"}, [])
    assert hints(tmp_path, labels, kind, labels=[*dict.fromkeys(labels)]) == []


@pytest.mark.parametrize("labels", [["C", "C++", "C#"], ["A", "A+", "A-"], ["1", "-1", "11", "1-1"], ["+", "-1", "*"]])
def test_labels_that_only_resemble_one_another_are_not(tmp_path, labels):
    assert hints(tmp_path, labels * 3) == []


SEVERAL = (
    '"{}" (2 rows): perhaps several labels; if so, set {}label_separator = "{}" in tasks.x; if not, declare labels'
)


@pytest.mark.parametrize(
    ("kind", "labels", "hint"),
    [
        (
            *("classification", ["#N/A", "None", "a", "b"]),
            '"#N/A" (2 rows), "None" (2 rows): perhaps there is no label; if so, set missing = ["#N/A", "None"] in '
            "tasks.x; if not, declare labels",
        ),
        (
            *("classification", ['"a"', "'b'"]),
            '"\\"a\\"" (2 rows), "\'b\'" (2 rows): perhaps the quotes are not part of the label; if so, remove them, '
            "or a space before them; if not, declare labels",
        ),
        ("multilabel", ["a, b", "b", "c|b"], SEVERAL.format("a, b", "", ",")),
        ("multilabel", ["a; b", "c; b", "d"], SEVERAL.format('a; b" (2 rows), "c; b', "", ";")),
        ("classification", ["a/b", "b", "a", "a/c"], SEVERAL.format("a/b", 'kind = "multilabel" and ', "/")),
        ("multilabel", ["a, b", "c", "d|e"], None),
        ("classification", ["a, b", "b", "c"], None),
    ],
)
def test_missing_values_quotes_and_several_labels_are_pointed_out(tmp_path, kind, labels, hint):
    assert hints(tmp_path, labels * 2, kind) == ([] if hint is None else [hint])


def test_declared_missing_values_stay_in_the_advice(tmp_path):
    [hint] = hints(tmp_path, ["N/A", "-", "a", "b"] * 2, missing=["n/a", "-"])
    assert 'if so, set missing = ["n/a", "-", "N/A"] in tasks.x' in hint


def test_the_advice_on_missing_values_names_the_table_of_a_file(tmp_path):
    (tmp_path / "x.csv").write_text("q,c\n" + "".join(f"w {i},{'ab-'[i % 3]}\n" for i in range(9)))
    declared = '[tasks.x]\nkind = "classification"\ntext = "q"\nlabel = "c"\ntrain = "x.csv"\nmissing = ["?"]\n'
    for table, expected in (('missing = ["n/a"]', '["n/a", "-"]'), ('separator = ","', '["?", "-"]')):
        (tmp_path / "tasks.toml").write_text(f'{declared}[files."x.csv"]\n{table}\n')
        task = load_tasks(tmp_path / "tasks.toml")["x"]
        [hint] = task.hints(load_rows(task, "train"))
        assert f"if so, set missing = {expected} in the table of its file; if not" in hint


def test_rare_labels_that_are_similar_to_frequent_ones_are_pointed_out(tmp_path):
    labels = ["review"] * 40 + ["reviw", "bug"] + ["invoice"] * 9 + ["invoices"] * 9
    assert hints(tmp_path, labels) == [
        '"reviw" (1 row), "review" (40 rows): perhaps the first is misspelt; if so, correct the file, or add '
        'aliases = { "reviw" = "review" } to tasks.x; if not, declare labels'
    ]
    assert hints(tmp_path, ["n/a", *(f"label {i}" for i in range(1500))]) == []  # too many to compare


@pytest.mark.parametrize(
    ("bounds", "labels", "told"),
    [
        *(
            ((0, 5), (0, 0.3, 1), True),
            ((0, 5), (0, 0.3, 1.5), False),
            ((0, 100), (0, 20), True),
            ((0, 3), (0, 1), True),
        ),
        *(((0, 1), (0, 0.1), False), ((1, 5), (1, 2), True), ((1, 5), (1, 2.5), False), (None, (0, 1), False)),
    ],
)
def test_scores_on_a_small_part_of_the_declared_range_are_pointed_out(bounds, labels, told):
    task = task_of("x", {"kind": "regression", "text": "q", "label": "c", "range": bounds})
    rows = Examples(([str(label) for label in labels],), np.array(labels, np.float32), (), None, "x.csv")
    expected = f"x.csv: x: the labels are from {labels[0]} to {labels[-1]}, but their range from "
    found = task.hints(rows)
    assert [hint[: len(expected)] for hint in found] == [expected] * told
