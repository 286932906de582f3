"""The checkpoint log as a table of ClickHouse: `dataflow_ledger` in the database of the target."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from dataflow_assets.connectors.clickhouse.client import (
    Client,
    insert_rows,
    inserting,
    literal,
    query_rows,
    quote,
)
from dataflow_assets.connectors.clickhouse.errors import ClickhouseFailure, failing
from dataflow_assets.connectors.clickhouse.table.checkpoint_log import (
    ClickhouseEntry,
    ClickhouseHead,
)
from dataflow_assets.connectors.clickhouse.table.table import NO_UUID
from dataflow_assets.contracts import PART, Target
from dataflow_assets.errors import PermanentError

log = logging.getLogger(__name__)

NAME = "dataflow_ledger"
WINDOW = 100_000  # rows of a chunk: three; of many flows in one database
_COLUMNS = """(
    flow String, branch String, kind LowCardinality(String), epoch UInt64, n UInt32,
    generation String, partition String, after String, value String, writer String,
    recorded_at DateTime64(6, 'UTC') DEFAULT now64(6))"""
_ENGINE = "ORDER BY (flow, branch, kind, epoch, n)"
_READ = """
SELECT kind, value, writer, epoch, n, generation, partition, after, ({blocks}) AS blocks,
    (SELECT toString(uuid) FROM system.tables
     WHERE database = {{database:String}} AND name = {{table:String}}) AS identity
FROM {log} WHERE flow = {{flow:String}} AND branch = {{branch:String}} {only}
ORDER BY recorded_at, writer
"""
_LOOK = """
SELECT flow, branch, kind, value, writer, epoch, n, generation, partition, after
FROM {log} WHERE (flow, branch) IN ({asked}) ORDER BY recorded_at, writer
"""
_ONLY = "AND (kind = 'head' OR partition = {partition:String})"
# Numbers of blocks count up in the table, or in each partition of a replicated one; what is
# dropped as known already and mutations count too: it is never less than what was inserted.
_BLOCKS = """
SELECT $sum(newest) FROM (
    SELECT max(max_block_number) AS newest FROM system.parts
    WHERE database = {database:String} AND table = {table:String} GROUP BY partition_id)
"""
_PRUNE = """
DELETE FROM {log} WHERE flow = {{flow:String}} AND branch = {{branch:String}}
AND (kind = 'head' AND (epoch, n) < ({epoch}, {n})
     OR kind != 'head' AND generation != {{generation:String}} AND epoch < {epoch}
     OR kind != 'head' AND generation = {{generation:String}} AND ({covered}))
"""
_OTHERS = """
SELECT DISTINCT flow FROM (
    SELECT flow, branch, argMax(JSONExtractString(value, 'target'), (epoch, n)) AS target
    FROM {log} WHERE kind = 'head' AND flow != {{flow:String}} GROUP BY flow, branch)
