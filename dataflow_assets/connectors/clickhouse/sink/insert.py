"""One INSERT of Arrow rows under a token; and which rows the table refuses, found by trial."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial

import msgspec
import pyarrow as pa

from dataflow_assets.connectors.clickhouse.client import (
    Client,
    insert,
    inserting,
    known_settings,
    quote,
)
from dataflow_assets.connectors.clickhouse.errors import ACCESS_DENIED, ClickhouseFailure, failing
from dataflow_assets.connectors.clickhouse.sink.defaults import Defaults, absent_masks
from dataflow_assets.connectors.clickhouse.sink.trial_table import trial_table
from dataflow_assets.connectors.clickhouse.sink.upsert_rules import UpsertRules
from dataflow_assets.contracts import ABSENT
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.sdk.refused_rows import RefusedRow, SuspectRows, attempt_rows
from dataflow_assets.sdk.server_failure import Fault, ServerFailure

SECONDS = 600  # after that the server gives an INSERT up; a later one of the same token is the same
_TRIED = {"async_insert": 0, "wait_end_of_query": 1}
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
    column_types: Mapping[str, str]
    """Of all columns of the table: values are made for these."""
    views: bool = False
    """Materialized views read what is inserted: where one fails, the rows are in the table."""

    def into(self, schema: pa.Schema) -> pa.Schema:
        told = {_METADATA: msgspec.json.encode(self)}
        return schema.with_metadata({**(schema.metadata or {}), **told})

    @classmethod
    def of(cls, schema: pa.Schema) -> Facts:
        return decode_json(schema.metadata[_METADATA], cls)


class ClickhouseInsert:
    """INSERTs into one table."""

    def __init__(
        self, client: Client, place: tuple[str, str], facts: Facts, schema: pa.Schema
    ) -> None:
        self._client = client
        self._database, self._name = place
        self._facts = facts
        self._schema = schema
        self._defaults = Defaults(client, place, schema)

    def insert(self, rows: pa.Table, token: str, version: int) -> ServerFailure | None:
        """All rows or none, once under the token; why not, where a row may be the reason."""
        if not rows.num_rows:
            return None
        settings = inserting(token, replicated=self._facts.replicated)
        return self._attempt(self._name, self._columns(rows, version), settings)

    def refused_rows(self, rows: pa.Table, suspects: SuspectRows) -> list[RefusedRow[pa.Table]]:
        """The rows that the table or its views refuse, found by trial. Raises Failure."""
        with trial_table(self._client, (self._database, self._name)) as trial:
            return suspects.search(self._columns(rows, 0), partial(self._try, trial))

    def _try(self, trial: str, rows: pa.Table) -> ServerFailure | None:
        """A right that this user lacks in the trial says nothing about rows."""
        failure = self._attempt(trial, rows, _TRIED)
        if isinstance(failure, ClickhouseFailure) and failure.code == ACCESS_DENIED:
            raise failure
        return failure

    def _attempt(
        self, table: str, rows: pa.Table, settings: Mapping[str, object]
    ) -> ServerFailure | None:
        try:
            return attempt_rows(lambda: self._insert(table, rows, settings))
        except ClickhouseFailure as failure:
            if failure.fault is Fault.OUTSIDE:
                raise
            return failure

    def _columns(self, rows: pa.Table, version: int) -> pa.Table:
        filled = UpsertRules((), self._facts.version, self._facts.deleted).columns(rows, version)
        chosen = rows.select(self._schema.names)
        for name, values in filled.items():
            chosen = chosen.append_column(name, values)
        chosen = chosen.append_column(ABSENT, absent_masks(rows))
        return chosen.replace_schema_metadata(None)

    def _insert(self, table: str, rows: pa.Table, settings: Mapping[str, object]) -> None:
        given = {"max_execution_time": SECONDS, **self._defaults.settings, **settings}
        filled = self._defaults.fill(rows)
        with failing():
            place = quote(self._database, table)
            insert(self._client, place, filled, known_settings(self._client, given))
