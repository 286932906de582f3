"""headersToPayload: writes Kafka headers into the body."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field
from typing_extensions import override

from dataflow_assets.records.paths.path import Writable
from dataflow_assets.records.record import Record
from dataflow_assets.records.step import Apply, Context, Example, Origins, Step


def _pair(given: Any) -> Any:
    header, _, path = given.partition(":") if isinstance(given, str) else ("", "", "")
    if not (header.strip() and path.strip()):  # `header: path` without quotes is a mapping
        raise ValueError("must be header:path as one text; with a space after the colon, in quotes")
    return header.strip(), path.strip()


Mapped = Annotated[tuple[str, Writable], BeforeValidator(_pair, json_schema_input_type=str)]


class HeadersToPayload(Step):
    """Writes headers of the message into its body, as text; a value that is there is replaced.

    Headers that the message does not have are skipped. Bodies that are not objects pass unchanged.
    """

    type: ClassVar[str] = "headersToPayload"
    mappings: tuple[Mapped, ...] = Field(min_length=1)
    """`header:path` each; the header's name as the producer spells it, capitals included."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example(
            "into an object that it makes",
            {"mappings": ["X-Id:meta.id"]},
            '{"a":1}',
            ('{"a":1,"meta":{"id":"9"}}',),
            metadata={"headers": {"X-Id": "9"}},
        ),
        Example(
            "a value that is there is replaced",
            {"mappings": ["id:$.a", "trace:t.id"]},
            '{"a":1,"t":{"at":2}}',
            ('{"a":"","t":{"at":2,"id":"x"}}',),
            metadata={"headers": {"id": "", "trace": "x"}},
        ),
        Example(
            "capitals count, missing ones are skipped",
            {"mappings": ["X-Id:id", "none:n"]},
            '{"a":1}',
            ('{"a":1}',),
            metadata={"headers": {"x-id": "9"}},
        ),
        Example("a message without headers", {"mappings": ["a:b"]}, '{"a":1}', ('{"a":1}',)),
        Example(
            "no object", {"mappings": ["a:b"]}, "[1]", ("[1]",), metadata={"headers": {"a": "1"}}
        ),
        Example(
            "not JSON", {"mappings": ["a:b"]}, "a=1", ("a=1",), metadata={"headers": {"a": "1"}}
        ),
    )

    @override
    def origins(self, column: str) -> Origins:
        written = any(path.key == column for _, path in self.mappings)
        return frozenset() if written else frozenset({column})

    @override
    def compile(self, context: Context) -> Apply:
        setters = [(header, path.setter()) for header, path in self.mappings]

        def apply(record: Record) -> Record:
            body, headers = record.body, record.metadata.get("headers")
            if not headers or not isinstance(body, dict):
                return record
            for header, put in setters:
                if header in headers:
                    body = put(body, headers[header])
            return record if body is record.body else Record(body, record.metadata, record.route)

        return apply

    @override
    def reads(self) -> frozenset[str]:
        return frozenset({"headers"})