WHERE target = {{uuid:String}} AND (branch = {{branch:String}} OR target != '{none}') ORDER BY flow
"""
_GONE = "DELETE FROM {} WHERE flow = {}"
_COUNT = """
SELECT count() FROM {log} WHERE flow = {{flow:String}} AND branch = {{branch:String}}
"""
_MANY = 1_000  # rows of a branch


class ClickhouseCheckpointTable:
    """One branch's rows. `blocks` and `uuid` are the target's, by the last `read`."""

    def __init__(
        self, client: Client, database: str, table: str, target: Target, *, replicated: bool = False
    ) -> None:
        self.blocks = 0
        self.uuid: str | None = None
        self._client = client
        self._place = quote(database, NAME)
        self._target = target
        self._replicated = replicated
        self._parameters = {
            "flow": target.flow,
            "branch": target.branch,
            "database": database,
            "table": table,
        }

    def read(self, partition: str | None = None) -> Sequence[ClickhouseEntry]:
        """All rows of the branch, the oldest first; with a partition all heads, and its own."""
        blocks = _BLOCKS.replace("$sum", "sum" if self._replicated else "max")
        only = "" if partition is None else _ONLY
        query = _READ.format(log=self._place, blocks=blocks, only=only)
        rows = self._rows(query, {"partition": partition or ""})
        if rows:
            self.blocks, self.uuid = int(rows[0][-2] or 0), rows[0][-1] or None
        return [ClickhouseEntry(kind, value.encode(), *rest) for kind, value, *rest, _, _ in rows]

    def record(self, entry: ClickhouseEntry) -> None:
        """Adds the row; one with its key that was there before stands."""
        row = {
            "flow": self._target.flow,
            "branch": self._target.branch,
            "kind": entry.kind,
            "epoch": entry.epoch,
            "n": entry.n,
            "generation": entry.generation,
            "partition": entry.partition,
            "after": entry.after,
            "value": entry.value.decode(),
            "writer": entry.writer,
        }
        token = json.dumps([self._target.flow, self._target.branch, *entry.key])
        settings = inserting(token, replicated=self._replicated)
        insert_rows(self._client, self._place, [row], settings)

    def others(self, uuid: str) -> dict[str, str]:
        """Other flows into the same table; for each the statement that removes its checkpoint."""
        rows = self._rows(_OTHERS.format(log=self._place, none=NO_UUID), {"uuid": uuid})
        here = self._place
        return {flow: _GONE.format(here, literal(flow)) for (flow,) in rows}

    def prune(self, head: ClickhouseHead) -> None:
        """Takes out what the head says by itself, where that has become a lot."""
        ((rows,),) = self._rows(_COUNT.format(log=self._place), {})
        if rows < _MANY:
            return
        covered = [
            f"partition = {literal(name)} AND "
            f"toUInt64OrDefault(after, toUInt64(0)) < {part.position}"
            for name, part in head.partitions.items()
            if isinstance(part.position, int)
        ]
        intent = literal(head.intent.id if head.intent else "")
        covered.append(f"startsWith(partition, {literal(PART)}) AND after != {intent}")
        query = _PRUNE.format(
            log=self._place,
            epoch=head.epoch,
            n=head.n,
            covered=" OR ".join(f"({one})" for one in covered),
        )
        try:
            with failing():
                values = {**self._parameters, "generation": head.generation}
                self._client.command(query, parameters=values)
        except ClickhouseFailure as failure:  # rows that are too many are slow, and not wrong
            log.warning("the checkpoint table %s keeps growing: %s", self._place, failure)

    def _rows(self, query: str, parameters: Mapping[str, Any]) -> list[Any]:
        settings = {"select_sequential_consistency": 1} if self._replicated else {}
        values = {**self._parameters, **parameters}
        with failing():
            return list(self._client.query(query, parameters=values, settings=settings).result_rows)


def read_together(
    client: Client, database: str, targets: Sequence[Target]
) -> dict[str, list[ClickhouseEntry]]:
    """The rows of many branches by their ids, the oldest first, for a look; none without table."""
    entries: dict[str, list[ClickhouseEntry]] = {target.id: [] for target in targets}
    if not exists(client, database):
        return entries
    ids = {(target.flow, target.branch): target.id for target in targets}
    pairs = ", ".join(f"({literal(flow)}, {literal(branch)})" for flow, branch in ids)
    rows = query_rows(client, _LOOK.format(log=quote(database, NAME), asked=pairs))
    for flow, branch, kind, value, *rest in rows:
        entries[ids[flow, branch]].append(ClickhouseEntry(kind, value.encode(), *rest))
    return entries


def prepare(client: Client, database: str) -> None:
    """Makes the table where it is missing; runs that race for it make it once."""
    if exists(client, database):
        return
    statement = (
        f"CREATE TABLE IF NOT EXISTS {quote(database, NAME)} {_COLUMNS} ENGINE = MergeTree "
        f"{_ENGINE} SETTINGS non_replicated_deduplication_window = {WINDOW}"
    )
    try:
        with failing():
            client.command(statement)
    except ClickhouseFailure as failure:
        if failure.code != 497:  # ACCESS_DENIED
            raise
        raise PermanentError(
            f"the checkpoint table cannot be made in database {database}: {failure.reason}; let "
            f"the user create tables there, or run: {' '.join(statement.split())}"
        ) from None


def check_replicated(client: Client, database: str) -> None:
    """Raises PermanentError where the target is on several servers, and checkpoints on one."""
    query = "SELECT engine FROM system.tables WHERE database = {d:String} AND name = {t:String}"
    for (engine,) in query_rows(client, query, {"d": database, "t": NAME}):
        if not engine.startswith(("Replicated", "Shared")):
            raise PermanentError(
                f"the target is replicated, and the checkpoint table {database}.{NAME} is not: "
                f"another server would not know what was inserted. Drop it while no flow writes, "
                f"and run: CREATE TABLE {quote(database, NAME)} ON CLUSTER '{{cluster}}' "
                f"{' '.join(_COLUMNS.split())} ENGINE = ReplicatedMergeTree {_ENGINE} "
                f"SETTINGS replicated_deduplication_window = {WINDOW}"
            )


def exists(client: Client, database: str) -> bool:
    query = "SELECT 1 FROM system.tables WHERE database = {d:String} AND name = {t:String}"
    return bool(query_rows(client, query, {"d": database, "t": NAME}))
