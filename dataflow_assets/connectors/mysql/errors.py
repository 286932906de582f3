"""Errors of MySQL and MariaDB, judged by their number, which is the same in both."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from dataflow_assets.errors import DataflowError, Locked, PermanentError, TransientError
from dataflow_assets.sdk.causes import cause
from dataflow_assets.sdk.handshake import Options, refusal
from dataflow_assets.sdk.server_failure import Fault, ServerFailure

LONGEST = 500
LOCKED = frozenset({1205, 1213, 3572})  # a wait that was too long, a deadlock, NOWAIT
DUPLICATE = 1062
THERE = 1060  # a column of that name
_UNSEEN = frozenset({2002, 2003, 2005, 2006, 2013, 2055})
"""Of the client: whether the statement was done is not known."""
_LATER = LOCKED | {
    1021,  # the disk is full
    *(1037, 1038, 1041, 1114),  # out of memory, a table is full
    *(1040, 1203, 1226),  # too many connections
    *(1047, 1053, 1077, 3168, 4031),  # not ready yet, shut down, closed because idle
    *(1152, 1158, 1159, 1160, 1161, 1184, 1927),  # the network, a killed connection
    *(1206, 1412, 1615, 1637, 1878),  # too many locks, a table that was just altered
    *(1290, 1792, 1836),  # read-only: until somebody has failed over
    *(1317, 1969, 3024),  # a statement that was ended
    *_UNSEEN,
}
_ROW = frozenset(
    {
        *(1048, 1263, 1364, 4162),  # no value
        *(DUPLICATE, 1169, 1586),  # one that is there already
        *(1264, 1265, 1292, 1366, 1367, 1406, 1411, 1416, 1690),  # one that the type has not
        *(1216, 1452, 1761, 1762),  # foreign keys
        *(3140, 3141, 3819, 4025, 1365),  # JSON, checks, a division by zero
    }
)
_LIKELY = frozenset({1644, 1105, 1242})  # what triggers raise
_OF_TABLE = frozenset({1044, 1045, 1049, 1054, 1142, 1143, 1146, 1227, 1370, 1698})
MISSING = frozenset({1146, 1049, 1932})
TOO_LONG = 1406
ALTERING = frozenset({1264, 1265, 1292, 1366, TOO_LONG})
"""Warnings and notes that a value was changed."""
DENIED = frozenset({1044, 1142, 1227})
_GRANT = "grant the user of the flow what is missing"
_CREDENTIALS = "check `user` and `password`, and from which hosts the user may connect"
_ALTERED = "was the table altered? the next run reads its columns again"
_ADVICE = {
    1040: "the flow tries again; raise max_connections of the server if that goes on",
    1044: f"{_GRANT}, or correct `database`",
    1045: _CREDENTIALS,
    1049: "create the database, or correct `database`",
    1054: _ALTERED,
    1129: "the server blocks this host after failed connections: run FLUSH HOSTS there",
    1130: "the server takes no connection from this machine: grant the user this host",
    1136: _ALTERED,
    1142: _GRANT,
    1143: _GRANT,
    1146: "create the table, or correct `table`",
    1153: "the row is longer than max_allowed_packet of the server: raise it there",
    1205: "another transaction holds a lock: SHOW ENGINE INNODB STATUS says which",
    1227: _GRANT,
    1290: "the server takes no writes now: is it a replica? the flow goes on when it does",
    1370: _GRANT,
    1698: _CREDENTIALS,
    1836: "the server takes no writes now: is it a replica? the flow goes on when it does",
    1969: "raise max_statement_time for the user of the flow, or lower maxRecordsPerBatch",
    2026: "the server offers no encryption: switch it on there, or leave `tls` out",
    2059: "use a plugin that PyMySQL knows for this user, as caching_sha2_password",
    3024: "raise max_execution_time for the user of the flow, or lower maxRecordsPerBatch",
    3159: "the server takes encrypted connections only: set `tls`",
}
_OPTIONS = Options("tls.caFile", "tls.certFile", "tls.keyFile", "host")


class MysqlFailure(ServerFailure):
    """One error of the server, or of the way to it. `code` None: the client itself has failed."""

    def __init__(self, message: str, code: int | None = None, *, misplaced: bool = False) -> None:
        """Made where the client has raised.

        Args:
            message: in the server's or the client's words.
            code: its number.
            misplaced: a certificate was not accepted, which stays so until somebody acts.
        """
        self.message = message.strip()[:LONGEST]
        self.code, self.misplaced = code, misplaced
        super().__init__(self.reason)

    @property
    @override
    def reason(self) -> str:
        return self.message if self.code is None else f"{self.message} (error {self.code})"

    @property
    def transient(self) -> bool:
        return not self.misplaced and (self.code is None or self.code in _LATER)

    @property
    def is_answer(self) -> bool:
        """False where what was asked may have been done all the same."""
        return self.code is not None and self.code not in _UNSEEN

    @property
    @override
    def fault(self) -> Fault:
        if self.code in _ROW:
            return Fault.ROW
        if self.code in _LIKELY:
            return Fault.LIKELY
        if self.transient or self.misplaced or self.code in _OF_TABLE:
            return Fault.OUTSIDE
        return Fault.OPEN

    @override
    def error(self, what: str) -> DataflowError:
        advice = _ADVICE.get(self.code or 0)
        text = f"{what}: {self.reason}" + (f"; {advice}" if advice else "")
        if self.code in LOCKED:
            return Locked(text)
        return TransientError(text) if self.transient else PermanentError(text)


def from_client(error: Exception) -> MysqlFailure:
    """Returns an error of PyMySQL or of the network as a failure."""
    code, message = (*error.args, None, None)[:2]
    if isinstance(code, int) and code and message is not None:
        return MysqlFailure(_one_line(message), code)
    return MysqlFailure(cause(error))


def unreachable(error: Exception, server: str, host: str, ca: str) -> MysqlFailure:
    """Returns why there is no connection to a server; `ca`: what its certificate is checked by."""
    if why := refusal(error, ca, host, _OPTIONS):
        return MysqlFailure(f"no connection to {server}: {why}", misplaced=True)
    found = from_client(error)
    if found.is_answer:
        return found
    reason = cause(getattr(error, "original_exception", None) or error)
    return MysqlFailure(f"no connection to {server}: {reason}", found.code)


def _one_line(text: Any) -> str:
    return " ".join(str(text).split())
