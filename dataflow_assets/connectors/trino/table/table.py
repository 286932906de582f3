"""A table as Trino describes it now: its columns, and what tells it from another of its name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from dataflow_assets.connectors.trino import types
from dataflow_assets.connectors.trino.client import TrinoClient, literal, quote
from dataflow_assets.connectors.trino.errors import DENIED, MISSING, TrinoFailure
from dataflow_assets.connectors.trino.type_names import TrinoType
from dataflow_assets.contracts import Note

_COLUMNS = """
SELECT column_name, data_type, is_nullable, comment FROM {catalog}.information_schema.columns
WHERE table_schema = {schema} AND table_name = {table} ORDER BY ordinal_position
"""
_PLAIN_COLUMNS = """
SELECT column_name, data_type, is_nullable, NULL FROM {catalog}.information_schema.columns
WHERE table_schema = {schema} AND table_name = {table} ORDER BY ordinal_position
"""
_CONNECTOR = "SELECT connector_name FROM system.metadata.catalogs WHERE catalog_name = {catalog}"
_POSTGRESQL = "postgresql"


@dataclass(frozen=True)
class TrinoPlace:
    """Catalog, schema and name of a table."""

    catalog: str
    schema: str
    name: str

    @property
    def quoted_name(self) -> str:
        return quote(self.catalog, self.schema, self.name)

    def beside(self, name: str) -> TrinoPlace:
        """Another table of the same schema; `name$snapshots` is one of Iceberg's own."""
        return TrinoPlace(self.catalog, self.schema, name)

    def metadata_table(self, what: str) -> str:
        """A table of Iceberg about this one, as SQL takes it."""
        return self.beside(f"{self.name}${what}").quoted_name

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}.{self.name}"


@dataclass(frozen=True)
class Column:
    """One column as Trino spells it."""

    name: str
    type: str
    nullable: bool = True
    comment: str = ""

    @property
    def kind(self) -> TrinoType:
        return TrinoType.of(self.type)

    @property
    def field(self) -> pa.Field:
        return types.sink_field(self.name, self.type, nullable=self.nullable, comment=self.comment)


@dataclass(frozen=True)
class TrinoTable:
    """One table."""

    place: TrinoPlace
    columns: tuple[Column, ...]
    identity: str
    connector: str = ""
    """What Trino calls the kind of its catalog; empty where the user may not know."""

    def schema(self, key: Sequence[str] = ()) -> pa.Schema:
        """The columns that records can fill; those of a key must not be null."""
        fields = [c.field.with_nullable(c.nullable and c.name not in key) for c in self.columns]
        metadata = {Note.KEY: json.dumps(list(key)).encode()} if key else {}
        if self.connector == _POSTGRESQL:
            metadata[Note.NO_NUL] = b"1"
        return pa.schema(fields, metadata or None)


def find(client: TrinoClient, place: TrinoPlace) -> TrinoTable | None:
    """The table; None where there is none. Raises Failure."""
    columns = _columns(client, place)
    if not columns:
        return None
    return TrinoTable(place, columns, identity(client, place), _connector(client, place.catalog))


def column_names(client: TrinoClient, place: TrinoPlace) -> frozenset[str]:
    """The names of its columns; none where there is no table. Raises Failure."""
    return frozenset(column.name for column in _columns(client, place))


def _connector(client: TrinoClient, catalog: str) -> str:
    try:
        return str(client.value(_CONNECTOR.format(catalog=literal(catalog))) or "")
    except TrinoFailure as failure:
        if failure.name != DENIED:
            raise
        return ""


def _columns(client: TrinoClient, place: TrinoPlace) -> tuple[Column, ...]:
    where = {
        "catalog": quote(place.catalog),
        "schema": literal(place.schema),
        "table": literal(place.name),
    }
    try:
        rows = client.rows(_COLUMNS.format(**where))
    except TrinoFailure as failure:
        if failure.name != "COLUMN_NOT_FOUND":
            raise
        rows = client.rows(_PLAIN_COLUMNS.format(**where))
    return tuple(
        Column(str(name), str(kind), nullable == "YES", str(comment or ""))
        for name, kind, nullable, comment in rows
    )


def identity(client: TrinoClient, place: TrinoPlace) -> str:
    """Returns what tells the table from another one of its name, where the catalog tells anything.

    Iceberg: a digest of where its files are. Elsewhere the name: a table that was re-created is
    not told from the one before it. Raises Failure.
    """
    location = _location(client, place)
    return hashlib.sha256(location.encode()).hexdigest()[:16] if location else str(place)


def _location(client: TrinoClient, place: TrinoPlace) -> str:
    """Returns where the table's files are; empty where nothing tells.

    Who may only read the table is not shown how it is made, but where its metadata is.
    """
    try:
        return _property(str(client.value(f"SHOW CREATE TABLE {place.quoted_name}")), "location")
    except TrinoFailure as failure:
        if failure.transient or failure.name in MISSING:
            raise
    try:
        file = client.value(f"SELECT max(file) FROM {place.metadata_table('metadata_log_entries')}")  # noqa: S608
    except TrinoFailure as failure:
        if failure.transient:
            raise
        return ""
    return str(file or "").rpartition("/metadata/")[0]


def _property(statement: str, name: str) -> str:
    for line in statement.splitlines():
        key, _, value = line.strip().partition(" = ")
        if key == name:
            return value.rstrip(",").strip("'")
    return ""
