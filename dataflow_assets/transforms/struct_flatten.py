"""structFlatten: nested objects become keys of the top level."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import field_validator
from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.record import Record
from dataflow_assets.records.step import Apply, Context, Example, Step

DEEPEST = 64  # levels below the top: as the DataFlow Operator

Leaf = tuple[int, str, Any]


class StructFlatten(Step):
    """Makes one level of nested objects: keys are joined, arrays stay values, `{}` yields no key.

    Where two places come to one key, the more deeply nested one wins.
    """

    type: ClassVar[str] = "structFlatten"
    delimiter: str = "."
    """The text between the joined keys; spaces around it are cut off."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example(
            "keys are joined, arrays stay, an empty object is gone",
            {"delimiter": "_"},
            '{"a":{"b":1,"c":[2]},"e":{}}',
            ('{"a_b":1,"a_c":[2]}',),
        ),
        Example("a dot by default", {}, '{"k":0,"a":{"b":{"c":1}}}', ('{"k":0,"a.b.c":1}',)),
        Example("objects in arrays stay", {}, '{"a":[{"b":{"c":1}}]}', ('{"a":[{"b":{"c":1}}]}',)),
        Example("null is a value", {}, '{"a":{"b":null}}', ('{"a.b":null}',)),
        Example("nested wins over flat", {}, '{"a":{"b":1},"a.b":2}', ('{"a.b":1}',)),
        Example("whichever comes first", {}, '{"a.b":2,"a":{"b":1}}', ('{"a.b":1}',)),
        Example("nothing nested: unchanged", {}, '{"a":1}', ('{"a":1}',)),
        Example("no object: unchanged", {}, '[{"a":{"b":1}}]', ('[{"a":{"b":1}}]',)),
        Example("not JSON: unchanged", {}, "hello", ("hello",)),
    )

    @field_validator("delimiter")
    @classmethod
    def _not_blank(cls, delimiter: str) -> str:
        if not delimiter.strip():
            raise ValueError("is empty; leave it out for a dot")
        return delimiter.strip()

    @override
    def compile(self, context: Context) -> Apply:
        delimiter = self.delimiter

        def apply(record: Record) -> Record:
            body = record.body
            if not isinstance(body, dict) or dict not in map(type, body.values()):
                return record
            leaves: list[Leaf] = []
            _collect(body, "", delimiter, 0, leaves)
            return Record(_join(leaves), record.metadata, record.route)

        return apply


def _collect(body: Any, prefix: str, delimiter: str, depth: int, leaves: list[Leaf]) -> None:
    if depth > DEEPEST:
        raise RejectedRecord("step", f"objects are nested more than {DEEPEST} levels deep")
    for key, value in body.items():
        if isinstance(value, dict):
            _collect(value, f"{prefix}{key}{delimiter}", delimiter, depth + 1, leaves)
        else:
            leaves.append((depth, prefix + key, value))


def _join(leaves: list[Leaf]) -> dict[str, Any]:
    """In the order of the body; only where keys meet, the deeper ones are written last."""
    out = {name: value for _, name, value in leaves}
    if len(out) < len(leaves):
        out.update({name: value for _, name, value in sorted(leaves, key=lambda leaf: leaf[0])})
    return out
