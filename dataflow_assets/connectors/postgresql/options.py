"""All that a manifest may say about PostgreSQL: the connection, the source's table, the sink's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, ClassVar, Literal

from pydantic import SecretStr, field_validator
from typing_extensions import override

from dataflow_assets.connectors.postgresql import dsn
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.wrapped import METADATA
from dataflow_assets.sdk.database import ColumnName, DatabaseTable, split
from dataflow_assets.sdk.polling.source import ReadsAgain
from dataflow_assets.sdk.raw_rows import DATA
from dataflow_assets.sdk.upsert_options import SoftDeleteOptions
from dataflow_assets.secrets.tls import Tls
from dataflow_assets.spec import Addition, Needs, Requires

_TYPE = re.compile(
    r"[a-z_][a-z0-9_]*( [a-z_][a-z0-9_]*)*( ?\(\d+(, ?\d+)?\))?( with(out)? time zone)?(\[\])*",
    re.IGNORECASE,
)
_ELSEWHERE = {
    "datetime": "timestamptz",
    "int64": "bigint",
    "int32": "integer",
    "long": "bigint",
    "string": "text",
    "float64": "double precision",
    "double": "double precision",
    "number": "numeric",
    "binary": "bytea",
    "blob": "bytea",
}
"""Types of other systems, and what PostgreSQL calls them."""


class PostgresqlConnection(DatabaseTable):
    """A database and a table in it."""

    type: ClassVar = "postgresql"
    icon: ClassVar = "postgres"

    connection_string: SecretStr | None = None
    """`postgresql://` URL or libpq key=value text."""
    table: str | None = None
    """`name` or `schema.name`; the schema is `public` unless given. A name with a dot in it is put
    in double quotes: `shop."orders.new"`."""

    tls: Annotated[Tls | None, Addition()] = None
    """Certificates as in a connection string, but by Secret or path. Without `sslmode` in the
    connection string the server's certificate and name are checked (verify-full)."""

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
            for value in dsn.files(self.connection_string.get_secret_value()):
                yield "connection_string", value

    @override
    def server(self) -> str:
        return dsn.server(super().dsn())

    @override
    def servers(self) -> tuple[str, ...]:
        return dsn.servers(super().dsn())

    @override
    def usual_schema(self) -> str:
        return "public"

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        yield from super().remarks()
        table = self.table or ""
        if table != table.lower() and '"' not in table:
            quoted = ".".join(
                f'"{part}"' if part != part.lower() else part for part in split(table)
            )
            yield (
                "table",
                (
                    f"has capital letters, so SQL must write it as {quoted.lstrip('.')}. Write it "
                    f"so here, too, if that is meant; else {table.lower()}"
                ),
            )


class PostgresqlSourceOptions(PostgresqlConnection, ReadsAgain):
    """What is read, and how its changes are found."""

    change_tracking_column: ColumnName = "updated_at"
    """The column whose value grows with each change. A table without it is read by
    `orderByColumn` alone: new rows, no changes. Where `updated_at` is null, `created_at` counts."""
    order_by_column: ColumnName = "id"
    """Orders rows with equal change values, so it must be unique: best the primary key. Available
    as the metadata `id`."""
    auto_create_table: bool = False
    """Make the table where it is missing, with `id`, `created_at` and `updated_at`."""

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        yield from super().remarks()
        if self.auto_create_table and not self.names_table:
            yield "auto_create_table", "has no effect without table: nothing names what to make"

    @override
    def no_table(self) -> PermanentError:
        return PermanentError(f"{super().no_table()}, or set autoCreateTable: true")


class PostgresqlSinkOptions(SoftDeleteOptions, PostgresqlConnection):
    """Where rows go, and what they replace."""

    own_columns: ClassVar = frozenset(
        {DATA, METADATA, "id", "created_at", "updated_at", "deleted_at"}
    )
    longest_name: ClassVar = 63

    upsert_strategy: Annotated[
        Literal["always", "ifNewer"],
        Requires("upsert_mode", when="ifNewer"),
        Requires("upsert_version_column", when="ifNewer"),
    ] = "always"
    """`always`: the row that is read last replaces the stored one. `ifNewer`: only where its
    `upsertVersionColumn` is higher."""
    upsert_version_column: Annotated[ColumnName | None, Needs("upsert_strategy", "ifNewer")] = None
    """Required with `ifNewer`: only a higher version replaces a stored row."""

    @field_validator("columns")
    @classmethod
    def _declarable(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for name, kind in value.items():
            if not _TYPE.fullmatch(kind.strip()):
                raise ValueError(f"{name}: not the name of a PostgreSQL type")
        return value

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        yield from super().remarks()
        foreign = {one: kind for one, kind in self.columns.items() if kind.lower() in _ELSEWHERE}
        if foreign:
            usual = ", ".join(f"{one}: {_ELSEWHERE[kind.lower()]}" for one, kind in foreign.items())
            yield "columns", f"has types by the names of other systems; PostgreSQL's are {usual}"
