"""Tables in parquet files."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow.compute
import pyarrow.parquet

from minbert.errors import InputError
from minbert.files import refuse_expansion
from multitask.data.messages import checked, damaged, reason
from multitask.data.tables import ROWS_PER_BATCH, UNSUSPECTED, FileRow, OpenTable


def read_parquet(path: Path) -> OpenTable:
    """Text is read as indices into its different values: a few values repeated often are a small file."""

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
                yield batch.to_pylist()

    with damage():
        metadata = checked(path, pyarrow.parquet.read_metadata)
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        refuse_expansion(path, sum(group.total_byte_size for group in groups))
        chunks = (group.column(index) for group in groups for index in range(group.num_columns))
        values = sum(chunk.num_values for chunk in chunks)  # lists of nothing have elements, but no bytes
        refuse_expansion(path, values, unsuspected=UNSUSPECTED, unit="values")
        rows_per_batch = min(ROWS_PER_BATCH, max(1, UNSUSPECTED * metadata.num_rows // max(1, values)))
        texts = [
            column.path
            for column in metadata.schema
            if column.physical_type == "BYTE_ARRAY" and column.logical_type.type != "DECIMAL"
        ]
        schema = pyarrow.parquet.read_schema(path)
        file = pyarrow.parquet.ParquetFile(path, read_dictionary=texts)
    rows = enumerate(chain.from_iterable(batches()), start=1)
    return OpenTable(str(path), tuple(schema.names), rows, by_line=False, schema=schema, examples=[fields_of(schema)])


def fields_of(schema: Any) -> FileRow:
    """The names of columns, and in structs those of their fields, as a row of objects."""
    return {field.name: fields_of(field.type) if pyarrow.types.is_struct(field.type) else "" for field in schema}


def _bytes_of(column: Any) -> int:
    """Bytes of an Arrow array when each of its texts is written out."""
    if pyarrow.types.is_dictionary(column.type):
        lengths = pyarrow.compute.binary_length(column.dictionary).take(column.indices)
        return int(pyarrow.compute.sum(lengths).as_py() or 0)
    if pyarrow.types.is_list(column.type):
        return _bytes_of(column.flatten())
    if pyarrow.types.is_struct(column.type):
        return sum(map(_bytes_of, column.flatten()))
    return int(column.nbytes)


@contextmanager
def parquet_writer(
    path: Path, columns: Sequence[str], types: Mapping[str, Any]
) -> Iterator[Callable[[Sequence[FileRow]], None]]:
    """Writes rows, as `table_writer` says; Arrow types of some columns."""
    writer: Any = None

    def write(rows: Sequence[FileRow]) -> None:
        nonlocal writer
        try:
            if writer is None:
                arrays = {name: pyarrow.array([row.get(name) for row in rows]) for name in columns}
                schema = pyarrow.schema([(name, types.get(name, array.type)) for name, array in arrays.items()])
                writer = pyarrow.parquet.ParquetWriter(path, schema)
            writer.write_table(pyarrow.Table.from_pylist(list(rows), writer.schema))
        except (pyarrow.ArrowException, OverflowError) as error:
            raise InputError(
                f"a column's values have no common type in parquet ({reason(error)}); write jsonl"
            ) from None

    yield write
    if writer is None:
        write([])  # only the columns
    writer.close()
