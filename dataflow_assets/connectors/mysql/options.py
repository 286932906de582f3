"""All that a manifest may say about MySQL and MariaDB: the connection, and the source's table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

from pydantic import Field, SecretStr, field_validator
from typing_extensions import override

from dataflow_assets.contracts import Address
from dataflow_assets.records.wrapped import METADATA
from dataflow_assets.sdk.database import ColumnName, NamedTable, slugify
from dataflow_assets.sdk.polling.source import ReadsAgain
from dataflow_assets.sdk.raw_rows import DATA
from dataflow_assets.sdk.upsert_options import SoftDeleteOptions
from dataflow_assets.secrets import Fills, SecretRef
from dataflow_assets.secrets.tls import Tls

PORT = 3306
_TYPE = re.compile(
    r"[a-z]+\d?( [a-z]+)*( ?\(\d+(, ?\d+)?\))?( unsigned)?"
    r"( character set [a-z0-9]+)?( collate [a-z0-9_]+)?",
    re.IGNORECASE,
)
Ref = SecretRef | None


class MysqlConnection(NamedTable):
    """A table of a database of MySQL or MariaDB."""

    type: ClassVar = "mysql"
    quotes: ClassVar = '`"'

    host: str = Field(min_length=1)
    """The server's name or address."""
    port: int = Field(PORT, ge=1, le=65_535)
    """The server's port."""
    database: str = Field(min_length=1)
    """The database that the table is in, and in which a query runs."""
    table: str | None = None
    """`name` or `database.name`. A name with a dot in it is put in backticks."""
    user: str | None = None
    """Who connects."""
    user_secret_ref: Annotated[Ref, Fills("user", required=True)] = None
    """Secret with the user's name."""
    password: SecretStr | None = None
    """The user's password; none for a user without one."""
    password_secret_ref: Annotated[Ref, Fills("password", required=True)] = None
    """Secret with the password."""
    tls: Tls | None = None
    """With this block the connection is encrypted, and the server's certificate and name are
    checked. Without it the connection is encrypted where the server offers that, and nothing is
    checked."""

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if not (self.user or self.user_secret_ref):
            yield "user or userSecretRef is required"

    @property
    def place_of_server(self) -> str:
        """Returns host and port, the usual one left out."""
        return self.host if self.port == PORT else f"{self.host}:{self.port}"

    @override
    def address(self) -> Address:
        return Address(self.type, slugify(self.place_of_server), *self.address_name())

    @override
    def spellings(self) -> tuple[str | SecretRef, ...]:
        return (self.place_of_server,)

    @override
    def usual_schema(self) -> str:
        return self.database


class MysqlSourceOptions(MysqlConnection, ReadsAgain):
    """A table or a query that is polled, and how its changes are found."""

    change_tracking_column: ColumnName = "updated_at"
    """The column whose value grows with each change. A table without it is read by
    `orderByColumn` alone: new rows, no changes."""
    order_by_column: ColumnName = "id"
    """Orders rows with equal change values, so it must be unique by its collation: best the primary
    key. Available as the metadata `id`."""


class MysqlSinkOptions(SoftDeleteOptions, MysqlConnection):
    """The table that rows go to, and the rows that they replace."""

    own_columns: ClassVar = frozenset(
        {DATA, METADATA, "id", "created_at", "updated_at", "deleted_at"}
    )
    longest_name: ClassVar = 64

    @field_validator("columns")
    @classmethod
    def _declarable(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for name, kind in value.items():
            if not _TYPE.fullmatch(kind.strip()):
                raise ValueError(f"{name}: not the name of a type of MySQL")
        return value
