"""How to reach a ClickHouse table: what source and sink share, known without network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Self

from pydantic import SecretStr, field_validator, model_validator
from typing_extensions import override

from dataflow_assets.connectors.clickhouse import dsn
from dataflow_assets.contracts import Address, Connector
from dataflow_assets.errors import PermanentError
from dataflow_assets.secrets import Fills, SecretRef


class ClickhouseConnection(Connector):
    """A database and a table in it."""

    type: ClassVar = "clickhouse"

    connection_string: SecretStr | None = None
    """`http://user:password@host:8123/database`, `https://...`, or `clickhouse://...` of a native
    port: 9000 and 9440 are taken for the HTTP ports 8123 and 8443. Parameters are `secure`,
    `skip_verify`, `compress`, `dial_timeout` and `read_timeout`; others set the server."""
    connection_string_secret_ref: Annotated[
        SecretRef | None, Fills("connection_string", required=True)
    ] = None
    """Secret with the connection string."""
    table: str | None = None
    """`name` or `database.name`; the database is the connection string's unless given."""
    table_secret_ref: Annotated[SecretRef | None, Fills("table", required=True)] = None
    """Secret with the table's name."""

    @field_validator("connection_string")
    @classmethod
    def _readable(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            try:
                dsn.parse(value.get_secret_value())
            except PermanentError as error:
                raise ValueError(str(error).removeprefix("connectionString: ")) from None
        return value

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.connection_string is None and self.connection_string_secret_ref is None:
            raise ValueError("connectionString or connectionStringSecretRef is required")
        if not self.names_table and not self.does_without_table:
            raise ValueError("table or tableSecretRef is required")
        return self

    @property
    def names_table(self) -> bool:
        """True where a table is given, in plain text or as a secret."""
        return bool(self.table) or self.table_secret_ref is not None

    @property
    def does_without_table(self) -> bool:
        """True where something else says what is meant."""
        return False

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        if self.connection_string is not None and (note := dsn.parse(self.dsn()).note):
            yield "connection_string", note

    @override
    def address(self) -> Address:
        database, name = self._named()
        if self.connection_string_secret_ref:
            connection = dsn.slugify(self.connection_string_secret_ref.name)
        else:
            connection = dsn.slug(self.dsn())
        return Address(self.type, connection, database, name)

    @override
    def spellings(self) -> tuple[str | SecretRef, ...]:
        if self.connection_string_secret_ref:
            return (self.connection_string_secret_ref,)
        return dsn.spellings(self.dsn())

    def dsn(self) -> str:
        """The connection string itself, for the driver only."""
        if self.connection_string is None:
            raise PermanentError("connectionStringSecretRef was not resolved")
        return self.connection_string.get_secret_value()

    def place(self) -> tuple[str, str]:
        """Database and name of the table; the last dot splits."""
        if not self.table:
            raise PermanentError("tableSecretRef was not resolved")
        database, _, name = self.table.replace("`", "").rpartition(".")
        return database or dsn.parse(self.dsn()).database, name

    def _named(self) -> tuple[str | None, str]:
        # The same before and after secrets are resolved: it is the branch's identity.
        if self.table_secret_ref:
            return None, dsn.slugify(f"{self.table_secret_ref.name}_{self.table_secret_ref.key}")
        if self.connection_string_secret_ref:
            database, _, name = (self.table or "").replace("`", "").rpartition(".")
            return database or None, name
        return self.place()
