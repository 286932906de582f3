"""`IcebergSession`: the driver's end. One epoch, one ledger, one commit per micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from dataflow_assets.connectors.iceberg import tables
from dataflow_assets.connectors.iceberg.catalog import connect, errors
from dataflow_assets.connectors.iceberg.commits import Change, Committer
from dataflow_assets.connectors.iceberg.files import data_file, place
from dataflow_assets.connectors.iceberg.ledger import (
    Ledger,
    fresh,
    merged,
    parse,
    property_key,
    recorded,
)
from dataflow_assets.connectors.iceberg.rejects import RejectedTable, split
from dataflow_assets.connectors.iceberg.snapshots import total_records
from dataflow_assets.connectors.iceberg.types import row_schema
from dataflow_assets.connectors.iceberg.writer import WriteTicket
from dataflow_assets.contracts import (
    Checkpoint,
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
    Totals,
)
from dataflow_assets.errors import PermanentError, TakenOver, TransientError
from dataflow_assets.failpoints import from_environment, reach

if TYPE_CHECKING:
    from dataflow_assets.connectors.iceberg.sink import IcebergSink

Step = Callable[[Ledger], Ledger]
Check = Callable[[Ledger | None], None]


class IcebergSession(SinkSession):
    """Holds one epoch of one branch; the ledger is a property of the table.

    While there is no table, the ledger is a property of its namespace: start positions are durable
    there, and no rows depend on it. Making the table moves it over, whoever made it.
    """

    def __init__(self, sink: IcebergSink, target: Target, run: Run) -> None:
        self._sink, self._target, self._run = sink, target, run
        self._key = property_key(target)
        self._catalog = connect(sink)
        self._rejected = RejectedTable(self._catalog, sink, target)
        table = self._find()
        self._committer = Committer(self._catalog, table) if table else None
        self._ledger = fresh(target)
        self._epoch = 0
        self._take_epoch()

    def _find(self) -> Table | None:
        with errors(self._sink, "load"):
            table = self._catalog.table(self._sink.identifier)
        if table is None and not self._sink.auto_create_table:
            raise PermanentError(
                f"table {'.'.join(self._sink.identifier)} does not exist: "
                "create it, or set autoCreateTable: true"
            )
        if table is not None:
            tables.check(table)
            return table
        with errors(self._sink, "create the namespace of"):
            tables.ensure_namespace(self._catalog, self._sink)
        return None

    def _take_epoch(self) -> None:
        """The commit moves the head: who loaded the table before it can commit no more."""
        committer = self._committer
        aside = None
        if committer is None or self._key not in committer.table.properties:
            aside = self._aside()
            self._ledger = aside or self._ledger
        if committer is None:
            self._store_aside(self._next_epoch(self._ledger))
            return
        self._commit(self._next_epoch, check=lambda _: None)
        if aside:  # somebody else has made the table
            tables.drop_namespace_property(self._catalog, self._sink, self._key)

    def _next_epoch(self, found: Ledger) -> Ledger:
        taken = found.by(self._run)
        self._epoch = taken.epoch
        return taken

    def _store_aside(self, ledger: Ledger) -> None:
        self._ledger = ledger.stamped("")
        text = self._ledger.text()
        with errors(self._sink, "store start positions beside"):
            tables.set_namespace_property(self._catalog, self._sink, self._key, text)

    def _commit(self, step: Step, change: Change | None = None, check: Check | None = None) -> None:
        """Moves the ledger by one step, in the table if there is one."""
        if self._committer is None:
            self._check_aside()
            self._store_aside(step(self._ledger))
            return
        change = change or Change(self._key, lambda _: None)
        value = self._value(step, change.commit_id, check or self._check_owner)
        with errors(self._sink, "commit to"):
            self._committer.commit(replace(change, value=value))
        self._ledger = self._stored()

    def _value(self, step: Step, commit_id: str, check: Check) -> Callable[[str | None], str]:
        def value(text: str | None) -> str:
            found = parse(text)
            check(found)
            return step(found or self._ledger).stamped(commit_id).text()

        return value

    def _stored(self) -> Ledger:
        found = parse(self._table.properties.get(self._key))
        self._check_owner(found)
        assert found is not None  # noqa: S101 - the check has seen it
        return found

    def _check_owner(self, found: Ledger | None) -> None:
        if found is None:
            raise TakenOver(f"the checkpoint of flow {self._target.flow} was removed meanwhile")
        self._check_adoptable(found)

    def _check_adoptable(self, found: Ledger | None) -> None:
        if found is not None and not found.owned_by(self._epoch, self._run):
            raise TakenOver(f"flow {self._target.flow} was taken over by {found.owner}")

    def _aside(self) -> Ledger | None:
        with errors(self._sink, "read the start positions of"):
            return parse(tables.namespace_property(self._catalog, self._sink, self._key))

    def _check_aside(self) -> None:
        self._check_owner(self._aside())

    @property
    def _table(self) -> Table:
        if self._committer is None:
            raise PermanentError(f"there is no table {'.'.join(self._sink.identifier)} yet")
        return self._committer.table

    @property
    def checkpoint(self) -> Checkpoint:
        """As the last commit of this session has stored it."""
        return self._ledger.checkpoint()

    @property
    def identity(self) -> str | None:
        """The table's uuid."""
        return str(self._committer.table.metadata.table_uuid) if self._committer else None

    def schema(self) -> pa.Schema | None:
        """The columns that records can fill, JSON text marked."""
        return row_schema(self._committer.table.schema()) if self._committer else None

    def row_count(self) -> int | None:
        """What the snapshot counts, where others left no deletes in files of their own."""
        return total_records(self._committer.table) if self._committer else None

    def create(self, sample: pa.Schema) -> None:
        """Makes the table with the ledger in it; the manifest's `columns` win over the sample."""
        if self._committer is not None:
            return
        self._check_aside()
        properties = {self._key: self._ledger.text()}
        with errors(self._sink, "create"):
            table = tables.create(self._catalog, self._sink, sample, properties)
            tables.check(table)
        self._adopt(table)

    def _adopt(self, table: Table) -> None:
        """An empty first snapshot: not every catalog asserts the absence of a head."""
        found = parse(table.properties.get(self._key))
        if found is not None and not found.owned_by(self._epoch, self._run):
            raise TransientError(f"{found.owner} made the table meanwhile: open it again")
        self._committer = Committer(self._catalog, table)
        kept = replace(self._ledger, target=self.identity)
        self._commit(lambda _: kept, check=self._check_adoptable)
        tables.drop_namespace_property(self._catalog, self._sink, self._key)

    def restart(self, positions: Positions, source: str, *, empty: bool = False) -> None:
        """Moves the head too: rows depend on these positions."""
        self._commit(
            lambda found: replace(
                found,
                positions=dict(positions),
                source=source,
                target=self.identity,
                manifest=self._target.manifest,
                intent=(),
            ),
            Change(self._key, lambda _: None, empties=empty),
        )

    def begin(self, span: Span) -> Span:
        """Looks at the table; a commit only where there is something new to record."""
        self._look()
        if self._ledger.intent:
            return Span(self._ledger.intent)
        self._check_planned(span)
        known = dict(self._ledger.positions)
        new = {p: at for p, at in span.after.items() if p not in known}
        intent = recorded(span)
        if new or intent:
            positions = new | known
            self._commit(
                lambda found: replace(
                    found,
                    positions=positions,
                    intent=intent,
                    target=self.identity,
                    manifest=self._target.manifest,
                ),
                Change(self._key, lambda _: None, move_head=False),
            )
        reach("iceberg.begin")
        return span

    def _look(self) -> None:
        """The table as it is now, still ours."""
        if self._committer is None:
            self._check_aside()
            return
        with errors(self._sink, "load"):
            self._committer.reload()
        self._ledger = self._stored()

    def _check_planned(self, span: Span) -> None:
        for piece in span.slices:
            known = self._ledger.positions.get(piece.partition)
            if known is not None and not _follows(piece, known):
                raise PermanentError(
                    f"the checkpoint of partition {piece.partition} stands at {known}, the span "
                    f"begins at {piece.after}: somebody moved it; use `dataflow reset`"
                )

    def ticket(self) -> Ticket:
        """Carries all that tasks need, so that they ask the catalog for nothing."""
        table = self._table
        with errors(self._sink, "look for rejected records of"):
            rejected = self._rejected.stored(self._ledger)
        return WriteTicket(
            self._target,
            self._run,
            self._ledger.epoch,
            row_schema(table.schema()),
            from_environment(),
            place=place(table),
            positions=dict(self._ledger.positions),
            rejected=rejected,
        )

    def finish(self, span: Span, receipts: Sequence[Receipt], source: SourceSession) -> Checkpoint:
        """One commit: the files of all slices and the ledger. Without files the ledger alone."""
        slices = [piece for piece in span.slices if not self._is_done(piece)]
        if not slices or (recorded(span) and not self._ledger.intent):
            return self.checkpoint
        self._check_planned(span)
        own = _complete(slices, receipts, self._target.branch)
        staged = [text for receipt in own for text in receipt.staged]
        totals = sum((receipt.totals for receipt in own), Totals())
        self._publish(slices, staged, totals, source)
        return self.checkpoint

    def _is_done(self, piece: Slice) -> bool:
        known = self._ledger.positions.get(piece.partition)
        if isinstance(piece, OffsetSlice):
            return isinstance(known, int) and known >= piece.upto
        return known == piece.upto

    def _publish(
        self, slices: Sequence[Slice], staged: Sequence[str], totals: Totals, source: SourceSession
    ) -> None:
        data, rejected = split(staged)
        upto = dict(source.fold(merged(self._ledger.positions, slices)))
        with errors(self._sink, "store rejected records of"):
            self._rejected.publish(rejected, self._ledger)
        files = self._data_files(data)
        step = self._consumed(upto, totals, source.identity)
        try:
            self._commit(
                step, Change(self._key, lambda _: None, files=files, move_head=bool(files))
            )
        except TakenOver:
            if self._committer is not None:
                self._committer.discard(files)
            raise

    def _consumed(self, upto: Positions, totals: Totals, source: str) -> Step:
        """The ledger behind this span; from any other ledger than the span was planned on, none."""
        planned = dict(self._ledger.positions)

        def step(found: Ledger) -> Ledger:
            if dict(found.positions) != planned:
                raise TransientError("the checkpoint has moved since the span was planned")
            return replace(
                found,
                positions=upto,
                totals=found.totals + totals,
                source=source,
                target=self.identity,
                manifest=self._target.manifest,
                intent=(),
            )

        return step

    def _data_files(self, documents: Sequence[str]) -> list[DataFile]:
        if not documents:
            return []
        spec_id = self._table.metadata.default_spec_id
        return [data_file(text, spec_id) for text in documents]

    def forget(self) -> None:
        """Removes the ledger and moves the head, so that a running driver stops."""
        if self._committer is not None:
            with errors(self._sink, "remove the checkpoint of"):
                self._committer.commit(Change(self._key, lambda _: None))
        tables.drop_namespace_property(self._catalog, self._sink, self._key)
        if self._aside() is not None:
            raise TransientError("the start positions kept on the namespace are still there")

    def close(self) -> None:
        """Nothing is held open but pooled connections."""


