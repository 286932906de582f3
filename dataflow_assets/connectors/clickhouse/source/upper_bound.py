"""Up to which change value a table may be read now, by the server's clock.

The latest values tell the tick of the column: a DateTime64(6) may hold what was cut to seconds.
"""

from __future__ import annotations

from dataflow_assets.connectors.clickhouse.client import Client, quote, rows
from dataflow_assets.connectors.clickhouse.source.relation import Column, Relation
from dataflow_assets.connectors.clickhouse.source.time_literals import moment_text
from dataflow_assets.sdk.polling import ticks

_ALIAS = quote("#n")  # a name that could be a column's would stand for it in the conditions
_SAMPLE = """
SELECT toUnixTimestamp64Nano(now64(9)), count(), {counts}
FROM (
    SELECT toUnixTimestamp64Nano(assumeNotNull(toDateTime64({name}, 9))) AS {alias} FROM {base}
    WHERE {name} < now64(9) AND {name} > now() - toIntervalDay({days})
    ORDER BY {name} DESC LIMIT {most}
)
"""


def upto(client: Client, relation: Relation, column: Column) -> str | None:
    """The first value that is not over: of the tick that still runs; None where none is waited for.

    A day is over when the server's own is.
    """
    if column.digits is None:
        return None
    if column.is_day:
        return str(rows(client, "SELECT toString(today())")[0][0])
    now, tick = _sampled(client, relation, column)
    return moment_text(ticks.running(now, tick), column.digits)


def tick(client: Client, relation: Relation, column: Column) -> int:
    """How long the tick is that is waited for, in nanoseconds; 0 where none is."""
    if column.digits is None:
        return 0
    return ticks.DAY if column.is_day else _sampled(client, relation, column)[1]


def _sampled(client: Client, relation: Relation, column: Column) -> tuple[int, int]:
    """The clock in nanoseconds, and the tick."""
    counts = ", ".join(f"countIf({_ALIAS} % {width} = 0)" for width in ticks.WIDTHS)
    query = _SAMPLE.format(
        alias=_ALIAS,
        counts=counts,
        name=quote(column.name),
        base=relation.base,
        days=ticks.RECENT_DAYS,
        most=ticks.RECENT,
    )
    ((now, values, *multiples),) = rows(client, query)
    found = ticks.tick(dict(zip(ticks.WIDTHS, multiples, strict=True)), values)
    return int(now), max(found, 10 ** (9 - (column.digits or 0)))
