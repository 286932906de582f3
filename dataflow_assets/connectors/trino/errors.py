"""What an error of Trino means, judged by its name and type, or by the HTTP status."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from typing_extensions import override

from dataflow_assets.errors import DataflowError, PermanentError, TransientError
from dataflow_assets.sdk.causes import cause
from dataflow_assets.sdk.handshake import Options, refusal
from dataflow_assets.sdk.server_failure import Fault, ServerFailure

LONGEST = 500
CONFLICT = "ICEBERG_COMMIT_ERROR"
"""Somebody else has committed to the table meanwhile: nothing of the statement is stored."""
DENIED = "PERMISSION_DENIED"
_LATER_TYPES = frozenset({"INTERNAL_ERROR", "INSUFFICIENT_RESOURCES", "EXTERNAL"})
_LATER = frozenset(
    {
        CONFLICT,
        "TRANSACTION_CONFLICT",
        "SERVER_STARTING_UP",
        "SERVER_SHUTTING_DOWN",
        "QUERY_QUEUE_FULL",
        "EXCEEDED_TIME_LIMIT",
        "ABANDONED_QUERY",
        "ADMINISTRATIVELY_KILLED",
        "ADMINISTRATIVELY_PREEMPTED",
        "TOO_MANY_REQUESTS_FAILED",
        "TRANSACTION_ALREADY_ABORTED",
        "USER_CANCELED",
    }
)
_NEVER = frozenset(
    {
        "UNSUPPORTED_TABLE_TYPE",
        "JDBC_NON_TRANSIENT_ERROR",
        "ICEBERG_INVALID_METADATA",
        "ICEBERG_BAD_DATA",
        "ICEBERG_MISSING_DATA",
        "HIVE_BAD_DATA",
        "HIVE_INVALID_METADATA",
    }
)
"""Of types that are those of a moment otherwise."""
_ROWS = frozenset(
    {
        "CONSTRAINT_VIOLATION",
        "DIVISION_BY_ZERO",
        "INVALID_CAST_ARGUMENT",
        "INVALID_FUNCTION_ARGUMENT",
        "NUMERIC_VALUE_OUT_OF_RANGE",
    }
)
_JDBC = frozenset({"JDBC_ERROR", "JDBC_NON_TRANSIENT_ERROR"})
_ROW_IN_WORDS = re.compile(
    r"\b(violates|constraint|duplicate (key|entry)|out of range|overflow|"
    r"value too (long|large) for|data too long|cannot be null|invalid input|incorrect \w+ value)\b",
    re.IGNORECASE,
)
"""Trino passes on the words of the database behind a catalog, not its codes."""
_STATUS_LATER = frozenset({408, 429, 500, 502, 503, 504})
_ADVICE = {
    "CATALOG_NOT_FOUND": "correct `catalog`",
    "SCHEMA_NOT_FOUND": "create the schema, or correct `schema`",
    "TABLE_NOT_FOUND": "create the table, or correct `table`",
    "COLUMN_NOT_FOUND": "was the table altered? the next run reads its columns again",
    DENIED: "give the user of the flow what is missing",
    "EXCEEDED_TIME_LIMIT": "raise queryTimeoutSeconds, or lower maxRecordsPerBatch",
    "QUERY_TEXT_TOO_LARGE": "set maxStatementLength to the coordinator's query.max-length",
}
_ANONYMOUS = "Trino asks for a token: set `keycloak`"
_UNAUTHORIZED = (
    "Trino refuses the token: check that it has not expired, is for Trino's audience and is of the "
    "issuer that Trino trusts"
)
_OPTIONS = Options("ca", "", "", "serverURL")
MISSING = frozenset({"TABLE_NOT_FOUND", "SCHEMA_NOT_FOUND"})


@dataclass(frozen=True)
class Coordinator:
    """Who is asked. `ca`: the certificates that its own is checked with; empty: the machine's."""

    host: str
    port: int
    ca: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class TrinoFailure(ServerFailure):
    """One error of Trino, or of the way to it. `name` empty: no statement has failed."""

    def __init__(
        self, message: str, name: str = "", kind: str = "", status: int | None = None
    ) -> None:
        self.message = message.strip()[:LONGEST]
        self.name, self.type, self.status = name, kind, status
        self.anonymous = False  # no token was sent
        self.misplaced = False  # a certificate was not accepted: it stays as it is
        super().__init__(self.reason)

    @property
    def reason(self) -> str:
        """Trino's words and the name of the error."""
        return f"{self.message} ({self.name})" if self.name else self.message

    @property
    @override
    def fault(self) -> Fault:
        if self.name in _ROWS or (self.name in _JDBC and _ROW_IN_WORDS.search(self.message)):
            return Fault.ROW
        if self.type != "USER_ERROR" or self.name in (_ADVICE.keys() | _LATER):
            return Fault.OUTSIDE
        return Fault.OPEN

    @property
    def transient(self) -> bool:
        if self.name:
            later = self.name in _LATER or self.type in _LATER_TYPES
            return later and self.name not in _NEVER
        return not self.misplaced and (self.status is None or self.status in _STATUS_LATER)

    @property
    def is_answer(self) -> bool:
        """False where what was asked may have been done all the same."""
        return bool(self.name) or self.status is not None

    @override
    def error(self, what: str) -> DataflowError:
        advice = _ADVICE.get(self.name)
        if self.status in {401, 403}:
            advice = _ANONYMOUS if self.anonymous else _UNAUTHORIZED
        text = f"{what}: {self.reason}" + (f"; {advice}" if advice else "")
        return TransientError(text) if self.transient else PermanentError(text)


ANY: tuple[type[Exception], ...] = (TrinoFailure, DataflowError)
"""What a statement may end with that nothing depends on: also its token may not be there."""


@contextmanager
def failing(where: Coordinator, *, anonymous: bool = False) -> Iterator[None]:
    """Errors of the client and of the way inside as a Failure.

    Args:
        where: the coordinator.
        anonymous: no token is sent.
    """
    import requests
    from trino import exceptions

    try:
        yield
    except exceptions.TrinoQueryError as error:
        raise _of_query(error) from None
    except exceptions.HttpError as error:
        failure = _of_status(str(error))
        failure.anonymous = anonymous
        raise failure from None
    except json.JSONDecodeError:
        text = f"{where} answers with something that is not Trino's: is serverURL its address?"
        raise TrinoFailure(text, status=HTTPStatus.OK) from None
    except (exceptions.Error, requests.RequestException, OSError) as error:
        if why := refusal(error, where.ca, where.host, _OPTIONS):
            failure = TrinoFailure(f"no connection to {where}: {why}")
            failure.misplaced = True
            raise failure from None
        raise TrinoFailure(f"no answer from {where}: {cause(error)}") from None


def _of_query(error: Any) -> TrinoFailure:
    return TrinoFailure(
        _one_line(error.message), str(error.error_name or "UNKNOWN"), str(error.error_type or "")
    )


def _of_status(text: str) -> TrinoFailure:
    status = re.search(r"error (\d{3})", text)
    words = re.sub(r"^error \d{3}:? ?(b['\"])?|['\"]$", "", text)
    code = int(status[1]) if status else None
    return TrinoFailure(
        f"HTTP status {code}" + (f": {_one_line(words)}" if words else ""), status=code
    )


def _one_line(text: str) -> str:
    return " ".join(str(text).split())
