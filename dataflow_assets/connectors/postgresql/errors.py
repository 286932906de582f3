"""What a database error means for the rows at hand, judged by its SQLSTATE alone."""

from __future__ import annotations

import re
from enum import Enum

import psycopg
from typing_extensions import override

from dataflow_assets.errors import DataflowError, Locked, PermanentError, TransientError
from dataflow_assets.sdk.server_failure import Fault, ServerFailure

LONGEST = 500
# Appendix A of PostgreSQL's manual: classes first, then single codes that differ from their class.
# 54: a value too long for an index. P0: a trigger that raised.
_REFUSED_CLASSES = ("22", "23", "44", "54", "P0")
_REFUSED_CODES = frozenset({"42622"})  # too long for a column of type name
_TRANSIENT_CLASSES = ("08", "40", "53", "55", "57", "58", "XX")
_TRANSIENT_CODES = frozenset({"25P01", "25P02", "25P03", "25P04", "25006", "3B001"})
# What raises errors with any code: RAISE in a trigger, and WITH CHECK of views and row policies.
_OF_ROWS = frozenset({"exec_stmt_raise", "ExecWithCheckOptions"})
_AGAIN_CODES = frozenset({"40001", "40P01"})
_ADVICE = {
    "42P01": "create the table, or set autoCreateTable: true",
    "42703": "a column is missing: was the table altered? the next run reads its columns again",
    "42501": "grant the role of the connection string what is missing",
    "28P01": "check user and password of the connection string",
    "28000": "check user, TLS settings and pg_hba.conf",
    "3D000": "create the database or correct the connection string",
    "3F000": "create the schema, or correct table",
    "42704": "correct the type under columns, or create that type",
}

_OF_OPTIONS = frozenset({"42704", "22023"})
"""A setting that the server does not know, or not with this value."""


_LOCKED = "55P03"
_WHO_LOCKS = (
    "another transaction holds a lock on the table: SELECT pid, usename, query FROM "
    "pg_stat_activity JOIN pg_locks USING (pid) WHERE granted AND relation = "
    "'<the table>'::regclass shows whose"
)


class PostgresqlKind(Enum):
    """What to do about a failure."""

    REFUSED = "find the rows that the table refuses"
    SPLIT = "two spellings of one key met in one statement: take fewer rows at once"
    AGAIN = "lost a race: the same statement once more"
    TRANSIENT = "try again later"
    PERMANENT = "a person must act"


class PostgresqlFailure(ServerFailure):
    """One error of either driver, in one shape. Never leaves this package."""

    def __init__(self, message: str, sqlstate: str | None = None, **where: str | None) -> None:
        self.message = message.strip()[:LONGEST]
        self.sqlstate = sqlstate
        self.where = {key: value for key, value in where.items() if value}
        self.of_value, self.routine = False, ""
        super().__init__(self.reason)

    @property
    @override
    def reason(self) -> str:
        """PostgreSQL's words, its SQLSTATE and which constraint or column it names."""
        notes = [*filter(None, [self.sqlstate]), *(f"{k} {v}" for k, v in self.where.items())]
        return f"{self.message} ({', '.join(notes)})" if notes else self.message

    @property
    def kind(self) -> PostgresqlKind:
        """Judged by SQLSTATE; without one the connection itself is in doubt."""
        code = self.sqlstate
        if code is None:
            return PostgresqlKind.TRANSIENT
        if code in _TRANSIENT_CODES:
            return PostgresqlKind.TRANSIENT
        if code in _AGAIN_CODES:
            return PostgresqlKind.AGAIN
        if code == "21000":
            return PostgresqlKind.SPLIT
        if code.startswith(_REFUSED_CLASSES) or code in _REFUSED_CODES:
            return PostgresqlKind.REFUSED
        return (
            PostgresqlKind.TRANSIENT
            if code.startswith(_TRANSIENT_CLASSES)
            else PostgresqlKind.PERMANENT
        )

    @property
    @override
    def fault(self) -> Fault:
        """By the code, and by what raised it: COPY names the column whose text is no value."""
        kind = self.kind
        if kind in {PostgresqlKind.REFUSED, PostgresqlKind.SPLIT}:
            return Fault.ROW
        if kind is not PostgresqlKind.PERMANENT:
            return Fault.OUTSIDE
        if self.of_value:
            return Fault.ROW
        return Fault.LIKELY if self.routine in _OF_ROWS else Fault.OPEN

    @property
    @override
    def error_type(self) -> str:
        """The DataFlow Operator's error class, where SQLSTATE alone tells it; else its words do."""
        return "constraint_violation" if (self.sqlstate or "").startswith("23") else ""

    @override
    def error(self, what: str) -> DataflowError:
        if self.sqlstate == _LOCKED:
            return Locked(f"{what}: {self.reason}; {_WHO_LOCKS}")
        if self.kind in {PostgresqlKind.TRANSIENT, PostgresqlKind.AGAIN}:
            return TransientError(f"{what}: {self.reason}")
        advice = _ADVICE.get(self.sqlstate or "")
        return PermanentError(f"{what}: {self.reason}" + (f"; {advice}" if advice else ""))


class RefusedConnection(PostgresqlFailure):
    """The server ends the session before a statement: what is wrong is in the connection string."""

    @override
    def error(self, what: str) -> DataflowError:
        if self.sqlstate not in _OF_OPTIONS:
            return super().error(what)
        return PermanentError(f"{what}: {self.reason}; correct `options` of the connection string")


class PostgresqlTlsFailure(PostgresqlFailure):
    """No encrypted connection comes about until a person has changed something."""

    @property
    @override
    def reason(self) -> str:
        return self.message

    @property
    @override
    def kind(self) -> PostgresqlKind:
        return PostgresqlKind.PERMANENT


def from_psycopg(error: psycopg.Error) -> PostgresqlFailure:
    diag, copied = error.diag, _column(error.diag.context)
    failure = PostgresqlFailure(
        diag.message_primary or str(error),
        error.sqlstate,
        constraint=diag.constraint_name,
        column=diag.column_name or copied,
    )
    failure.of_value, failure.routine = copied is not None, diag.source_function or ""
    return failure


def _column(context: str | None) -> str | None:
    # For type errors COPY names the column in its context only.
    match = re.search(r"^COPY .*, column ([^:\n]+)", context or "", re.MULTILINE)
    return match[1].strip() if match else None
