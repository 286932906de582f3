"""How rows reach the table: straight by COPY, or through a temporary table and ON CONFLICT."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from dataflow_assets.connectors.postgresql.client import Link
from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.connectors.postgresql.sink import fold_keys, key_order
from dataflow_assets.connectors.postgresql.sink.encode_copy import copy_rows
from dataflow_assets.connectors.postgresql.sink.key_order import Ints
from dataflow_assets.connectors.postgresql.sink.refused_rows import PostgresqlTrial
from dataflow_assets.connectors.postgresql.sink.upsert_rules import (
    GROUP,
    FoldedRows,
    PostgresqlRules,
)
from dataflow_assets.connectors.postgresql.sink.upsert_staging import UpsertStaging
from dataflow_assets.connectors.postgresql.table import table
from dataflow_assets.contracts import (
    ABSENT,
    DELETE,
    OP,
    N,
    Note,
    Rejection,
    Sent,
    Slice,
)
from dataflow_assets.sdk.key_folding import Bools, matrix
from dataflow_assets.sdk.server_failure import ServerFailure
from dataflow_assets.sdk.sink.slice_commit import rejections

Messages = Mapping[int, Sent]


class Loader(ABC):
    """Loads the rows of one slice; `refused` counts what came back as rejections."""

    def __init__(self, sink: PostgresqlSinkOptions, link: Link, schema: pa.Schema) -> None:
        self._sink = sink
        self._link = link
        self._schema = schema
        self._trial = PostgresqlTrial(link)
        self._sent: list[Messages] = []
        self._found: list[Rejection] = []

    def check(self, source: str, piece: Slice) -> None:
        """Raises NoneStored where the table, and no row, is at fault for what was refused."""
        self._trial.suspects.check(source, piece)

    @abstractmethod
    def add(self, rows: pa.RecordBatch, sent: Messages) -> None: ...

    def flush(self) -> list[Rejection]:
        """Ends the load; everything that was refused."""
        return self._found

    def _reject(self, rows: pa.RecordBatch, reason: str, error_type: str = "") -> None:
        """Sets whole rows aside, with the messages they came from."""
        reasons = dict.fromkeys(range(rows.num_rows), reason)
        found = rejections(rows, reasons, *reversed(self._sent))
        self._found += [replace(one, error_type=error_type) for one in found]

    def _refuse(self, row: pa.RecordBatch, failure: ServerFailure) -> None:
        """Sets one row aside that the table has refused."""
        self._reject(row, failure.reason, failure.error_type)
        self._trial.suspects.doubt(self._found[-1], failure)

    def _reject_where(self, rows: pa.RecordBatch, wrong: pa.Array, reason: str) -> pa.RecordBatch:
        if not pc.any(wrong).as_py():
            return rows
        self._reject(rows.filter(wrong), reason)
        return rows.filter(pc.invert(wrong))


ENOUGH_ROWS = 50_000  # of one COPY: each has a savepoint, and costs half a dozen round trips
ENOUGH_BYTES = 16 * 1024 * 1024
FOLDED_BYTES = 64 * 1024 * 1024  # of rows that are folded at once: what an upsert keeps in memory


class AppendLoader(Loader):
    """COPY, some batches at a time."""

    def __init__(self, sink: PostgresqlSinkOptions, link: Link, schema: pa.Schema) -> None:
        super().__init__(sink, link, schema)
        self._place = sink.place()
        self._optional = np.array([Note.HAS_DEFAULT.marks(f) for f in schema], np.bool_)
        self._rows: list[pa.RecordBatch] = []
        self._names: Sequence[str] = schema.names

    @override
    def add(self, rows: pa.RecordBatch, sent: Messages) -> None:
        self._sent.append(sent)
        self._rows.append(self._appendable(rows))
        waiting = sum(batch.num_rows for batch in self._rows)
        if waiting >= ENOUGH_ROWS or sum(batch.nbytes for batch in self._rows) >= ENOUGH_BYTES:
            self._apply()

    @override
    def flush(self) -> list[Rejection]:
        self._apply()
        return self._found

    def _apply(self) -> None:
        if self._rows:
            for row, failure in self._trial.run(_join(self._rows), self._copy):
                self._refuse(row, failure)
        self._rows, self._sent = [], []

    def _copy(self, rows: pa.RecordBatch) -> None:
        for names, part in _by_columns(rows, self._schema, self._optional):
            self._names = names
            self._copy_part(part)
        if not rows.num_rows:  # the statement that has failed just now
            self._copy_part(rows)

    def _copy_part(self, rows: pa.RecordBatch) -> None:
        fields = [self._schema.field(name) for name in self._names]
        copy_rows(self._link, self._place, fields, rows)

    def _appendable(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if OP not in rows.schema.names:
            return rows
        wrong = pc.equal(rows.column(OP), DELETE).fill_null(False)
        reason = "a delete needs upsertMode: true with softDeleteColumn or deleteMode: hard"
        return self._reject_where(rows, wrong, reason)


class UpsertLoader(Loader):
    """Rows are folded to one per key, then go through a temporary table, in key order.

    A large slice is folded in several pieces, one after another in the same transaction: each finds
    what those before it have left in the table. So does what the table refuses, in ever smaller
    pieces: a row is refused only where it would be if all rows came one by one.
    """

    def __init__(self, sink: PostgresqlSinkOptions, link: Link, schema: pa.Schema) -> None:
        super().__init__(sink, link, schema)
        self._key = table.key_of(schema)
        self._rules = PostgresqlRules.of(sink, schema)
        self._staging = UpsertStaging(sink, link, schema)
        self._rows: list[pa.RecordBatch] = []
        self._step: FoldedRows | None = None

    @override
    def add(self, rows: pa.RecordBatch, sent: Messages) -> None:
        self._sent.append(sent)
        kept = self._usable(rows)
        if kept.num_rows:
            self._rows.append(kept)
        if sum(batch.nbytes for batch in self._rows) >= FOLDED_BYTES:
            self.flush()

    @override
    def flush(self) -> list[Rejection]:
        if self._rows:
            rows, self._rows = _join(self._rows), []
            self._apply(rows)
            self._staging.end()
        self._sent = []
        return self._found

    def _apply(self, rows: pa.RecordBatch) -> None:
        rows, groups = self._group(rows)
        if not rows.num_rows:
            return
        numbered = rows.append_column(GROUP, pa.array(groups))
        for row, failure in self._trial.run(numbered, self._fold, in_order=True):
            self._refuse(row, failure)

    def _fold(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows and self._step is not None:  # the statement that has failed just now
            self._run(self._step.rows.slice(0, 0), self._step)
        groups = key_order.dense(rows.column(GROUP).to_numpy())
        for step in fold_keys.steps(rows, groups, self._rules):
            self._step = step
            self._run(step.rows, step)

    def _run(self, rows: pa.RecordBatch, step: FoldedRows) -> None:
        self._staging.loads(step)(rows)

    def _group(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Ints]:
        """The rows with the numbers of their keys, without those whose key is refused."""
        known = key_order.numbers(rows, self._key, self._schema)
        if known is not None:
            return rows, known
        codes = key_order.spellings(rows, self._key)
        refused, first = self._staging.equal(rows, codes, PostgresqlTrial(self._link))
        wrong = np.isin(codes, list(refused))
        for index in np.flatnonzero(wrong).tolist():
            failure = refused[int(codes[index])]
            self._refuse(rows.slice(index, 1), failure)
        return rows.filter(pa.array(~wrong)), key_order.dense(first[codes[~wrong]])

    def _usable(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        codes, absent = matrix(rows, len(self._schema))
        for name in self._key:
            missing = absent[:, self._schema.names.index(name)][codes]
            wrong = pc.or_(rows.column(name).is_null(), pa.array(missing))
            rows = self._reject_where(rows, wrong, f"key column {name} is null or absent")
            codes, absent = matrix(rows, len(self._schema))
        if OP not in rows.schema.names or self._rules.deletes:
            return rows
        wrong = pc.equal(rows.column(OP), DELETE).fill_null(False)
        reason = "a delete needs softDeleteColumn, or deleteMode: hard"
        return self._reject_where(rows, wrong, reason)


def loader(sink: PostgresqlSinkOptions, link: Link, schema: pa.Schema) -> Loader:
    """The way in for a sink's rows; constraints are checked row by row, not at the commit."""
    if schema.metadata[table.DEFERRED] == b"1":
        link.execute("SET CONSTRAINTS ALL IMMEDIATE")
    return (
        UpsertLoader(sink, link, schema)
        if table.key_of(schema)
        else AppendLoader(sink, link, schema)
    )


