"""Messages that are changes of rows, in the envelopes of Debezium, Canal and Maxwell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.languages.sql.engine.bytes.layout import ChangeLayout
from dataflow_assets.languages.sql.engine.functions.regular import SECONDS, expression
from dataflow_assets.records.change_event import ChangeEvent, change_event, placeholders
from dataflow_assets.records.record import exact_json, text_form

Fields = Mapping[str, Any]
_ABSENT = placeholders("__debezium_unavailable_value")
_SNAPSHOT, _INSERT, _UPDATE, _DELETE = "rcud"
_OF_CANAL = {"INSERT": _INSERT, "UPDATE": _UPDATE, "DELETE": _DELETE}
_OF_MAXWELL = {"insert": _INSERT, "bootstrap-insert": _INSERT, "update": _UPDATE, "delete": _DELETE}
_NO_ROWS = frozenset(
    (
        *("CREATE", "ALTER", "RENAME", "CINDEX", "DINDEX", "QUERY", "DCL"),
        *("bootstrap-start", "bootstrap-complete"),
        *("table-create", "table-alter", "database-create", "database-alter"),
    )
)
"""Types of messages that change no row. What empties or drops a table is none of them."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _FlinkChange(NamedTuple):
    """The change of one row."""

    kind: str
    """`c`, `u` or `d`."""
    before: Fields | None
    after: Fields | None
    absent: Sequence[str] = ()
    """Fields that the row after the change has not been sent with."""


class FlinkChanges:
    """Reads messages; made once for each task."""

    def __init__(self, layout: ChangeLayout) -> None:
        self._layout = layout
        self._read = {"debezium": _debezium, "canal": self._canal, "maxwell": _maxwell}[
            layout.envelope
        ]
        names = {"database": layout.database, "table": layout.table}
        self._included = {name: expression(text) for name, text in names.items() if text}

    def __call__(self, body: Any) -> list[tuple[Fields, bool]]:
        """Rows in the order of their changes, and whether each is gone; none of what is skipped.

        A row that is replaced is gone and comes again, unless its PRIMARY KEY says that it is the
        same one. Raises RejectedRecord; a change that lacks something is no message that cannot be
        read, so it is rejected even where such messages are left out.
        """
        try:
            changes = list(self._read(body))
        except RejectedRecord:
            if self._layout.ignore_errors:
                return []
            raise
        return [one for change in changes for one in self._rows(change)]

    def _rows(self, change: _FlinkChange) -> list[tuple[Fields, bool]]:
        before = change.before
        if change.kind == _DELETE:
            return [(self._known_row(before, "which row is gone"), True)]
        if change.after is None:
            raise _rejection("the change has no row after it")
        absent = [name for name in change.absent if name in self._layout.names]
        after = _whole(change.after, absent, before)
        if change.kind == _INSERT:
            return [(after, False)]
        if self._layout.primary and (before is None or not self._has_moved(before, after)):
            return [(after, False)]
        return [(self._known_row(before, "which row was replaced"), True), (after, False)]

    def _has_moved(self, before: Fields, after: Fields) -> bool:
        pairs = ((before.get(name), after.get(name)) for name in self._layout.primary)
        return any(old is not None and old != new for old, new in pairs)

    def _known_row(self, before: Fields | None, what: str) -> Fields:
        """The row before. Raises RejectedRecord where it does not say `what`."""
        primary = self._layout.primary
        missing = [name for name in primary if (before or {}).get(name) is None]
        if before is not None and not missing:
            return before
        lacks = f"no {', '.join(missing)}, the PRIMARY KEY" if primary else "no row before it"
        advice = "" if primary else "declare the PRIMARY KEY of the table in SQL, or "
        raise _rejection(
            f"the change has {lacks}, and so does not say {what}: {advice}set REPLICA IDENTITY "
            "FULL for a table of PostgreSQL"
        )

    def _canal(self, body: Any) -> Iterator[_FlinkChange]:
        fields = _object(body)
        if not all(self._is_included(fields, name) for name in self._included):
            return
        kind = _kind(fields, _OF_CANAL)
        if kind is None:
            return
        rows = _rows_of(fields, "data")
        if kind != _UPDATE:
            yield from (_one_sided(kind, one) for one in rows)
            return
        old = _rows_of(fields, "old") if fields.get("old") is not None else [None] * len(rows)
        if len(old) != len(rows):
            raise _rejection(f"old has {len(old)} rows, and data {len(rows)}")
        for row, changed in zip(rows, old, strict=True):
            yield _FlinkChange(kind, None if changed is None else {**row, **changed}, row)

    def _is_included(self, fields: Fields, name: str) -> bool:
        value = fields.get(name)
        if not isinstance(value, str):
            raise _rejection(f"the message does not say of which {name} it is")
        return self._included[name].fullmatch(value, timeout=SECONDS) is not None

    def metadata(self, body: Any) -> dict[str, Any]:
        """Reads the envelope beside the rows, by the keys of METADATA. Raises RejectedRecord.

        `body`: of a message that has rows.
        """
        if self._layout.envelope == "debezium":
            event = change_event(body)
            fields = {} if event is None else _of_debezium(event)
        else:
            fields = _of_message(body, seconds=self._layout.envelope == "maxwell")
        return {f"value.{name}": value for name, value in fields.items()}


