"""Up to which change value a relation may be read now, by its server's clock.

The latest values tell the tick of a column: what an application has cut to seconds stands in a
column of microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic

from dataflow_assets.sdk.sql_table import ticks
from dataflow_assets.sdk.sql_table.dialect import Ask, Binds, SqlDialect
from dataflow_assets.sdk.sql_table.positions import moment
from dataflow_assets.sdk.sql_table.relation import C, SqlColumn, SqlRelation


@dataclass(frozen=True)
class Sample:
    """The latest values of a column, summed up. `now`, `latest`: nanoseconds by its own clock."""

    now: int
    latest: int | None
    tick: int


@dataclass(frozen=True)
class UpperBound(Generic[C]):
    """The values that may be read now: none of a tick that is not over."""

    dialect: SqlDialect[C]
    tick: int
    """What is waited for, in nanoseconds; 0 where nothing is."""
    samples: Mapping[str, Sample]

    def condition(self, column: C, binds: Binds) -> str:
        """Returns what stands behind WHERE for the values of a column; empty for all of them."""
        sample = self.samples.get(column.name)
        if sample is None:
            return ""
        if column.is_day or not self.tick:
            return f"{column.sql} {'<' if self.tick else '<='} {self.dialect.clock(column)}"
        now = sample.now
        if not column.is_zoned and sample.latest is not None:
            # The values may be by another clock than the server's: by their writer's.
            now = ticks.beside(now, sample.latest)
        first = time_text(ticks.running(now, self.tick), column, self.dialect.utc)
        return f"{column.sql} < {self.dialect.value(column, first, binds)}"


def upper_bound(
    ask: Ask, relation: SqlRelation[C], dialect: SqlDialect[C], overlap: int
) -> UpperBound[C]:
    """Looks at the columns that tell changes.

    Called on the driver whenever the newest pair is asked for.

    Args:
        ask: runs a statement.
        relation: what is read.
        dialect: of its server.
        overlap: seconds of which rows are read again; a tick that is not longer need not be over.
    """
    samples = dict[str, Sample]()
    empty = ""
    for column in relation.rank_columns:
        if column.digits is not None:
            samples[column.name] = _sample(ask, relation, dialect, column, empty)
        empty = f"{column.sql} IS NULL"  # the second one counts where the first is null
    tick = max((sample.tick for sample in samples.values()), default=0)
    # Without a zone, rows are read again by the server's clock, and their writer's may be another.
    naive = any(c.name in samples and not (c.is_day or c.is_zoned) for c in relation.rank_columns)
    least = ticks.SECOND if naive else 0
    return UpperBound(dialect, 0 if least < tick <= overlap * ticks.SECOND else tick, samples)


def _sample(
    ask: Ask, relation: SqlRelation[C], dialect: SqlDialect[C], column: C, where: str
) -> Sample:
    if column.is_day:
        return Sample(0, None, ticks.DAY)
    least = tick_of(column)
    widths = [width for width in ticks.WIDTHS if width >= least]
    ((now, latest, values, *multiples),) = ask(dialect.sample(relation, column, widths, where), {})
    tick = ticks.tick(dict(zip(widths, multiples, strict=True)), values)
    return Sample(int(now), None if latest is None else int(latest), max(tick, least))


def tick_of(column: SqlColumn) -> int:
    """Returns the shortest step between two values of a column of times, in nanoseconds."""
    return ticks.DAY if column.is_day else 10 ** (9 - (column.digits or 0))


def time_text(nanoseconds: int, column: SqlColumn, utc: str) -> str:
    """Returns a point in time as a position of the column has it, cut to the column's digits.

    Args:
        nanoseconds: since 1970.
        column: holds points in time.
        utc: what stands behind them where the column has a zone.
    """
    seconds, rest = divmod(nanoseconds, ticks.SECOND)
    text = ticks.moment_of(seconds * ticks.SECOND).isoformat(" ")[:19]
    if column.is_day:
        return text[:10]
    cut = f"{text}.{rest:09}"[: 20 + column.digits] if column.digits else text
    return f"{cut}{utc}" if column.is_zoned else cut


def nanoseconds_of(text: str) -> int:
    """Returns a point in time, ISO 8601, as nanoseconds since 1970, to the last digit."""
    whole, _, zone = moment(text, 9).rpartition("+")
    seconds, _, fraction = whole.partition(".")
    since = ticks.nanoseconds(datetime.fromisoformat(f"{seconds}+{zone}"))
    return since + int(fraction.ljust(9, "0") or 0)
