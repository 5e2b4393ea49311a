"""Rows of what Arrow reads: parquet files, and data sets of the hub. `read_tables` opens them among others."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from minbert.files import refuse_expansion
from multitask.data.messages import damaged, read_or_refuse
from multitask.data.tables import ROWS_PER_BATCH, UNSUSPECTED_BYTES, FileRow, OpenTable, RowsFrom

HUB_ROWS_PER_BATCH = 256
"""Few, as rows of a hub data set may be large."""


def read_parquet(path: Path, *_: object) -> OpenTable:
    """Text is read as indices into its different values: a few values repeated often are a small file."""
    import pyarrow.parquet  # takes 0.1 s

    @contextmanager
    def damage() -> Iterator[None]:
        try:
            yield
        except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:  # Arrow raises many kinds
            raise damaged(path, error) from None

    def batches() -> Iterator[list[FileRow]]:
        size = 0
        with damage():
            for batch in file.iter_batches(rows_per_batch):
                size += sum(map(_bytes_of, batch.columns))
                refuse_expansion(path, size)
                yield _rows_of_arrow(pyarrow.Table.from_batches([batch]))

    with damage():
        metadata = read_or_refuse(path, pyarrow.parquet.read_metadata)
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        refuse_expansion(path, sum(group.total_byte_size for group in groups))
        chunks = (group.column(index) for group in groups for index in range(group.num_columns))
        values = sum(chunk.num_values for chunk in chunks)  # lists of nothing have elements, but no bytes
        refuse_expansion(path, values, unsuspected=UNSUSPECTED_BYTES, unit="values")
        rows_per_batch = min(ROWS_PER_BATCH, max(1, UNSUSPECTED_BYTES * metadata.num_rows // max(1, values)))
        texts = [
            column.path
            for column in metadata.schema
            if column.physical_type == "BYTE_ARRAY" and column.logical_type.type != "DECIMAL"
        ]
        schema = pyarrow.parquet.read_schema(path)
        file = pyarrow.parquet.ParquetFile(path, read_dictionary=texts)
    rows = enumerate(chain.from_iterable(batches()), start=1)
    return OpenTable(str(path), tuple(schema.names), rows, by_line=False, schema=schema, examples=[_fields_of(schema)])


def _fields_of(schema: Any) -> FileRow:
    """The names of columns, and in structs those of their fields, as a row of objects."""
    import pyarrow

    return {field.name: _fields_of(field.type) if pyarrow.types.is_struct(field.type) else "" for field in schema}


def _rows_of_arrow(table: Any) -> list[FileRow]:
    """The rows of an Arrow table. Fractions of 32 bits keep their digits: 0.1 would be 0.10000000149011612."""
    import pyarrow.compute

    for place, field in enumerate(table.schema):
        if pyarrow.types.is_float32(field.type):
            exact = table.column(place).cast(pyarrow.float64())
            short = table.column(place).cast(pyarrow.string()).cast(pyarrow.float64())
            whole = pyarrow.compute.equal(pyarrow.compute.floor(exact), exact)
            table = table.set_column(place, field.name, pyarrow.compute.if_else(whole, exact, short))
    rows: list[FileRow] = table.to_pylist()
    return rows


def _bytes_of(column: Any) -> int:
    """Bytes of an Arrow array when each of its texts is written out."""
    import pyarrow.compute

    if pyarrow.types.is_dictionary(column.type):
        lengths = pyarrow.compute.binary_length(column.dictionary).take(column.indices)
        return int(pyarrow.compute.sum(lengths).as_py() or 0)
    if pyarrow.types.is_list(column.type):
        return _bytes_of(column.flatten())
    if pyarrow.types.is_struct(column.type):
        return sum(map(_bytes_of, column.flatten()))
    return int(column.nbytes)


def read_data_set(source: RowsFrom) -> OpenTable:
    """Class numbers become the names that the data set declares."""
    data = source.data_set()
    read = chain.from_iterable(map(_rows_of_arrow, data.with_format("arrow").iter(HUB_ROWS_PER_BATCH)))
    rows = enumerate((_with_class_names(dict(data.features), row) for row in read), start=1)
    examples = [_fields_of(data.features.arrow_schema)]
    return OpenTable(str(source), tuple(data.column_names), rows, by_line=False, examples=examples)


def _with_class_names(feature: Any, value: Any) -> Any:
    """A value of a data set's feature, also in lists and objects, with names of classes in place of numbers."""
    if isinstance(feature, dict) and isinstance(value, dict):
        return {name: _with_class_names(feature[name], part) for name, part in value.items()}
    if hasattr(feature, "names"):
        return None if value is None or value < 0 else feature.names[value]
    if isinstance(value, list) and hasattr(feature, "feature"):
        return [_with_class_names(feature.feature, part) for part in value]
    return value