def _debezium(body: Any) -> Iterator[_FlinkChange]:
    event = change_event(body)
    if event is None:
        raise _rejection("no change event of Debezium: it has no op, or neither before nor after")
    event = replace(event, schema=None)  # values are read by the types of the columns
    kind = event.fields["op"]
    if kind not in (_SNAPSHOT, _INSERT, _UPDATE, _DELETE):
        raise _rejection(f"{event.place}op is none of c, r, u, d")
    row = event.row("before", {}, ())
    before = None if row is None else row[0]
    after = None if kind == _DELETE else event.row("after", {}, _ABSENT)
    yield _FlinkChange(_INSERT if kind == _SNAPSHOT else kind, before, *(after or (None, ())))


def _whole(after: Fields, absent: Sequence[str], before: Fields | None) -> Fields:
    """With values that the update has left alone, and that are in the row before."""
    if not absent:
        return after
    old = {name: (before or {}).get(name) for name in absent}
    left = [name for name, value in old.items() if value is None or value in _ABSENT]
    if left:
        raise _rejection(
            f"the change has left {', '.join(left)} alone, and does not say the value: set REPLICA "
            "IDENTITY FULL for the table"
        )
    return {**after, **old}


def _maxwell(body: Any) -> Iterator[_FlinkChange]:
    fields = _object(body)
    kind = _kind(fields, _OF_MAXWELL)
    if kind is None:
        return
    row, old = _object(fields.get("data"), "data"), fields.get("old")
    if kind == _UPDATE:
        before = None if old is None else {**row, **_object(old, "old")}
        yield _FlinkChange(kind, before, row)
    else:
        yield _one_sided(kind, row)


def _one_sided(kind: str, row: Fields) -> _FlinkChange:
    return _FlinkChange(kind, row, None) if kind == _DELETE else _FlinkChange(kind, None, row)


def _kind(fields: Fields, kinds: Mapping[str, str]) -> str | None:
    kind = fields.get("type")
    if isinstance(kind, str) and kind in kinds:
        return kinds[kind]
    if isinstance(kind, str) and kind in _NO_ROWS:
        return None
    allowed = ", ".join(kinds)
    raise _rejection(f"type is none of {allowed}: what a target should do about it is not known")


def _rows_of(fields: Fields, name: str) -> list[Fields]:
    rows = fields.get(name)
    if not isinstance(rows, list):
        raise _rejection(f"{name} is not an array of rows")
    return [_object(one, f"a row of {name}") for one in rows]


def _object(value: Any, name: str = "the message") -> Fields:
    if not isinstance(value, dict):
        raise _rejection(f"{name} is not a JSON object")
    return value


def _rejection(reason: str) -> RejectedRecord:
    return RejectedRecord("step", reason)


def _of_debezium(event: ChangeEvent) -> dict[str, Any]:
    origin = event.fields.get("source")
    source = origin if isinstance(origin, dict) else {}
    return {
        "schema": None if event.schema is None else exact_json(event.schema).decode(),
        "ingestion-timestamp": _moment(event.fields.get("ts_ms")),
        "source.timestamp": _moment(source.get("ts_ms")),
        "source.database": source.get("db"),
        "source.schema": source.get("schema"),
        "source.table": source.get("table"),
        "source.properties": {
            name: None if value is None else text_form(value) for name, value in source.items()
        },
    }


def _of_message(body: Any, *, seconds: bool) -> dict[str, Any]:
    fields = _object(body)
    time = fields.get("ts")
    return {
        "database": fields.get("database"),
        "table": fields.get("table"),
        "sql-type": fields.get("sqlType"),
        "pk-names": fields.get("pkNames"),
        "primary-key-columns": fields.get("primary_key_columns"),
        "ingestion-timestamp": _moment(time * 1000 if seconds and isinstance(time, int) else time),
        "event-timestamp": _moment(fields.get("es")),
    }


def _moment(millis: Any) -> datetime | None:
    try:
        return _EPOCH + timedelta(milliseconds=millis) if isinstance(millis, int) else None
    except OverflowError:
        raise _rejection("a time of the envelope is beyond the year 9999") from None
