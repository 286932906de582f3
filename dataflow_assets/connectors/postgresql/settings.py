"""How to reach a PostgreSQL table: the part that source and sink share, known without network."""

from __future__ import annotations

from typing import ClassVar

from pydantic import SecretStr
from typing_extensions import override

from dataflow_assets.connectors.postgresql import dsn
from dataflow_assets.sdk.database import DatabaseTable


class PostgresqlConnection(DatabaseTable):
    """A database and a table in it."""

    type: ClassVar = "postgresql"
    icon: ClassVar = "postgres"

    connection_string: SecretStr | None = None
    """`postgresql://` URL or libpq key=value text."""
    table: str | None = None
    """`name` or `schema.name`; the schema is `public` unless given. A name with a dot in it is put
    in double quotes: `shop."orders.new"`."""

    @override
    def server(self) -> str:
        return dsn.server(self.dsn())

    @override
    def servers(self) -> tuple[str, ...]:
        return dsn.servers(self.dsn())

    @override
    def usual_schema(self) -> str:
        return "public"
