"""A session of MySQL or MariaDB by PyMySQL, with one kind of error.

It is in autocommit, so that each statement sees what was committed before it, in UTC, and refuses
values that a column does not hold, whatever the server's settings are.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from typing import Any

from dataflow_assets.connectors.mysql.errors import (
    ALTERING,
    TOO_LONG,
    MysqlFailure,
    from_client,
    unreachable,
)
from dataflow_assets.connectors.mysql.options import MysqlConnection
from dataflow_assets.secrets import tls

Row = tuple[Any, ...]

MODE = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
_SETTINGS = {
    "time_zone": "'+00:00'",
    "wait_timeout": "28800",
    "net_read_timeout": "600",
    "net_write_timeout": "3600",  # a sink may be slower than what it reads
    "innodb_lock_wait_timeout": "30",
    "lock_wait_timeout": "30",
    "sql_notes": "1",  # they say that a value was changed
    "max_error_count": "65535",  # and how many of them are shown
}
_SHORT = 500_000  # bytes that each server takes
_CONNECT, _ANSWER = 10, 600  # seconds
_UNSIGNED, _ENUM, _SET = 32, 256, 2048  # flags of a column
_BINARY = 63  # the number of the charset of bytes


class MysqlClient:
    """A statement's `%(name)s` are bound, so a percent sign stands twice: see `quote`."""

    def __init__(self, options: MysqlConnection, application: str) -> None:
        """Connects. Raises MysqlFailure, or PermanentError for a broken certificate."""
        import pymysql

        material = options.tls.material() if options.tls else tls.Material()
        if options.tls and not material.verify:
            tls.warn_unchecked(options.place_of_server)
        password = options.password.get_secret_value() if options.password else ""
        try:
            self._connection: Any = pymysql.connect(
                host=options.host,
                port=options.port,
                user=options.user,
                password=password.encode(),
                database=options.database,
                charset="utf8mb4",
                ssl=tls.context(material) if options.tls else None,
                sql_mode=MODE,
                autocommit=True,
                conv=_conversions(),
                program_name=application,
                connect_timeout=_CONNECT,
                read_timeout=_ANSWER,
                write_timeout=_ANSWER,
            )
        except (pymysql.Error, OSError, RuntimeError) as error:
            where = options.place_of_server
            raise unreachable(error, where, options.host, material.ca) from None
        self.run(f"SET {', '.join(f'{name} = {value}' for name, value in _SETTINGS.items())}")
        self.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    @property
    def is_mariadb(self) -> bool:
        return "MariaDB" in self._connection.get_server_info()

    def rows(self, sql: str, binds: Mapping[str, Any] | None = None) -> Sequence[Row]:
        """Returns all rows of a small answer. Raises MysqlFailure."""
        with _failing(), self._connection.cursor() as cursor:
            cursor.execute(sql, binds or {})
            return tuple(cursor.fetchall())

    def run(self, sql: str, binds: Mapping[str, Any] | None = None) -> int:
        """Returns how many rows a statement has changed. Raises MysqlFailure."""
        with _failing(), self._connection.cursor() as cursor:
            text = cursor.mogrify(sql, binds or {})
            self._check_length(len(text) if text.isascii() else len(text.encode()))
            return int(cursor.execute(text))

    def load(self, statement: bytes) -> None:
        """Runs a statement as it is, with the values of rows in it.

        Raises MysqlFailure; also where the server has taken a value otherwise than it was given,
        such as a number without its last digits, of which it only warns, and where it would close
        the connection, as the statement is too long.
        """
        self._check_length(len(statement))
        with _failing(), self._connection.cursor() as cursor:
            cursor.execute(statement)
            if cursor.warning_count:
                cursor.execute("SHOW WARNINGS")
                for _, code, message in cursor.fetchall():
                    if code in ALTERING:
                        raise MysqlFailure(message, code)

    def _check_length(self, length: int) -> None:
        if length > _SHORT and length >= self.longest_statement:
            allowed = f"max_allowed_packet of the server is {self.longest_statement:,}"
            raise MysqlFailure(f"the row has {length:,} bytes as SQL: {allowed}", TOO_LONG)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits on success, rolls back on any error. Raises MysqlFailure."""
        self.run("START TRANSACTION")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            with suppress(MysqlFailure):
                self.run("ROLLBACK")
            raise

    @cached_property
    def longest_statement(self) -> int:
        """Returns how many bytes the server takes at once."""
        return int(self.rows("SELECT @@max_allowed_packet")[0][0])

    @property
    def collation(self) -> str:
        """Returns the one by which texts are equal only where they are the same."""
        return "utf8mb4_nopad_bin" if self.is_mariadb else "utf8mb4_0900_bin"

    def stream(
        self, sql: str, binds: Mapping[str, Any], most: int
    ) -> Generator[Sequence[Row], None, None]:
        """Yields the answer in lists of `most` rows as it comes. Raises MysqlFailure.

        It ends only when all of it has come. Where it is left before, the connection is of no more
        use.
        """
        from pymysql.cursors import SSCursor

        cursor = self._connection.cursor(SSCursor)
        try:
            with _failing():
                cursor.execute(sql, binds)
                while found := cursor.fetchmany(most):
                    yield found
        except BaseException:
            self._leave(cursor)
            raise
        cursor.close()

    def _leave(self, cursor: Any) -> None:
        """Hangs up: by itself, the client would read the rest of the answer first."""
        if result := vars(cursor)["_result"]:
            result.unbuffered_active = False
        cursor.connection = None
        self.close()

    def describe(self, sql: str) -> list[tuple[str, str]]:
        """Returns names and types of what a query selects; no row of it is read."""
        with _failing(), self._connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {sql} LIMIT 0", {})  # noqa: S608 - the caller's own
            # Its `description` does not say which are unsigned, and which hold bytes.
            return [(field.name, _type_of(field)) for field in vars(cursor)["_result"].fields]

    def close(self) -> None:
        if self._connection.open:
            self._connection.close()


@contextmanager
def _failing() -> Iterator[None]:
    import pymysql

    try:
        yield
    except (pymysql.Error, OSError) as error:
        raise from_client(error) from None


@cache
def _integers() -> frozenset[int]:
    from pymysql.constants import FIELD_TYPE

    return frozenset(
        {
            FIELD_TYPE.TINY,
            FIELD_TYPE.SHORT,
            FIELD_TYPE.INT24,
            FIELD_TYPE.LONG,
            FIELD_TYPE.LONGLONG,
            FIELD_TYPE.YEAR,
        }
    )


@cache
def _conversions() -> dict[Any, Any]:
    """Other values stay texts or bytes: whole columns are made of them."""
    from pymysql.converters import encoders

    return {**encoders, **dict.fromkeys(_integers(), int)}


@cache
def _names() -> dict[int, str]:
    from pymysql.constants import FIELD_TYPE

    return {
        FIELD_TYPE.TINY: "tinyint",
        FIELD_TYPE.SHORT: "smallint",
        FIELD_TYPE.INT24: "mediumint",
        FIELD_TYPE.LONG: "int",
        FIELD_TYPE.LONGLONG: "bigint",
        FIELD_TYPE.YEAR: "year",
        FIELD_TYPE.FLOAT: "float",
        FIELD_TYPE.DOUBLE: "double",
        FIELD_TYPE.DECIMAL: "decimal",
        FIELD_TYPE.NEWDECIMAL: "decimal",
        FIELD_TYPE.BIT: "bit",
        FIELD_TYPE.DATE: "date",
        FIELD_TYPE.NEWDATE: "date",
        FIELD_TYPE.TIME: "time",
        FIELD_TYPE.DATETIME: "datetime",
        FIELD_TYPE.TIMESTAMP: "timestamp",
        FIELD_TYPE.JSON: "json",
        FIELD_TYPE.GEOMETRY: "geometry",
    }


def _type_of(field: Any) -> str:
    """The type of a query's column as `information_schema.columns` would spell it."""
    name, unsigned = _names().get(field.type_code), field.flags & _UNSIGNED
    if name == "decimal":
        signs = (0 if unsigned else 1) + (1 if field.scale else 0)
        return f"decimal({field.length - signs},{field.scale})"
    if name == "bit":
        return f"bit({field.length})"
    if name in {"datetime", "timestamp"}:
        return f"{name}({field.scale})"
    if field.flags & (_ENUM | _SET):
        return "enum" if field.flags & _ENUM else "set"
    if name is None:
        return "longblob" if field.charsetnr == _BINARY else "longtext"
    return f"{name} unsigned" if unsigned and name.endswith("int") else name


def quote(*names: str) -> str:
    """Identifiers as a statement takes them, joined by dots; their percent signs stand twice."""
    return ".".join("`" + name.replace("`", "``").replace("%", "%%") + "`" for name in names)
