"""timestamp: writes the time of processing into each record."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from dataflow_assets.records.paths.path import Path, Writable
from dataflow_assets.records.record import Record
from dataflow_assets.records.step import Apply, Context, Example, Origins, Step
from dataflow_assets.records.times.instant import Instant
from dataflow_assets.records.times.layouts import LayoutText, layout


class Timestamp(Step):
    """Writes the time at which the micro-batch was planned, over whatever was there.

    The time is that of the machine's own zone, and the same for every record of a micro-batch: one
    that is processed again gets the same time again. Bodies that are not objects pass unchanged.
    """

    type: ClassVar[str] = "timestamp"
    field_name: Writable = Path("created_at")
    """Where to write it; missing parents are made."""
    format: LayoutText = "RFC3339"
    """`RFC3339`, `RFC3339Nano`, `Unix` (seconds, as text), `UnixMilli` (a number), another of Go's
    names, or a Go layout such as `2006-01-02 15:04:05`."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example(
            "a date by layout",
            {"fieldName": "at", "format": "2006-01-02"},
            '{"a":1}',
            ('{"a":1,"at":"2026-07-20"}',),
        ),
        Example("the defaults", {}, '{"a":1}', ('{"a":1,"created_at":"2026-07-20T10:00:00Z"}',)),
        Example(
            "the time replaces what was there, and keeps its place",
            {"fieldName": "$.at"},
            '{"at":null,"a":1}',
            ('{"at":"2026-07-20T10:00:00Z","a":1}',),
        ),
        Example(
            "dots nest",
            {"fieldName": "meta.at", "format": "15:04"},
            '{"meta":{"v":1}}',
            ('{"meta":{"v":1,"at":"10:00"}}',),
        ),
        Example(
            "Unix is text, as documented",
            {"fieldName": "at", "format": "Unix"},
            "{}",
            ('{"at":"1784541600"}',),
        ),
        Example(
            "UnixMilli is a number, as in timezone",
            {"fieldName": "at", "format": "UnixMilli"},
            "{}",
            ('{"at":1784541600000}',),
        ),
        Example("an array passes", {}, "[1]", ("[1]",)),
        Example("text that is not JSON passes", {}, "hello", ("hello",)),
    )

    @override
    def origins(self, column: str) -> Origins:
        return frozenset() if self.field_name.key == column else frozenset({column})

    @override
    def compile(self, context: Context) -> Apply:
        now = layout(self.format)(Instant.of(context.now))
        put = self.field_name.setter()

        def apply(record: Record) -> Record:
            if not isinstance(record.body, dict):
                return record
            return Record(put(record.body, now), record.metadata, record.route)

        return apply
