"""The messages of several tables as one source: each partition has its table's number in front."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Self, cast

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.contracts import (
    Lag,
    Limit,
    OffsetSlice,
    Position,
    Positions,
    SourceSession,
    Span,
    oldest,
)
from dataflow_assets.contracts.capabilities import TakesOverPositions
from dataflow_assets.contracts.looking import EndsOfMany, Peeks
from dataflow_assets.contracts.reading import ChoosesReader, SpanReader
from dataflow_assets.errors import DataflowError, outcome

if TYPE_CHECKING:  # a manifest is loaded without clients
    from dataflow_assets.connectors.kafka.source.session import KafkaSourceSession

_BETWEEN = "/"
_IDENTITIES = " "


def of_table(partition: str) -> tuple[int, str]:
    """The number of the table that a partition is of, and the partition; 0 of a single table."""
    number, _, own = partition.rpartition(_BETWEEN)
    return int(number or 0), own


def name_partition(number: int, partition: str) -> str:
    """The opposite, where there are several tables."""
    return f"{number}{_BETWEEN}{partition}"


def identities(text: str) -> Sequence[str]:
    """Returns what `SourceSession.identity` was of each table, by its number."""
    return text.split(_IDENTITIES)


class UnitedSession(SourceSession, ChoosesReader, EndsOfMany, Peeks, TakesOverPositions):
    """Sessions of tables of one class, on the driver."""

    def __init__(self, sessions: Sequence[KafkaSourceSession]) -> None:
        self._sessions = sessions

    @property
    @override
    def identity(self) -> str:
        return _IDENTITIES.join(one.identity for one in self._sessions)

    @override
    def start(self, where: str | None = None) -> Positions:
        return _merge(one.start(where) for one in self._sessions)

    @override
    def take_over(self, known: Positions) -> Positions:
        return _merge(one.take_over(some) for one, some in self._each(known))

    @override
    def understands(self, positions: Positions) -> bool:
        if not all(_BETWEEN in name for name in positions):
            return False
        if any(of_table(name)[0] >= len(self._sessions) for name in positions):
            return False
        return all(one.understands(some) for one, some in self._each(positions))

    @override
    def end(self) -> Positions:
        return _merge(one.end() for one in self._sessions)

    @override
    @classmethod
    def ends_together(cls, sessions: Sequence[Self]) -> list[Positions | DataflowError]:
        return [outcome(one.end) for one in sessions]

    def closed_partitions(self, after: Positions) -> frozenset[str]:
        """Returns the partitions of which nothing more is read: their declaration ends there."""
        ends = [one.closed_partitions(some) for one, some in self._each(after)]
        return frozenset(name_partition(n, one) for n, some in enumerate(ends) for one in some)

    @override
    def lags(self, partition: str, position: Position | None, end: Position) -> bool:
        number, own = of_table(partition)
        return self._sessions[number].lags(own, position, end)

    @override
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        untils = [None] * len(self._sessions) if until is None else _divide(until, self._sessions)
        pairs = zip(self._each(after), untils, strict=True)
        spans = [one.plan(some, limit, bound) for (one, some), bound in pairs]
        slices = [_move(n, piece) for n, span in enumerate(spans) for piece in span.slices]
        return Span(tuple(slices), any(span.full for span in spans))

    @override
    def reader(self, span: Span) -> SpanReader:
        pieces: list[list[OffsetSlice]] = [[] for _ in self._sessions]
        for piece in span.slices:
            number, own = of_table(piece.partition)
            pieces[number].append(replace(cast("OffsetSlice", piece), partition=own))
        pairs = zip(self._sessions, pieces, strict=True)
        small = all(one.reader(Span(tuple(some))) == "driver" for one, some in pairs)
        return "driver" if small else "tasks"

    @override
    def lag(self, after: Positions) -> Lag:
        lags = [one.lag(some) for one, some in self._each(after)]
        partitions = [
            {name_partition(n, name): at for name, at in one.partitions.items()}
            for n, one in enumerate(lags)
        ]
        return Lag(
            records=sum(one.records for one in lags),
            seconds=oldest([one.seconds for one in lags]),
            ends=_merge(one.ends for one in lags),
            partitions=dict(chain.from_iterable(one.items() for one in partitions)),
        )

    @override
    def peek(self, after: Positions, limit: int) -> Mapping[str, pa.RecordBatch]:
        peeks = [one.peek(some, limit) for one, some in self._each(after)]
        return {
            name_partition(n, name): at for n, some in enumerate(peeks) for name, at in some.items()
        }

    @override
    def acknowledge(self, upto: Positions) -> None:
        for one, some in self._each(upto):
            one.acknowledge(some)

    @override
    def close(self) -> None:
        for one in self._sessions:
            one.close()

    def _each(self, positions: Positions) -> Iterable[tuple[KafkaSourceSession, Positions]]:
        return zip(self._sessions, _divide(positions, self._sessions), strict=True)


def _merge(positions: Iterable[Positions]) -> Positions:
    return {
        name_partition(n, name): at for n, some in enumerate(positions) for name, at in some.items()
    }


def _divide(positions: Positions, among: Sequence[KafkaSourceSession]) -> list[Positions]:
    by_table: list[dict[str, Position]] = [{} for _ in among]
    for name, at in positions.items():
        number, own = of_table(name)
        by_table[number][own] = at
    return [*by_table]


def _move(number: int, piece: object) -> OffsetSlice:
    offset_slice = cast("OffsetSlice", piece)
    return replace(offset_slice, partition=name_partition(number, offset_slice.partition))
