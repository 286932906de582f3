"""Up to which change value a table may be read now, by the coordinator's clock.

The latest values tell the tick of the column: a timestamp(6) may hold what was cut to seconds.
"""

from __future__ import annotations

from datetime import datetime

from dataflow_assets.connectors.trino.client import Client
from dataflow_assets.connectors.trino.source.relation import Relation, SourceColumn
from dataflow_assets.sdk.polling import moment, ticks

_SECOND = ticks.SECOND
_SAMPLE = """
SELECT (SELECT CAST(to_unixtime(current_timestamp(9)) * 1e6 AS bigint)), count(*), {counts},
    max(at)
FROM (
    SELECT {nanoseconds} AS at FROM {base}
    WHERE {name} < {now} AND {name} > {now} - interval '{days}' day
    ORDER BY {name} DESC LIMIT {most}
)
"""


def upto(client: Client, relation: Relation, column: SourceColumn) -> str | None:
    """The first value that is not over: of the tick that still runs; None where none is waited for.

    Of times without a zone the clock of any zone may be meant: the latest value tells which.
    """
    if column.digits is None:
        return None
    if column.is_day:
        return str(client.value("SELECT CAST(current_date - interval '1' day AS varchar)"))
    now, width, latest = _sampled(client, relation, column)
    if not column.is_zoned and latest is not None:
        now = ticks.beside(now, latest)
    return _text(ticks.running(now, width), column)


def tick(client: Client, relation: Relation, column: SourceColumn) -> int:
    """Returns how long the tick is that is waited for, in nanoseconds; 0 where none is."""
    if column.digits is None:
        return 0
    return ticks.DAY if column.is_day else _sampled(client, relation, column)[1]


def at(text: str, column: SourceColumn) -> str | None:
    """The last tick that is not behind a point in time; None where the column holds no times."""
    if column.digits is None:
        return None
    width = _width(column)
    return _text(_nanoseconds(text) // width * width, column)


def before(text: str, column: SourceColumn) -> str | None:
    """The last tick that is before a point in time; None where the column holds no times."""
    if column.digits is None:
        return None
    width = _width(column)
    return _text((-(-_nanoseconds(text) // width) - 1) * width, column)


def _sampled(
    client: Client, relation: Relation, column: SourceColumn
) -> tuple[int, int, int | None]:
    """The clock in nanoseconds, the tick, and the latest value that is not in the future."""
    digits = column.digits or 0
    zoned = f"{column.quoted}" if column.is_zoned else f"with_timezone({column.quoted}, 'UTC')"
    counts = ", ".join(f"count_if(at % {width} = 0)" for width in ticks.WIDTHS)
    query = _SAMPLE.format(
        counts=counts,
        nanoseconds=_as_nanoseconds(zoned, digits),
        name=column.quoted,
        base=relation.base,
        now="current_timestamp" if column.is_zoned else "localtimestamp + interval '1' day",
        days=ticks.RECENT_DAYS,
        most=ticks.RECENT,
    )
    ((now, values, *multiples, latest),) = client.rows(query)
    found = ticks.tick(dict(zip(ticks.WIDTHS, multiples, strict=True)), values)
    return int(now) * 1_000, max(found, 10 ** (9 - digits)), latest


def _as_nanoseconds(zoned: str, digits: int) -> str:
    """Nanoseconds since 1970 as an integer: floats lose the last digits."""
    seconds = f"CAST(floor(to_unixtime(date_trunc('second', {zoned}))) AS bigint)"
    if digits == 0:
        return f"{seconds} * {_SECOND}"
    text = f"substr(CAST(at_timezone({zoned}, 'UTC') AS varchar), 21, {digits})"
    return f"{seconds} * {_SECOND} + CAST({text} AS bigint) * {10 ** (9 - digits)}"


def _width(column: SourceColumn) -> int:
    return ticks.DAY if column.is_day else 10 ** (9 - (column.digits or 0))


def _text(nanoseconds: int, column: SourceColumn) -> str:
    seconds, fraction = divmod(nanoseconds, _SECOND)
    date = ticks.moment_of(seconds * _SECOND).strftime("%Y-%m-%d %H:%M:%S")
    if column.is_day:
        return date[:10]
    digits = column.digits or 0
    shown = f"{date}.{fraction:09d}"[: 20 + digits] if digits else date
    return f"{shown} UTC" if column.is_zoned else shown


def _nanoseconds(text: str) -> int:
    whole, _, zone = moment(text, 9).rpartition("+")
    seconds, _, fraction = whole.partition(".")
    since = ticks.nanoseconds(datetime.fromisoformat(f"{seconds}+{zone}"))
    return since + int(fraction.ljust(9, "0") or 0)
