"""The statements of an upsert: a temporary table per session, and what moves its rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from dataflow_assets.connectors.postgresql import wire
from dataflow_assets.connectors.postgresql.fold import DELETED, Rules, Step
from dataflow_assets.connectors.postgresql.link import Link, qualified, quote
from dataflow_assets.connectors.postgresql.table import oid_of
from dataflow_assets.contracts import HAS_DEFAULT

if TYPE_CHECKING:
    from dataflow_assets.connectors.postgresql.sink import PostgresqlSink

_MANY = 1_000  # rows from which emptying a table is cheaper than deleting them


class Staging:
    """Loads a step's rows into the temporary table and applies them to the target."""

    def __init__(self, sink: PostgresqlSink, link: Link, schema: pa.Schema) -> None:
        self._link = link
        self._schema = schema
        self._rules = Rules.of(sink, schema)
        self._target = qualified(*sink.place())
        self._name = (
            "dataflow_"
            + hashlib.sha256(
                f"{oid_of(schema)} {schema.to_string(show_field_metadata=True)}".encode()
            ).hexdigest()[:16]
        )
        self._staged = qualified(None, self._name)
        self._rows = 0
        # Kept with the session and emptied at each commit: a table per commit would bloat the
        # catalogue of a flow that commits four times a second.
        columns = ", ".join(map(quote, schema.names))
        self._make = (
            f"CREATE TEMPORARY TABLE IF NOT EXISTS {quote(self._name)} ON COMMIT DELETE ROWS AS "
            f"SELECT {columns}, false AS {quote(DELETED)} FROM {self._target} WITH NO DATA"
        )
        link.execute(self._make)

    def loads(self, step: Step) -> Callable[[pa.RecordBatch], None]:
        """What loads rows of this step; to be run inside a savepoint."""
        fields = [self._schema.field(name) for name in step.columns]
        if DELETED in step.rows.schema.names:
            fields.append(pa.field(DELETED, pa.bool_()))
        statements = self._statements(step)

        def load(rows: pa.RecordBatch) -> None:
            self._empty()
            self._rows = max(self._rows, rows.num_rows)
            self._link.load(None, self._name, wire.project(rows, fields, self._link.binary))
            for statement in statements:
                self._link.execute(statement)

        return load

    def _empty(self) -> None:
        if self._rows > _MANY:
            self._link.execute(f"TRUNCATE {self._staged}")
        elif self._rows:
            self._link.execute(f"DELETE FROM {self._staged}")

    def _statements(self, step: Step) -> list[str]:
        if step.verb == "delete":
            return [
                f"DELETE FROM {self._target} AS t USING {self._staged} AS s WHERE {self._same()}"
            ]
        if step.verb == "mark":
            soft = quote(self._rules.soft or "")
            return [
                f"UPDATE {self._target} AS t SET {soft} = now() FROM {self._staged} AS s "
                f"WHERE {self._same()}"
            ]
        return self._upserts(step.columns, DELETED in step.rows.schema.names)

    def _upserts(self, columns: Sequence[str], deleting: bool) -> list[str]:
        values = {name: f"s.{quote(name)}" for name in columns}
        if self._rules.soft and deleting:
            kept = values.get(self._rules.soft, "NULL")
            values[self._rules.soft] = f"CASE WHEN s.{quote(DELETED)} THEN now() ELSE {kept} END"
        insert = self._insert(values)
        if not self._lacks_required(columns):
            return [insert]
        # A row that lacks a required column can only update: PostgreSQL refuses the insert before
        # it looks for the conflict. What finds no row is inserted, and refused with its reason.
        known = f"DELETE FROM {self._staged} AS s USING {self._target} AS t WHERE {self._same()}"
        return [*self._update(values), known, insert]

    def _insert(self, values: dict[str, str]) -> str:
        rules = self._rules
        names = ", ".join(map(quote, values))
        sets = [f"{quote(n)} = excluded.{quote(n)}" for n in values if n not in rules.key]
        newer = self._newer(values, "excluded")
        action = f"UPDATE SET {', '.join(sets)}{newer and f' WHERE {newer}'}" if sets else "NOTHING"
        return (
            f"INSERT INTO {self._target} AS t ({names}) SELECT {', '.join(values.values())} "
            f"FROM {self._staged} AS s ON CONFLICT ({', '.join(map(quote, rules.key))}) DO {action}"
        )

    def _update(self, values: dict[str, str]) -> list[str]:
        sets = [f"{quote(n)} = {value}" for n, value in values.items() if n not in self._rules.key]
        if not sets:
            return []
        newer = self._newer(values, "s")
        return [
            f"UPDATE {self._target} AS t SET {', '.join(sets)} FROM {self._staged} AS s "
            f"WHERE {self._same()}{newer and f' AND ({newer})'}"
        ]

    def _newer(self, values: dict[str, str], row: str) -> str:
        if self._rules.version is None:
            return ""
        column = quote(self._rules.version)
        given = f" OR t.{column} < {row}.{column}" if self._rules.version in values else ""
        return f"t.{column} IS NULL{given}"

    def _same(self) -> str:
        return " AND ".join(f"t.{quote(n)} = s.{quote(n)}" for n in self._rules.key)

    def _lacks_required(self, columns: Sequence[str]) -> bool:
        required = {
            field.name
            for field in self._schema
            if not field.nullable and HAS_DEFAULT not in (field.metadata or {})
        }
        return not required <= set(columns)
