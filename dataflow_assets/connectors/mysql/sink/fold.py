"""Rows of one key folded into one, so that applying the fold equals applying the rows in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.mysql.options import MysqlSinkOptions
from dataflow_assets.contracts import utc_now
from dataflow_assets.sdk.key_folding import (
    Bools,
    Ints,
    carriers,
    deletes,
    distinct,
    last,
    matrix,
    number_keys,
    outliving,
)


@dataclass(frozen=True)
class MysqlStep:
    """Rows for one statement: distinct keys, all of which carry the same columns."""

    verb: Literal["upsert", "update", "delete"]
    rows: pa.RecordBatch


def fold(
    rows: pa.RecordBatch, schema: pa.Schema, key: Sequence[str], sink: MysqlSinkOptions
) -> Iterator[MysqlStep]:
    """The steps that store rows, in their order.

    A hard delete forgets what came before it. A soft one keeps the last image and marks it; an
    insert behind it brings the row back.
    """
    group, deleted = _group(rows, key), deletes(rows)
    mask, absent = matrix(rows, len(schema))
    soft, gone = sink.soft, last(group, deleted)
    if soft is None and (gone >= 0).any():
        yield MysqlStep("delete", rows.select(key).take(pa.array(gone[gone >= 0])))
    alive = outliving(group, deleted) if soft is None else ~deleted
    final = last(group, np.ones(len(group), np.bool_))
    living = last(group, alive) >= 0
    if soft is not None and not living.all():
        marked = rows.select(key).take(pa.array(final[~living]))
        yield MysqlStep(
            "update", marked.append_column(soft, _moments(schema.field(soft), len(marked)))
        )
    places = carriers(group, alive, mask, absent)[living]
    present, which = distinct(places >= 0)
    for number, columns in enumerate(present):
        mine = which == number
        wanted = {schema.names[i]: i for i in np.flatnonzero(columns).tolist()}
        found = {n: rows.column(n).take(pa.array(places[mine, i])) for n, i in wanted.items()}
        if soft is not None:
            latest = final[living][mine]
            silent = absent[mask[latest], schema.names.index(soft)]
            found[soft] = _mark(rows, schema.field(soft), latest, silent)
        yield MysqlStep("upsert", pa.RecordBatch.from_pydict(found))


def distinct_keys(rows: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    group = _group(rows, key)
    return rows.select(key).take(pa.array(last(group, np.ones(len(group), np.bool_))))


def _mark(rows: pa.RecordBatch, soft: pa.Field, final: Ints, silent: Bools) -> pa.Array:
    """Only the last row speaks about deletion: an earlier mark does not survive an insert."""
    given = rows.column(soft.name).take(pa.array(final, mask=silent))
    return pc.if_else(pa.array(deletes(rows)[final]), _moments(soft, len(final)), given)


def _moments(soft: pa.Field, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(utc_now(), pa.timestamp("us", "UTC")).cast(soft.type), rows)


def _group(rows: pa.RecordBatch, key: Sequence[str]) -> Ints:
    return number_keys(pa.Table.from_batches([rows.select(key)]))
