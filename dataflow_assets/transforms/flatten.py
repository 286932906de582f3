"""flatten: one record per element of an array."""

from __future__ import annotations

from typing import Any, ClassVar

from typing_extensions import override

from dataflow_assets.records.paths.path import Writable
from dataflow_assets.records.record import Record
from dataflow_assets.records.step import Apply, Context, Example, Step


class Flatten(Step):
    """Makes one record of each element of an array, with the other fields of the body in each.

    An element that is an object is merged into the body, and wins over keys of the same name. Any
    other element is stored under a key that is the path as written. The array itself is removed; an
    empty one leaves one record without it. Metadata is the same for all.
    """

    type: ClassVar[str] = "flatten"
    field: Writable
    """Where the array is, or an object that holds it as `array`, as Avro's JSON does."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example(
            "objects are merged, other elements are stored under the field's name",
            {"field": "xs"},
            '{"k":1,"xs":[{"v":2},3]}',
            ('{"k":1,"v":2}', '{"k":1,"xs":3}'),
        ),
        Example(
            "the element wins",
            {"field": "$.xs"},
            '{"id":1,"xs":[{"id":2},{"n":null}]}',
            ('{"id":2}', '{"id":1,"n":null}'),
        ),
        Example(
            "a nested array goes from its parent, its elements go to the top",
            {"field": "orders.items"},
            '{"id":1,"orders":{"items":[{"sku":"a"},{"sku":"b"}]}}',
            ('{"id":1,"orders":{},"sku":"a"}', '{"id":1,"orders":{},"sku":"b"}'),
        ),
        Example(
            "other elements of a nested array are stored under the whole path",
            {"field": "a.xs"},
            '{"a":{"xs":[1,[2]],"k":0}}',
            ('{"a":{"k":0},"a.xs":1}', '{"a":{"k":0},"a.xs":[2]}'),
        ),
        Example(
            "an array as Avro writes it",
            {"field": "xs"},
            '{"k":1,"xs":{"array":[{"v":2},{"v":3}]}}',
            ('{"k":1,"v":2}', '{"k":1,"v":3}'),
        ),
        Example("a key with a dot", {"field": "x\\.y"}, '{"x.y":[1]}', ('{"x.y":1}',)),
        Example("empty: one record without it", {"field": "xs"}, '{"k":1,"xs":[]}', ('{"k":1}',)),
        Example("missing: unchanged", {"field": "xs"}, '{"k":1}', ('{"k":1}',)),
        Example("no array: unchanged", {"field": "xs"}, '{"xs":{"v":2}}', ('{"xs":{"v":2}}',)),
        Example("not JSON: unchanged", {"field": "xs"}, "hello", ("hello",)),
        Example(
            "metadata is shared",
            {"field": "xs"},
            '{"xs":[1,2]}',
            ('{"xs":1}', '{"xs":2}'),
            metadata={"key": "a"},
            out_metadata={"key": "a"},
        ),
    )

    @override
    def compile(self, context: Context) -> Apply:
        find, remove, key = self.field.getter(), self.field.remover(), self._key()

        def apply(record: Record) -> Record | list[Record]:
            body, metadata, route = record.body, record.metadata, record.route
            elements = _array(find(body)) if isinstance(body, dict) else None
            if elements is None:
                return record
            rest = remove(body)
            return [
                Record({**rest, **(one if isinstance(one, dict) else {key: one})}, metadata, route)
                for one in elements
            ] or Record(rest, metadata, route)

        return apply

    def _key(self) -> str:
        """The path as written; of a single key with an escaped dot, the key that it means."""
        single = self.field.getter()({self.field.name: True}) is True
        return self.field.name if single else self.field.text


def _array(node: Any) -> list[Any] | None:
    if isinstance(node, dict):
        node = node.get("array")
    return node if isinstance(node, list) else None
