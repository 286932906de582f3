"""filter: keeps the records for which a condition holds."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from dataflow_assets.records.conditions.condition import Condition
from dataflow_assets.records.record import Record
from dataflow_assets.records.step import Apply, Context, Example, Origins, Step


class Filter(Step):
    """Keeps a record where the condition holds; drops it, counted as done, where it does not."""

    type: ClassVar[str] = "filter"
    condition: Condition
    """What must hold (see Conditions)."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example("kept", {"condition": "$.ok == true"}, '{"ok":true}', ('{"ok":true}',)),
        Example("dropped", {"condition": "$.ok == true"}, '{"ok":1}', ()),
        Example("what is there and not empty, 0, false or null", {"condition": "$.n"}, '{"n":0}'),
        Example("of a missing field nothing holds", {"condition": "$.lvl != 'err'"}, '{"a":1}'),
        Example(
            "unless it is turned round as a whole",
            {"condition": "!$.lvl == 'err'"},
            '{"a":1}',
            ('{"a":1}',),
        ),
        Example(
            "by metadata",
            {"condition": "metadata.operation != 'delete' && $.id"},
            '{"id":1}',
            ('{"id":1}',),
            metadata={"operation": "insert"},
        ),
        Example("not JSON: its fields are missing", {"condition": "$.ok"}, "hello"),
    )

    @override
    def origins(self, column: str) -> Origins:
        return frozenset({column})

    @override
    def compile(self, context: Context) -> Apply:
        holds = self.condition.compile()

        def apply(record: Record) -> Record | None:
            return record if holds(record) else None

        return apply

    @override
    def reads(self) -> frozenset[str]:
        return self.condition.reads()
