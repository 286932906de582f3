"""Every row out of a table, by statements that a newer driver can make fail.

A TRUNCATE cannot be called back: one that comes late empties the table of the driver that has taken
the flow over. So the rows are moved, partition by partition, into the exit: an empty table made for
this alone, under a name that is never used again, and which the checkpoint's head knows before the
first row moves. Whoever takes the flow over drops the exit first, and waits until no statement uses
it (SYNC). From then on a statement of the older driver names a table that does not exist.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from dataflow_assets import failpoints
from dataflow_assets.connectors.clickhouse.client import Client, literal, query_rows, quote
from dataflow_assets.connectors.clickhouse.errors import ClickhouseFailure, failing
from dataflow_assets.connectors.clickhouse.sink.checkpoint import BranchCheckpoint
from dataflow_assets.connectors.clickhouse.table.checkpoint_log import ClickhouseState
from dataflow_assets.connectors.clickhouse.table.table import ROW, ClickhouseTable
from dataflow_assets.contracts import Target
from dataflow_assets.errors import PermanentError

_AT_ONCE = 500  # partitions of one statement: a server takes 256 KiB of text
_TOTAL = f"SELECT total_rows FROM system.tables WHERE {ROW}"  # noqa: S608 - our own text
_BYTES = f"SELECT total_bytes FROM system.tables WHERE {ROW}"  # noqa: S608 - the same
_MOST = """
SELECT toUInt64(value) FROM (
    SELECT value, 0 AS rank FROM system.settings
    WHERE name = 'max_table_size_to_drop' AND changed
    UNION ALL
    SELECT value, 1 AS rank FROM system.server_settings WHERE name = 'max_table_size_to_drop'
) ORDER BY rank LIMIT 1
"""
_PARTITIONS = """
SELECT DISTINCT partition_id FROM system.parts
WHERE database = {d:String} AND table = {t:String} AND active AND rows > 0 ORDER BY partition_id
"""


@dataclass(frozen=True)
class ClickhouseEmptying:
    """What a restart with `table: truncate` does to the table of one branch, on the driver."""

    client: Client
    branch: BranchCheckpoint
    target: Target

    def finish(
        self, state: ClickhouseState, table: ClickhouseTable | None, database: str
    ) -> ClickhouseState:
        """Takes the rows out, where a head says that they go; whoever opens next repeats it.

        What an older driver still sends fails from the moment at which its exit is dropped.
        Raises Failure, and TakenOver where another driver has dropped this one's exit.
        """
        head = state.head
        if not head.emptying:
            return state
        drop(self.client, database, head.exit)
        if table is not None and table.uuid == head.target:
            state = self._moved_out(state, table)
        return self.branch.head(replace(state.snapshot(), emptying=False, exit=""))

    def _moved_out(self, state: ClickhouseState, table: ClickhouseTable) -> ClickhouseState:
        if not holds_rows(self.client, table):
            return state
        check(table, self.target)
        exit_ = new_name()
        state = self.branch.head(replace(state.snapshot(), exit=exit_))
        try:
            make(self.client, table, exit_)
            # Whoever takes over from here on drops the exit.
            state = self.branch.head(state.snapshot())
            failpoints.reach("clickhouse.emptying")
            move(self.client, table, exit_)
        except ClickhouseFailure:
            self.branch.read()  # raises where another driver has dropped the exit
            raise
        finally:
            drop(self.client, table.database, exit_)
        return state


def holds_rows(client: Client, table: ClickhouseTable) -> bool:
    """Returns whether the table has a row, be it one that a mutation hides. Raises Failure."""
    found = query_rows(client, _TOTAL, table.row)
    return not found or found[0][0] != 0


def check(table: ClickhouseTable, target: Target) -> None:
    """Raises PermanentError where an exit on this server is not seen by a driver on another."""
    if table.is_replicated:
        place = quote(table.database, table.name)
        raise PermanentError(
            f"flow {target.flow}: table: truncate cannot be used for {table.database}.{table.name}"
            f": it is replicated, and a run of this flow that comes late could empty it once more "
            f"after others have filled it. Make sure that no run of the flow is left, run TRUNCATE "
            f"TABLE {place} by hand, and start again with table: truncate: an empty table is taken"
        )


def check_size(client: Client, table: ClickhouseTable, target: Target) -> None:
    """Raises PermanentError where the server would not drop an exit that holds these rows.

    They would be out of the table by then, and the flow could not be opened any more.
    """
    found = query_rows(client, _BYTES, table.row)
    size, most = (found[0][0] or 0) if found else 0, _most(client)
    if size > most > 0:
        raise PermanentError(
            f"flow {target.flow}: table: truncate would drop {size:,} bytes of {table.database}."
            f"{table.name}, and the server drops no table of more than {most:,} "
            f"(max_table_size_to_drop). Nothing was changed. Raise that setting for the user of "
            f"the connection or in the server's configuration, and start again"
        )


def _most(client: Client) -> int:
    try:
        found = query_rows(client, _MOST, {})
    except ClickhouseFailure:
        return 0
    return int(found[0][0]) if found else 0


def new_name() -> str:
    return f"dataflow_exit_{uuid.uuid4().hex}"


def make(client: Client, table: ClickhouseTable, name: str) -> None:
    """Makes an exit for this table. Raises Failure."""
    here, target = quote(table.database, name), quote(table.database, table.name)
    with failing():
        client.command(f"CREATE TABLE {here} AS {target}")


def move(client: Client, table: ClickhouseTable, name: str) -> None:
    """Moves all rows of the table into its exit. Raises Failure, also where that was dropped."""
    here, target = quote(table.database, name), quote(table.database, table.name)
    found = query_rows(client, _PARTITIONS, {"d": table.database, "t": table.name})
    moves = [f"MOVE PARTITION ID {literal(one)} TO TABLE {here}" for (one,) in found]
    for first in range(0, len(moves), _AT_ONCE):
        with failing():
            client.command(f"ALTER TABLE {target} {', '.join(moves[first : first + _AT_ONCE])}")


def drop(client: Client, database: str, name: str) -> None:
    """Drops the exit with what is in it; no statement uses it any more when this returns."""
    if name:
        with failing():
            client.command(f"DROP TABLE IF EXISTS {quote(database, name)} SYNC")
