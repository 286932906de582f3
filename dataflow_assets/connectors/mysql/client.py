"""A session of MySQL or MariaDB by PyMySQL, with one kind of error.

It is in autocommit, so that each statement sees what was committed before it, in UTC, and refuses
values that a column does not hold, whatever the server's settings are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pymysql
from pymysql import converters
from pymysql.constants import FIELD_TYPE
from pymysql.cursors import Cursor, SSCursor

from dataflow_assets.connectors.mysql.errors import from_client, unreachable
from dataflow_assets.connectors.mysql.options import MysqlConnection
from dataflow_assets.secrets import tls

Row = tuple[Any, ...]

MODE = "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
_SETTINGS = {
    "time_zone": "'+00:00'",
    "wait_timeout": "28800",
    "net_read_timeout": "600",
    "net_write_timeout": "3600",  # a sink may be slower than what it reads
    "innodb_lock_wait_timeout": "30",
    "lock_wait_timeout": "30",
}
_CONNECT, _ANSWER = 10, 600  # seconds
_INTEGERS = (
    *(FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.INT24, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG),
    FIELD_TYPE.YEAR,
)
# Other values stay texts or bytes: whole columns are made of them.
_CONVERSIONS: dict[Any, Any] = {**converters.encoders, **dict.fromkeys(_INTEGERS, int)}
_UNSIGNED, _BINARY = 32, 63  # a flag of a column, and the number of the charset of bytes


class MysqlClient:
    """A statement's `%(name)s` are bound, so a percent sign stands twice: see `quote`."""

    def __init__(self, options: MysqlConnection, application: str) -> None:
        """Connects. Raises MysqlFailure, or PermanentError for a broken certificate."""
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
                conv=_CONVERSIONS,
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
        with self._failing(), self._connection.cursor(Cursor) as cursor:
            cursor.execute(sql, binds or {})
            return tuple(cursor.fetchall())

    def run(self, sql: str, binds: Mapping[str, Any] | None = None) -> int:
        """Returns how many rows a statement has changed. Raises MysqlFailure."""
        with self._failing(), self._connection.cursor(Cursor) as cursor:
            return int(cursor.execute(sql, binds or {}))

    def stream(self, sql: str, binds: Mapping[str, Any], most: int) -> Iterator[Sequence[Row]]:
        """Yields the answer in lists of `most` rows as it comes. Raises MysqlFailure.

        It ends only when all of it has come. Where it is left before, the connection is of no more
        use.
        """
        with self._failing():
            cursor = self._connection.cursor(SSCursor)
            cursor.execute(sql, binds)
            while found := cursor.fetchmany(most):
                yield found
            cursor.close()

    def describe(self, sql: str) -> list[tuple[str, str]]:
        """Returns names and types of what a query selects; no row of it is read."""
        with self._failing(), self._connection.cursor(_Describing) as cursor:
            cursor.execute(f"SELECT * FROM {sql} LIMIT 0", {})  # noqa: S608 - the caller's own
            return [(field.name, _type_of(field)) for field in cursor.fields]

    def close(self) -> None:
        """Without a farewell, which would read what is left of an answer first."""
        if self._connection.open:
            self._connection.close()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except (pymysql.Error, OSError) as error:
            raise from_client(error) from None


class _Describing(Cursor):
    """A cursor that says of its columns also which are unsigned, and which hold bytes."""

    @property
    def fields(self) -> Sequence[Any]:
        fields: Sequence[Any] = vars(self)["_result"].fields
        return fields


_NAMES = {
    FIELD_TYPE.TINY: "tinyint",
    FIELD_TYPE.SHORT: "smallint",
    FIELD_TYPE.INT24: "mediumint",
    FIELD_TYPE.LONG: "int",
    FIELD_TYPE.LONGLONG: "bigint",
    FIELD_TYPE.YEAR: "year",
    FIELD_TYPE.FLOAT: "float",
    FIELD_TYPE.DOUBLE: "double",
    FIELD_TYPE.DATE: "date",
    FIELD_TYPE.NEWDATE: "date",
    FIELD_TYPE.TIME: "time",
    FIELD_TYPE.JSON: "json",
    FIELD_TYPE.GEOMETRY: "geometry",
}
_TIMES = {FIELD_TYPE.DATETIME: "datetime", FIELD_TYPE.TIMESTAMP: "timestamp"}


def _type_of(field: Any) -> str:
    """The type of a query's column as `information_schema.columns` would spell it."""
    kind = field.type_code
    if kind in {FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL}:
        signs = (0 if field.flags & _UNSIGNED else 1) + (1 if field.scale else 0)
        return f"decimal({field.length - signs},{field.scale})"
    if kind == FIELD_TYPE.BIT:
        return f"bit({field.length})"
    if kind in _TIMES:
        return f"{_TIMES[kind]}({field.scale})"
    if kind in _NAMES:
        unsigned = kind in _INTEGERS and kind != FIELD_TYPE.YEAR and field.flags & _UNSIGNED
        return _NAMES[kind] + (" unsigned" if unsigned else "")
    return "longblob" if field.charsetnr == _BINARY else "longtext"


def quote(*names: str) -> str:
    """Identifiers as a statement takes them, joined by dots; their percent signs stand twice."""
    return ".".join("`" + name.replace("`", "``").replace("%", "%%") + "`" for name in names)