def _join(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(_alike(batches))


def _alike(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The batches with the same system columns: one may have deletes and another none."""
    kinds = {N: pa.int32(), OP: pa.int8(), ABSENT: pa.binary()}
    wanted = [n for n in kinds if any(n in batch.schema.names for batch in batches)]
    names = [n for n in batches[0].schema.names if n not in kinds] + wanted
    return [_with(batch, {n: kinds[n] for n in wanted}).select(names) for batch in batches]


def _with(batch: pa.RecordBatch, kinds: Mapping[str, pa.DataType]) -> pa.RecordBatch:
    for name, kind in kinds.items():
        if name not in batch.schema.names:
            batch = batch.append_column(name, pa.nulls(batch.num_rows, kind))
    return batch


def _by_columns(
    rows: pa.RecordBatch, schema: pa.Schema, optional: Bools
) -> Iterator[tuple[list[str], pa.RecordBatch]]:
    """The rows by the columns to name in a statement: absent ones of `optional` are left out."""
    codes, table = matrix(rows, len(schema))
    left_out, which = np.unique(table & optional, axis=0, return_inverse=True)
    if len(left_out) == 1:
        yield _column_names(schema, left_out[0]), rows
        return
    group = which.reshape(-1)[codes]
    for number, mask in enumerate(left_out):
        part = rows.filter(pa.array(group == number))
        if part.num_rows:
            yield _column_names(schema, mask), part


def _column_names(schema: pa.Schema, left_out: Bools) -> list[str]:
    return [name for name, out in zip(schema.names, left_out, strict=True) if not out]
