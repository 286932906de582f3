"""The step that an INSERT with state becomes: rows of the target, which its source has computed."""

from __future__ import annotations

from typing import ClassVar

from pydantic import InstanceOf
from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.languages.sql.engine.view import ViewPlan
from dataflow_assets.records.record import NotJson, Record
from dataflow_assets.records.step import Apply, Context, Example, Origins, Step


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
