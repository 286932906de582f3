"""timezone: moves times onto the clocks of another zone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.paths.path import Writable
from dataflow_assets.records.record import MISSING, Record
from dataflow_assets.records.step import Apply, Context, Example, Origins, Step
from dataflow_assets.records.times.instant import (
    Instant,
    ZoneName,
    read,
    rfc3339,
    rfc3339_nano,
    unix_milli,
    zone,
)

_WRITE: Mapping[str, Callable[[Instant], str | int]] = {
    "RFC3339Nano": rfc3339_nano,
    "RFC3339": rfc3339,
    "UnixMilli": unix_milli,
}
_EAST = {"timezone": "+03:00", "fields": ["t"], "format": "RFC3339"}
_BERLIN = {"timezone": "Europe/Berlin", "fields": ["t"]}
_FROM_BERLIN = {"timezone": "UTC", "fields": ["t"], "sourceTimezone": "Europe/Berlin"}


class Timezone(Step):
    """Rewrites times as the clocks of another zone show them; the moment stays the same.

    A value is read as RFC 3339, else as date and time in `sourceTimezone`, else as an epoch number:
    milliseconds from 10^12 on, seconds below. The digits of a fraction are all kept. Where the
    clocks show a time twice the first is meant; one that they skip is counted from the offset
    before the change (02:30 becomes 03:30). Missing fields and null are left alone; any other value
    that is not a time is an error.
    """

    type: ClassVar[str] = "timezone"
    timezone: ZoneName
    """The zone to write in: a name such as `Europe/Berlin`, or `+hh:mm`."""
    fields: tuple[Writable, ...] = Field(min_length=1)
    """The fields to rewrite."""
    source_timezone: ZoneName = "UTC"
    """The zone of times that name none."""
    format: Literal["RFC3339Nano", "RFC3339", "UnixMilli"] = "RFC3339Nano"
    """`RFC3339Nano` keeps fractions, `RFC3339` cuts them off, `UnixMilli` writes a number."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example(
            "to a fixed offset",
            _EAST,
            '{"t":"2026-01-01T00:00:00Z"}',
            ('{"t":"2026-01-01T03:00:00+03:00"}',),
        ),
        Example(
            "to a zone by name, in its summer, with all digits",
            _BERLIN,
            '{"t":"2026-07-01T12:00:00.123456789Z"}',
            ('{"t":"2026-07-01T14:00:00.123456789+02:00"}',),
        ),
        Example(
            "a time without zone is in sourceTimezone",
            _FROM_BERLIN,
            '{"t":"2026-07-01 12:00:00.5"}',
            ('{"t":"2026-07-01T10:00:00.5Z"}',),
        ),
        Example(
            "an hour that comes twice: the first",
            _FROM_BERLIN,
            '{"t":"2026-10-25T02:30:00"}',
            ('{"t":"2026-10-25T00:30:00Z"}',),
        ),
        Example(
            "an hour that the clocks skip: as if they had not changed yet",
            {**_BERLIN, "sourceTimezone": "Europe/Berlin"},
            '{"t":"2026-03-29T02:30:00"}',
            ('{"t":"2026-03-29T03:30:00+02:00"}',),
        ),
        Example(
            "epoch seconds and milliseconds, as numbers and as text",
            {"timezone": "UTC", "fields": ["a", "b"]},
            '{"a":1767225600.000000001,"b":"1767225600123"}',
            ('{"a":"2026-01-01T00:00:00.000000001Z","b":"2026-01-01T00:00:00.123Z"}',),
        ),
        Example(
            "to milliseconds",
            {"timezone": "UTC", "fields": ["$.o.t"], "format": "UnixMilli"},
            '{"o":{"t":"2026-01-01T00:00:00.1239Z"}}',
            ('{"o":{"t":1767225600123}}',),
        ),
        Example("missing and null are skipped", _EAST, '{"t":null}', ('{"t":null}',)),
        Example(
            "an empty text is not a time", _EAST, '{"t":""}', error="t: is not a time; expected"
        ),
        Example("a boolean is not a time", _EAST, '{"t":true}', error="t: is not a time; expected"),
        Example("a year too far", _EAST, '{"t":999999999999}', error="outside the years 1 to 9999"),
        Example("text that is not JSON passes", _EAST, "hello", ("hello",)),
    )

    @override
    def origins(self, column: str) -> Origins:
        return frozenset({column})

    @override
    def compile(self, context: Context) -> Apply:
        source, target, write = zone(self.source_timezone), zone(self.timezone), _WRITE[self.format]
        # A field named twice is converted once: in milliseconds it would be read as seconds.
        plan = [(path.text, path.getter(), path.setter()) for path in dict.fromkeys(self.fields)]

        def apply(record: Record) -> Record:
            body = record.body
            for name, get, put in plan:
                value = get(body)
                if value is None or value is MISSING:
                    continue
                try:
                    written = write(read(value, source).at(target))
                except ValueError as error:
                    raise RejectedRecord("step", f"{name}: {error}") from None
                body = body if written == value else put(body, written)
            unchanged = body is record.body
            return record if unchanged else Record(body, record.metadata, record.route)

        return apply
