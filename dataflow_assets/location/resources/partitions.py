"""Partitions of a run in Dagster, as rows of the table: `partition_expr`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.table_partitions import Dimension, Partitions, Window

Context = dg.InputContext | dg.OutputContext
_Rows = Sequence[tuple[str, ...]]  # for each partition its key in each dimension


def written_partitions(context: dg.OutputContext, metadata: Mapping[str, Any]) -> Partitions | None:
    """The partitions whose rows an output replaces; None where the asset has no partitions.

    Raises PermanentError where nothing says which rows these are.
    """
    if context.asset_spec.partitions_def is None:
        return None
    if not context.has_asset_partitions:
        raise PermanentError(
            "the asset has partitions, and this run is of none of them, so that it would replace "
            "all of the table: materialize partitions, or add metadata `mode` append or upsert"
        )
    if metadata.get("partition_expr") is None:
        raise PermanentError(
            "the asset has partitions, and nothing says which rows of the table are those of a "
            'partition: add metadata `partition_expr`, the name of a column ({"partition_expr": '
            '"day"}), or `mode` append or upsert'
        )
    return _partitions(context, metadata["partition_expr"])


def read(context: dg.InputContext, metadata: Mapping[str, Any]) -> Partitions | None:
    """The partitions whose rows an input reads; None where it reads the whole table.

    Raises PermanentError where nothing says which rows these are.
    """
    if not context.has_asset_partitions:
        return None
    if metadata.get("partition_expr") is not None:
        return _partitions(context, metadata["partition_expr"])
    store = context.instance
    every = context.asset_partitions_def.get_partition_keys(dynamic_partitions_store=store)
    if set(every) == set(context.asset_partition_keys):
        return None
    raise PermanentError(
        "some partitions of it are asked for, and nothing says which rows of the table these are: "
        'add metadata `partition_expr` to that asset, the name of a column ({"partition_expr": '
        '"day"}), or read all of it (partition_mapping=dg.AllPartitionMapping())'
    )


def _partitions(context: Context, given: object) -> Partitions:
    definition, keys = context.asset_partitions_def, context.asset_partition_keys
    if isinstance(definition, dg.MultiPartitionsDefinition):
        names = [each.name for each in definition.partitions_defs]
        columns = _columns(given, names)
        keyed = [definition.get_partition_key_from_str(str(key)).keys_by_dimension for key in keys]
        rows = [tuple(key[name] for name in names) for key in keyed]
        definitions = [each.partitions_def for each in definition.partitions_defs]
    else:
        columns, rows, definitions = [_column(given)], [(key,) for key in keys], [definition]
    return Partitions(_products(list(zip(columns, definitions, strict=True)), rows))


def _column(given: object) -> str:
    if isinstance(given, str) and given:
        return given
    raise PermanentError(
        f"metadata partition_expr is {given!r}: the asset's partitions have one dimension, so it "
        "must be the name of a column"
    )


def _columns(given: object, names: Sequence[str]) -> list[str]:
    by_dim = given if isinstance(given, Mapping) else {}
    columns = [by_dim.get(name) for name in names]
    if not all(isinstance(column, str) and column for column in columns) or len(by_dim) > len(
        names
    ):
        listed = ", ".join(f'"{name}": "<column>"' for name in names)
        raise PermanentError(
            f"metadata partition_expr is {given!r}: the asset's partitions have the dimensions "
            f"{', '.join(names)}, so it must be a mapping {{{listed}}}"
        )
    return [str(column) for column in columns]


def _products(
    dimensions: Sequence[tuple[str, dg.PartitionsDefinition]], rows: _Rows
) -> tuple[tuple[Dimension, ...], ...]:
    """The partitions as few products: keys of a dimension that go with the same others are one."""
    (column, definition), *others = dimensions
    rests: dict[str, list[tuple[str, ...]]] = {}
    for first, *rest in rows:
        rests.setdefault(first, []).append(tuple(rest))
    groups: dict[frozenset[tuple[str, ...]], list[str]] = {}
    for key, found in rests.items():
        groups.setdefault(frozenset(found), []).append(key)
    return tuple(
        (_dimension(column, definition, keys), *product)
        for others_keys, keys in groups.items()
        for product in (_products(others, sorted(others_keys)) if others else [()])
    )


def _dimension(column: str, definition: dg.PartitionsDefinition, keys: Sequence[str]) -> Dimension:
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return Dimension(column, tuple(keys))
    windows = [definition.time_window_for_partition_key(key) for key in keys]
    return Dimension(column, tuple(keys), tuple(Window(each.start, each.end) for each in windows))
