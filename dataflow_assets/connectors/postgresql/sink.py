"""The `postgresql` sink as a manifest declares it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, SecretStr, StringConstraints, field_validator, model_validator
from typing_extensions import override

from dataflow_assets.connectors.postgresql import checkpoint as store
from dataflow_assets.connectors.postgresql import dsn
from dataflow_assets.connectors.postgresql.errors import PostgresqlErrors
from dataflow_assets.connectors.postgresql.failures import Failure
from dataflow_assets.connectors.postgresql.link import TextLink
from dataflow_assets.connectors.postgresql.session import PostgresqlSession
from dataflow_assets.connectors.postgresql.table import Table
from dataflow_assets.connectors.postgresql.waiting import Waiting
from dataflow_assets.connectors.postgresql.writer import PostgresqlWriter
from dataflow_assets.contracts import (
    Address,
    Checkpoint,
    Entries,
    ErrorStore,
    Run,
    SinkSession,
    Slice,
    Target,
    Ticket,
    Writer,
)
from dataflow_assets.errors import PermanentError
from dataflow_assets.raw import RawSink
from dataflow_assets.secrets import Fills, SecretRef
from dataflow_assets.shapes import DATA
from dataflow_assets.spec import Addition, Hint
from dataflow_assets.wrapped import METADATA

Identifier = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]
_TYPE = re.compile(
    r"[a-z_][a-z0-9_]*( [a-z_][a-z0-9_]*)*( ?\(\d+(, ?\d+)?\))?( with(out)? time zone)?(\[\])*",
    re.IGNORECASE,
)
_ONE_COMMIT = "every micro-batch is one commit, so no row waits for a batch to fill"


class PostgresqlSink(RawSink):
    """Rows into one PostgreSQL table: appended, or matched by a key."""

    type: ClassVar = "postgresql"
    guarantee: ClassVar = (
        "Exactly once: the rows of a partition and its checkpoint, in the table "
        "`dataflow_checkpoint` of the same schema, are one transaction that asserts the epoch. "
        "Rejected records stand in `dataflow_rejected`, in that transaction too."
    )
    commits: ClassVar = "slice"
    own_columns: ClassVar = frozenset(
        {DATA, METADATA, "id", "created_at", "updated_at", "deleted_at"}
    )
    longest_name: ClassVar = 63

    connection_string: SecretStr | None = None
    """`postgresql://` URL or libpq key=value text."""
    connection_string_secret_ref: Annotated[
        SecretRef | None, Fills("connection_string", required=True)
    ] = None
    table: str | None = None
    """`name` or `schema.name`; the schema is `public` unless given."""
    table_secret_ref: Annotated[SecretRef | None, Fills("table", required=True)] = None
    batch_size: Annotated[int | None, Hint(_ONE_COMMIT), Field(ge=0)] = None
    batch_flush_interval_seconds: Annotated[int | None, Hint(_ONE_COMMIT), Field(ge=0)] = None
    auto_create_table: bool = False
    """Make a missing table from the first records."""
    upsert_mode: bool = False
    """INSERT ... ON CONFLICT ... DO UPDATE; the last row of a key wins."""
    conflict_key: tuple[Identifier, ...] = ()
    """One column or a list of them; without it the table's primary key."""
    upsert_strategy: Literal["always", "ifNewer"] = "always"
    upsert_version_column: Identifier | None = None
    """Required with `ifNewer`: only a higher version replaces a stored row."""
    soft_delete_column: Identifier | None = None
    """Deletes set this column to now() and keep the row."""
    delete_mode: Annotated[Literal["soft", "hard"] | None, Addition()] = None
    """`hard` removes the row of a deleted key."""
    columns: Annotated[Mapping[str, str], Addition()] = Field(default_factory=dict)
    """Column types for a table that autoCreateTable makes."""

    @field_validator("conflict_key", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value or ()

    @field_validator("columns")
    @classmethod
    def _declarable(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for name, kind in value.items():
            if not _TYPE.fullmatch(kind.strip()):
                raise ValueError(f"{name}: not the name of a PostgreSQL type")
        return value

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.connection_string is None and self.connection_string_secret_ref is None:
            raise ValueError("connectionString or connectionStringSecretRef is required")
        if not self.table and self.table_secret_ref is None:
            raise ValueError("table or tableSecretRef is required")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.upsert_strategy == "ifNewer" and not self.upsert_version_column:
            raise ValueError("upsertStrategy ifNewer requires upsertVersionColumn")
        if self.delete_mode == "soft" and not self.soft_delete_column:
            raise ValueError("deleteMode soft requires softDeleteColumn")
        if len(set(self.conflict_key)) < len(self.conflict_key):
            raise ValueError("conflictKey names a column twice")
        if self.raw_mode and self.upsert_mode:
            raise ValueError(
                "rawMode and upsertMode exclude each other: a whole body has no key column to "
                "match rows by; leave one of them out"
            )
        return self._upserting()

    def _upserting(self) -> Self:
        needed = {
            "upsertStrategy ifNewer": self.upsert_strategy == "ifNewer",
            "deleteMode": self.delete_mode is not None,
        }
        if wrong := [name for name, given in needed.items() if given and not self.upsert_mode]:
            raise ValueError(f"{', '.join(wrong)} requires upsertMode: true")
        return self

    @override
    @classmethod
    def stored(cls, column: pa.Field) -> str:
        from dataflow_assets.connectors.postgresql.create import column_type

        return column_type(column).lower()

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

    @override
    def open(self, target: Target, run: Run) -> SinkSession:
        return PostgresqlSession(self, target, run)

    @override
    def peek(self, target: Target) -> Checkpoint | None:
        schema, _ = self.place()
        try:
            link = TextLink(self.dsn(), store.application(target))
            try:
                stored = None if store.missing(link, schema) else store.read(link, schema, target)
            finally:
                link.close()
        except Failure as failure:
            raise failure.error(f"reading the checkpoint of {self.address()}") from None
        return stored.checkpoint if stored and stored.known else None

    @override
    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        return PostgresqlWriter(self, ticket, piece)

    @override
    def error_store(self) -> ErrorStore:
        return PostgresqlErrors(self)

    @override
    def rejected(self) -> Entries:
        return Waiting(self)

    @property
    @override
    def upserts(self) -> bool:
        return self.upsert_mode

    def dsn(self) -> str:
        """The connection string itself, for the drivers only."""
        if self.connection_string is None:
            raise PermanentError("connectionStringSecretRef was not resolved")
        return self.connection_string.get_secret_value()

    def place(self) -> tuple[str, str]:
        """Schema and name of the table; the last dot splits."""
        if not self.table:
            raise PermanentError("tableSecretRef was not resolved")
        schema, _, name = self.table.rpartition(".")
        return schema or "public", name

    def key(self, table: Table) -> tuple[str, ...]:
        """What rows are matched by, proved to be unique; empty for append."""
        if not self.upsert_mode:
            return ()
        key = self.conflict_key or table.primary
        if not key:
            raise PermanentError(
                f"upsertMode needs a key: table {self.table} has no primary key and the manifest "
                "no conflictKey"
            )
        if not any(set(names) == set(key) for names in table.unique):
            raise PermanentError(
                f"upsertMode: table {self.table} has no unique index on exactly "
                f"({', '.join(key)}); run: {self._index(key)}"
            )
        return key

    def no_table(self) -> PermanentError:
        """Why there is nowhere to write, and the two ways out."""
        schema, name = self.place()
        return PermanentError(
            f"table {schema}.{name} does not exist at {self.address()}; create it, or set "
            "autoCreateTable: true"
        )

    def dropped(self) -> PermanentError:
        """The table went away under a run."""
        schema, name = self.place()
        return PermanentError(
            f"table {schema}.{name} of {self.address()} was dropped while the flow ran; create it "
            "again, or set autoCreateTable: true: the next run fills it anew"
        )

    def _named(self) -> tuple[str | None, str]:
        # The same before and after secrets are resolved: it is the branch's identity.
        if self.table_secret_ref:
            return None, dsn.slugify(f"{self.table_secret_ref.name}_{self.table_secret_ref.key}")
        return self.place()

    def _index(self, key: tuple[str, ...]) -> str:
        from dataflow_assets.connectors.postgresql.link import qualified, quote

        columns = ", ".join(map(quote, key))
        return f"CREATE UNIQUE INDEX ON {qualified(*self.place())} ({columns})"
