"""The step that a SELECT without state becomes: a message in, a row of the target out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import InstanceOf
from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import Record
from dataflow_assets.records.step import Apply, Context, Example, Origins, Step
from dataflow_assets.sql.bytes.layout import Layout, Times
from dataflow_assets.sql.bytes.write import Write, writer
from dataflow_assets.sql.expressions import Expression, columns, compiled
from dataflow_assets.sql.function import Environment, Evaluate, Row
from dataflow_assets.sql.input import KEY, Cell, Input


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
        return all(one.of_key for one in cells)


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
        return frozenset(found | ({KEY} if self.plan.key is not None else set()))

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
        self._input = Input(plan.value, plan.key, plan.cells, changelog=plan.changelog)
        self._where = compiled(plan.where, environment) if plan.where is not None else None
        self._by_key = plan.judges_by_key
        self._outputs = [_Cell.of(one, plan.times, environment) for one in plan.outputs]
        self._keys = [one for one in self._outputs if one.output.key]

    def __call__(self, record: Record) -> Record | None:
        taken = self._input(record)
        if taken is None:
            return None
        return (self._deleted if taken.gone else self._of)(record, taken.row)

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

