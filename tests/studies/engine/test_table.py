"""Tables: keys come from points, and rows that a key or a reader could not tell apart are refused."""

import json
from dataclasses import asdict, replace

import pytest
from pydantic import TypeAdapter

from multitask.experiments.tables import Row, StudyTable, key_of
from studies.engine.presets import PRESETS
from studies.study import all_experiments

TABLE = StudyTable("1", "Title", "", (Row("a", "One"), Row("b", "Two")), reference="b")


@pytest.mark.parametrize(
    ("point", "key"),
    [
        ({"margin": 0.30}, "margin=0.3"),
        ({"margin": 2.0, "limit": None}, "margin=2,limit=none"),
        ({"loss": "vicreg", "components": ("weight", "ratio")}, "loss=vicreg,components=weight+ratio"),
        ({"components": ()}, "components=none"),
    ],
)
def test_a_key_is_made_from_a_point(point, key):
    assert Row.at(point, "any label").key == key_of(point) == key


def test_rows_differ_and_a_reference_is_the_key_of_one():
    for second in (Row("a", "Two"), Row("b", "One")):
        with pytest.raises(ValueError, match="two rows have the same key or label"):
            StudyTable("1", "", "", (Row("a", "One"), second))
    with pytest.raises(ValueError, match="no row has the key Two; there are a, b"):
        replace(TABLE, reference="Two")


def test_every_table_survives_json_and_has_short_ascii_keys():
    read = TypeAdapter(StudyTable)
    for name, recipes in PRESETS.items():
        for table in (experiment.table for experiment in all_experiments(recipes)):
            assert read.validate_json(json.dumps(asdict(table)), strict=True) == table, (name, table.key)
            assert all(row.key.isascii() and " " not in row.key and len(row.key) < 60 for row in table.rows)


def test_several_columns_have_means():
    assert TABLE.score_columns == ("overall", "sentiment", "paraphrase", "similarity")
    assert TABLE.tasks("overall") == TABLE.columns
    grouped = replace(TABLE, columns=("a", "b", "c"), groups={"first": ("a", "b"), "second": ("c",)})
    assert grouped.score_columns == ("first", "second", "a", "b", "c")
    assert [grouped.tasks(column) for column in ("first", "c")] == [("a", "b"), ("c",)]
    assert replace(TABLE, columns=("similarity",)).score_columns == ("similarity",)


@pytest.mark.parametrize(
    ("key", "title", "name"),
    [("3", "Table 3: Title", "table-3"), ("figure2", "Figure 2: Title", "figure2"), ("best", "Title", "best")],
)
def test_tables_of_the_report_have_their_numbers(key, title, name):
    table = replace(TABLE, key=key)
    assert (table.numbered_title, table.name) == (title, name)
