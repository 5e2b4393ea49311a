"""Labels that may be wrong are pointed out with what makes them right; declared ones are taken as they are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minbert.files import read_toml
from multitask.data.examples import Examples
from multitask.data.messages import spelled
from multitask.data.tables import RowsFrom
from multitask.tasks.declarations import task_of
from multitask.tasks.read_examples import read_examples
from multitask.tasks.task import Task


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
        ["caf\xe9", "cafe\u0301"],
        ["neg", "neg\u200b", "n\xadeg"],
        ["pos", "Pos", "POS", "\uff50\uff4f\uff53"],
        ["bad", '"bad"', "\u201cbad\u201d"],
        ["how to", "how-to", "how_to", "how\xa0to"],
        ["1", "true", "True", "TRUE", "1.0"],
        ["0", "False", "-0.0"],
        ["0101", "101"],
        ["1.1", "1.10"],
        ["1E1", "10"],
        ["1000", "1_000", "1,000", "1e3"],
        ["-1", "\u22121", "\u20131"],
        ["a & b", "a &amp; b"],
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
