"""All that a manifest may say about ClickHouse: the connection, the source's table, the sink's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, ClassVar, Literal

from pydantic import SecretStr, field_validator
from typing_extensions import override

from dataflow_assets.connectors.clickhouse import dsn
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.wrapped import METADATA
from dataflow_assets.sdk.database import ColumnName, ColumnNames, DatabaseTable
from dataflow_assets.sdk.polling import PolledSource
from dataflow_assets.sdk.raw_rows import DATA
from dataflow_assets.sdk.upsert_options import DeleteMode, UpsertOptions
from dataflow_assets.secrets.tls import UNCHECKED, Tls
from dataflow_assets.spec import Addition, Needs

VERSION, DELETED = "_version", "_deleted"  # columns that the sink fills


class ClickhouseConnection(DatabaseTable):
    """A database and a table in it."""

    type: ClassVar = "clickhouse"
    quotes: ClassVar = '"`'

    connection_string: SecretStr | None = None
    """`http://user:password@host:8123/database`, `https://...`, or `clickhouse://...` of a native
    port: 9000 and 9440 are taken for the HTTP ports 8123 and 8443. Parameters are `secure`,
    `skip_verify`, `ca_cert`, `client_cert`, `client_cert_key`, `compress`, `dial_timeout` and
    `read_timeout`; others set the server."""
    table: str | None = None
    """`name` or `database.name`; the database is the connection string's unless given. A name with
    a dot in it is put in double quotes or backticks."""

    @field_validator("connection_string")
    @classmethod
    def _readable(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            try:
                dsn.parse(value.get_secret_value())
            except PermanentError as error:
                raise ValueError(str(error).removeprefix("connectionString: ")) from None
        return value

    tls: Annotated[Tls | None, Addition()] = None
    """Certificates for `https://` or `secure=true`, by Secret or path. A client's certificate
    stands for the user where the connection string has no password."""

    @override
    def dsn(self) -> str:
        """With the certificates of `tls`. Raises PermanentError where one is missing or broken."""
        text = super().dsn()
        return dsn.with_tls(text, self.tls) if self.tls else text

    @override
    def places_of_secrets(self) -> Iterator[tuple[str, str]]:
        if self.connection_string is None:
            return
        with suppress(PermanentError):
            for value in dsn.parse(self.connection_string.get_secret_value()).files.values():
                yield "connection_string", value

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        yield from super().remarks()
        if self.connection_string is None:
            return
        parsed = dsn.parse(super().dsn())
        if parsed.note:
            yield "connection_string", parsed.note
        if parsed.secure and not parsed.verify:
            yield "connection_string", f"skip_verify: {UNCHECKED}"
        if parsed.idle:
            note = "no effect here: pools and protocols of another client"
            yield "connection_string", f"{', '.join(parsed.idle)}: {note}"

    @override
    def server(self) -> str:
        return dsn.server(super().dsn())

    @override
    def servers(self) -> tuple[str, ...]:
        return dsn.servers(super().dsn())

    @override
    def usual_schema(self) -> str:
        return dsn.parse(super().dsn()).database

    @override
    def known_schema(self) -> str | None:
        return None if self.connection_string_secret_ref else self.usual_schema()


class ClickhouseSourceOptions(ClickhouseConnection, PolledSource):
    """What is read, and how its changes are found."""

    order_by_column: ColumnName = "id"
    """Orders rows with equal change values, so it must be unique; best a prefix of the table's
    sorting key. Available as the metadata `id`."""
    change_tracking_column: ColumnName = "created_at"
    """The column whose value grows with each change. A table without it is read by
    `orderByColumn` alone: new rows, no changes."""
    final: Annotated[bool, Addition()] = False
    """Read with FINAL: of a ReplacingMergeTree the last row of each key, not all there are."""

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if self.query is not None and self.final:
            yield "final is for tables; write FINAL into the query"


class ClickhouseSinkOptions(UpsertOptions, ClickhouseConnection):
    """Where rows go, and what they replace."""

    own_columns: ClassVar = frozenset({DATA, METADATA, "created_at"})
    text_bodies: ClassVar = True

    conflict_key: ColumnNames = ()
    """One column or a list of them, the table's ORDER BY; without it what the table has. With
    `rawMode` and `upsertMode` these are metadata of the records, such as `key`."""
    table_engine: Annotated[
        Literal["MergeTree", "ReplacingMergeTree"] | None, Needs("auto_create_table")
    ] = None
    """Engine of a table that autoCreateTable makes; `ReplacingMergeTree` with upsertMode."""
    replacing_version_column: ColumnName | None = None
    """Column of the records by which a ReplacingMergeTree finds the newest row of a key."""
    delete_mode: DeleteMode = None
    """`hard`: queries with FINAL see the row of a deleted key no more. `soft`: they see it, and its
    column `_deleted` is 1."""
    order_by: Annotated[ColumnNames, Addition(), Needs("auto_create_table")] = ()
    """ORDER BY of a table that autoCreateTable makes, where conflictKey does not say."""
    partition_by: Annotated[str | None, Addition(), Needs("auto_create_table")] = None
    """PARTITION BY of a table that autoCreateTable makes, e.g. `toYYYYMM(created)`."""

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if self.conflict_key and self.order_by:
            yield "conflictKey is the ORDER BY already; leave orderBy out"
        if self.upsert_mode and self.table_engine == "MergeTree":
            yield "upsertMode needs tableEngine ReplacingMergeTree"
        if self.delete_mode and self.replacing_version_column:
            yield (
                "deleteMode and replacingVersionColumn exclude each other: a deletion carries no "
                f"version; leave the column out, and {VERSION} is filled in the order of reading"
            )
        if self.replacing_version_column and self.engine != "ReplacingMergeTree":
            yield "replacingVersionColumn requires tableEngine ReplacingMergeTree"

    @property
    def engine(self) -> str:
        return self.table_engine or ("ReplacingMergeTree" if self.upsert_mode else "MergeTree")
