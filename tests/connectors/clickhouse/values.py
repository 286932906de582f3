"""One table of ClickHouse's types, the shapes they stand in, and messages with their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from dataflow_assets.contracts import Chunk, OffsetSlice, Sent, SinkSession, Span
from dataflow_assets.formats.json import JsonDecoder, Tombstones
from dataflow_assets.formats.json_tombstones import REJECT_NULLS
from tests.connectors.clickhouse.driver import SOURCE, Place, start, write

UUID, OTHER = "9b155af0-0f06-4d56-a294-3d90a9f0a63d", "00000000-0000-4000-8000-00000000000a"
DAY, MOMENT = "2020-02-29", "2020-02-29T12:00:00.123456789Z"


@dataclass(frozen=True)
class Kind:
    """A type, a value as JSON and as SQL, values that do not fit, and a DEFAULT."""

    spelled: str
    sent: Any
    literal: str
    unfit: tuple[Any, ...]
    default: str


def _whole(name: str, low: int, high: int) -> Kind:
    default = f"to{name}(7)"
    return Kind(name, low, f"'{low}'", (high + 1, low - 1, 1.5, "x", True), default)


KINDS = (
    Kind("Bool", True, "true", (2, "true", []), "true"),
    *(_whole(f"Int{b}", -(2 ** (b - 1)), 2 ** (b - 1) - 1) for b in (8, 16, 32, 64, 128, 256)),
    *(_whole(f"UInt{b}", 0, 2**b - 1) for b in (8, 16, 32, 64, 128, 256)),
    Kind("Float32", 0.5, "0.5", (1e39, "x", True), "1.5"),
    Kind("Float64", 0.1, "0.1", ("x", []), "1.5"),
    Kind("BFloat16", 0.5, "0.5", (1e39, "x"), "1.5"),
    Kind("Decimal(5, 2)", 1.25, "'1.25'", (1234.5, 1.005, "x", "NaN"), "2.5"),
    Kind("Decimal(76, 2)", -1, "'-1'", (10**75, 1.005), "2.5"),
    Kind("String", "ü\n", "'ü\\n'", (5, []), "'z'"),
    Kind("FixedString(3)", "abc", "'abc'", ("abcd", "üü", 5), "'z'"),
    Kind("UUID", UUID, f"'{UUID}'", ("x", "", 5, UUID[:-1]), f"toUUID('{OTHER}')"),
    Kind("Enum8('a, (' = 1, 'b\\'' = 2)", "b'", "2", ("b", "", 1), "1"),
    Kind("Enum16('a' = 1, 'b' = 300)", "b", "300", ("c", 300), "'a'"),
    Kind("IPv4", "10.0.0.1", "'10.0.0.1'", ("300.1.1.1", "1.2.3", "", 5), "toIPv4('1.1.1.1')"),
    Kind("IPv6", "::1", "'::1'", ("nope", "::1 ", "", 5), "toIPv6('::7')"),
    Kind("Date", DAY, f"'{DAY}'", ("1969-12-31", "2149-06-07", "x", 5), "'2021-01-01'"),
    Kind("Date32", DAY, f"'{DAY}'", ("x", 18321), "'2021-01-01'"),
    Kind(
        "DateTime('UTC')",
        "2020-02-29T12:00:00Z",
        "'2020-02-29 12:00:00'",
        ("2200-01-01T00:00:00Z", "1965-01-01T00:00:00Z", "x", 1582977600, 1.5),
        "'2021-01-01 00:00:00'",
    ),
    Kind(
        "DateTime64(9, 'UTC')",
        MOMENT,
        "'2020-02-29 12:00:00.123456789'",
        (
            "2300-01-01T00:00:00Z",
            "1600-01-01T00:00:00Z",
            f"{MOMENT[:-1]}1Z",
            1582977600,
            "1582977600",
        ),
        "'2021-01-01 00:00:00.5'",
    ),
    Kind(
        "Time", "-100:00:01", "'-100:00:01'", ("10:60:00", "10:00", "1000:00:00", ""), "'01:00:00'"
    ),
    Kind("Time64(3)", "10:00:00.5", "'10:00:00.5'", ("10:00:00.5555", "x", "7"), "'01:00:00'"),
    Kind("IntervalDay", 3, "toIntervalDay(3)", ("x", 1.5), "toIntervalDay(7)"),
)


@dataclass(frozen=True)
class Shape:
    """Where a value stands."""

    type: Callable[[str], str]
    sent: Callable[[Any], Any]
    literal: Callable[[str], str]
    nullable: bool = False


SHAPES = {
    "plain": Shape(str, lambda v: v, str),
    "nullable": Shape(lambda t: f"Nullable({t})", lambda v: v, str, nullable=True),
    "array": Shape(lambda t: f"Array({t})", lambda v: [v, v], lambda v: f"[{v}, {v}]"),
    "array of nullable": Shape(
        lambda t: f"Array(Nullable({t}))", lambda v: [v], lambda v: f"[{v}]", nullable=True
    ),
    "tuple": Shape(
        lambda t: f"Tuple(a {t}, b UInt8)", lambda v: {"a": v, "b": 1}, lambda v: f"tuple({v}, 1)"
    ),
    "map": Shape(lambda t: f"Map(String, {t})", lambda v: {"k": v}, lambda v: f"map('k', {v})"),
    "all of them": Shape(
        lambda t: f"Array(Map(String, Tuple(a Nullable({t}))))",
        lambda v: [{"k": {"a": v}}, {}],
        lambda v: f"[map('k', tuple({v})), map()]",
        nullable=True,
    ),
}


def fill(
    place: Place,
    records: Sequence[Any],
    session: SinkSession | None = None,
    keys: Sequence[bytes | None] = (),
) -> SinkSession:
    """One micro-batch of messages, as a task decodes and stores them; None is a tombstone."""
    session = session or start(place.sink())
    first = session.checkpoint.positions["0"]
    assert isinstance(first, int)
    end = first + len(records)
    values = [None if record is None else msgspec.json.encode(record) for record in records]
    span = session.begin(Span((OffsetSlice("0", first, end),)))
    ticket = session.ticket()
    tombstones = Tombstones("delete", ("id",)) if keys else REJECT_NULLS
    decoder = JsonDecoder(ticket.schema, "reject", tombstones)
    offsets, named = pa.array(range(first, end), pa.int64()), keys or [None] * len(values)
    found = decoder.decode(pa.array(values, pa.binary()), offsets, pa.array(named, pa.binary()))
    sent = {first + at: Sent(body) for at, body in enumerate(values)}
    chunk = Chunk(found.rows, found.rejected, end, 10 * len(records), sent)
    session.finish(span, [write(place.sink(), ticket, span.slices[0], chunk)], SOURCE)
    return session


def refused(place: Place) -> dict[int, str]:
    return {row[0]: row[3] for row in place.rejected()}


def texts(place: Place, query: str) -> list[tuple[str, ...]]:
    """Rows as ClickHouse writes them."""
    return [tuple(map(str, row)) for row in place.run(query)]


def columns(shape: Shape) -> dict[str, str]:
    return {f"c{at}": shape.type(kind.spelled) for at, kind in enumerate(KINDS)}


def sound(shape: Shape) -> dict[str, Any]:
    return {f"c{at}": shape.sent(kind.sent) for at, kind in enumerate(KINDS)}


def written(place: Place, shape: Shape, literals: Callable[[Kind], str]) -> tuple[str, ...]:
    """What each column shows of a value."""
    typed = (shape.literal(f"CAST({literals(kind)} AS {kind.spelled})") for kind in KINDS)
    shown = (
        f"toString(CAST({value} AS {kind}))"
        for value, kind in zip(typed, columns(shape).values(), strict=True)
    )
    return texts(place, f"select {', '.join(shown)}")[0]


def stored(place: Place) -> dict[int, tuple[str, ...]]:
    shown = ", ".join(f"toString(c{at})" for at in range(len(KINDS)))
    return {int(row[0]): row[1:] for row in texts(place, f"select id, {shown} from orders")}
