"""jsonString: writes values as JSON text."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field
from typing_extensions import override

from dataflow_assets.records.paths.path import Path, Writable
from dataflow_assets.records.record import MISSING, at, encode
from dataflow_assets.records.step import Apply, Change, Context, Example, Origins, Step, on_body


class JsonString(Step):
    """Turns values into their JSON text, compact; `jsonParse` is the way back.

    Null stays null, so that a column of text holds no word `null`; what is missing is skipped. Text
    is quoted like any other value, or the way back would not lead to it.
    """

    type: ClassVar[str] = "jsonString"
    addition: ClassVar[bool] = True
    fields: tuple[Writable, ...] = Field(min_length=1)
    """Paths of the values."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example(
            "an object",
            {"fields": ["$.u.doc"]},
            '{"u":{"doc":{"a": [1, 2]}},"k":1}',
            ('{"u":{"doc":"{\\"a\\":[1,2]}"},"k":1}',),
        ),
        Example(
            "any value; numbers keep their digits",
            {"fields": ["a", "b", "c"]},
            '{"a":12345678901234567890,"b":true,"c":1.10}',
            ('{"a":"12345678901234567890","b":"true","c":"1.10"}',),
        ),
        Example("text is quoted", {"fields": ["a"]}, '{"a":"x"}', ('{"a":"\\"x\\""}',)),
        Example(
            "null and what is missing stay",
            {"fields": ["a", "b", "a.c"]},
            '{"a":null}',
            ('{"a":null}',),
        ),
        Example("not JSON", {"fields": ["a"]}, "a=1", ("a=1",)),
    )

    @override
    def origins(self, column: str) -> Origins:
        return frozenset({column})

    @override
    def compile(self, context: Context) -> Apply:
        changes = [_writer(path) for path in self.fields]
        return on_body(*changes)


def _writer(path: Path) -> Change:
    get, put = path.getter(), path.setter()

    def change(body: Any) -> Any:
        value = get(body)
        if value is None or value is MISSING:
            return body
        return put(body, at(path.text, encode, value).decode())

    return change
