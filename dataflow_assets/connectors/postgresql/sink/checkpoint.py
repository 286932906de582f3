"""The stored state of one branch: its rows in the checkpoint tables."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from typing_extensions import override

from dataflow_assets.connectors.postgresql.client import Link, Row, TextLink, qualified_name
from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.connectors.postgresql.pool import lend, transaction
from dataflow_assets.connectors.postgresql.table import checkpoint_rows, checkpoint_tables
from dataflow_assets.connectors.postgresql.table.checkpoint_rows import (
    PostgresqlPartition,
    PostgresqlStored,
)
from dataflow_assets.contracts import (
    Checkpoint,
    Receipt,
    Run,
    Target,
    TargetTable,
    refuse_shared,
)
from dataflow_assets.errors import DataflowError
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.sink.checkpoint_store import CheckpointStore, StateChange
from dataflow_assets.sdk.sink.peek import peek_by_schema
from dataflow_assets.sdk.sink.state import BranchState

_ENSURE = """
INSERT INTO {h} (flow, branch, epoch, run, host) VALUES ($1, $2, 0, '', '')
ON CONFLICT (flow, branch) DO NOTHING
"""
_HEAD = """
UPDATE {h} SET epoch = $3::bigint, run = $4, host = $5, manifest = $6, source = $7, target = $8,
    reading = $9::bigint, intent = $10, rows = $11::bigint, rejected = $12::bigint,
    bytes = $13::bigint, updated_at = now()
WHERE flow = $1 AND branch = $2
"""
_REMOVE = """
DELETE FROM {p} WHERE flow = $1 AND branch = $2
  AND partition IN (SELECT json_array_elements_text($3::json))
"""
_PUT = """
INSERT INTO {p} (flow, branch, partition, epoch, next_offset, part, committed_at)
SELECT $1, $2, r->>0, $3::bigint, (r->>1)::bigint, r->>2, (r->>3)::timestamptz
FROM json_array_elements($4::json) AS r
ON CONFLICT (flow, branch, partition) DO UPDATE SET
    next_offset = excluded.next_offset, part = excluded.part, committed_at = excluded.committed_at
