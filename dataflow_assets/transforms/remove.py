"""remove: takes fields out."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from typing_extensions import override

from dataflow_assets.records.paths.path import Writable
from dataflow_assets.records.step import Apply, Context, Example, Origins, Step, on_body


class Remove(Step):
    """Takes the listed fields out; one that is missing is skipped, a parent stays as `{}`.

    `replaceField` with `exclude` also takes out parents that become empty.
    """

    type: ClassVar[str] = "remove"
    fields: tuple[Writable, ...] = Field(min_length=1)
    """Paths of what to take out, one after another."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example(
            "nested: the emptied parent stays",
            {"fields": ["u.p"]},
            '{"u":{"p":1},"k":2}',
            ('{"u":{},"k":2}',),
        ),
        Example(
            "several, with and without $",
            {"fields": ["$.a", "b"]},
            '{"a":1,"b":null,"c":3}',
            ('{"c":3}',),
        ),
        Example("whole objects", {"fields": ["u", "u.id"]}, '{"k":1,"u":{"id":2}}', ('{"k":1}',)),
        Example("missing ones are skipped", {"fields": ["x", "k.x"]}, '{"k":1}', ('{"k":1}',)),
        Example(
            "numbers of the rest keep their digits",
            {"fields": ["a"]},
            '{"a":1,"n":12345678901234567890,"d":1.10}',
            ('{"n":12345678901234567890,"d":1.10}',),
        ),
        Example("not JSON", {"fields": ["a"]}, "a=1", ("a=1",)),
    )

    @override
    def origins(self, column: str) -> Origins:
        return frozenset() if any(p.key == column for p in self.fields) else frozenset({column})

    @override
    def compile(self, context: Context) -> Apply:
        removers = [path.remover() for path in self.fields]
        return on_body(*removers)
