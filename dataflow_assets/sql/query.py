"""The step that a SELECT without state becomes: a message in, a row of the target out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, ClassVar, Literal

from pydantic import InstanceOf
from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import NotJson, Record, parse
from dataflow_assets.records.step import Apply, Context, Example, Origins, Step
from dataflow_assets.sql.bytes.layout import Layout, Times
from dataflow_assets.sql.bytes.messages import SKIPPED_KEY
from dataflow_assets.sql.bytes.read import Reader
from dataflow_assets.sql.bytes.write import Write, writer
from dataflow_assets.sql.casts import cutter
from dataflow_assets.sql.expressions import Expression, columns, compiled
from dataflow_assets.sql.function import Environment, Evaluate, Row
from dataflow_assets.sql.texts import parsed_moment
from dataflow_assets.sql.types import Type

_KEY = "key"


@dataclass(frozen=True)
class Cell:
    """Where a column of the source's row comes from."""

    name: str
    place: Literal["value", "key", "metadata"]
    at: int = 0
    """In the layout of the value, or of the key."""
    key_at: int | None = None
    """Of a column that is in both: where it is in the key."""
    metadata: str = ""
    type: Type | None = None
    """Of metadata."""


@dataclass(frozen=True)
class Output:
    """A column of the target."""

    name: str
    expression: Expression
    nullable: bool = True
    key: bool = False
    """Part of the target's PRIMARY KEY."""


@dataclass(frozen=True)
class Plan:
    """What one INSERT does with each message. Made when a file is loaded."""

    value: Layout
    key: Layout | None
    cells: tuple[Cell, ...]
    outputs: tuple[Output, ...]
    where: Expression | None = None
    changelog: bool = False
    """A message replaces the one of the same key, and a null one deletes it."""
    times: Times = "RFC-3339"
    """How times are written for the target."""
    drops_nulls: bool = False
    """`table.exec.sink.not-null-enforcer` = DROP."""
    zone: str = "UTC"

    @property
    def judges_by_key(self) -> bool:
        """Whether WHERE looks at nothing but the key: it says the same of each state of a row."""
        if self.where is None:
            return False
        cells = (self.cells[at] for at in columns(self.where))
        return all(one.place == "key" or one.key_at is not None for one in cells)


class SqlQuery(Step):
    """A SELECT. Made by the manifest language `sql`; DataFlow manifests do not name it."""

    type: ClassVar[str] = "query"
    examples: ClassVar[tuple[Example, ...]] = ()
    plan: InstanceOf[Plan]
    text: str = ""
    """The INSERT as it is written, for people."""

    @override
    def compile(self, context: Context) -> Apply:
        return _Rows(self.plan, Environment(self.plan.zone, context.now))

    @override
    def reads(self) -> frozenset[str]:
        found = {one.metadata for one in self.plan.cells if one.place == "metadata"}
        return frozenset(found | ({_KEY} if self.plan.key is not None else set()))

    @override
    def origins(self, column: str) -> Origins:
        found = next((one for one in self.plan.outputs if one.name == column), None)
        if found is None:
            return None
        cells = (self.plan.cells[at] for at in columns(found.expression))
        return frozenset(one.name for one in cells if one.place != "metadata")


