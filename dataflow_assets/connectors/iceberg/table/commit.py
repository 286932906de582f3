"""Commits that assert the head of the table they were made for.

Built from PyIceberg's public parts instead of its Transaction, which retries on its own and then
lets both of two racing writers win, and which deletes its manifests after any conflict, also one
that only a lost answer has made. Here:

- every commit asserts table and head; nothing is sent twice without looking
- after any failure the table is loaded again: the own commit id there means success
- without `move_head` the property alone changes, asserting the head: enough where no rows depend
  on it, since a newer owner of the flow has moved the head
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from pyiceberg import exceptions as ice
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

from dataflow_assets.connectors.iceberg.errors import LOST
from dataflow_assets.connectors.iceberg.table.lineage import COMMIT_ID
from dataflow_assets.connectors.iceberg.table.manifest_files import added_since
from dataflow_assets.connectors.iceberg.table.snapshot import (
    IcebergAttempt,
    appending,
    asserting,
    emptying,
    replacing,
)
from dataflow_assets.connectors.iceberg.table_catalog import TableCatalog
from dataflow_assets.errors import TransientError
from dataflow_assets.failpoints import reach

FRAME = "dataflow.frame"  # the same of a DataFrame that was written
CONFLICTS = 30  # other writers' commits to give way to, one after the other
LOST_ANSWERS = 4


@dataclass(frozen=True)
class TableChange:
    """One change of the property `key`, with files or without, made at most once."""

    key: str
    value: Callable[[str | None], str | None]
    """From the text found to the text to put there, which must hold `commit_id`; None removes it.

    Raises to give up (TakenOver).
    """
    commit_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    files: Sequence[DataFile] = ()
    gone: frozenset[str] = frozenset()
    """Paths of the files that are taken out."""
    guard: Callable[[Table], None] = lambda _: None
    """Asked before every attempt whether files and gone fit the table as it is; raises if not."""
    move_head: bool = True
    empties: bool = False
    """True: takes every file out of the table."""
    same_rows: bool = False
    """True: the files hold the rows of those that are gone, and readers need not look again."""

    def putting(self, text: str) -> TableChange:
        """This change, which also sets a text that is known beforehand."""
        return replace(self, value=lambda _: text)


class Committer:
    """Commits to one table, which it keeps as of its last look."""

    def __init__(self, catalog: TableCatalog, table: Table) -> None:
        self.catalog = catalog
        self.table = catalog.begin(table)
        self._attempts: list[IcebergAttempt] = []
        self._lost = False
        """True once an answer never came: what it was about may stand in the table or not."""

    def reload(self) -> None:
        self.table = self.catalog.load_table(self.table.name())

    def commit(self, change: TableChange) -> None:
        """Makes the change exactly once, or raises.

        TransientError after too many conflicts or lost answers: then it may have been made, and
        whoever looks next finds its commit id.
        """
        self._attempts = []
        for tries, wait in enumerate(_waits()):
            error = self._attempt(change)
            if error is None:
                self._sweep()
                return
            lost = sum(attempt.unknown for attempt in self._attempts)
            if tries == CONFLICTS or lost > LOST_ANSWERS:
                raise TransientError(f"no commit: {type(error).__name__}: {error}") from error
            time.sleep(wait)
            self.reload()
            if self._has_landed(change):
                return

    def _attempt(self, change: TableChange) -> Exception | None:
        try:
            attempt = self._prepare(change)
        except OSError:
            self._drop_unasked(change)
            raise
        self._attempts.append(attempt)
        reach("iceberg.before-commit")
        try:
            answer = self.catalog.commit_table(self.table, attempt.requirements, attempt.updates)
        except ice.CommitFailedException as error:
            return error
        except LOST as error:
            attempt.unknown = self._lost = True
            return error
        reach("iceberg.after-commit")
        before = self.table
        self.table = Table(
            before.name(),
            answer.metadata,
            answer.metadata_location,
            before.io,
            before.catalog,
            before.config,
        )
        return None

    def _prepare(self, change: TableChange) -> IcebergAttempt:
        change.guard(self.table)
        text = change.value(self.table.properties.get(change.key))
        update: TableUpdate = (
            RemovePropertiesUpdate(removals=[change.key])
            if text is None
            else SetPropertiesUpdate(updates={change.key: text})
        )
        if not change.move_head:
            return asserting(self.table, update)
        notes = {COMMIT_ID: change.commit_id}
        if change.empties:
            return emptying(self.table, notes, update)
        if change.gone:
            how = Operation.REPLACE if change.same_rows else Operation.OVERWRITE
            return replacing(self.table, change.files, change.gone, notes, update, operation=how)
        # Reading many manifests takes a while: a second try must be quicker than the others'.
        tidy = not self._attempts
        return appending(self.table, change.files, notes, update, tidy=tidy)

    def _has_landed(self, change: TableChange) -> bool:
        """The property names its commit and the one before; a snapshot names its own."""
        if change.commit_id in self.table.properties.get(change.key, ""):
            return True
        summaries = [snapshot.summary for snapshot in self.table.metadata.snapshots]
        return any(s is not None and s[COMMIT_ID] == change.commit_id for s in summaries)

    def _sweep(self) -> None:
        """Deletes the manifests of attempts that were refused before the last one was not."""
        refused = [path for attempt in self._attempts[:-1] for path in attempt.written]
        if refused and not self._lost:
            shown = {snapshot.manifest_list for snapshot in self.table.metadata.snapshots}
            self._delete([] if shown.intersection(refused) else refused)

    def _drop_unasked(self, change: TableChange) -> None:
        """Deletes the data files of a change that no request has named: the store may be full."""
        if not self._attempts and not self._lost:
            self._delete([file.file_path for file in change.files])

    def discard(self, files: Sequence[DataFile]) -> None:
        """Deletes data files that no commit has, and none ever can.

        Every attempt to add them was answered with a conflict (after an unknown outcome nothing
        is deleted any more), and no manifest that is newer than them lists them.
        """
        if self._lost or not self._attempts:
            return
        with suppress(OSError):
            since = min(attempt.based_on for attempt in self._attempts)
            listed = added_since(self.table, since)
            self._delete([file.file_path for file in files if file.file_path not in listed])

    def _delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            with suppress(OSError):
                self.table.io.delete(path)


def _waits() -> Iterator[float]:
    """Seconds to wait after each failure: from 20 ms doubling to 2 s, with jitter."""
    wait = 0.02
    while True:
        yield wait * random.uniform(0.5, 1.5)  # noqa: S311 - spreads writers, guards nothing
        wait = min(wait * 2, 2.0)
