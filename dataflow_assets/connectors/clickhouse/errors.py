"""What an error of ClickHouse means, judged by its code (`SELECT errorCodeToName(252)`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from typing_extensions import override

from dataflow_assets.errors import DataflowError, PermanentError, TransientError
from dataflow_assets.sdk.causes import cause
from dataflow_assets.sdk.server_failure import Fault, ServerFailure

LONGEST = 500
# Time limits, load, network, replicas and Keeper: the same may succeed later.
TRANSIENT = {
    "CANNOT_READ_FROM_SOCKET": 95,
    "TIMEOUT_EXCEEDED": 159,
    "TOO_SLOW": 160,
    "CANNOT_ALLOCATE_MEMORY": 173,
    "DNS_ERROR": 198,
    "QUOTA_EXCEEDED": 201,
    "TOO_MANY_SIMULTANEOUS_QUERIES": 202,
    "NO_FREE_CONNECTION": 203,
    "SOCKET_TIMEOUT": 209,
    "NETWORK_ERROR": 210,
    "NO_ZOOKEEPER": 225,
    "ABORTED": 236,
    "MEMORY_LIMIT_EXCEEDED": 241,
    "TABLE_IS_READ_ONLY": 242,
    "NOT_ENOUGH_SPACE": 243,
    "UNEXPECTED_ZOOKEEPER_ERROR": 244,
    "TOO_MANY_PARTS": 252,
    "NO_ACTIVE_REPLICAS": 254,
    "NO_AVAILABLE_REPLICA": 265,
    "ALL_CONNECTION_TRIES_FAILED": 279,
    "TOO_FEW_LIVE_REPLICAS": 285,
    "UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE": 286,
    "REPLICA_IS_NOT_IN_QUORUM": 289,
    "UNKNOWN_STATUS_OF_INSERT": 319,
    "UNFINISHED": 341,
    "RECEIVED_ERROR_TOO_MANY_REQUESTS": 364,
    "ALL_REPLICAS_ARE_STALE": 369,
    "SESSION_IS_LOCKED": 373,
    "PART_IS_TEMPORARILY_LOCKED": 384,
    "QUERY_WAS_CANCELLED": 394,
    "ALL_REPLICAS_LOST": 415,
    "REPLICA_STATUS_CHANGED": 416,
    "SYSTEM_ERROR": 425,
    "CANNOT_SCHEDULE_TASK": 439,
    "DEADLOCK_AVOIDED": 473,
    "S3_ERROR": 499,
    "DISTRIBUTED_TOO_MANY_PENDING_BYTES": 574,
    "THREAD_WAS_CANCELED": 677,
    "ASYNC_LOAD_CANCELED": 696,
    "ASYNC_LOAD_WAIT_FAILED": 722,
    "TABLE_IS_BEING_RESTARTED": 733,
    "CANNOT_WRITE_AFTER_BUFFER_CANCELED": 734,
    "PART_IS_LOCKED": 738,
    "SERVER_OVERLOADED": 745,
    "TCP_CONNECTION_LIMIT_REACHED": 749,
    "HTTP_CONNECTION_LIMIT_REACHED": 762,
    "RESOURCE_LIMIT_EXCEEDED": 776,
    "MEMORY_RESERVATION_KILLED": 777,
    "MEMORY_RESERVATION_FAILED": 778,
    "TOO_MANY_UNAVAILABLE_SHARDS": 904,
    "KEEPER_EXCEPTION": 999,
    "POCO_EXCEPTION": 1000,
    "UNKNOWN_EXCEPTION": 1002,
    "ASYNC_INSERT_FLUSH_TIMEOUT": 1017,
    "QUERY_SLOT_ACQUISITION_TIMEOUT": 1019,
    "MEMORY_RESERVATION_ACQUISITION_TIMEOUT": 1020,
}
# A value that the column does not take.
REFUSED = {
    "CANNOT_PARSE_TEXT": 6,
    "CANNOT_PARSE_QUOTED_STRING": 26,
    "CANNOT_PARSE_INPUT_ASSERTION_FAILED": 27,
    "CANNOT_PARSE_DATE": 38,
    "CANNOT_PARSE_DATETIME": 41,
    "ARGUMENT_OUT_OF_BOUND": 69,
    "CANNOT_CONVERT_TYPE": 70,
    "CANNOT_PARSE_NUMBER": 72,
    "INCORRECT_DATA": 117,
    "TOO_LARGE_STRING_SIZE": 131,
    "SIZES_OF_ARRAYS_DONT_MATCH": 190,
    "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE": 321,
    "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN": 349,
    "CANNOT_PARSE_UUID": 376,
    "DECIMAL_OVERFLOW": 407,
    "CANNOT_PARSE_DOMAIN_VALUE_FROM_STRING": 441,
    "CANNOT_PARSE_BOOL": 467,
    "VIOLATED_CONSTRAINT": 469,
    "CANNOT_PARSE_IPV4": 675,
    "CANNOT_PARSE_IPV6": 676,
    "UNKNOWN_ELEMENT_OF_ENUM": 691,
}
# What expressions of the table and its views raise for some values.
_LIKELY = {"ILLEGAL_DIVISION": 153, "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO": 395}
ACCESS_DENIED = 497
_LATER, _NEVER = frozenset(TRANSIENT.values()), frozenset(REFUSED.values())
_HTTP_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
_OF_TABLE = frozenset({16, 60, 81, 218})
"""A column, a table or a database that is not there: no row is the reason."""
_ADVICE = {
    16: "was the table altered? the next run reads its columns again",
    47: "was the table altered? the next run reads its columns again",
    60: "create the table, or correct `table`",
    81: "create the database, or correct the connection string",
    192: "check user and password of the connection string",
    193: "check user and password of the connection string",
    194: "give the password in the connection string",
    218: "the table was dropped; create it again",
    252: "too many parts: merges do not keep up with inserts; the flow waits for them",
    241: "out of memory: the flow tries again; lower the load, or raise max_memory_usage",
    ACCESS_DENIED: "grant the user of the connection string what is missing",
    516: "check user and password of the connection string",
}
_TEXT = re.compile(
    r"DB::(?:Net|HTTP)?Exception: (.*?)(?: \(version .*)?(?: \(for url .*)?$", re.DOTALL
)
_STATUS = re.compile(r"HTTP status (\d+)")


class ClickhouseKind(Enum):
    """What to do about a failure."""

    REFUSED = "find the rows that the table refuses"
    TRANSIENT = "try again later"
    PERMANENT = "a person must act"


class ClickhouseFailure(ServerFailure):
    """One error of ClickHouse or of the way to it. `code` None: the server has not answered."""

    def __init__(self, message: str, code: int | None = None, status: int | None = None) -> None:
        self.message = message.strip()[:LONGEST]
        self.code = code
        self.status = status
        super().__init__(self.reason)

    @property
    @override
    def reason(self) -> str:
        return f"{self.message} (code {self.code})" if self.code is not None else self.message

    @property
    def kind(self) -> ClickhouseKind:
        """Judged by the code; without one, by the HTTP status; without both the way is in doubt."""
        if self.code in _NEVER:
            return ClickhouseKind.REFUSED
        if self.code is None:
            unsure = self.status is None or self.status in _HTTP_TRANSIENT
            return ClickhouseKind.TRANSIENT if unsure else ClickhouseKind.PERMANENT
        later = self.code in _LATER or "temporarily unavailable" in self.message.lower()
        return ClickhouseKind.TRANSIENT if later else ClickhouseKind.PERMANENT

    @property
    @override
    def fault(self) -> Fault:
        """By the code; a table's expressions may refuse a row with any."""
        if self.code in _OF_TABLE:
            return Fault.OUTSIDE
        if self.kind is ClickhouseKind.PERMANENT and self.is_answer:
            return Fault.LIKELY if self.code in _LIKELY.values() else Fault.OPEN
        return Fault.ROW if self.kind is ClickhouseKind.REFUSED else Fault.OUTSIDE

    @property
    def is_answer(self) -> bool:
        """False where what was asked may have been done all the same."""
        return self.code is not None

    @override
    def error(self, what: str) -> DataflowError:
        advice = _ADVICE.get(self.code or 0)
        text = f"{what}: {self.reason}" + (f"; {advice}" if advice else "")
        return (
            TransientError(text) if self.kind is ClickhouseKind.TRANSIENT else PermanentError(text)
        )


class ClickhouseTlsFailure(ClickhouseFailure):
    """No encrypted connection comes about until a person has changed something."""

    @property
    @override
    def kind(self) -> ClickhouseKind:
        return ClickhouseKind.PERMANENT


def from_driver(error: Exception) -> ClickhouseFailure:
    """An error of clickhouse-connect, urllib3 or Arrow's reader as a failure."""
    text = str(error)
    code = getattr(error, "code", None)
    status = _STATUS.search(text)
    match = _TEXT.search(text)
    if match is None and (coded := re.search(r"Code: (\d+)", text)) and code is None:
        code = int(coded[1])
    if match is None and code is None and status is None:
        text = cause(error)  # the driver's own text has the whole request in it
    return ClickhouseFailure(match[1] if match else text, code, int(status[1]) if status else None)


@contextmanager
def failing() -> Iterator[None]:
    """Errors of the driver inside as a Failure."""
    import pyarrow as pa
    from clickhouse_connect.driver.exceptions import ClickHouseError
    from urllib3.exceptions import HTTPError

    try:
        yield
    except (ClickHouseError, HTTPError, pa.ArrowInvalid, OSError) as error:
        raise from_driver(error) from error
