"""`IcebergSession`: the driver's end. One epoch, one checkpoint, one commit per micro-batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.table import Table

from dataflow_assets.connectors.iceberg.catalog import connect, errors
from dataflow_assets.connectors.iceberg.options import IcebergSinkOptions
from dataflow_assets.connectors.iceberg.rejected.table import RejectedTable
from dataflow_assets.connectors.iceberg.sink.checkpoint_property import CheckpointProperty
from dataflow_assets.connectors.iceberg.sink.publish import Publisher, complete, done
from dataflow_assets.connectors.iceberg.sink.writer import WriteTicket
from dataflow_assets.connectors.iceberg.table import create_table
from dataflow_assets.connectors.iceberg.table.checkpoint import (
    others,
    parse,
    property_key,
    recorded,
)
from dataflow_assets.connectors.iceberg.table.commit import Change
from dataflow_assets.connectors.iceberg.table.data_files import place
from dataflow_assets.connectors.iceberg.table.snapshot import total_records
from dataflow_assets.connectors.iceberg.types import row_schema
from dataflow_assets.contracts import (
    KEY,
    Checkpoint,
    Cut,
    OffsetSlice,
    PartSlice,
    Positions,
    Receipt,
    Run,
    SinkSession,
    Slice,
    SourceSession,
    Span,
    Target,
    Ticket,
    divided,
    next_reading,
    refuse_shared,
)
from dataflow_assets.errors import PermanentError
from dataflow_assets.failpoints import from_environment, reach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class IcebergSession(SinkSession):
    """Holds one epoch of one branch."""

    def __init__(self, sink: IcebergSinkOptions, target: Target, run: Run) -> None:
        self._sink, self._target, self._run = sink, target, run
        self._property = CheckpointProperty(sink, target, run)
        self._rejected = RejectedTable(self._property.catalog, sink, target)
        self._publisher = Publisher(sink, target, self._property, self._rejected)

    @property
    def checkpoint(self) -> Checkpoint:
        """As the last commit of this session has stored it."""
        return self._property.stored.checkpoint()

    @property
    def identity(self) -> str | None:
        """The table's uuid."""
        return self._property.identity

    def schema(self) -> pa.Schema | None:
        """The columns that records can fill, JSON text marked, and the key of upserts."""
        if self._property.committer is None:
            return None
        columns = row_schema(self._property.table.schema())
        key = json.dumps(self._sink.key).encode()
        return columns.with_metadata({KEY: key}) if self._sink.key else columns

    def row_count(self) -> int | None:
        """What the snapshot counts, where others left no deletes in files of their own."""
        return total_records(self._property.table) if self._property.committer else None

    def create(self, sample: pa.Schema) -> None:
        """Makes the table with the checkpoint in it; the manifest's `columns` win over a sample."""
        if self._property.committer is not None:
            return
        self._property.check_aside()
        properties = {self._property.key: self._property.stored.text()}
        with errors(self._sink, "create"):
            table = create_table.create(self._property.catalog, self._sink, sample, properties)
            create_table.check(table, self._sink.key)
        self._property.adopt(table)

    def holds_rows(self) -> bool:
        """True as well where rows may all be deleted by files of others."""
        return self._property.committer is not None and total_records(self._property.table) != 0

    def adopt(self) -> None:
        """The checkpoint came with the table's properties: it names another table until now."""
        self._property.commit(
            lambda found: replace(found, target=self.identity),
            replace(self._property.change(), move_head=False),
        )

    def restart(self, positions: Positions, source: str, *, empty: bool = False) -> None:
        """Moves the head too: rows depend on these positions."""
        self._property.commit(
            lambda found: replace(
                found,
                positions=dict(positions),
                source=source,
                target=self.identity,
                manifest=self._target.manifest,
                intent=(),
                reading=next_reading(found.reading),
            ),
            self._emptying() if empty else self._property.change(),
        )

    def _emptying(self) -> Change:
        """Takes every row out, on a head of which it is known that no other flow has rows in it."""

        def guard(table: Table) -> None:
            refuse_shared(self._target, self._sink.address(), others(table, self._target))

        return replace(self._property.change(), empties=True, guard=guard)

    def begin(self, span: Span) -> Span:
        """Looks at the table; a commit only where there is something new to record."""
        self._property.look()
        stored = self._property.stored
        if stored.intent:
            return Span(stored.intent)
        self._check_planned(span)
        known = dict(stored.positions)
        new = {p: at for p, at in span.after.items() if p not in known}
        intent = recorded(span)
        if new or intent:
            positions = new | known
            self._property.commit(
                lambda found: replace(
                    found,
                    positions=positions,
                    intent=intent,
                    target=self.identity,
                    manifest=self._target.manifest,
                ),
                replace(self._property.change(), move_head=False),
            )
        reach("iceberg.begin")
        return span

    def divide(self, span: Span, cut: Cut) -> Span:
        """What a task has staged of the old parts, nobody publishes: files are of a part's name."""
        parts = divided((s for s in span.slices if isinstance(s, PartSlice)), cut)
        if not self._property.stored.intent or parts == span.slices:
            return span
        change = replace(self._property.change(), move_head=False)
        self._property.commit(lambda found: replace(found, intent=parts), change)
        return Span(parts)

    def _check_planned(self, span: Span) -> None:
        for piece in span.slices:
            known = self._property.stored.positions.get(piece.partition)
            if known is not None and not _follows(piece, known):
                raise PermanentError(
                    f"the checkpoint of partition {piece.partition} is at {known}, the span "
                    f"begins at {piece.after}: somebody moved it; use `dataflow reset`"
                )

    def ticket(self) -> Ticket:
        """Carries all that tasks need, so that they ask the catalog for nothing."""
        table = self._property.table
        with errors(self._sink, "look for rejected records of"):
            rejected = self._rejected.stored(self._property.stored)
        schema = self.schema()
        assert schema is not None  # noqa: S101 - there is a table
        return WriteTicket(
            replace(self._target, reading=self._property.stored.reading),
            self._run,
            self._property.stored.epoch,
            schema,
            from_environment(),
            place=place(table),
            positions=dict(self._property.stored.positions),
            rejected=rejected,
        )

    def stage(
        self, span: Span, receipts: Sequence[Receipt], spark: Callable[[], SparkSession]
    ) -> None:
        """Merges the rows of upserts into new files, which no reader sees."""
        slices = self._open_slices(span)
        if slices and self._sink.upserts:
            self._publisher.stage(complete(slices, receipts, self._target.branch), spark)

    def finish(self, span: Span, receipts: Sequence[Receipt], source: SourceSession) -> Checkpoint:
        """One commit: the files of all slices and the checkpoint; without files only the latter."""
        slices = self._open_slices(span)
        if slices:
            self._check_planned(span)
            own = complete(slices, receipts, self._target.branch)
            self._publisher.publish(slices, own, source)
        return self.checkpoint

    def _open_slices(self, span: Span) -> list[Slice]:
        """What the checkpoint does not cover yet."""
        stored = self._property.stored
        if recorded(span) and not stored.intent:
            return []
        return [piece for piece in span.slices if not done(piece, stored.positions)]

    def forget(self) -> None:
        """Removes the checkpoint and moves the head, so that a running driver stops."""
        self._property.forget()

    def close(self) -> None:
        """Nothing is held open but pooled connections."""


def peek(sink: IcebergSinkOptions, target: Target) -> Checkpoint | None:
    """The stored checkpoint, from the table or, before there is one, from its namespace."""
    catalog = connect(sink)
    key = property_key(target)
    with errors(sink, "read the checkpoint of"):
        table = catalog.table(sink.identifier)
        text = table.properties.get(key) if table else None
        text = text or create_table.namespace_property(catalog, sink, key)
    found = parse(text)
    return found.checkpoint() if found else None


def _follows(piece: Slice, known: object) -> bool:
    """Offsets may begin below the checkpoint (another branch is behind), never above it."""
    if isinstance(piece, OffsetSlice):
        return isinstance(known, int) and piece.after <= known
    return known in (piece.after, piece.upto)
