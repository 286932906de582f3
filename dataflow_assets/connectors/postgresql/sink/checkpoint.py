"""One branch's rows in the checkpoint tables, changed under one epoch."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence

from dataflow_assets.connectors.postgresql.client import Link, Row
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.connectors.postgresql.pool import lend
from dataflow_assets.connectors.postgresql.table import checkpoint_tables
from dataflow_assets.connectors.postgresql.table.checkpoint_tables import (
    PostgresqlPartition,
    PostgresqlStored,
)
from dataflow_assets.contracts import (
    Checkpoint,
    OffsetSlice,
    PartSlice,
    Position,
    Positions,
    Run,
    Target,
)
from dataflow_assets.errors import DataflowError, PermanentError
from dataflow_assets.sdk.sink.decide import checkpoint_moved

_TAKE = """
INSERT INTO {h} (flow, branch, epoch, run, host) VALUES ($1, $2, 1, $3, $4)
ON CONFLICT (flow, branch) DO UPDATE
SET epoch = {h}.epoch + 1, run = excluded.run, host = excluded.host, updated_at = now()
RETURNING epoch
"""
_FENCE = "UPDATE {p} SET epoch = $3::bigint WHERE flow = $1 AND branch = $2"
_ASSERT = """
UPDATE {h} SET manifest = $4, target = coalesce(target, $5), updated_at = now()
WHERE flow = $1 AND branch = $2 AND epoch = $3::bigint
RETURNING 1
"""
_INSERT = """
INSERT INTO {p} (flow, branch, partition, epoch, next_offset, part)
SELECT $1, $2, r->>0, $3::bigint, (r->>1)::bigint, r->>2 FROM json_array_elements($4::json) AS r
ON CONFLICT (flow, branch, partition) DO NOTHING
"""
_STEP = """
WITH head AS (
    UPDATE {h} SET updated_at = now() WHERE flow = $1 AND branch = $2 AND epoch = $3::bigint
    RETURNING epoch
)
UPDATE {p} AS p SET next_offset = greatest(next_offset, r.upto), committed_at = now()
FROM head, (
    SELECT e->>0 AS partition, (e->>1)::bigint AS after, (e->>2)::bigint AS upto
    FROM json_array_elements($4::json) AS e
) AS r
WHERE p.flow = $1 AND p.branch = $2 AND p.epoch = head.epoch AND p.partition = r.partition
  AND p.next_offset >= r.after
RETURNING p.partition, next_offset, part, rows, rejected, bytes, committed_at
"""
_RETIRE = """
WITH gone AS (
    DELETE FROM {p} WHERE flow = $1 AND branch = $2 RETURNING rows, rejected, bytes
)
UPDATE {h} SET rows = {h}.rows + s.rows, rejected = {h}.rejected + s.rejected,
    bytes = {h}.bytes + s.bytes, intent = NULL, updated_at = now()
FROM (SELECT coalesce(sum(rows), 0) AS rows, coalesce(sum(rejected), 0) AS rejected,
             coalesce(sum(bytes), 0) AS bytes FROM gone) AS s
