"""One database session in autocommit with one kind of error, which loads in one of two ways.

Binary COPY costs a fraction of text COPY, which PostgreSQL converts to any type; a link is chosen
once per table, by its columns. Who needs one for a moment borrows it: `pool`.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import psycopg
import pyarrow as pa
import pyarrow.csv as arrow_csv
from psycopg import pq, sql
from typing_extensions import override

from dataflow_assets.connectors.postgresql import connection_errors, copy_format, dsn
from dataflow_assets.connectors.postgresql.errors import (
    PostgresqlFailure,
    PostgresqlTlsFailure,
    RefusedConnection,
    from_psycopg,
)

Driver = Literal["binary", "text"]
Block = bytes | bytearray | memoryview
Row = tuple[Any, ...]

_SETTINGS = {
    "statement_timeout": "10min",
    "lock_timeout": "30s",
    "idle_in_transaction_session_timeout": "5min",
    "default_transaction_isolation": "read committed",
    "client_min_messages": "error",
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "array_nulls": "on",
}
# Whatever the role says, a crash takes nothing back that a source was told to be stored.
_DURABLE = """set_config('synchronous_commit', CASE current_setting('synchronous_commit')
WHEN 'off' THEN 'local' ELSE current_setting('synchronous_commit') END, false)"""
_NAME_LOCK = "SELECT pg_advisory_xact_lock(hashtext('dataflow'), hashtext($1))"
_OLDEST = 90_600  # that knows these settings
_UNSUPPORTED = "0A000"


class Link(ABC):
    """A session in autocommit: transactions are begun and ended by statements."""

    @abstractmethod
    def execute(self, query: str, *parameters: object) -> list[Row]:
        """Runs one statement with `$1`-style parameters; the rows, if any."""

    @abstractmethod
    def load_text(self, schema: str | None, table: str, rows: pa.RecordBatch) -> None:
        """Text COPY into the table's columns of the same names; `schema` None: a temporary table.

        PostgreSQL reads the values as it reads any literal of the columns' types.
        """

    @abstractmethod
    def close(self) -> None: ...

    def _configure(self) -> None:
        each = (f"set_config('{name}', '{value}', false)" for name, value in _SETTINGS.items())
        try:
            self.execute(f"SELECT {', '.join(each)}, {_DURABLE}")
        except PostgresqlFailure:
            self.close()
            raise


class TextLink(Link):
    """psycopg and text COPY."""

    def __init__(self, connection: str, application: str) -> None:
        info = dsn.conninfo(connection, application)
        try:
            self._connection = psycopg.connect(info, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            raise unreachable(str(error), info, connection) from None
        self._cursor = psycopg.RawCursor(self._connection)
        if self.version < _OLDEST:
            self.close()
            raise PostgresqlFailure(
                f"the server is PostgreSQL {version_name(self.version)}: sessions need settings "
                "that came with 9.6, and sinks need PostgreSQL 14",
                _UNSUPPORTED,
            )
        self._configure()

    @property
    def version(self) -> int:
        """Of the server, as a number: 90325 for 9.3.25, 140002 for 14.2."""
        return self._connection.info.server_version

    @override
    def execute(self, query: str, *parameters: object) -> list[Row]:
        try:
            self._cursor.execute(query.encode(), parameters or None)
            return self._cursor.fetchall() if self._cursor.description else []
        except psycopg.Error as error:
            raise from_psycopg(error) from None

    @property
    def at_rest(self) -> bool:
        """True between two statements, outside of any transaction."""
        return self._connection.info.transaction_status == pq.TransactionStatus.IDLE

    def describe(self, query: str) -> list[tuple[str, str, int]]:
        """The columns of a query without running it twice: name, oid of the type, its modifier."""
        self.execute(query)
        result = self._cursor.pgresult
        assert result is not None  # noqa: S101 - it was just executed
        return [
            ((result.fname(at) or b"").decode(), str(result.ftype(at)), result.fmod(at))
            for at in range(result.nfields)
        ]

    def copy_out(self, query: str) -> Iterator[memoryview]:
        """The messages of a COPY TO STDOUT; ends only when the server says that it is complete."""
        try:
            yield from self._messages(query.encode())
        except psycopg.Error as error:
            raise from_psycopg(error) from None

    def _messages(self, query: bytes) -> Iterator[memoryview]:
        """Straight from libpq: psycopg's own loop costs half a second more for a million."""
        libpq = self._connection.pgconn
        result = libpq.exec_(query)
        if result.status == pq.ExecStatus.COPY_OUT:
            size, message = libpq.get_copy_data(0)
            while size > 0:
                yield message
                size, message = libpq.get_copy_data(0)
        while (ended := libpq.get_result()) is not None:
            result = ended
        if result.status != pq.ExecStatus.COMMAND_OK:
            raise psycopg.errors.error_from_result(result, encoding="utf-8")

    @override
    def load_text(self, schema: str | None, table: str, rows: pa.RecordBatch) -> None:
        text = io.BytesIO()
        arrow_csv.write_csv(rows, text, arrow_csv.WriteOptions(include_header=False))
        self._copy(schema, table, rows.schema.names, "csv", [text.getbuffer()])

    @override
    def close(self) -> None:
        self._connection.close()

    def _copy(
        self, schema: str | None, table: str, names: list[str], form: str, blocks: Iterable[Block]
    ) -> None:
        listed = ", ".join(map(quote, names))
        query = f"COPY {qualified_name(schema, table)} ({listed}) FROM STDIN (FORMAT {form})"
        try:
            with self._cursor.copy(query.encode()) as copy:
                for block in blocks:
                    copy.write(block)
        except psycopg.Error as error:
            raise from_psycopg(error) from None


class BinaryLink(TextLink):
    """The same, and binary COPY."""

    def load(self, schema: str | None, table: str, rows: pa.RecordBatch) -> None:
        """Binary COPY of rows in PostgreSQL's receive formats, as `load_text` otherwise."""
        rows = copy_format.in_stream_order(rows)
        self._copy(schema, table, rows.schema.names, "binary", copy_format.stream(rows))


def qualified_name(schema: str | None, table: str) -> str:
    return f"{quote(schema)}.{quote(table)}" if schema else f"pg_temp.{quote(table)}"


def lock_name(link: Link, name: str) -> None:
    """Until the transaction ends, no other process of ours creates what has this name.

    Two that create a table at once would both find it missing.
    """
    link.execute(_NAME_LOCK, name)


def version_name(version: int) -> str:
    """A server's version as people write it."""
    if version < 100_000:
        return f"{version // 10_000}.{version // 100 % 100}"
    return str(version // 10_000)


def quote(name: str) -> str:
    return sql.Identifier(name).as_string()


def unreachable(message: str, info: str, connection: str) -> PostgresqlFailure:
    """Why there is no connection: `info` was tried, of the manifest's `connection`."""
    settings = dsn.parse(connection)
    where = f"{settings.get('host', 'localhost')}:{settings.get('port', '5432')}"
    code = None
    if trouble := connection_errors.of_tls(connection, message):
        return PostgresqlTlsFailure(f"no connection to {where}: {trouble}")
    if connection_errors.is_refusal(message):
        message = connection_errors.words(message)
        code = connection_errors.sqlstate(info)
    else:
        message = connection_errors.silence(message)
    return RefusedConnection(f"no connection to {where}: {dsn.scrub(message, connection)}", code)
