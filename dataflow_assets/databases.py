"""A table in a database that a connection string reaches: what such ends declare alike."""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import Annotated, Self

from pydantic import SecretStr, StringConstraints, model_validator
from typing_extensions import override

from dataflow_assets.contracts import Address, Connector
from dataflow_assets.errors import PermanentError
from dataflow_assets.secrets import Fills, SecretRef

Identifier = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]


def foreign(text: str) -> str:
    """What to do about an address of another kind; without it nothing is known."""
    if text.lower().startswith("jdbc:"):
        return "a JDBC address: remove `jdbc:`"
    if "${" in text or text.startswith("$"):
        return "environment variables are not expanded: use connectionStringSecretRef"
    return ""


class DatabaseTable(Connector):
    """A database and a table in it, both known without network."""

    connection_string: SecretStr | None = None
    """How the database is reached."""
    connection_string_secret_ref: Annotated[
        SecretRef | None, Fills("connection_string", required=True)
    ] = None
    """Secret with the connection string."""
    table: str | None = None
    """The table's name."""
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
        if self.connection_string_secret_ref:
            connection = slugify(self.connection_string_secret_ref.name)
        else:
            connection = slugify(self.server())
        return Address(self.type, connection, *self.named())

    @override
    def spellings(self) -> tuple[str | SecretRef, ...]:
        if self.connection_string_secret_ref:
            return (self.connection_string_secret_ref,)
        return self.servers()

    def dsn(self) -> str:
        """The connection string itself, for the driver only."""
        if self.connection_string is None:
            raise PermanentError("connectionStringSecretRef was not resolved")
        return self.connection_string.get_secret_value()

    def named(self) -> tuple[str | None, str]:
        """Schema and name in the address: the same before and after secrets are resolved."""
        if self.table_secret_ref:
            return None, slugify(f"{self.table_secret_ref.name}_{self.table_secret_ref.key}")
        schema, name = self._split()
        return schema or self.known_schema(), name

    def place(self) -> tuple[str, str]:
        """Schema and name of the table; the last dot splits. Secrets must be resolved."""
        schema, name = self._split()
        return schema or self.usual_schema(), name

    def known_schema(self) -> str | None:
        """The usual schema, as far as it is no part of a secret."""
        return self.usual_schema()

    @abstractmethod
    def usual_schema(self) -> str:
        """Where a table is that is named without a schema."""

    @abstractmethod
    def server(self) -> str:
        """Host and database, never user or password."""

    @abstractmethod
    def servers(self) -> tuple[str, ...]:
        """`host:port/database` of each host; a port may be left out where it is the usual one."""

    def _split(self) -> tuple[str, str]:
        """What stands before the table's last dot, and what behind it."""
        if not self.table:
            raise PermanentError("tableSecretRef was not resolved")
        schema, _, name = self.table.rpartition(".")
        return schema, name


def slugify(text: str) -> str:
    """Lower-case letters, digits and underscores only."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "database"