WHERE flow = $1 AND branch = $2
"""
_OTHERS = "SELECT DISTINCT flow FROM {h} WHERE flow <> $1 AND target = $2 ORDER BY flow"
_GONE = "DELETE FROM {h} WHERE flow = '{flow}'"
_START = """
UPDATE {h} SET source = $3, target = $4, reading = $5::bigint WHERE flow = $1 AND branch = $2
"""
_INTEND = "UPDATE {h} SET intent = $3 WHERE flow = $1 AND branch = $2"
# The row stays with its epoch: a forgotten driver must not find the number free again.
_FORGET = """
UPDATE {h} SET source = NULL, target = NULL, manifest = '', rows = 0, rejected = 0, bytes = 0
WHERE flow = $1 AND branch = $2
"""


class BranchCheckpoint:
    """Statements only: transactions are the session's."""

    def __init__(self, link: Link, schema: str, target: Target, epoch: int = 0) -> None:
        self.epoch = epoch
        self._link = link
        self._schema = schema
        self._target = target
        self._names = checkpoint_tables.statements(schema)

    def take(self, run: Run) -> None:
        """Takes a new epoch; writers of older ones find it in every partition's row."""
        ((self.epoch,),) = self._execute(_TAKE, run.id, run.place)
        self._execute(_FENCE, self.epoch)

    def hold(self, identity: str | None) -> None:
        """Locks the branch's row under our epoch and brings it up to date."""
        if not self._execute(_ASSERT, self.epoch, self._target.manifest, identity):
            raise self._loss()

    def read(self) -> PostgresqlStored:
        """All of it; raises when another run has the epoch."""
        stored = checkpoint_tables.read(self._link, self._schema, [self._target])
        found = stored.get(self._target.id)
        if found is None or found.head.epoch != self.epoch:
            raise self._loss()
        return found

    def others(self, identity: str) -> dict[str, str]:
        """Other flows into the same table; for each the statement that removes its checkpoint."""
        text = _OTHERS.format(**self._names)
        flows = [flow for (flow,) in self._link.execute(text, self._target.flow, identity)]
        return {flow: _GONE.format(flow=flow, **self._names) for flow in flows}

    def empty(self, place: str) -> None:
        """Takes every row out of the table, in the transaction that starts it over."""
        self._link.execute(f"TRUNCATE {place}")

    def start(self, source: str | None, identity: str | None, reading: int) -> None:
        """From now on this source goes into this table, in a reading of its own."""
        self._execute(_START, source, identity, reading)

    def insert(self, positions: Mapping[str, Position | None] | Positions) -> None:
        if positions:
            rows = [[name, *checkpoint_tables.columns(where)] for name, where in positions.items()]
            self._execute(_INSERT, self.epoch, json.dumps(rows))

    def intend(self, parts: Sequence[PartSlice]) -> None:
        if parts:
            self._execute(_INTEND, checkpoint_tables.dump_intent(parts))

    def retire(self) -> None:
        """Removes the partitions; what they counted is counted by the head."""
        self._execute(_RETIRE)

    def forget(self) -> None:
        """As if the branch had never begun."""
        self.retire()
        self._execute(_FORGET)

    def step_over(self, gaps: Sequence[OffsetSlice]) -> dict[str, PostgresqlPartition]:
        """Moves partitions to the ends of their slices; the ones moved by somebody stay."""
        rows = json.dumps([[s.partition, s.after, s.upto] for s in gaps])
        stepped = self._execute(_STEP, self.epoch, rows)
        found = {row[0]: PostgresqlPartition.of(row[1:]) for row in stepped}
        if missed := [piece for piece in gaps if piece.partition not in found]:
            positions = self.read().state.positions  # raises when another run has the epoch
            raise checkpoint_moved(self._target.flow, missed[0], positions.get(missed[0].partition))
        return found

    def _loss(self) -> PermanentError:
        return checkpoint_tables.loss(self._link, self._schema, self._target, self.epoch)

    def _execute(self, query: str, *parameters: object) -> list[Row]:
        text = query.format(**self._names)
        return self._link.execute(text, self._target.flow, self._target.branch, *parameters)


def peek_together(
    asked: Sequence[tuple[PostgresqlSinkOptions, Target]],
) -> list[Checkpoint | DataflowError | None]:
    """The stored checkpoints of branches in one database; no epoch is taken.

    One connection, and one question for each schema.
    """
    schemas = defaultdict[str, list[Target]](list)
    for sink, target in asked:
        schemas[sink.place()[0]].append(target)
    try:
        with lend(asked[0][0].dsn()) as link:
            found = {schema: _read_stored(link, schema, each) for schema, each in schemas.items()}
    except PostgresqlFailure as failure:
        found = dict.fromkeys(schemas, failure)
    return [_answer(sink, target, found[sink.place()[0]]) for sink, target in asked]


def _read_stored(
    link: Link, schema: str, targets: Sequence[Target]
) -> dict[str, PostgresqlStored] | PostgresqlFailure:
    try:
        there = not checkpoint_tables.missing(link, schema)
        return checkpoint_tables.read(link, schema, targets) if there else {}
    except PostgresqlFailure as failure:
        return failure


def _answer(
    sink: PostgresqlSinkOptions,
    target: Target,
    found: dict[str, PostgresqlStored] | PostgresqlFailure,
) -> Checkpoint | DataflowError | None:
    if isinstance(found, PostgresqlFailure):
        return found.error(f"reading the checkpoint of {sink.address()}")
    stored = found.get(target.id)
    return stored.state.for_readers if stored and stored.state.is_known else None
