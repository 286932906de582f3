"""The driver's side of the source: which sealed parts come next, and the process that seals them.

The process is started by the first plan, so that whoever only looks starts none.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from typing_extensions import override

from dataflow_assets.connectors.kafka_connect import states
from dataflow_assets.connectors.kafka_connect.client import HostProcess, order_of
from dataflow_assets.connectors.kafka_connect.errors import another_part, disk, other_spool
from dataflow_assets.connectors.kafka_connect.host.protocol import SPOOL_BYTES
from dataflow_assets.connectors.kafka_connect.options import KafkaConnectSourceOptions
from dataflow_assets.connectors.kafka_connect.parts import ConnectPart, published_parts, without_gap
from dataflow_assets.connectors.kafka_connect.source.position import ConnectPosition, Piece
from dataflow_assets.connectors.kafka_connect.source.read import missing
from dataflow_assets.connectors.kafka_connect.spool import Spool
from dataflow_assets.contracts import (
    Lag,
    Limit,
    PartSlice,
    Position,
    Positions,
    SourceSession,
    Span,
    fold_parts,
)
from dataflow_assets.contracts.capabilities import FollowsBranches, HoldsLog, ReplansParts
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.durable_files import sync
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.spark import jars

CONNECT = "connect"  # the one partition
QUIET = 5.0  # seconds without a record after which a run that has an end is at its end
_MOST_PIECES = 64  # of one span: each carries the offsets that the span adds
_TICK = 0.05
_FULL = 256 * 1024 * 1024


class KafkaConnectSession(SourceSession, FollowsBranches, HoldsLog, ReplansParts):
    """One connector, whose process lives as long as the session."""

    def __init__(self, source: KafkaConnectSourceOptions) -> None:
        self._source, self._spool = source, Spool(source.spool)
        self._host: HostProcess | None = None
        self._opened_at = time.monotonic()
        self._shown = time.time() - self._opened_at
        """What the clock that people see has shown then: it may be set while the run goes on."""
        self._furthest = 0
        """Number of the last part that any open branch has."""

    @override
    def begin_after(self, positions: Sequence[Positions]) -> None:
        texts = (text for one in positions for text in (one.get(CONNECT), fold_parts(one, CONNECT)))
        self._furthest = max((ConnectPosition.parse(text).part for text in texts), default=0)

    @property
    @override
    def identity(self) -> str:
        return self._source.connector_class

    @override
    def start(self, where: str | None = None) -> Positions:
        if where not in (None, "earliest"):
            raise PermanentError(
                f"{self._source.title} cannot be read from {where}: only the connector knows its "
                "source. Choose earliest, or set the connector's own options"
            )
        return _positions(ConnectPosition())

    @override
    def end(self) -> Positions:
        return _positions(ConnectPosition(visible=int((time.monotonic() + self._shown) * 1_000)))

    @override
    def lags(self, partition: str, position: Position | None, end: Position) -> bool:
        """Without a process of its own nobody knows what the connector would deliver."""
        start, stop = ConnectPosition.parse(position), ConnectPosition.parse(end)
        if not stop.visible:
            return start.part < stop.part or start.spool != stop.spool
        if start.visible:
            return start.visible < stop.visible
        at_its_end = self._is_quiet(stop.visible) or self._is_full(start)
        return bool(self._waiting(start)) or not at_its_end

    def _waiting(self, start: ConnectPosition) -> list[ConnectPart]:
        return published_parts(without_gap(self._spool.parts(start.part), start.part + 1))

    def _is_full(self, start: ConnectPosition) -> bool:
        return self._spool.size > SPOOL_BYTES and not self._spool.parts(start.part)

    def _is_quiet(self, visible: int) -> bool:
        if self._host is None:
            return False
        asked_at = visible / 1_000 - self._shown
        if asked_at > time.monotonic():
            # An older session has asked, and the clock was set back since.
            asked_at = self._opened_at
        return self._host.quiet_since(asked_at) >= QUIET

    @override
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        start = ConnectPosition.parse(after.get(CONNECT))
        stop = ConnectPosition.parse(until[CONNECT]) if until else None
        with translate_errors(f"running {self._source.title}"):
            spool = self._start_host(start, limit).spool()
            if start.spool not in ("", spool):
                raise PermanentError(other_spool(self._source.spool))
            with disk(self._source.spool):
                pieces, taken, full = _pieces(self._next(start, stop), limit)
                if taken:
                    sync(self._spool.folder)  # the process may not have come to it yet
                offsets = self._spool.offsets(taken, {})
                last = (taken[-1].number, taken[-1].token) if taken else (start.part, start.token)
                added = ConnectPosition(spool, *last, offsets)
                return Span.of_parts(added.text, pieces, full=full)

    def _start_host(self, start: ConnectPosition, limit: Limit) -> HostProcess:
        """The process, which goes on behind what is sealed."""
        if self._host is None:
            framework = [str(path) for path in jars.fetch("connect")]
            furthest = max(self._furthest, start.part)
            order = order_of(
                self._source, framework, limit, spool_id=start.spool, position=furthest
            )
            self._host = HostProcess(order, self._source.hidden_values)
        return self._host

    def _next(self, start: ConnectPosition, stop: ConnectPosition | None) -> list[ConnectPart]:
        """Sealed parts; of a run that has an end the next one, or none once it is quiet.

        What is sealed is read also where the process has ended meanwhile.
        """
        self._check_there(start)
        if stop is not None and not stop.visible:
            return [part for part in self._waiting(start) if part.number <= stop.part]
        while not (parts := self._waiting(start)):
            assert self._host is not None  # noqa: S101 - plan has started it
            self._host.check()
            self._check_there(start)
            if stop is None or self._is_quiet(stop.visible) or self._is_full(start):
                return []
            time.sleep(_TICK)
        return parts

    def _check_there(self, start: ConnectPosition) -> None:
        """Parts have numbers without gaps: one that two listings lack, and no later one, is lost.

        In one listing a part may be missing whose name came while the folder was read.
        """
        # The last part is the one that was read, as far as it is still there. A branch may have
        # been suspended while an older copy of the spool was written to.
        there = next(iter(self._spool.parts(start.part - 1)), None)
        if start.token and there and there.number == start.part and there.token != start.token:
            raise PermanentError(another_part(self._source.spool, start.part))
        number, state = start.part + 1, self._spool.state()
        forgotten = state is not None and number < state.first
        if forgotten or (_lacks(self._spool, number) and _lacks(self._spool, number)):
            raise PermanentError(missing(self._source, number))

    @override
    def smaller(self, piece: PartSlice, limit: Limit) -> Sequence[str]:
        if not piece.part:
            return ("",)
        one = Piece.parse(piece.part)
        return tuple(smaller.text for smaller in one.smaller(_rows(one.part, limit)))

    @override
    def fold(self, positions: Positions) -> Positions:
        position = ConnectPosition.parse(positions.get(CONNECT))
        return _positions(position.then(ConnectPosition.parse(fold_parts(positions, CONNECT))))

    @property
    @override
    def holds(self) -> bool:
        """A spool that is full keeps the connector from going on."""
        return self._spool.size > _FULL

    @override
    def acknowledge(self, upto: Positions) -> None:
        position = ConnectPosition.parse(upto.get(CONNECT))
        with disk(self._source.spool):
            state = self._spool.state()
            if state is not None and state.id == position.spool:
                self._spool.forget(position.part)

    @override
    def lag(self, after: Positions) -> Lag:
        """The lag behind what the connector has delivered; what it has not, nobody knows."""
        start = ConnectPosition.parse(after.get(CONNECT))
        parts = [] if start.visible else self._waiting(start)
        oldest = self._spool.sealed_at(parts[0]) if parts else None
        seconds = max(0.0, time.time() - oldest) if oldest else 0.0
        records, task_states = sum(part.rows for part in parts), states.read(self._spool.folder)
        return Lag(records, seconds, self.end(), connector=task_states)

    @override
    def close(self) -> None:
        if self._host is not None:
            self._host.end()
            self._host = None


def _lacks(spool: Spool, number: int) -> bool:
    parts = spool.parts(number - 1)
    return bool(parts) and parts[0].number != number


def _pieces(
    parts: Sequence[ConnectPart], limit: Limit
) -> tuple[list[str], list[ConnectPart], bool]:
    """The borders of a span, the parts that it has, and whether more parts wait."""
    pieces, taken = list[str](), list[ConnectPart]()
    for part in parts:
        texts = Piece(part, 0, part.rows).smaller(_rows(part, limit))
        if pieces and len(pieces) + len(texts) > _MOST_PIECES:
            return pieces, taken, True
        pieces += [one.text for one in texts]
        taken.append(part)
    return pieces or [""] * bool(taken), taken, False


def _rows(part: ConnectPart, limit: Limit) -> int:
    return max(1, min(limit.records, limit.bytes * part.rows // max(1, part.bytes)))


def _positions(position: ConnectPosition) -> Positions:
    return {CONNECT: position.text}
