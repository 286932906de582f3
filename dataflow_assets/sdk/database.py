"""A table with a name, and the database that a connection string reaches: declared alike."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import SecretStr, StringConstraints
from typing_extensions import override

from dataflow_assets.contracts import Address, Connector
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.secrets import Fills, SecretRef
from dataflow_assets.spec import OneOrMany

COLUMN_NAME = r"^[^\x00]+$"
ColumnName = Annotated[str, StringConstraints(pattern=COLUMN_NAME)]
"""The name of a column as the database has it: names are quoted in every statement."""


ColumnNames = Annotated[tuple[ColumnName, ...], OneOrMany]
"""One column or a list of them."""


class NamedTable(Connector):
    """A table of some system, known without network.

    Options of connectors derive from it. Methods may be called before secrets are resolved, when
    manifests are loaded, unless they say otherwise.
    """

    quotes: ClassVar = '"'
    """What may enclose a name in `table`."""

    table: str | None = None
    """The table's name. A name with a dot in it is put in quotes."""
    table_secret_ref: Annotated[SecretRef | None, Fills("table", required=True)] = None
    """Secret with the table's name."""

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if not self.names_table and not self.does_without_table:
            yield "table or tableSecretRef is required"

    @property
    def names_table(self) -> bool:
        """True where a table is given, in plain text or as a secret."""
        return bool(self.table) or self.table_secret_ref is not None

    @property
    def does_without_table(self) -> bool:
        """True where something else says what is meant."""
        return False

    def address_name(self) -> tuple[str | None, str]:
        """Schema and name in the address: the same before and after secrets are resolved."""
        if self.table_secret_ref:
            return None, slugify(f"{self.table_secret_ref.name}_{self.table_secret_ref.key}")
        schema, name = self._split()
        return schema or self.known_schema(), name

    def place(self) -> tuple[str, str]:
        """Schema and name of the table. Secrets must be resolved.

        Raises:
            PermanentError: the secret was not resolved.
        """
        schema, name = self._split()
        return schema or self.usual_schema(), name

    def no_table(self) -> PermanentError:
        """The error where the table is missing, with the ways out. Secrets must be resolved."""
        return PermanentError(
            f"table {'.'.join(self.place())} does not exist at {self.address()}; create it, or set "
            "autoCreateTable: true"
        )

    def check_table(self, found: str | None, known: str) -> None:
        """Raises where the table is not the one that the run began with.

        Called by writers inside tasks, before each commit. Secrets must be resolved.

        Args:
            found: the id that the database gives the table of this name; None for no table.
            known: the id that the table had when the session was opened.

        Raises:
            PermanentError: the table was dropped.
            TransientError: the table is another one by now.
        """
        if found is None:
            raise self.dropped_error()
        if found != known:
            raise TransientError(
                f"table {self.address()} was replaced by another one of its name while the flow ran"
            )

    def altered_error(self) -> TransientError:
        """The error where columns changed under a run, whose values are made for the old ones."""
        return TransientError(
            f"table {self.address()} was altered while the flow ran: its columns are read again"
        )

    def dropped_error(self) -> PermanentError:
        """The error where the table went away under a run. Secrets must be resolved."""
        return PermanentError(
            f"table {'.'.join(self.place())} of {self.address()} was dropped while the flow ran; "
            "create it again, or set autoCreateTable: true: the next run fills it from the start"
        )

    def known_schema(self) -> str | None:
        """The usual schema, as far as it is no part of a secret."""
        return self.usual_schema()

    @abstractmethod
    def usual_schema(self) -> str:
        """Returns where a table is that is named without a schema. Secrets must be resolved."""

    def _split(self) -> tuple[str, str]:
        """Schema, empty where there is none, and name."""
        if not self.table:
            raise PermanentError(
                "the secret of tableSecretRef is empty: it must hold a table's name"
            )
        return split(self.table, self.quotes)


class Database(Connector):
    """A database that a connection string reaches.

    Options of connectors derive from it. Methods may be called before secrets are resolved, when
    manifests are loaded, unless they say otherwise.
    """

    connection_string: SecretStr | None = None
    """How the database is reached."""
    connection_string_secret_ref: Annotated[
        SecretRef | None, Fills("connection_string", required=True)
    ] = None
    """Secret with the connection string."""

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if self.connection_string is None and self.connection_string_secret_ref is None:
            yield "connectionString or connectionStringSecretRef is required"

    @property
    def connection_name(self) -> str:
        """What the connection is called in addresses: the same before and after secrets are."""
        if self.connection_string_secret_ref:
            return slugify(self.connection_string_secret_ref.name)
        return slugify(self.server())

    @override
    def spellings(self) -> tuple[str | SecretRef, ...]:
        if self.connection_string_secret_ref:
            return (self.connection_string_secret_ref,)
        return self.servers()

    def dsn(self) -> str:
        """The connection string itself, for the database's client only. Secrets must be resolved.

        Raises:
            PermanentError: the secret was not resolved.
        """
        if self.connection_string is None:
            raise PermanentError("connectionStringSecretRef was not resolved")
        return self.connection_string.get_secret_value()

    @abstractmethod
    def server(self) -> str:
        """Host and database, never user or password.

        Called where the connection string is in the manifest, or secrets are resolved.
        """

    @abstractmethod
    def servers(self) -> tuple[str, ...]:
        """`host:port/database` of each host; a port may be left out where it is the usual one.

        Called where the connection string is in the manifest, or secrets are resolved.
        """


class DatabaseTable(Database, NamedTable):
    """A database that a connection string reaches, and a table in it."""

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        yield from super().remarks()
        schema, name = split(self.table or "", self.quotes)
        if "." in schema and not set(self.quotes) & set(self.table or ""):
            yield (
                "table",
                (
                    f"is the table {name} of a schema that is called {schema}: a database is named "
                    "in connectionString, and a name with a dot in it is put in double quotes"
                ),
            )

    @override
    def address(self) -> Address:
        return Address(self.type, self.connection_name, *self.address_name())


def split(table: str, quotes: str = '"') -> tuple[str, str]:
    """The schema, empty where there is none, and the table of `schema.table`.

    The last dot splits. A name in quotes is taken as it is, dots too; a quote in it stands twice.
    """
    quoted = "|".join(f"{mark}(?:[^{mark}]|{mark}{mark})+{mark}" for mark in quotes)
    found = re.fullmatch(rf"(?:({quoted}|[^.{quotes}]+)\.)?({quoted}|[^.{quotes}]+)", table)
    if found is None:  # no quotes as they stand in SQL: they are part of the name
        schema, _, name = table.rpartition(".")
        return schema, name
    schema, name = (_unquote(part or "", quotes) for part in found.groups())
    return schema, name


def join(schema: str | None, name: str) -> str:
    """Returns what `split` takes apart again; in quotes only where it must be.

    Called when Dagster's assets are built, for the table's name in their metadata.

    Args:
        schema: None or empty where there is none.
        name: the table's.
    """
    plain = f"{schema}.{name}" if schema else name
    if split(plain) == (schema or "", name):
        return plain
    parts = (part.replace('"', '""') for part in (schema, name) if part)
    return ".".join(f'"{part}"' for part in parts)


def _unquote(name: str, quotes: str) -> str:
    mark = name[:1]
    return name[1:-1].replace(mark * 2, mark) if mark and mark in quotes else name


def slugify(text: str) -> str:
    """Lower-case letters, digits and underscores only; `database` where none is left."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "database"
