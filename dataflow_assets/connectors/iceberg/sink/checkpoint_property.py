"""The checkpoint of one branch where it is kept: a property of the table, moved by compare-and-set.

While there is no table, it is a property of the namespace: start positions are durable there, and
no rows depend on it. Making the table moves it over, whoever made it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyiceberg.table import Table

from dataflow_assets.connectors.iceberg.catalog import connect, errors
from dataflow_assets.connectors.iceberg.options import IcebergSinkOptions
from dataflow_assets.connectors.iceberg.table import create_table
from dataflow_assets.connectors.iceberg.table.checkpoint import (
    StoredCheckpoint,
    fresh,
    parse,
    property_key,
)
from dataflow_assets.connectors.iceberg.table.commit import Change, Committer
from dataflow_assets.contracts import Run, Target
from dataflow_assets.errors import PermanentError, TakenOver, TransientError

Step = Callable[[StoredCheckpoint], StoredCheckpoint]
Check = Callable[[StoredCheckpoint | None], None]


class CheckpointProperty:
    """Holds one epoch of one branch, its table and its checkpoint as of the last look."""

    def __init__(self, sink: IcebergSinkOptions, target: Target, run: Run) -> None:
        self._sink, self._target, self._run = sink, target, run
        self.key = property_key(target)
        self.catalog = connect(sink)
        table = self._find()
        self.committer = Committer(self.catalog, table) if table else None
        self.stored = fresh(target)
        self._epoch = 0
        self._take_epoch()

    def _find(self) -> Table | None:
        with errors(self._sink, "load"):
            table = self.catalog.table(self._sink.identifier)
        if table is None and not self._sink.auto_create_table:
            raise PermanentError(
                f"table {'.'.join(self._sink.identifier)} does not exist: "
                "create it, or set autoCreateTable: true"
            )
        if table is not None:
            create_table.check(table, self._sink.key)
            return table
        with errors(self._sink, "create the namespace of"):
            create_table.ensure_namespace(self.catalog, self._sink)
        return None

    def _take_epoch(self) -> None:
        """The commit moves the head: who loaded the table before it can commit no more."""
        committer = self.committer
        aside = None
        if committer is None or self.key not in committer.table.properties:
            aside = self._aside()
            self.stored = aside or self.stored
        if committer is None:
            self._store_aside(self._next_epoch(self.stored))
            return
        self.commit(self._next_epoch, check=lambda _: None)
        if aside:  # somebody else has made the table
            create_table.drop_namespace_property(self.catalog, self._sink, self.key)

    def _next_epoch(self, found: StoredCheckpoint) -> StoredCheckpoint:
        taken = found.by(self._run)
        self._epoch = taken.epoch
        return taken

    def _store_aside(self, stored: StoredCheckpoint) -> None:
        self.stored = stored.stamped("")
        text = self.stored.text()
        with errors(self._sink, "store start positions beside"):
            create_table.set_namespace_property(self.catalog, self._sink, self.key, text)

    def change(self) -> Change:
        """A change of the checkpoint that is still to be filled."""
        return Change(self.key, lambda _: None)

    def commit(self, step: Step, change: Change | None = None, check: Check | None = None) -> None:
        """Moves the checkpoint by one step, in the table if there is one."""
        if self.committer is None:
            self.check_aside()
            self._store_aside(step(self.stored))
            return
        change = change or self.change()
        value = self._value(step, change.commit_id, check or self._check_owner)
        with errors(self._sink, "commit to"):
            self.committer.commit(replace(change, value=value))
        self.stored = self._stored()

    def _value(self, step: Step, commit_id: str, check: Check) -> Callable[[str | None], str]:
        def value(text: str | None) -> str:
            found = parse(text)
            check(found)
            return step(found or self.stored).stamped(commit_id).text()

        return value

    def _stored(self) -> StoredCheckpoint:
        found = parse(self.table.properties.get(self.key))
        self._check_owner(found)
        assert found is not None  # noqa: S101 - the check has seen it
        return found

    def _check_owner(self, found: StoredCheckpoint | None) -> None:
        if found is None:
            raise TakenOver(f"the checkpoint of flow {self._target.flow} was removed meanwhile")
        self._check_adoptable(found)

    def _check_adoptable(self, found: StoredCheckpoint | None) -> None:
        if found is not None and not found.owned_by(self._epoch, self._run):
            raise TakenOver(f"flow {self._target.flow} was taken over by {found.owner}")

    def _aside(self) -> StoredCheckpoint | None:
        with errors(self._sink, "read the start positions of"):
            return parse(create_table.namespace_property(self.catalog, self._sink, self.key))

    def check_aside(self) -> None:
        """Raises TakenOver where the start positions kept on the namespace are not ours."""
        self._check_owner(self._aside())

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

    def look(self) -> None:
        """The table as it is now, still ours."""
        if self.committer is None:
            self.check_aside()
            return
        with errors(self._sink, "load"):
            self.committer.reload()
        self.stored = self._stored()

    def adopt(self, table: Table) -> None:
        """Takes over a table just made, with an empty first snapshot.

        Not every catalog asserts the absence of a head.
        """
        found = parse(table.properties.get(self.key))
        if found is not None and not found.owned_by(self._epoch, self._run):
            raise TransientError(f"{found.owner} made the table meanwhile: open it again")
        self.committer = Committer(self.catalog, table)
        kept = replace(self.stored, target=self.identity)
        self.commit(lambda _: kept, check=self._check_adoptable)
        create_table.drop_namespace_property(self.catalog, self._sink, self.key)

    def forget(self) -> None:
        """Removes the checkpoint and moves the head, so that a running driver stops."""
        if self.committer is not None:
            with errors(self._sink, "remove the checkpoint of"):
                self.committer.commit(self.change())
        create_table.drop_namespace_property(self.catalog, self._sink, self.key)
        if self._aside() is not None:
            raise TransientError("the start positions kept on the namespace are still there")
