"""What Arrow reads, parquet files and saved data sets of the hub, has the values and names that were written."""

import sys

import pandas
import pyarrow
import pyarrow.parquet
import pytest

from minbert.errors import InputError
from multitask.data.read_tables import open_table
from multitask.data.tables import Format, RowsFrom, table_of
from multitask.data.write_tables import table_writer
from multitask.tasks.declarations import load_tasks
from multitask.tasks.read_examples import load_test_rows
from tests.multitask.data.test_tables import rows_of


def test_fractions_of_32_bits_keep_their_digits_and_whole_numbers_their_value_in_files_and_frames(tmp_path):
    values = [0.1, None, 123456792.0]
    table = pyarrow.table({"n": pyarrow.array(values, pyarrow.float32()), "text": ["a", "b", None]})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    rows = [row for _, row in rows_of(tmp_path / "x.parquet")]
    assert [row["n"] for row in rows] == values
    types = {field.name: field.type for field in table.schema}
    with table_writer(tmp_path / "y.parquet", table.column_names, types) as write_rows:
        write_rows(rows)
    assert pyarrow.parquet.read_table(tmp_path / "y.parquet").equals(table)
    for dtype in ("float32", "Float32", "float[pyarrow]"):
        frame = pandas.DataFrame({"n": pandas.Series(values, dtype=dtype)})
        assert [row["n"] for _, row in table_of(frame).rows] == values


def test_a_parquet_file_in_several_row_groups(tmp_path):
    table = pyarrow.table({"text": [f"text {i}" for i in range(20_000)], "label": range(20_000)})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet", row_group_size=3000)
    found = open_table(RowsFrom(str(tmp_path / "x.parquet")))
    rows = list(found.rows)
    assert [number for number, _ in rows] == list(range(1, 20_001))
    assert [row for _, row in rows] == table.to_pylist()
    assert found.place(7) == f"{tmp_path / 'x.parquet'}: row 7"


def nested(text: str, rows: int) -> pyarrow.Table:
    return pyarrow.table({"text": ["a"] * rows, "labels": [[{"name": text}]] * rows})


@pytest.mark.parametrize("columns", [lambda text, rows: pyarrow.table({"text": [text] * rows}), nested])
def test_a_text_that_a_small_parquet_file_repeats_is_not_written_out(tmp_path, columns):
    pyarrow.parquet.write_table(columns("word " * 20_000, 1000), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"x\.parquet: 10\d,\d+,\d+ bytes of content"):
        rows_of(tmp_path / "x.parquet")


# Data sets of the hub, saved to disk.


@pytest.fixture
def saved(tmp_path):
    datasets = pytest.importorskip("datasets")
    kind = datasets.ClassLabel(names=["HUM", "LOC"])
    kinds = {"text": datasets.Value("string"), "type": kind, "all": datasets.List(kind), "in": {"type": kind}}
    kinds["score"] = datasets.Value("float32")
    splits = {
        name: datasets.Dataset.from_list(
            [
                {"text": f"{name} {i}", "type": n, "all": [n, 1], "in": {"type": n}, "score": 3.8}
                for i, n in enumerate(types)
            ],
            datasets.Features(kinds),
        )
        for name, types in {"train": [1, 0, 1], "validation": [-1, 0]}.items()
    }
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "all")
    splits["train"].save_to_disk(tmp_path / "one")
    return tmp_path


def test_a_saved_data_set_has_its_splits_and_names_of_classes(saved, monkeypatch):
    table = open_table(RowsFrom(f"hf:{saved / 'all'}", "train"), Format(missing=("n/a",)))
    assert table.format.field("n/a") is None
    assert table.columns == ("text", "type", "all", "in", "score")
    assert [tuple(row.values()) for _, row in table.rows] == [
        (f"train {i}", name, [name, "LOC"], {"type": name}, 3.8) for i, name in enumerate(("LOC", "HUM", "LOC"))
    ]
    unknown = [row["type"] for _, row in open_table(RowsFrom(f"hf:{saved / 'all'}", "validation")).rows]
    assert unknown == [None, "HUM"]  # -1 says that the label is not known
    assert len(list(open_table(RowsFrom(f"hf:{saved / 'one'}", "train")).rows)) == 3
    prints = [RowsFrom(f"hf:{saved / 'all'}", split).fingerprint() for split in ("train", "train", "validation")]
    assert prints[0] == prints[1] != prints[2]
    (saved / "no-data-set").mkdir()
    for source in (RowsFrom(f"hf:{saved / 'all'}", "dev"), RowsFrom(f"hf:{saved / 'no-data-set'}")):
        with pytest.raises(InputError, match=f"{source.file}.*: (expected a split of train, v|cannot be loaded)"):
            open_table(source)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match="needs the datasets library; install with: "):
        open_table(RowsFrom("hf:trec", "train"))
    assert table.place(2) == f"hf:{saved / 'all'} (train): row 2"


DECLARED = '[tasks.t]\nkind = "classification"\ntext = "text"\nlabel = "type"\n'


@pytest.mark.parametrize("file", ["all.csv", "hf:all"])
def test_one_file_for_all_splits_needs_no_test_rows(saved, file):
    pandas.DataFrame({"text": ["a"], "type": ["HUM"], "split": ["train"]}).to_csv(saved / "all.csv")
    (saved / "tasks.toml").write_text(f'{DECLARED}file = "{file}"\n')
    assert load_test_rows(load_tasks(saved / "tasks.toml")["t"]) is None


def test_a_data_set_without_splits_cannot_be_a_training_and_a_development_set(saved):
    (saved / "tasks.toml").write_text(f'{DECLARED}file = "hf:one"\n')
    with pytest.raises(InputError, match=r"tasks\.t: train names a split, but .*one is a single data set"):
        load_tasks(saved / "tasks.toml")
    (saved / "tasks.toml").write_text(
        f'{DECLARED}train = "hf:one"\ndev = {{ file = "hf:all", split = "validation" }}\n'
    )
    assert load_tasks(saved / "tasks.toml")["t"].source("train").file == f"hf:{saved / 'one'}"
