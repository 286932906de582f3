"""extractField: one value of the body becomes the whole body."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from dataflow_assets.records.connect_types import is_envelope, unpack_envelope
from dataflow_assets.records.paths.path import Path
from dataflow_assets.records.record import MISSING, Record
from dataflow_assets.records.step import Apply, Context, Example, Origins, Step


class ExtractField(Step):
    """Replaces the body by the value at a path, whatever its kind; unchanged where it is missing.

    Sinks that store columns need an object: extract objects, or follow with `hoistField`. Of a
    message of Kafka Connect's JsonConverter with its schema, `payload` is what the schema says:
    days since 1970 are a date, milliseconds a time, base64 of a decimal is a number.
    """

    type: ClassVar[str] = "extractField"
    field: Path
    """Where the value is."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example("an array", {"field": "p.q"}, '{"p":{"q":[1]}}', ("[1]",)),
        Example("an object", {"field": "$.p"}, '{"p":{"id":1},"k":2}', ('{"id":1}',)),
        Example("text stays JSON text", {"field": "p"}, '{"p":"x"}', ('"x"',)),
        Example("null is a value", {"field": "p"}, '{"p":null}', ("null",)),
        Example("every digit stays", {"field": "n"}, '{"n":1.10}', ("1.10",)),
        Example(
            "the payload of Kafka Connect, by its schema",
            {"field": "payload"},
            '{"schema":{"type":"struct","fields":[{"field":"day","type":"int32",'
            '"name":"org.apache.kafka.connect.data.Date"}]},"payload":{"day":19297}}',
            ('{"day":"2022-11-01"}',),
        ),
        Example("missing: unchanged", {"field": "p.q"}, '{"p":1}', ('{"p":1}',)),
        Example("not JSON: unchanged", {"field": "p"}, "hello", ("hello",)),
    )

    @override
    def origins(self, column: str) -> Origins:
        return None if self.field.top is None else frozenset({self.field.top})

    @override
    def compile(self, context: Context) -> Apply:
        find, is_payload = self.field.getter(), self.field.key == "payload"

        def apply(record: Record) -> Record:
            body = record.body
            value = unpack_envelope(body) if is_payload and is_envelope(body) else find(body)
            return record if value is MISSING else Record(value, record.metadata, record.route)

        return apply