"""
_FENCE = "UPDATE {p} SET epoch = $3::bigint WHERE flow = $1 AND branch = $2"
_OTHERS = "SELECT DISTINCT flow FROM {h} WHERE flow <> $1 AND target = $2 ORDER BY flow"
_GONE = "DELETE FROM {h} WHERE flow = '{flow}'"


class PostgresqlLinks:
    """Links of one session: one is borrowed for each operation, and an idle session has none."""

    def __init__(self, sink: PostgresqlSinkOptions, target: Target) -> None:
        self.sink, self.target = sink, target
        self.epoch: int | None = None

    @contextlib.contextmanager
    def lend(self, what: str) -> Iterator[TextLink]:
        """For questions, and for statements that are whole by themselves."""
        with translate_errors(f"{what} {self.sink.address()}"), lend(self.sink.dsn()) as link:
            yield link

    @contextlib.contextmanager
    def transaction(self, what: str) -> Iterator[TextLink]:
        """Under the name of the epoch, by which a newer session ends it."""
        name = checkpoint_tables.application(self.target, self.epoch)
        with (
            translate_errors(f"{what} {self.sink.address()}"),
            transaction(self.sink.dsn(), name) as link,
        ):
            yield link


class PostgresqlCheckpoints(CheckpointStore):
    """The state is a row of the branch and one of each partition, which a task locks and moves.

    A change locks them all. What tasks have committed comes by their receipts: as long as nothing
    but offsets moves, nothing is asked.
    """

    system: ClassVar = "postgresql"

    def __init__(self, links: PostgresqlLinks, run: Run, table: TargetTable) -> None:
        self._links, self._run, self._table = links, run, table
        self._target, self._schema = links.target, links.sink.place()[0]
        self._names = checkpoint_tables.statements(self._schema)
        self._stored: PostgresqlStored | None = None

    @override
    def load(self, receipts: Sequence[Receipt] = ()) -> BranchState | None:
        moved = {r.partition: PostgresqlPartition.parse(r.staged[0]) for r in receipts if r.staged}
        known = self._stored
        if known is not None and moved and not known.intent:
            self._stored = known.follow(moved)
        else:
            with self._links.lend("reading the checkpoint of") as link:
                self._stored = self._read(link)
        return self._stored.state if self._stored else None

    @override
    def change(self, step: StateChange) -> BranchState:
        with self._links.transaction("storing the checkpoint of") as link:
            stored = self._move(link, step)
        self._stored = stored
        return stored.state

    @override
    def fence(self, step: StateChange, *, empty: bool = False) -> BranchState:
        """Writers of older epochs find the new one in the row of their partition."""
        with self._links.transaction("storing the checkpoint of") as link:
            self._execute(link, _ENSURE)
            stored = self._move(link, step)
            self._execute(link, _FENCE, stored.head.epoch)
            if empty and self._table.identity is not None:
                link.execute(f"TRUNCATE {qualified_name(*self._links.sink.place())}")
                # Again: now none of the others can commit.
                refuse_shared(self._target, self._links.sink.address(), self._others(link))
        self._stored, self._links.epoch = stored, stored.head.epoch
        return stored.state

    @override
    def sharing(self) -> Mapping[str, str]:
        with self._links.lend("reading the checkpoints beside") as link:
            return self._others(link)

    def _others(self, link: Link) -> dict[str, str]:
        if self._table.identity is None:
            return {}
        text = _OTHERS.format(**self._names)
        flows = [flow for (flow,) in link.execute(text, self._target.flow, self._table.identity)]
        return {flow: _GONE.format(flow=flow, **self._names) for flow in flows}

    def _read(self, link: Link, lock: str = "") -> PostgresqlStored | None:
        found = checkpoint_rows.read(link, self._schema, [self._target], lock)
        stored = found.get(self._target.id)
        opens = self._links.epoch is None  # then rows of partitions that were left behind count
        return stored if stored and (stored.head.epoch or opens) else None

    def _move(self, link: Link, step: StateChange) -> PostgresqlStored:
        found = self._read(link, checkpoint_rows.LOCK)
        known = found or PostgresqlStored(Checkpoint(0), (), {})
        stored = known.move(step(found.state if found else None))
        head, old = stored.head, known.partitions
        identities = (head.manifest, head.source, head.target, head.reading)
        intent = checkpoint_rows.dump_intent(stored.intent) if stored.intent else None
        counted = (head.totals.rows, head.totals.rejected, head.totals.bytes)
        who = (head.epoch, self._run.id, self._run.place)
        if (head, stored.intent) != (known.head, known.intent):  # a step over a gap leaves it alone
            self._execute(link, _HEAD, *who, *identities, intent, *counted)
        if gone := old.keys() - stored.partitions.keys():
            self._execute(link, _REMOVE, json.dumps(sorted(gone)))
        if put := [
            (name, *checkpoint_rows.columns(one.position), str(one.committed_at or "") or None)
            for name, one in stored.partitions.items()
            if old.get(name) != one
        ]:
            self._execute(link, _PUT, head.epoch, json.dumps(put))
        return stored

    def _execute(self, link: Link, query: str, *parameters: object) -> list[Row]:
        text = query.format(**self._names)
        return link.execute(text, self._target.flow, self._target.branch, *parameters)


def peek_together(
    asked: Sequence[tuple[PostgresqlSinkOptions, Target]],
) -> list[Checkpoint | DataflowError | None]:
    """The stored checkpoints of branches in one database; no epoch is taken."""
    return peek_by_schema(asked, lend(asked[0][0].dsn()), _read_states)


def _read_states(link: Link, schema: str, targets: Sequence[Target]) -> dict[str, BranchState]:
    there = not checkpoint_tables.missing(link, schema)
    found = checkpoint_rows.read(link, schema, targets) if there else {}
    return {name: stored.state for name, stored in found.items()}
