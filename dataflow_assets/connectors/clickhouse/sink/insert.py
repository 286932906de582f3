"""One INSERT of Arrow rows under a token; and which rows the table refuses, found by trial."""

from __future__ import annotations

import uuid
from datetime import datetime

import msgspec
import pyarrow as pa

from dataflow_assets.connectors.clickhouse.client import Client, insert, inserting, known, quote
from dataflow_assets.connectors.clickhouse.errors import Failure, Kind, failing
from dataflow_assets.connectors.clickhouse.sink.defaults import Defaults, absent
from dataflow_assets.connectors.clickhouse.sink.upsert_rules import UpsertRules
from dataflow_assets.contracts import ABSENT
from dataflow_assets.decoding import decode_json

SECONDS = 600  # after that the server gives an INSERT up; a later one of the same token is the same
_MOST_TRIALS = 1_000  # with as many refusals rows are no longer worth looking for
_METADATA = b"dataflow.clickhouse"


class Facts(msgspec.Struct, frozen=True):
    """What a task must know of the target and the micro-batch; travels in the ticket's schema."""

    uuid: str
    """Of the table: another one of its name is not written to."""
    at: datetime
    """What the steps take for now."""
    partitioned: bool
    """One INSERT may become several blocks: they are atomic each, not together."""
    replicated: bool
    version: str | None
    """The column that is filled with the chunk's version."""
    deleted: str | None
    """The column that says whether the row is a deletion."""

    def into(self, schema: pa.Schema) -> pa.Schema:
        """The schema with these facts."""
        told = {_METADATA: msgspec.json.encode(self)}
        return schema.with_metadata({**(schema.metadata or {}), **told})

    @classmethod
    def of(cls, schema: pa.Schema) -> Facts:
        """Read back."""
        return decode_json(schema.metadata[_METADATA], cls)


class Insert:
    """INSERTs into one table."""

    def __init__(
        self, client: Client, place: tuple[str, str], facts: Facts, schema: pa.Schema
    ) -> None:
        self._client = client
        self._database, self._name = place
        self._facts = facts
        self._schema = schema
        self._defaults = Defaults(client, place, schema)

    def insert(self, rows: pa.Table, token: str, version: int) -> None:
        """All rows or none, once under the token. Raises Failure."""
        if rows.num_rows:
            settings = inserting(token, replicated=self._facts.replicated)
            self._insert(self._name, self._columns(rows, version), settings)

    def refused(self, rows: pa.Table, failure: Failure) -> dict[int, str]:
        """By index: the rows that the table refuses, and why. Raises Failure when there are none.

        A table of the engine Null with the same columns and constraints is asked.
        """
        trial = f"dataflow_trial_{uuid.uuid4().hex[:12]}"
        target, here = quote(self._database, self._name), quote(self._database, trial)
        with failing():
            self._client.command(f"CREATE TABLE {here} AS {target} ENGINE = Null")
        try:
            found: dict[int, str] = {}
            self._search(trial, self._columns(rows, 0), 0, found)
        finally:
            with failing():
                self._client.command(f"DROP TABLE IF EXISTS {here}")
        if not found:
            raise failure
        return found

    def _search(self, trial: str, rows: pa.Table, first: int, found: dict[int, str]) -> None:
        """Halves what is refused until it is one row."""
        try:
            self._insert(trial, rows, {"async_insert": 0, "wait_end_of_query": 1})
        except Failure as failure:
            if failure.kind is not Kind.REFUSED or len(found) > _MOST_TRIALS:
                raise
            if rows.num_rows == 1:
                found[first] = failure.reason
                return
            half = rows.num_rows // 2
            self._search(trial, rows.slice(0, half), first, found)
            self._search(trial, rows.slice(half), first + half, found)

    def _columns(self, rows: pa.Table, version: int) -> pa.Table:
        filled = UpsertRules((), self._facts.version, self._facts.deleted).columns(rows, version)
        chosen = rows.select(self._schema.names)
        for name, values in filled.items():
            chosen = chosen.append_column(name, values)
        chosen = chosen.append_column(ABSENT, absent(rows))
        return chosen.replace_schema_metadata(None)

    def _insert(self, table: str, rows: pa.Table, settings: dict[str, object]) -> None:
        """`rows`: as `_columns` makes them."""
        given = {"max_execution_time": SECONDS, **self._defaults.settings, **settings}
        filled = self._defaults.filled(rows)
        with failing():
            place = quote(self._database, table)
            insert(self._client, place, filled, known(self._client, given))
