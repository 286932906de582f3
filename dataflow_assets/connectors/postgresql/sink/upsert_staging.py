"""The statements of an upsert: a temporary table per session, and what moves its rows."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from dataflow_assets.connectors.postgresql.client import Link, qualified_name, quote
from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.connectors.postgresql.sink.copy_new_keys import DirectCopy
from dataflow_assets.connectors.postgresql.sink.encode_copy import copy_rows
from dataflow_assets.connectors.postgresql.sink.key_order import Ints, firsts
from dataflow_assets.connectors.postgresql.sink.refused_rows import PostgresqlTrial
from dataflow_assets.connectors.postgresql.sink.upsert_rules import (
    DELETED,
    POSITION,
    FoldedRows,
    PostgresqlRules,
)
from dataflow_assets.connectors.postgresql.table.table import EQUALS, JUDGED, oid_of
from dataflow_assets.contracts import Note
from dataflow_assets.sdk.free_names import free_stem
from dataflow_assets.sdk.server_failure import ServerFailure

_MANY = 5_000  # rows, deleted ones too, from which a new file is cheaper than deleting them

# Kept with the link: a new table per commit would bloat the catalogue under a flow that commits
# four times a second. Each slice empties its own before it begins: with ON COMMIT DELETE ROWS
# PostgreSQL would cut off the files of every flow that the link serves at every commit.
_MAKE = """
CREATE TEMPORARY TABLE IF NOT EXISTS {name} AS
SELECT {columns}, false AS {deleted}, 0::bigint AS {position} FROM {target} WITH NO DATA
"""
_INSERT = """
INSERT INTO {target} AS t ({names}) SELECT {values} FROM {staged} AS s
ON CONFLICT ({key}) DO {action}
"""
_UPDATE = "UPDATE {target} AS t SET {sets} FROM {staged} AS s WHERE {same} AND {newer}"
# One statement, which sees one state of the table: a row that another session inserts meanwhile is
# neither updated nor forgotten, and the insert behind it finds it.
_UPDATE_KNOWN = "WITH updated AS ({update}) {forget}"
_DELETE = "DELETE FROM {target} AS t USING {staged} AS s WHERE {same}"
_ALIKE = """
SELECT position, first FROM (
    SELECT {position} AS position, min({position}) OVER (PARTITION BY {key}) AS first
    FROM {staged}) AS found
