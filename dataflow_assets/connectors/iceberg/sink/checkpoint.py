"""The checkpoint of one branch where it is kept: a property of the table, moved by compare-and-set.

While there is no table, it is a property of the namespace: start positions are durable there, and
no rows depend on it. Making the table moves it over, whoever made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyiceberg.table import Table

from dataflow_assets.connectors.iceberg.client import connect
from dataflow_assets.connectors.iceberg.errors import translate_errors
from dataflow_assets.connectors.iceberg.options import TableSinkOptions
from dataflow_assets.connectors.iceberg.table import create_table, declared
from dataflow_assets.connectors.iceberg.table.checkpoint import (
    ROLLED_BACK,
    StoredCheckpoint,
    fresh,
    parse,
    property_key,
)
from dataflow_assets.connectors.iceberg.table.commit import Committer, TableChange
from dataflow_assets.connectors.iceberg.table_catalog import TableCatalog
from dataflow_assets.contracts import Checkpoint, Run, Target
from dataflow_assets.errors import DataflowError, PermanentError, TransientError, outcome
from dataflow_assets.sdk.sink.checkpoint_store import StateChange
from dataflow_assets.sdk.sink.state import BranchState, check_owner


class CheckpointProperty:
    """The state of one branch, and its table, as of the last look."""

    def __init__(self, sink: TableSinkOptions, target: Target, run: Run) -> None:
        self._sink, self._run = sink, run
        self.key = property_key(target)
        self.catalog = connect(sink)
        table = self._find()
        self.committer = self._committer(table) if table else None
        self.stored = fresh(target)

    def _committer(self, table: Table) -> Committer:
        with translate_errors(self._sink, "begin to write to"):
            return Committer(self.catalog, table)

    def _find(self) -> Table | None:
        with translate_errors(self._sink, "load"):
            table = self._open_declared() or self.catalog.table(self._sink.identifier)
        if table is None and not self._sink.auto_create_table:
            raise PermanentError(
                f"table {'.'.join(self._sink.identifier)} does not exist: "
                "create it, or set autoCreateTable: true"
            )
        if table is not None:
            create_table.check(table, self._sink.key)
            return table
        with translate_errors(self._sink, "create the namespace of"):
            create_table.ensure_namespace(self.catalog, self._sink)
        return None

    def _open_declared(self) -> Table | None:
        """Made, or changed as far as that is allowed, where the columns are declared."""
        wanted = self._sink.declaration
        self._versions = declared.versions(wanted)
        if wanted is None:
            return None
        if self.catalog.table(self._sink.identifier) is None:
            create_table.ensure_namespace(self.catalog, self._sink)
        return declared.open_table(self.catalog, self._sink.identifier, wanted)

    def follow(self) -> None:
        """Changes the table where its columns are a registry's, which has got other versions.

        Called before each micro-batch, when it is known up to where messages are read: the schemas
        of these were registered before.
        """
        with translate_errors(self._sink, "add columns to"):
            if declared.versions(self._sink.declaration) != self._versions:
                self._open_declared()

    def read(self) -> BranchState | None:
        if self.committer is None:
            found = self._start_positions()
        else:
            with translate_errors(self._sink, "load"):
                self.committer.reload()
            found = parse(self.table.properties.get(self.key))
        self.stored = found or self.stored
        return found.state if found else None

    def change(self) -> TableChange:
        """A change of the checkpoint that is still to be filled."""
        return TableChange(self.key, lambda _: None)

    def commit(
        self, step: StateChange, change: TableChange | None = None, *, fences: bool = False
    ) -> BranchState:
        """Moves the state by one step, in the table if there is one.

        Where the table was rolled back to a snapshot before the last commit, one that fences notes
        that, for a person to decide; every other one raises TransientError.
        """
        committer, change = self.committer, change or self.change()
        known = committer is not None and self.key in committer.table.properties
        start_positions = None if known else self._start_positions()
        if committer is None:
            self._store_start_positions(self._move(start_positions, step))
            return self.stored.state

        def value(text: str | None) -> str:
            found = parse(text)
            if found is not None and found.is_left(committer.table):
                if not fences:
                    raise TransientError(f"{self._address} was rolled back to an older snapshot")
                found = found.as_undecided()
            moved = self._move(found or start_positions, step).stamp(change.commit_id)
            return (moved.standing(committer.table) if change.move_head else moved).text()

        with translate_errors(self._sink, "commit to"):
            committer.commit(replace(change, value=value))
        self.stored = parse(self.table.properties.get(self.key)) or self.stored
        if start_positions:  # somebody else has made the table
            self.drop_start_positions()
        return self.stored.state

    def _move(self, found: StoredCheckpoint | None, step: StateChange) -> StoredCheckpoint:
        state = step(found.state if found else None)
        return (found or self.stored).holding(state, self._run)

    def _store_start_positions(self, checkpoint: StoredCheckpoint) -> None:
        self.stored = checkpoint.stamp("")
        text = self.stored.text()
        with translate_errors(self._sink, "store start positions beside"):
            create_table.set_namespace_property(self.catalog, self._sink, self.key, text)

    def _start_positions(self) -> StoredCheckpoint | None:
        """On the namespace; or in the table, once somebody else has made it."""
        with translate_errors(self._sink, "read the start positions of"):
            text = create_table.namespace_property(self.catalog, self._sink, self.key)
            if text is None and self.committer is None:
                table = self.catalog.table(self._sink.identifier)
                text = table.properties.get(self.key) if table else None
        return parse(text)

    def drop_start_positions(self) -> None:
        """Start positions on the namespace count no more: the table has them."""
        create_table.drop_namespace_property(self.catalog, self._sink, self.key)

    @property
    def was_rolled_back(self) -> bool:
        """Whether the table lacks snapshots that it had, and nobody has decided what that means."""
        return (self.stored.target or "").endswith(ROLLED_BACK)

    @property
    def _address(self) -> str:
        return f"table {'.'.join(self._sink.identifier)}"

    @property
    def table(self) -> Table:
        """As of the last look. Raises PermanentError while there is none."""
        if self.committer is None:
            raise PermanentError(f"there is no table {'.'.join(self._sink.identifier)} yet")
        return self.committer.table

    @property
    def identity(self) -> str | None:
        """The table's uuid; None while there is none."""
        return str(self.committer.table.metadata.table_uuid) if self.committer else None

    def make_table(self, sample: pa.Schema) -> None:
        """Makes the table with the checkpoint in it, which somebody else may do meanwhile."""
        epoch = self.stored.epoch
        self._check_owner(self.read(), epoch)
        properties = {self.key: self.stored.text()}
        with translate_errors(self._sink, "create"):
            table = create_table.create(self.catalog, self._sink, sample, properties)
            create_table.check(table, self._sink.key)
        found = parse(table.properties.get(self.key))
        if found is not None and found.owner != self._run:
            raise TransientError(f"{found.owner} made the table meanwhile: open it again")
        self.committer = self._committer(table)
        self.commit(lambda found: self._check_owner(found, epoch).adopt(self.identity), fences=True)
        self.drop_start_positions()

    def _check_owner(self, found: BranchState | None, epoch: int) -> BranchState:
        return check_owner(self.stored.flow, found, epoch, self._run, self._sink.address())


def peek_together(
    asked: Sequence[tuple[TableSinkOptions, Target]],
) -> list[Checkpoint | DataflowError | None]:
    """The stored checkpoints of branches in one catalog, over one connection."""
    catalog = connect(asked[0][0])
    return [outcome(partial(_peek, catalog, sink, target)) for sink, target in asked]


def _peek(catalog: TableCatalog, sink: TableSinkOptions, target: Target) -> Checkpoint | None:
    """From the table or, before there is one, from its namespace."""
    key = property_key(target)
    with translate_errors(sink, "read the checkpoint of"):
        table = catalog.table(sink.identifier)
        text = table.properties.get(key) if table else None
        text = text or create_table.namespace_property(catalog, sink, key)
    found = parse(text)
    return found.state.for_readers if found and found.state.is_known else None
