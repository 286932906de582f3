"""Whether each partition of an asset is one partition of its table: only such are replaced at once.

ClickHouse has no transactions, but it replaces one partition of a table by that of another in one
step. Rows of several partitions of an asset in one of the table would have to be copied, and a run
of another partition at the same time would be lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from dataflow_assets.connectors.clickhouse import types
from dataflow_assets.connectors.clickhouse.client import Client, literal, query_rows, quote
from dataflow_assets.connectors.clickhouse.frames.conditions import moment, ranges
from dataflow_assets.connectors.clickhouse.type_names import ClickhouseType, split_list, unquote
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.table_partitions import Dimension, Partitions, Range

# Functions of time that never go backwards: where two moments differ, all beyond them differ too.
_RISING = re.compile(
    r"(?:toYear|toYYYYMM|toYYYYMMDD|toYYYYMMDDhhmmss|toDate|toDate32|toMonday|toUnixTimestamp"
    r"|toStartOf(?:Year|Quarter|Month|Week|Day|Hour|FifteenMinutes|TenMinutes|FiveMinutes|Minute"
    r"|Second|Interval))\((`(?:[^`\\]|\\.)*`|\w+)(?:, .*)?\)"
)
_COARSEST_FIRST = (
    *("toStartOfYear({}{})", "toStartOfQuarter({}{})", "toStartOfMonth({}{})"),
    *("toMonday({}{})", "toStartOfWeek({}, 0{})", "toDate32({}{})"),
    *("toStartOfHour({}{})", "toStartOfFifteenMinutes({}{})", "toStartOfMinute({}{})"),
)
"""Functions of a column, and of the zone in which its days begin."""
_WINDOWS = 500  # asked about by one query: servers take 256 KiB of one


@dataclass(frozen=True)
class PartitionKey:
    """The types of a table's columns, and what tells its partitions apart."""

    client: Client
    kinds: Mapping[str, str]

    def expression(self, partitions: Partitions) -> str:
        """Returns what a table is partitioned by that is made for an asset. Raises Failure."""
        dimensions = _dimensions(partitions)
        return f"({', '.join(self._function(name, each) for name, each in dimensions.items())})"

    def check(self, table: object, partitions: Partitions, key: str) -> None:
        """Raises PermanentError where the table is partitioned by other columns, and Failure."""
        dimensions = _dimensions(partitions)
        parts = dict(_parts(key))
        if set(parts) == set(dimensions) and all(
            self._separates(parts[name], name, each) for name, each in dimensions.items()
        ):
            return
        raise PermanentError(
            f"{table} is PARTITION BY {key or 'tuple()'}: rows are replaced at once only where "
            "each partition of the asset is one partition of the table; make the table with "
            f"PARTITION BY {self.expression(partitions)}, or let the first run make it"
        )

    def _function(self, name: str, dimensions: Sequence[Dimension]) -> str:
        zone = next((str(w.start.tzinfo) for d in dimensions for w in d.windows), "UTC")
        in_zone = "" if self._days(name) or zone == "UTC" else f", {literal(zone)}"
        functions = (each.format(quote(name), in_zone) for each in _COARSEST_FIRST)
        for part in (quote(name), *functions):
            if self._separates(part, name, dimensions):
                return part
        raise PermanentError(
            f"partition_expr: none of ClickHouse's usual functions of {name} has a value for each "
            "partition of the asset: make the table with a PARTITION BY that has"
        )

    def _days(self, name: str) -> bool:
        return ClickhouseType.of(self.kinds[name]).bare.name in types.DAYS

    def _separates(self, part: str, name: str, dimensions: Sequence[Dimension]) -> bool:
        windows = [window for each in dimensions for window in _windows(each, self.kinds[name])]
        if not windows:
            return part in (name, quote(name))
        pieces = (windows[at : at + _WINDOWS] for at in range(0, len(windows), _WINDOWS))
        return all(self._apart(part, name, piece) for piece in pieces)

    def _apart(self, part: str, name: str, windows: Sequence[Range]) -> bool:
        kind = ClickhouseType.of(self.kinds[name]).bare.spelling
        edges = [moment(edge) for window in windows for edge in _edges(window)]
        # S608: names and values are quoted
        query = (
            f"SELECT toString({part}) FROM (SELECT t.1 AS n, CAST(t.2, {literal(kind)}) AS "  # noqa: S608
            f"{quote(name)} FROM (SELECT arrayJoin(arrayZip(range({len(edges)}), "
            f"[{', '.join(edges)}])) AS t)) ORDER BY n"
        )
        values = [value for (value,) in query_rows(self.client, query)]
        groups = zip(*[iter(values)] * 4, strict=True)
        return all(before != first == last != behind for before, first, last, behind in groups)


def _dimensions(partitions: Partitions) -> dict[str, list[Dimension]]:
    by_column: dict[str, list[Dimension]] = {}
    for dimension in (each for product in partitions.products for each in product):
        by_column.setdefault(dimension.column, []).append(dimension)
    return by_column


def _parts(key: str) -> Iterator[tuple[str, str]]:
    bare = key[1:-1] if key.startswith("(") and key.endswith(")") else key
    for part in split_list(bare):
        match = _RISING.fullmatch(part)
        yield unquote(match[1] if match else part), part


def _windows(dimension: Dimension, kind: str) -> Iterator[Range]:
    """Each window in the column's terms; none where it holds keys."""
    for window, key in zip(dimension.windows, dimension.keys, strict=False):
        yield from ranges(Dimension(dimension.column, (key,), (window,)), kind) or ()


def _edges(window: Range) -> tuple[date | datetime, ...]:
    start, end = window
    tick = timedelta(seconds=1) if isinstance(start, datetime) else timedelta(days=1)
    return start - tick, start, end - tick, end
