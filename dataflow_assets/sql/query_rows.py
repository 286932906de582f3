"""What a query does with each message, inside a task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import NotJson, Record, parse
from dataflow_assets.sql.bytes.messages import SKIPPED_KEY
from dataflow_assets.sql.bytes.read import Reader
from dataflow_assets.sql.bytes.write import Write, writer
from dataflow_assets.sql.expressions import program
from dataflow_assets.sql.function import Environment, Evaluate, Row
from dataflow_assets.sql.metadata import reader
from dataflow_assets.sql.metadata import writer as metadata_writer
from dataflow_assets.sql.plan import KEY, Output, Plan

_SKIP = object()
_NO_VALUE = (ValueError, OverflowError, ArithmeticError)
"""What an expression raises for a row for which there is no value."""


class QueryRows:
    """A record in, the row of the target out; compiled once for each task."""

    def __init__(self, plan: Plan, environment: Environment) -> None:
        self._plan = plan
        self._value = Reader(plan.value)
        self._key = Reader(plan.key) if plan.key is not None else None
        self._cells = _Cells(plan, self._value, environment.local)
        compiled = program(plan.shared, environment)
        self._where = compiled(plan.where) if plan.where is not None else None
        self._key_where = compiled(plan.key_where) if plan.key_where is not None else None
        self._outputs = _Outputs(plan, plan.outputs, compiled)
        self._keys = _Outputs(plan, [one for one in plan.outputs if one.key], compiled)

    def __call__(self, record: Record) -> Record | None:
        """The row, or the delete of one; None where nothing is to be written.

        Raises RejectedRecord, with a sentence that names a column and no value.
        """
        key = None if self._key is None else self._key_of(record)
        if key is _SKIP:
            return None
        body = record.body
        if body.__class__ is NotJson:
            if body.raw is not None:
                return None  # nothing between the ends of the message, or what is to be skipped
            if self._plan.changelog:
                return self._deleted(record, self._cells.row(record, None, key))
            if self._plan.value.kind != "raw":
                return None
            body = None
        values = self._values(body)
        if values is None:
            return None
        return self._of(record, self._cells.row(record, values, key, body))

    def _key_of(self, record: Record) -> Sequence[Any] | object | None:
        assert self._key is not None  # noqa: S101 - that is what this is called for
        text = record.metadata.get(KEY, "")
        if text == SKIPPED_KEY.decode():
            return _SKIP
        if not text:
            raise RejectedRecord("step", "the record has no key, and key.format needs one")
        try:
            found = self._key(parse(str(text).encode()))
        except ValueError as error:
            raise RejectedRecord("step", f"key: {error}") from None
        return _SKIP if found is None else found

    def _values(self, body: Any) -> Sequence[Any] | None:
        try:
            return self._value(body)
        except ValueError as error:
            raise RejectedRecord("step", str(error)) from None

    def _of(self, record: Record, row: Row) -> Record | None:
        if self._where is not None and not _holds(self._where, row):
            return self._deleted(record, row) if self._plan.changelog else None
        body = self._outputs(row)
        return None if body is None else Record(body, record.metadata, record.route)

    def _deleted(self, record: Record, row: Row) -> Record | None:
        """Unless nothing was ever written for the key, whatever else its rows had in them."""
        if self._key_where is not None and not _may_hold(self._key_where, row):
            return None
        body = self._keys(row)
        if body is None:
            return None
        return Record(body, {**record.metadata, "operation": "delete"}, record.route)


def _holds(where: Evaluate, row: Row) -> bool:
    try:
        return where(row) is True
    except _NO_VALUE as error:
        raise RejectedRecord("step", f"WHERE: {error}") from None


def _may_hold(where: Evaluate, row: Row) -> bool:
    """A delete passes where that cannot be said."""
    try:
        return where(row) is True
    except _NO_VALUE:
        return True


class _Outputs:
    """Columns of the target, by their names."""

    def __init__(
        self, plan: Plan, outputs: Sequence[Output], compiled: Callable[..., Evaluate]
    ) -> None:
        self._drops = plan.drops_nulls
        self._columns = [
            (one.name, compiled(one.expression), _writer(one, plan), one) for one in outputs
        ]

    def __call__(self, row: Row) -> dict[str, Any] | None:
        """None where the row is to be left out. Raises RejectedRecord."""
        body: dict[str, Any] = {}
        name = ""
        try:
            for name, evaluate, write, output in self._columns:
                value = evaluate(row)
                if value is None:
                    if not output.nullable:
                        self._refuse_null(output)
                        return None
                elif write is not None:
                    value = write(value)
                body[name] = value
        except _NO_VALUE as error:
            raise RejectedRecord("step", f"{name}: {error}") from None
        return body

    def _refuse_null(self, output: Output) -> None:
        if not self._drops:
            raise RejectedRecord(
                "step",
                f"Column '{output.name}' is NOT NULL, and the query has no value for it; with "
                "table.exec.sink.not-null-enforcer = DROP such rows are left out",
            )


def _writer(output: Output, plan: Plan) -> Write | None:
    if output.metadata:
        return metadata_writer(output.metadata)
    return writer(output.expression.type, plan.times)


class _Cells:
    """The row of a record: its columns in the order of the table."""

    def __init__(self, plan: Plan, value: Reader, zone: ZoneInfo) -> None:
        self._value = value
        cells = list(enumerate(plan.cells))
        self._width = len(cells)
        self._of_value = [(n, one.at, one.key_at) for n, one in cells if one.place == "value"]
        self._of_key = [(n, one.at) for n, one in cells if one.place == "key"]
        self._metadata = [
            (n, reader(one.metadata, one.type, zone)) for n, one in cells if one.type is not None
        ]
        plain = [one.at for one in plan.cells if one.place == "value" and one.key_at is None]
        self._plain = plain == list(range(self._width)) == list(range(len(plan.value.names)))

    def row(self, record: Record, values: Row | None, key: Any, body: Any = None) -> Row:
        """`values`: None of a record without a value; `body`: what they were read from.

        A key's column that the value lacks is the key's: else deletes would miss the row.
        """
        if self._plain and values is not None:
            return values
        row: list[Any] = [None] * self._width
        for n, at, key_at in self._of_value:
            if key_at is not None and (values is None or not self._value.has(body, at)):
                row[n] = key[key_at]
            elif values is not None:
                row[n] = values[at]
        for n, at in self._of_key:
            row[n] = key[at]
        for n, read in self._metadata:
            row[n] = read(record.metadata)
        return row
