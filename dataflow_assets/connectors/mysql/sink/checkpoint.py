"""`dataflow_checkpoint`: a row for each branch that writes into a database, beside its tables."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from dataflow_assets.connectors.mysql.client import MysqlClient, quote
from dataflow_assets.connectors.mysql.errors import MysqlFailure
from dataflow_assets.connectors.mysql.options import MysqlSinkOptions
from dataflow_assets.connectors.mysql.pool import lend
from dataflow_assets.connectors.mysql.table.create_table import make_table
from dataflow_assets.contracts import Checkpoint, PartSlice, Target
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.sink.checkpoint_store import StateChange
from dataflow_assets.sdk.sink.state import BranchState

_TEXT = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
_MAKE = f"""CREATE TABLE IF NOT EXISTS {{table}} (
    id CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    flow TEXT {_TEXT} NOT NULL, branch TEXT {_TEXT} NOT NULL, target TEXT {_TEXT},
    checkpoint LONGTEXT {_TEXT}, intent LONGTEXT {_TEXT}, updated_at DATETIME(6)
) ENGINE=InnoDB"""
_ENGINE = """
SELECT engine FROM information_schema.tables
WHERE table_schema = %(schema)s AND table_name = 'dataflow_checkpoint'
"""


@dataclass(frozen=True)
class MysqlCheckpoint:
    """The row of one branch, in the transaction that the link is in. Methods raise Failure."""

    link: MysqlClient
    schema: str
    target: Target

    @property
    def table(self) -> str:
        return quote(self.schema, "dataflow_checkpoint")

    @property
    def exists(self) -> bool:
        """Raises PermanentError for a table whose changes are no part of a transaction."""
        engines = [engine for (engine,) in self.link.rows(_ENGINE, {"schema": self.schema})]
        if engines and engines != ["InnoDB"]:
            raise PermanentError(
                f"{self.table} is a table of {engines[0]}, whose rows are not stored in one "
                f"transaction with others; run: ALTER TABLE {self.table} ENGINE = InnoDB"
            )
        return bool(engines)

    def prepare(self) -> None:
        """Makes the table and the branch's row, so that drivers that race wait for each other."""
        if not self.exists:
            make_table(self.link, _MAKE.format(table=self.table))
        self._run("INSERT IGNORE INTO {} (id, flow, branch) VALUES (%(id)s, %(flow)s, %(branch)s)")

    def load(self, *, lock: bool = False) -> BranchState | None:
        """The stored state; None where somebody has removed it. `lock`: until the end."""
        query = f"SELECT checkpoint, intent FROM {self.table} WHERE id = %(id)s"  # noqa: S608 - quoted
        for checkpoint, intent in self.link.rows(query + " FOR UPDATE" * lock, self._names):
            if checkpoint is None:
                return BranchState()
            parts = decode_json(intent, tuple[PartSlice, ...])
            return BranchState(decode_json(checkpoint, Checkpoint), parts)
        return None

    def move(self, step: StateChange) -> BranchState:
        """Stores what the step makes of the stored state, which stays locked until the end."""
        state = step(self.load(lock=True))
        self._run(
            "UPDATE {} SET target = %(target)s, checkpoint = %(checkpoint)s, intent = %(intent)s, "
            "updated_at = UTC_TIMESTAMP(6) WHERE id = %(id)s",
            target=state.checkpoint.target,
            checkpoint=msgspec.json.encode(state.checkpoint).decode(),
            intent=msgspec.json.encode(state.intent).decode(),
        )
        return state

    def adopt_all(self, before: str | None, identity: str | None) -> None:
        """Stores that the table has another id, for each flow that writes into it."""
        query = (
            f"SELECT flow, branch FROM {self.table} WHERE target = %(target)s "  # noqa: S608 - quoted
            "ORDER BY id FOR UPDATE"
        )
        for flow, branch in self.link.rows(query, {"target": before}):
            one = replace(self, target=replace(self.target, flow=flow, branch=branch))
            one.move(lambda found: (found or BranchState()).adopt(identity))

    def hold(self, partition: str) -> None:
        """Names the transaction of a partition, until `release`: so a later driver can end it."""
        self.link.rows("SELECT GET_LOCK(%(name)s, 0)", {"name": self._lock(partition)})

    def release(self, partition: str) -> None:
        """Takes the name away, where the transaction has ended."""
        self.link.rows("SELECT RELEASE_LOCK(%(name)s)", {"name": self._lock(partition)})

    def end_older(self, state: BranchState) -> None:
        """Ends what older tasks have open, so that no row stays locked by one that hangs."""
        for partition in {*state.positions, *(part.partition for part in state.intent)}:
            name = {"name": self._lock(partition)}
            for (id_,) in self.link.rows("SELECT IS_USED_LOCK(%(name)s)", name):
                with suppress(MysqlFailure):  # it has just ended by itself
                    self.link.run(f"KILL {id_}" if id_ is not None else "DO 0")

    def others(self, identity: str | None) -> dict[str, str]:
        """Finds the other flows that write into the table of this id, and what removes each."""
        query = (
            f"SELECT DISTINCT flow FROM {self.table} WHERE target = %(target)s "  # noqa: S608 - quoted
            "AND flow <> %(flow)s ORDER BY flow"
        )
        found = self.link.rows(query, {**self._names, "target": identity})
        return {flow: f"DELETE FROM {self.table} WHERE flow = '{flow}'" for (flow,) in found}  # noqa: S608

    @property
    def _names(self) -> dict[str, str]:
        id_ = hashlib.sha256(self.target.id.encode()).hexdigest()
        return {"id": id_, "flow": self.target.flow, "branch": self.target.branch}

    def _lock(self, partition: str) -> str:
        name = f"{self.schema}/{self.target.id}/{partition}"  # the server has one list for all
        return f"dataflow:{hashlib.sha256(name.encode()).hexdigest()[:48]}"

    def _run(self, statement: str, **values: str | None) -> None:
        self.link.run(statement.format(self.table), {**self._names, **values})


def peek(sink: MysqlSinkOptions, target: Target) -> Checkpoint | None:
    """The stored checkpoint; no epoch is taken."""
    with translate_errors(f"reading the checkpoint of {sink.address()}"), lend(sink) as client:
        stored = MysqlCheckpoint(client, sink.place()[0], target)
        state = stored.load() if stored.exists else None
    return state.for_readers if state and state.is_known else None
