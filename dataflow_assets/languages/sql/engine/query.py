"""The steps that a query becomes: of a SELECT without state, and of an INSERT with state.

Apart from `query_rows`, which evaluates the rows: views use its parts and are no steps.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import InstanceOf
from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.languages.sql.engine.function import Environment
from dataflow_assets.languages.sql.engine.plan import FlinkPlan, metadata_of
from dataflow_assets.languages.sql.engine.query_rows import QueryRows
from dataflow_assets.languages.sql.engine.view import ViewPlan
from dataflow_assets.records.record import NotJson, Record
from dataflow_assets.records.step import Apply, Context, Example, Origins, Step


class SqlQuery(Step):
    """A SELECT. Made by the manifest language `sql`; DataFlow manifests do not name it."""

    type: ClassVar[str] = "query"
    examples: ClassVar[tuple[Example, ...]] = ()
    plan: InstanceOf[FlinkPlan]
    text: str = ""
    """The INSERT as it is written, for people."""

    @override
    def compile(self, context: Context) -> Apply:
        return QueryRows(self.plan, Environment(self.plan.zone, context.now))

    @override
    def reads(self) -> frozenset[str]:
        return metadata_of(self.plan.cells, key=self.plan.key is not None)

    @override
    def origins(self, column: str) -> Origins:
        output = next((one for one in self.plan.outputs if one.name == column), None)
        if output is None:
            return None
        cells = self.plan.reads(output.expression)
        return frozenset(one.name for one in cells if one.place != "metadata")


def _pass(record: Record) -> Record | None:
    if "operation" not in record.metadata:
        raise RejectedRecord(
            "step", "the query keeps state: what a record changes is not told by the record alone"
        )
    return None if isinstance(record.body, NotJson) else record


class ViewRows(Step):
    """The rows of a view on their way into the target. Made by the manifest language `sql`."""

    type: ClassVar[str] = "view"
    examples: ClassVar[tuple[Example, ...]] = ()
    view: InstanceOf[ViewPlan]
    text: str = ""
    """The INSERT as it is written, for people."""

    @override
    def compile(self, context: Context) -> Apply:
        return _pass

    @override
    def reads(self) -> frozenset[str]:
        return frozenset({"operation"})

    @override
    def origins(self, column: str) -> Origins:
        return self.view.origins(column)
