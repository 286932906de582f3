"""The step that a SELECT without state becomes: a message in, a row of the target out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pydantic import InstanceOf
from typing_extensions import override

from dataflow_assets.records.step import Apply, Context, Example, Origins, Step
from dataflow_assets.sql.bytes.layout import Layout, Times
from dataflow_assets.sql.expressions import Expression, columns
from dataflow_assets.sql.function import Environment
from dataflow_assets.sql.input import KEY, Cell


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
    key_where: Expression | None = None
    """The part of `where` that says the same of each state of a row, whenever it is asked: it looks
    at nothing but the key. Of a row for which it does not hold nothing was ever written."""
    shared: tuple[Expression, ...] = ()
    """What several expressions need, computed once for a row; each may need those before it."""
    changelog: bool = False
    """A message replaces the one of the same key, and a null one deletes it."""
    times: Times = "RFC-3339"
    """How times are written for the target."""
    drops_nulls: bool = False
    """`table.exec.sink.not-null-enforcer` = DROP."""
    zone: str = "UTC"

    def reads(self, expression: Expression) -> Iterator[Cell]:
        """The cells that an expression looks at."""
        return (self.cells[at] for at in sorted(columns(expression, self.shared)))


class SqlQuery(Step):
    """A SELECT. Made by the manifest language `sql`; DataFlow manifests do not name it."""

    type: ClassVar[str] = "query"
    examples: ClassVar[tuple[Example, ...]] = ()
    plan: InstanceOf[Plan]
    text: str = ""
    """The INSERT as it is written, for people."""

    @override
    def compile(self, context: Context) -> Apply:
        from dataflow_assets.sql.query_rows import QueryRows

        return QueryRows(self.plan, Environment(self.plan.zone, context.now))

    @override
    def reads(self) -> frozenset[str]:
        found = {one.metadata for one in self.plan.cells if one.place == "metadata"}
        return frozenset(found | ({KEY} if self.plan.key is not None else set()))

    @override
    def origins(self, column: str) -> Origins:
        found = next((one for one in self.plan.outputs if one.name == column), None)
        if found is None:
            return None
        cells = self.plan.reads(found.expression)
        return frozenset(one.name for one in cells if one.place != "metadata")