WHERE first < position
"""
_FORGET_KNOWN = "DELETE FROM {staged} AS s USING {target} AS t WHERE {same}"

_tallies: WeakKeyDictionary[Link, Counter[str]] = WeakKeyDictionary()
"""How many rows a link has put into each of its tables since that began a new file."""


class UpsertStaging:
    """Loads a step's rows into the temporary table and applies them to the target."""

    def __init__(self, sink: PostgresqlSinkOptions, link: Link, schema: pa.Schema) -> None:
        self._link = link
        self._place = sink.place()
        self._schema = schema
        self._rules = PostgresqlRules.of(sink, schema)
        self._name = _name(schema)
        stem = free_stem(schema.names, "_dataflow_")
        self._columns = {DELETED: f"{stem}deleted", POSITION: f"{stem}position"}
        self._tally = _tallies.setdefault(link, Counter())
        self._words = {
            "target": qualified_name(*self._place),
            "staged": qualified_name(None, self._name),
            "key": _list(self._rules.key),
            "same": " AND ".join(_equal(schema.field(name)) for name in self._rules.key),
            "deleted": quote(self._columns[DELETED]),
            "position": quote(self._columns[POSITION]),
        }
        columns, name = _list(schema.names), quote(self._name)
        make = _MAKE.format(**self._words, name=name, columns=columns)
        link.execute(f"{make}; {self._emptying()}")
        self._filled = False
        self._direct = DirectCopy(link, self._name, self._words)

    def loads(self, step: FoldedRows) -> Callable[[pa.RecordBatch], None]:
        """Returns what loads rows of this step; to be run inside a savepoint."""
        fields = [self._schema.field(name) for name in step.columns]
        if DELETED in step.rows.schema.names:
            fields.append(pa.field(DELETED, pa.bool_()))
        statements = self._statements(step)
        stage = partial(self._stage, fields)
        copy = partial(copy_rows, self._link, self._place, fields)
        marked = DELETED in step.rows.schema.names
        # A row of a new key is inserted as it is.
        upserts = step.verb == "upsert" and not marked
        direct = upserts and not self._lacks_required(step.columns)

        def merge(rows: pa.RecordBatch) -> None:
            stage(rows)
            for statement in statements:
                self._link.execute(statement)

        def load(rows: pa.RecordBatch) -> None:
            if not (direct and self._direct.load(rows, stage, merge, copy)):
                merge(rows)

        return load

    def equal(
        self, rows: pa.RecordBatch, codes: Ints, trial: PostgresqlTrial
    ) -> tuple[Mapping[int, ServerFailure], Ints]:
        """Which keys are one key, asked of the server: each spelling once.

        `codes`: the number of each row's spelling. Returns why the server refuses a spelling, and
        for each spelling the first one that is equal to it.
        """
        asked = rows.take(pa.array(firsts(codes)))
        asked = asked.append_column(POSITION, pa.array(np.arange(asked.num_rows)))
        failures = trial.run(asked, self._stage_keys)
        refused = {row.column(POSITION)[0].as_py(): failure for row, failure in failures}
        if refused:  # the others were staged in pieces
            wrong = np.isin(asked.column(POSITION).to_numpy(), list(refused))
            self._stage_keys(asked.filter(pa.array(~wrong)))
        first = np.arange(asked.num_rows, dtype=np.int64)
        for position, equal in self._link.execute(_ALIKE.format(**self._words)):
            first[position] = equal
        return refused, first

    def end(self) -> None:
        """Gives the room of many rows back: the link may not come by here again for long."""
        if self._tally[self._name] > _MANY:
            self._link.execute(self._emptying())

    def _stage_keys(self, rows: pa.RecordBatch) -> None:
        """Puts keys into the temporary table, with their positions."""
        fields = [self._schema.field(name) for name in self._rules.key]
        self._stage([*fields, pa.field(POSITION, pa.int64())], rows)

    def _stage(self, fields: Sequence[pa.Field], rows: pa.RecordBatch) -> None:
        if self._filled:
            self._link.execute(self._emptying())
        self._filled = True
        self._tally[self._name] += rows.num_rows
        named = [self._columns.get(name, name) for name in rows.schema.names]
        columns = [one.with_name(self._columns.get(one.name, one.name)) for one in fields]
        copy_rows(self._link, (None, self._name), columns, rows.rename_columns(named))

    def _emptying(self) -> str:
        many = self._tally[self._name] > _MANY
        if many:
            del self._tally[self._name]
        return f"{'TRUNCATE' if many else 'DELETE FROM'} {self._words['staged']}"

    def _statements(self, step: FoldedRows) -> list[str]:
        if step.verb == "delete":
            return [_DELETE.format(**self._words)]
        if step.verb == "mark":
            sets = f"{quote(self._rules.soft or '')} = now()"
            return [_UPDATE.format(**self._words, sets=sets, newer="true")]
        return self._upserts(step.columns, deleting=DELETED in step.rows.schema.names)

    def _upserts(self, columns: Sequence[str], *, deleting: bool) -> list[str]:
        values = {name: f"s.{quote(name)}" for name in columns}
        if self._rules.soft and deleting:
            kept = values.get(self._rules.soft, "NULL")
            deleted = f"s.{self._words['deleted']}"
            values[self._rules.soft] = f"CASE WHEN {deleted} THEN now() ELSE {kept} END"
        if not self._may_be_refused(columns):
            return [self._insert(values)]
        # A row that lacks a required column can only update: PostgreSQL refuses the insert before
        # it looks for the conflict. What finds no row is inserted, or refused with its reason.
        forget = _FORGET_KNOWN.format(**self._words)
        if sets := self._sets(values):
            newer = self._newer(values, "s")
            update = _UPDATE.format(**self._words, sets=sets, newer=newer)
            forget = _UPDATE_KNOWN.format(update=update, forget=forget)
        return [forget, self._insert(values)]

    def _insert(self, values: dict[str, str]) -> str:
        sets = self._sets({name: f"excluded.{quote(name)}" for name in values})
        newer = self._newer(values, "excluded")
        action = f"UPDATE SET {sets} WHERE {newer}" if sets else "NOTHING"
        given = {"names": _list(values), "values": ", ".join(values.values()), "action": action}
        return _INSERT.format(**self._words, **given)

    def _sets(self, values: dict[str, str]) -> str:
        changed = {name: v for name, v in values.items() if name not in self._rules.key}
        return ", ".join(f"{quote(name)} = {value}" for name, value in changed.items())

    def _newer(self, values: dict[str, str], row: str) -> str:
        if self._rules.version is None:
            return "true"
        column = quote(self._rules.version)
        given = f" OR t.{column} < {row}.{column}" if self._rules.version in values else ""
        return f"(t.{column} IS NULL{given})"

    def _may_be_refused(self, columns: Sequence[str]) -> bool:
        """Returns true where a row is refused as a new one because it lacks columns."""
        judged = self._schema.metadata[JUDGED] == b"1" and len(columns) < len(self._schema)
        return judged or self._lacks_required(columns)

    def _lacks_required(self, columns: Sequence[str]) -> bool:
        required = {
            field.name
            for field in self._schema
            if not field.nullable and not Note.HAS_DEFAULT.marks(field)
        }
        return not required <= set(columns)


def _name(schema: pa.Schema) -> str:
    """One temporary table per target and set of columns: a session serves several flows."""
    text = f"{oid_of(schema)} {schema.to_string(show_field_metadata=True)}"
    return "dataflow_" + hashlib.sha256(text.encode()).hexdigest()[:16]


def _equal(field: pa.Field) -> str:
    operator = (field.metadata or {}).get(EQUALS, b"=").decode()
    return f"t.{quote(field.name)} {operator} s.{quote(field.name)}"


def _list(names: Sequence[str] | dict[str, str]) -> str:
    return ", ".join(map(quote, names))
