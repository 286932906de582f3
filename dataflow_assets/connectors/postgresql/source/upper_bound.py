"""Up to which change value a relation may be read now, by PostgreSQL's clock.

The latest values tell the tick of the column: what an application has cut to seconds stands in a
column of microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dataflow_assets.connectors.postgresql.client import Link
from dataflow_assets.connectors.postgresql.source.predicates import clock, literal
from dataflow_assets.connectors.postgresql.source.relation import Relation, SourceColumn, quoted
from dataflow_assets.sdk.polling import ticks

_MICROSECOND = 1_000  # nanoseconds
_WIDTHS = tuple(width for width in ticks.WIDTHS if width >= _MICROSECOND)
_MULTIPLE = "count(*) FILTER (WHERE (extract(epoch FROM v) * 1000000)::bigint % {micros} = 0)"


@dataclass(frozen=True)
class Sample:
    """What the latest values of a column say. `now`, `latest`: nanoseconds by its own clock."""

    now: int
    latest: int | None = None
    tick: int = 1


@dataclass(frozen=True)
class Reach:
    """The values that may be read now: none of a tick that is not over.

    `held`: the tick that is waited for, in nanoseconds; 0 where the rows are read again later.
    """

    held: int
    samples: dict[str, Sample]

    def condition(self, column: SourceColumn) -> str:
        """Returns what stands behind WHERE for the values of a column."""
        sample = self.samples.get(column.name)
        if sample is None:
            return f"{quoted(column)} IS NOT NULL"
        kind = column.type.base
        if kind == "date":
            return f"{quoted(column)} {'<' if self.held else '<='} {clock(column)}"
        if not self.held:
            return f"{quoted(column)} <= {clock(column)}"
        first = ticks.moment_of(ticks.running(_clock_of(kind, sample), self.held))
        text = first.isoformat(" ") if kind == "timestamptz" else first.replace(tzinfo=None)
        return f"{quoted(column)} < {literal(str(text), column)}"


def reach(link: Link, relation: Relation, overlap: int) -> Reach:
    """Looks at the columns that tell changes. `overlap`: seconds that are read again later."""
    columns = [column for column in relation.ranked if clock(column)]
    # The second one counts where the first is null.
    missing = f" AND {quoted(relation.ranked[0])} IS NULL" if columns else ""
    samples = {
        column.name: _sample(link, relation, column, missing if at else "")
        for at, column in enumerate(columns)
    }
    tick = max((sample.tick for sample in samples.values()), default=0)
    # Without a zone, rows are read again by the server's clock, and their writer's may be another.
    least = ticks.SECOND if any(column.type.base == "timestamp" for column in columns) else 0
    return Reach(0 if least < tick <= overlap * ticks.SECOND else tick, samples)


def _sample(link: Link, relation: Relation, column: SourceColumn, more: str) -> Sample:
    if column.type.base == "date":
        return Sample(0, tick=ticks.DAY)
    name, now = quoted(column), clock(column)
    counts = ", ".join(_MULTIPLE.format(micros=width // _MICROSECOND) for width in _WIDTHS)
    # S608: names are quoted
    ((clock_, latest, values, *multiples),) = link.execute(
        f"SELECT {now}::text, max(v)::text, count(*), {counts} FROM ("  # noqa: S608
        f"SELECT {name} AS v FROM {relation.base} "
        f"WHERE {name} <= {now} AND {name} > {now} - interval '{ticks.RECENT_DAYS} days'{more} "
        f"ORDER BY {name} DESC LIMIT {ticks.RECENT}) AS recent"
    )
    found = ticks.tick(dict(zip(_WIDTHS, multiples, strict=True)), values)
    last = None if latest is None else _nanoseconds(latest)
    return Sample(_nanoseconds(clock_), last, max(found, _MICROSECOND))


def _clock_of(kind: str, sample: Sample) -> int:
    """Without a zone the values may be by another one than the server's: by their writer's."""
    if kind == "timestamptz" or sample.latest is None:
        return sample.now
    return ticks.beside(sample.now, sample.latest)


def _nanoseconds(text: str) -> int:
    return ticks.nanoseconds(datetime.fromisoformat(text))
