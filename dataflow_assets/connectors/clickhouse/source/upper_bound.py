"""Up to which change value a table may be read now, by the server's clock.

The latest values tell the tick of the column: a DateTime64(6) may hold what was cut to seconds.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dataflow_assets.connectors.clickhouse.client import Client, query_rows, quote
from dataflow_assets.connectors.clickhouse.source.relation import Relation, SourceColumn
from dataflow_assets.sdk.polling import moment, ticks

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SAMPLE = """
SELECT toUnixTimestamp64Nano(now64(9)), count(), {counts}
FROM (
    SELECT toUnixTimestamp64Nano(assumeNotNull(toDateTime64({name}, 9))) AS {alias} FROM {base}
    WHERE {name} < now64(9) AND {name} > now() - toIntervalDay({days})
    ORDER BY {name} DESC LIMIT {most}
)
"""


def upto(client: Client, relation: Relation, column: SourceColumn) -> str | None:
    """The first value that is not over: of the tick that still runs; None where none is waited for.

    A day is over when the server's own is.
    """
    if column.digits is None:
        return None
    if column.is_day:
        return str(query_rows(client, "SELECT toString(today())")[0][0])
    now, tick = _sampled(client, relation, column)
    return _text(ticks.running(now, tick), column.digits, day=False)


def tick(client: Client, relation: Relation, column: SourceColumn) -> int:
    """Returns how long the tick is that is waited for, in nanoseconds; 0 where none is."""
    if column.digits is None:
        return 0
    return ticks.DAY if column.is_day else _sampled(client, relation, column)[1]


def at(text: str, digits: int, *, day: bool = False) -> str:
    """The last tick that is not behind a point in time."""
    tick = _width(digits, day=day)
    return _text(_nanoseconds(text) // tick * tick, digits, day=day)


def before(text: str, digits: int, *, day: bool = False) -> str:
    """The last tick that is before a point in time."""
    tick = _width(digits, day=day)
    return _text((-(-_nanoseconds(text) // tick) - 1) * tick, digits, day=day)


def _sampled(client: Client, relation: Relation, column: SourceColumn) -> tuple[int, int]:
    """The clock in nanoseconds, and the tick."""
    alias = quote(f"{relation.alias}n")
    counts = ", ".join(f"countIf({alias} % {width} = 0)" for width in ticks.WIDTHS)
    query = _SAMPLE.format(
        alias=alias,
        counts=counts,
        name=quote(column.name),
        base=relation.base,
        days=ticks.RECENT_DAYS,
        most=ticks.RECENT,
    )
    ((now, values, *multiples),) = query_rows(client, query)
    found = ticks.tick(dict(zip(ticks.WIDTHS, multiples, strict=True)), values)
    return int(now), max(found, 10 ** (9 - (column.digits or 0)))


def _width(digits: int, *, day: bool) -> int:
    return ticks.DAY if day else 10 ** (9 - digits)


def _nanoseconds(text: str) -> int:
    whole, _, zone = moment(text, 9).rpartition("+")
    seconds, _, fraction = whole.partition(".")
    since = datetime.fromisoformat(f"{seconds}+{zone}") - _EPOCH
    return (since.days * 86_400 + since.seconds) * ticks.SECOND + int(fraction.ljust(9, "0") or 0)


def _text(nanoseconds: int, digits: int, *, day: bool) -> str:
    seconds, rest = divmod(nanoseconds, ticks.SECOND)
    found = _EPOCH + timedelta(seconds=seconds)
    if day:
        return found.date().isoformat()
    fraction = f".{rest:09}"[: digits + 1] if digits else ""
    return f"{found:%Y-%m-%d %H:%M:%S}{fraction}"