class _Rows:
    """Compiled once for each task."""

    def __init__(self, plan: Plan, environment: Environment) -> None:
        self._plan = plan
        self._value = Reader(plan.value)
        self._key = Reader(plan.key) if plan.key is not None else None
        self._where = compiled(plan.where, environment) if plan.where is not None else None
        self._by_key = plan.judges_by_key
        self._outputs = [_Cell.of(one, plan.times, environment) for one in plan.outputs]
        self._keys = [one for one in self._outputs if one.output.key]
        self._metadata = [_metadata(one) for one in plan.cells]

    def __call__(self, record: Record) -> Record | None:
        key = self._key_of(record)
        if key is _SKIP:
            return None
        body = record.body
        if isinstance(body, NotJson):
            if body.raw is not None:
                return None  # nothing between the ends of the message, or what is to be skipped
            if self._plan.changelog:
                return self._deleted(record, self._row(record, None, key))
            if self._plan.value.kind != "raw":
                return None
            body = None
        values = self._values(body)
        if values is None:
            return None
        return self._of(record, self._row(record, values, key, body))

    def _key_of(self, record: Record) -> Sequence[Any] | object | None:
        if self._key is None:
            return None
        text = record.metadata.get(_KEY, "")
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

    def _row(self, record: Record, values: Sequence[Any] | None, key: Any, body: Any = None) -> Row:
        """A key's column that the value lacks is the key's: else deletes would miss the row."""
        row: list[Any] = []
        present = self._value.present(body) if values is not None and key is not None else ()
        for cell, metadata in zip(self._plan.cells, self._metadata, strict=True):
            if cell.place == "metadata":
                row.append(metadata(record.metadata))
            elif cell.place == "key":
                row.append(key[cell.at])
            elif values is None or (cell.key_at is not None and not present[cell.at]):
                row.append(None if cell.key_at is None else key[cell.key_at])
            else:
                row.append(values[cell.at])
        return row

    def _of(self, record: Record, row: Row) -> Record | None:
        if self._where is not None and _computed(self._where, row, "WHERE") is not True:
            keeps = self._plan.changelog and not self._by_key
            return self._deleted(record, row) if keeps else None
        body: dict[str, Any] = {}
        for cell in self._outputs:
            value = _computed(cell.evaluate, row, cell.output.name)
            if value is None and not cell.output.nullable:
                self._refuse_null(cell.output)
                return None
            body[cell.output.name] = None if value is None else cell.write(value)
        return Record(body, record.metadata, record.route)

    def _refuse_null(self, output: Output) -> None:
        """Unless such rows are left out."""
        if not self._plan.drops_nulls:
            raise RejectedRecord(
                "step",
                f"Column '{output.name}' is NOT NULL, and the query has no value for it; with "
                "table.exec.sink.not-null-enforcer = DROP such rows are left out",
            )

    def _deleted(self, record: Record, row: Row) -> Record | None:
        if self._by_key and self._where and _computed(self._where, row, "WHERE") is not True:
            return None
        body: dict[str, Any] = {}
        for cell in self._keys:
            value = _computed(cell.evaluate, row, cell.output.name)
            if value is None:
                self._refuse_null(cell.output)
                return None
            body[cell.output.name] = cell.write(value)
        return Record(body, {**record.metadata, "operation": "delete"}, record.route)


_SKIP = object()


@dataclass(frozen=True)
class _Cell:
    output: Output
    evaluate: Evaluate
    write: Write

    @classmethod
    def of(cls, output: Output, times: Times, environment: Environment) -> _Cell:
        expression = output.expression
        return cls(output, compiled(expression, environment), writer(expression.type, times))


def _computed(evaluate: Evaluate, row: Row, name: str) -> Any:
    try:
        return evaluate(row)
    except (ValueError, OverflowError, ArithmeticError) as error:
        raise RejectedRecord("step", f"{name}: {error}") from None


def _metadata(cell: Cell) -> Callable[[Mapping[str, Any]], Any]:
    name = cell.metadata
    if name == "timestamp" and cell.type is not None:
        cut = cutter(cell.type)

        def time(metadata: Mapping[str, Any]) -> Any:
            found = metadata.get(name)
            if isinstance(found, int):
                raise RejectedRecord("step", "the record's timestamp is beyond the year 9999")
            if isinstance(found, str):  # of a rejected record that is put back
                found = parsed_moment(found.removesuffix("Z")).replace(tzinfo=UTC)
            return None if found is None else cut(found.astimezone(UTC))

        return time
    return lambda metadata: metadata.get(name)
