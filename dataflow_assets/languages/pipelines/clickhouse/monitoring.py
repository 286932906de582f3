"""Keeps for the views what the checkpoint does not: names, settings, batches, errors.

Rows are only ever added: of those of one pipeline or batch the one with the highest version counts.
Nothing here decides what is read or stored: the checkpoint alone does.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from dataflow_assets.connectors.clickhouse.client import Client, insert_rows, query_rows, quote
from dataflow_assets.connectors.clickhouse.errors import failing
from dataflow_assets.contracts import Totals

_MOST_BATCHES = 1_000
_TIME = "DateTime64(6, 'UTC')"
_TABLES = {
    "dataflow_pipeline": f"""(
    flow String, branch String, pipeline_name String, table_name String, config_json String,
    state LowCardinality(String), create_time {_TIME}, alter_time {_TIME}, version UInt64)
    ENGINE = ReplacingMergeTree(version) ORDER BY (flow, branch)""",
    "dataflow_pipeline_batch": f"""(
    flow String, branch String, batch_id UInt64, batch_state LowCardinality(String),
    rows_before Int64, rejected_before Int64, rows_written Int64, rejected Int64,
    begun_at {_TIME}, ended_at Nullable({_TIME}), version UInt64)
    ENGINE = ReplacingMergeTree(version) ORDER BY (flow, branch, batch_id)""",
    "dataflow_pipeline_error": f"""(
    flow String, branch String, batch_id UInt64, kind LowCardinality(String), message String,
    happened_at {_TIME}) ENGINE = MergeTree ORDER BY (flow, branch, happened_at)""",
}
_KNOWN = """
SELECT config_json, create_time, alter_time FROM $s.dataflow_pipeline FINAL
WHERE flow = {f:String} AND branch = {b:String}
"""
_NEWEST = """
SELECT * FROM $s.dataflow_pipeline_batch FINAL WHERE flow = {f:String} AND branch = {b:String}
ORDER BY batch_id DESC LIMIT 1
"""
_PRUNE = """
DELETE FROM $s.dataflow_pipeline_batch
WHERE flow = {f:String} AND branch = {b:String} AND batch_id <= {n:UInt64}
"""
Row = dict[str, Any]


def prepare(client: Client, database: str) -> None:
    """Makes the tables that are missing. Raises Failure."""
    for name, columns in _TABLES.items():
        with failing():
            client.command(f"CREATE TABLE IF NOT EXISTS {quote(database, name)} {columns}")


class ClickhouseMonitor:
    """One pipeline's rows; each method is an INSERT or two. Raises Failure."""

    def __init__(self, client: Client, place: tuple[str, str], flow: str, branch: str) -> None:
        self._client, (self._database, self._table) = client, place
        self._own = {"flow": flow, "branch": branch}
        self._pipeline: Row = {}
        self._batch: Row = {}

    def note_open(self, name: str, config: str, epoch: int) -> None:
        """A run has taken the pipeline. Rows of a run with a lower epoch count no more."""
        now = _now()
        known, made, altered = next(iter(self._rows(_KNOWN)), ("", now, now))
        self._pipeline = {
            **self._own,
            "pipeline_name": name,
            "table_name": self._table,
            "config_json": config,
            "state": "Running",
            "create_time": made,
            "alter_time": altered if known in ("", config) else now,
            "version": 2 * epoch,
        }
        self._insert("dataflow_pipeline", self._pipeline)

    def settle(self, totals: Totals, *, unfinished: bool) -> None:
        """Records what became of the batch in which the run before has ended, by what is stored."""
        columns = ("flow", "branch", "batch_id", "batch_state", "rows_before", "rejected_before")
        more = ("rows_written", "rejected", "begun_at", "ended_at", "version")
        for row in self._rows(_NEWEST):
            self._batch = dict(zip((*columns, *more), row, strict=True))
        if not self._batch or self._batch["batch_state"] == "Succeeded":
            return
        moved = totals.rows > self._batch["rows_before"]
        moved = moved or totals.rejected > self._batch["rejected_before"]
        running = self._batch["batch_state"] == "In Progress"
        done = running and moved and not unfinished
        self._end("Succeeded" if done else "Failed", totals)

    def note_begin(self, totals: Totals) -> None:
        before = {"rows_before": totals.rows, "rejected_before": totals.rejected}
        self._batch = {
            **self._own,
            "batch_id": self._batch.get("batch_id", 0) + 1,
            "batch_state": "In Progress",
            **before,
            "rows_written": 0,
            "rejected": 0,
            "begun_at": _now(),
            "ended_at": None,
            "version": 1,
        }
        self._insert("dataflow_pipeline_batch", self._batch)

    def note_success(self, totals: Totals) -> None:
        self._end("Succeeded", totals)
        gone = self._batch["batch_id"] - _MOST_BATCHES
        if gone > 0 and gone % _MOST_BATCHES == 0:
            with failing():
                self._client.command(self._of(_PRUNE), parameters={**self._parameters, "n": gone})

    def note_end(self, error: tuple[str, str] | None) -> None:
        """The run ends, with the kind and the sentence of an error or without one."""
        state, version = "Error" if error else "Stopped", self._pipeline["version"] + 1
        self._insert("dataflow_pipeline", {**self._pipeline, "state": state, "version": version})
        if error is None:
            return
        if self._batch.get("batch_state") == "In Progress":
            self._end("Failed", None)
        failure = {"kind": error[0], "message": error[1], "happened_at": _now()}
        number = self._batch.get("batch_id", 0)
        self._insert("dataflow_pipeline_error", {**self._own, "batch_id": number, **failure})

    def _end(self, state: str, totals: Totals | None) -> None:
        batch = self._batch
        counted = (
            {}
            if totals is None
            else {
                "rows_written": totals.rows - batch["rows_before"],
                "rejected": totals.rejected - batch["rejected_before"],
            }
        )
        at = batch["ended_at"] or _now()
        changed = {"batch_state": state, **counted, "ended_at": at, "version": batch["version"] + 1}
        self._batch = {**batch, **changed}
        self._insert("dataflow_pipeline_batch", self._batch)

    @property
    def _parameters(self) -> Mapping[str, str]:
        return {"f": self._own["flow"], "b": self._own["branch"]}

    def _of(self, statement: str) -> str:
        return statement.replace("$s", quote(self._database))

    def _rows(self, query: str) -> list[Any]:
        return query_rows(self._client, self._of(query), self._parameters)

    def _insert(self, table: str, row: Row) -> None:
        shown = {name: _show(one) for name, one in row.items()}
        insert_rows(self._client, quote(self._database, table), [shown], {"async_insert": 0})


def _now() -> datetime:
    return datetime.now(UTC)


def _show(value: Any) -> Any:
    """A time as ClickHouse reads one of UTC; everything else as it is."""
    if not isinstance(value, datetime):
        return value
    return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