def peek(sink: IcebergSink, target: Target) -> Checkpoint | None:
    """The stored checkpoint, from the table or, before there is one, from its namespace."""
    catalog = connect(sink)
    key = property_key(target)
    with errors(sink, "read the checkpoint of"):
        table = catalog.table(sink.identifier)
        text = table.properties.get(key) if table else None
        text = text or tables.namespace_property(catalog, sink, key)
    found = parse(text)
    return found.checkpoint() if found else None


def _follows(piece: Slice, known: object) -> bool:
    """Offsets may begin below the checkpoint (another branch is behind), never above it."""
    if isinstance(piece, OffsetSlice):
        return isinstance(known, int) and piece.after <= known
    return known in (piece.after, piece.upto)


def _complete(slices: Sequence[Slice], receipts: Sequence[Receipt], branch: str) -> list[Receipt]:
    """The receipts of these slices. Raises TransientError where a part was not read to its end.

    The pass has succeeded as a whole, so an offset slice without a receipt held no record.
    """
    wanted = {piece.partition for piece in slices}
    own = [r for r in receipts if r.branch == branch and r.partition in wanted]
    reached = {(r.partition, r.position) for r in own}
    for piece in slices:
        if isinstance(piece, PartSlice) and (piece.partition, piece.upto) not in reached:
            raise TransientError(f"part {piece.partition} was not read to its end")
    return own
