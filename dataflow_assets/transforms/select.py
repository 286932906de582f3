"""select: keeps the listed fields, side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from pydantic import Field
from typing_extensions import override

from dataflow_assets.records.paths.path import Path
from dataflow_assets.records.record import MISSING, NotJson, Record
from dataflow_assets.records.step import Apply, Context, Example, Origins, Step


class Select(Step):
    """Makes a flat object of the listed fields; each is called like the last part of its path.

    What is missing is left out: where nothing is found, `{}` remains. Of two fields with the same
    name the later one that is there wins. `replaceField` with `include` keeps the nesting.
    """

    type: ClassVar[str] = "select"
    fields: tuple[Path, ...] = Field(min_length=1)
    """Paths of what to keep."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example(
            "nested fields come to the top",
            {"fields": ["u.id", "t"]},
            '{"u":{"id":1,"p":2},"t":3}',
            ('{"id":1,"t":3}',),
        ),
        Example("with $", {"fields": ["$.u.id"]}, '{"u":{"id":1}}', ('{"id":1}',)),
        Example(
            "null and whole objects are values",
            {"fields": ["u", "n"]},
            '{"n":null,"u":{"id":1},"x":2}',
            ('{"u":{"id":1},"n":null}',),
        ),
        Example("missing ones are left out", {"fields": ["a", "b"]}, '{"a":1}', ('{"a":1}',)),
        Example("no field found: the result is {}", {"fields": ["a.b"]}, '{"pin":1}', ("{}",)),
        Example("nor of a body without keys", {"fields": ["a"]}, '"secret"', ("{}",)),
        Example(
            "the later of one name wins, if it is there",
            {"fields": ["old.id", "new.id", "x.id"]},
            '{"new":{"id":2},"old":{"id":1}}',
            ('{"id":2}',),
        ),
        Example("not JSON", {"fields": ["a"]}, "a=1", ("a=1",)),
    )

    @override
    def origins(self, column: str) -> Origins:
        tops = [path.top for path in self.fields if path.name == column]
        return None if None in tops else frozenset(top for top in tops if top)

    @override
    def compile(self, context: Context) -> Apply:
        pick = self._picker()

        def apply(record: Record) -> Record:
            body = record.body
            if isinstance(body, NotJson):
                return record
            return Record(pick(body), record.metadata, record.route)

        return apply

    def _picker(self) -> Callable[[Any], dict[str, Any]]:
        """Body -> the new one; quicker where all are keys of the body itself."""
        columns = [(path.name, path.getter()) for path in self.fields]
        keys = [path.key for path in self.fields if path.key is not None]

        def pick(body: Any) -> dict[str, Any]:
            return {name: v for name, get in columns if (v := get(body)) is not MISSING}

        def pick_keys(body: Any) -> dict[str, Any]:
            return {key: body[key] for key in keys if key in body} if type(body) is dict else {}

        return pick_keys if len(keys) == len(columns) else pick
