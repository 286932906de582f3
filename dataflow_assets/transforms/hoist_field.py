"""hoistField: the body becomes the value of one key."""

from __future__ import annotations

from typing import ClassVar

from pydantic import field_validator
from typing_extensions import override

from dataflow_assets.records.record import NotJson, Record
from dataflow_assets.records.step import Apply, Context, Example, Step


class HoistField(Step):
    """Wraps the body, whatever its kind, in an object with one key."""

    type: ClassVar[str] = "hoistField"
    field: str
    """The key; one level only, so it holds no dot."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example("an array", {"field": "r"}, "[1]", ('{"r":[1]}',)),
        Example("an object", {"field": "r"}, '{"a":1,"r":2}', ('{"r":{"a":1,"r":2}}',)),
        Example("text", {"field": "r"}, '"x"', ('{"r":"x"}',)),
        Example("null", {"field": "r"}, "null", ('{"r":null}',)),
        Example("not JSON: unchanged", {"field": "r"}, "hello", ("hello",)),
        Example("a tombstone: unchanged", {"field": "r"}, None, (None,)),
    )

    @field_validator("field")
    @classmethod
    def _one_key(cls, field: str) -> str:
        if not field.strip() or "." in field:
            raise ValueError("is empty or has a dot; write a single key")
        return field

    @override
    def compile(self, context: Context) -> Apply:
        key = self.field

        def apply(record: Record) -> Record:
            body = record.body
            if isinstance(body, NotJson):
                return record
            return Record({key: body}, record.metadata, record.route)

        return apply
