"""Rows told apart by partition value and sorted, in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec, partition_record_value
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.typedef import Record

from dataflow_assets.connectors.iceberg.table.data_files import WriteTarget

Ints = npt.NDArray[np.int64]
Sorting = list[tuple[pa.Array, str]]


def partition_rows(rows: pa.Table, target: WriteTarget) -> Iterator[tuple[Record | None, pa.Table]]:
    """The rows of each partition value, in the table's order; equal ones as they came."""
    spec, schema = target.partition_spec, target.iceberg_schema
    columns = [_transform(rows, field, schema) for field in spec.fields]
    codes = _codes(columns, rows.num_rows)
    order = _order(codes, _sorting(rows, target.sort_order, schema))
    rows, codes = rows.take(pa.array(order)), codes[order]
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(codes)], strict=True):
        values = [column[int(order[start])].as_py() for column in columns]
        record = _record(values, spec, schema) if columns else None
        yield record, rows.slice(start, end - start)


def _transform(rows: pa.Table, field: PartitionField, schema: Schema) -> pa.Array:
    source = schema.find_field(field.source_id)
    if isinstance(field.transform, VoidTransform):
        return pa.nulls(rows.num_rows)
    values = _whole(rows.column(source.name))
    return field.transform.pyarrow_transform(source.field_type)(values)


def _codes(columns: list[pa.Array], count: int) -> Ints:
    """A number for each row, the same where all partition values are."""
    codes = np.zeros(count, np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        mine = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        mixed = pa.array(codes * max(len(encoded.dictionary), 1) + mine).dictionary_encode()
        codes = mixed.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _sorting(rows: pa.Table, order: SortOrder, schema: Schema) -> Sorting:
    sorting: Sorting = []
    for field in order.fields:
        source = schema.find_field(field.source_id)
        values = field.transform.pyarrow_transform(source.field_type)(
            _whole(rows.column(source.name))
        )
        if pa.types.is_fixed_size_binary(values.type):
            values = values.cast(pa.binary())
        first = field.null_order == NullOrder.NULLS_FIRST
        descends = field.direction == SortDirection.DESC
        sorting.append((values.is_null(), "descending" if first else "ascending"))
        sorting.append((values, "descending" if descends else "ascending"))
    return sorting


def _order(codes: Ints, sorting: Sorting) -> Ints:
    every: Sorting = [(pa.array(codes), "ascending"), *sorting]
    every.append((pa.array(np.arange(len(codes))), "ascending"))
    table = pa.table({str(index): values for index, (values, _) in enumerate(every)})
    keys = [(str(index), way) for index, (_, way) in enumerate(every)]
    order: Ints = pc.sort_indices(table, keys).to_numpy()
    return order


def _record(values: list[object], spec: PartitionSpec, schema: Schema) -> Record:
    """The values as a manifest holds them: days and microseconds as numbers, a uuid as bytes."""
    plain = [isinstance(field.transform, IdentityTransform) for field in spec.fields]
    return Record(
        *(
            partition_record_value(field, value, schema) if identity else value
            for field, value, identity in zip(spec.fields, values, plain, strict=True)
        )
    )


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
