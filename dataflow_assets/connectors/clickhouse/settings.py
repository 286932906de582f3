"""How to reach a ClickHouse table: what source and sink share, known without network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import SecretStr, field_validator
from typing_extensions import override

from dataflow_assets.connectors.clickhouse import dsn
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.database import DatabaseTable


class ClickhouseConnection(DatabaseTable):
    """A database and a table in it."""

    type: ClassVar = "clickhouse"
    quotes: ClassVar = '"`'

    connection_string: SecretStr | None = None
    """`http://user:password@host:8123/database`, `https://...`, or `clickhouse://...` of a native
    port: 9000 and 9440 are taken for the HTTP ports 8123 and 8443. Parameters are `secure`,
    `skip_verify`, `compress`, `dial_timeout` and `read_timeout`; others set the server."""
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

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        if self.connection_string is not None and (note := dsn.parse(self.dsn()).note):
            yield "connection_string", note

    @override
    def server(self) -> str:
        return dsn.server(self.dsn())

    @override
    def servers(self) -> tuple[str, ...]:
        return dsn.servers(self.dsn())

    @override
    def usual_schema(self) -> str:
        return dsn.parse(self.dsn()).database

    @override
    def known_schema(self) -> str | None:
        return None if self.connection_string_secret_ref else self.usual_schema()
