"""How to reach a PostgreSQL table: the part that source and sink share, known without network."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import SecretStr, StringConstraints, model_validator
from typing_extensions import override

from dataflow_assets.connectors.postgresql import dsn
from dataflow_assets.contracts import Address, Connector
from dataflow_assets.errors import PermanentError
from dataflow_assets.secrets import Fills, SecretRef

Identifier = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]


class PostgresqlConnection(Connector):
    """A database and a table in it."""

    type: ClassVar = "postgresql"

    connection_string: SecretStr | None = None
    """`postgresql://` URL or libpq key=value text."""
    connection_string_secret_ref: Annotated[
        SecretRef | None, Fills("connection_string", required=True)
    ] = None
    """Secret with the connection string."""
    table: str | None = None
    """`name` or `schema.name`; the schema is `public` unless given."""
    table_secret_ref: Annotated[SecretRef | None, Fills("table", required=True)] = None
    """Secret with the table's name."""

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
    def address(self) -> Address:
        schema, name = self._named()
        if self.connection_string_secret_ref:
            connection = dsn.slugify(self.connection_string_secret_ref.name)
        else:
            connection = dsn.slug(self.dsn())
        return Address(self.type, connection, schema, name)

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
        """Schema and name of the table; the last dot splits."""
        if not self.table:
            raise PermanentError("tableSecretRef was not resolved")
        schema, _, name = self.table.rpartition(".")
        return schema or "public", name

    def _named(self) -> tuple[str | None, str]:
        # The same before and after secrets are resolved: it is the branch's identity.
        if self.table_secret_ref:
            return None, dsn.slugify(f"{self.table_secret_ref.name}_{self.table_secret_ref.key}")
        return self.place()
