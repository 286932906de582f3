"""insertField: writes constants, metadata and the time into each record."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator
from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.paths.path import Writable, apart
from dataflow_assets.records.placeholders import (
    METADATA,
    Value,
    alone,
    constant,
    metadata,
    paths,
    value_of,
)
from dataflow_assets.records.record import MISSING, NotJson, Record, at, parse
from dataflow_assets.records.step import Apply, Context, Example, Origins, Step
from dataflow_assets.records.times.instant import Instant, rfc3339
from dataflow_assets.spec import Addition

_JSON = "json:"


class InsertField(Step):
    """Writes values into a record, over whatever was there.

    | value | what is written |
    |---|---|
    | `${metadata.key}` | the metadata as text; nothing there: the empty text |
    | `${now}` | when the micro-batch was planned, in the machine's own zone (RFC 3339) |
    | `json:[1, 2]`, `json:5` | any JSON |
    | anything else | the text as it is |

    All values are taken from the record as it came in, whatever their order. Bodies that are not
    objects pass unchanged.
    """

    type: ClassVar[str] = "insertField"
    fields: Annotated[dict[Writable, str], Field(min_length=1), apart("write both as one json:")]
    """Path to value."""
    interpolate: Annotated[bool, Addition()] = False
    """Fills in placeholders inside longer texts too, and `${$.path}` with a field of the body.

    Alone `${$.path}` copies the field as it is, or writes nothing where it is missing; within a
    text a missing or null one is the empty text. `$${` stands for `${`.
    """

    examples: ClassVar[tuple[Example, ...]] = (
        Example(
            "JSON, metadata and parents that are made",
            {"fields": {"x.y": "json:[1]", "t": "${metadata.topic}"}},
            "{}",
            ('{"x":{"y":[1]},"t":"a"}',),
            metadata={"topic": "a"},
        ),
        Example(
            "a constant replaces what was there; the time",
            {"fields": {"$.env": "prod", "at": "${now}"}},
            '{"env":null,"a":1}',
            ('{"env":"prod","a":1,"at":"2026-07-20T10:00:00Z"}',),
        ),
        Example(
            "metadata is text: numbers, times (UTC, all digits), nothing",
            {
                "fields": {
                    "o": "${metadata.offset}",
                    "t": "${metadata.timestamp}",
                    "n": "${metadata.gone}",
                }
            },
            "{}",
            ('{"o":"7","t":"2026-07-20T09:59:59.25Z","n":""}',),
            metadata={
                "offset": 7,
                "timestamp": datetime(2026, 7, 20, 9, 59, 59, 250_000, tzinfo=UTC),
            },
        ),
        Example(
            "placeholders inside longer text stay as they are",
            {"fields": {"id": "${metadata.topic}/${metadata.offset}"}},
            "{}",
            ('{"id":"${metadata.topic}/${metadata.offset}"}',),
            metadata={"topic": "a", "offset": 7},
        ),
        Example(
            "unless interpolate is set",
            {
                "fields": {"id": "${metadata.topic}/${$.user.id}${$.gone}", "s": "cost: $${5}"},
                "interpolate": True,
            },
            '{"user":{"id":12}}',
            ('{"user":{"id":12},"id":"a/12","s":"cost: ${5}"}',),
            metadata={"topic": "a"},
        ),
        Example(
            "a field of the body alone is copied as it is, or not at all",
            {"fields": {"b": "${$.a}", "c": "${$.gone}", "a": "x"}, "interpolate": True},
            '{"a":{"n":1.50}}',
            ('{"a":"x","b":{"n":1.50}}',),
        ),
        Example(
            "a number that nobody could write out",
            {"fields": {"u.s": "n: ${$.n}"}, "interpolate": True},
            '{"n":1e999999}',
            error="u.s: a number of more than 4300 digits",
        ),
        Example("an array passes", {"fields": {"a": "1"}}, "[1]", ("[1]",)),
        Example("text that is not JSON passes", {"fields": {"a": "1"}}, "hello", ("hello",)),
    )

    @model_validator(mode="after")
    def _readable(self) -> Self:
        for path, text in self.fields.items():
            try:
                self._value(text, "")
            except ValueError as error:
                raise ValueError(f"fields: the value of {path.text}: {error}") from None
        return self

    @override
    def origins(self, column: str) -> Origins:
        for path, text in self.fields.items():
            if path.top == column:
                beside = {column} if path.key is None else set[str]()
                sources = self._origins(text)
                return None if sources is None else sources | beside
        return frozenset({column})

    def _origins(self, text: str) -> Origins:
        if not self.interpolate or text.startswith(_JSON):
            return frozenset()
        tops = [path.top for path in paths(text)]
        return None if None in tops else frozenset(top for top in tops if top)

    @override
    def compile(self, context: Context) -> Apply:
        now = rfc3339(Instant.of(context.now))
        plan = [
            (path.text, path.setter(), self._value(text, now)) for path, text in self.fields.items()
        ]

        def apply(record: Record) -> Record:
            if not isinstance(record.body, dict):
                return record
            body = record.body
            for name, put, value in plan:
                result = at(name, value, record)
                body = body if result is MISSING else put(body, result)
            unchanged = body is record.body
            return record if unchanged else Record(body, record.metadata, record.route)

        return apply

    @override
    def reads(self) -> frozenset[str]:
        texts = [text for text in self.fields.values() if not text.startswith(_JSON)]
        search = METADATA.findall if self.interpolate else alone
        return frozenset(key for text in texts for key in search(text))

    def _value(self, text: str, now: str) -> Value:
        if text.startswith(_JSON):
            try:
                value = parse(text.removeprefix(_JSON).encode())
            except RejectedRecord as error:
                raise ValueError(error.reason) from None
            if isinstance(value, NotJson):
                raise ValueError("not JSON after json:")
            return constant(value)
        if self.interpolate:
            return value_of(text, now)
        if text == "${now}":
            return constant(now)
        return next(map(metadata, alone(text)), constant(text))
