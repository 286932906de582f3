"""The driver's side of a view: plans messages, computes the span, and knows where its state is."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

import msgspec
import pyarrow as pa
from typing_extensions import override

from dataflow_assets.contracts import (
    Lag,
    Limit,
    Position,
    Positions,
    SourceSession,
    Span,
    fold_parts,
    utc_now,
)
from dataflow_assets.contracts.capabilities import TakesOverPositions
from dataflow_assets.contracts.looking import EndsOfMany, Peeks
from dataflow_assets.errors import DataflowError
from dataflow_assets.languages.promises import PreparesSpans, RewindsTargets
from dataflow_assets.languages.sql.engine.function import Environment
from dataflow_assets.languages.sql.state.compute import Computation, folder_of, looked_at, store
from dataflow_assets.languages.sql.state.driver import Cache, Limits, QueryDriver
from dataflow_assets.languages.sql.state.files import StateFiles
from dataflow_assets.languages.sql.state.garbage import collect
from dataflow_assets.languages.sql.state.manifest import VIEW, Manifest, position_of
from dataflow_assets.languages.sql.state.manifest import Position as ViewPosition
from dataflow_assets.languages.sql.state.notices import Notices
from dataflow_assets.languages.sql.state.options import ViewSourceOptions
from dataflow_assets.languages.sql.state.output import OutputPart
from dataflow_assets.languages.sql.state.positions import (
    Messages,
    closed_partitions,
    ending,
    first_position,
    is_due,
    most_records,
    rebuild_ends,
    rewound,
    waiting_partitions,
)
from dataflow_assets.languages.sql.state.reading import ViewReader
from dataflow_assets.languages.sql.state.states import QueryStates
from dataflow_assets.languages.sql.state.tasks import StatePlace
from dataflow_assets.languages.sql.state.watermarks import LAST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK = 60.0
"""Seconds between two looks for files that nobody needs."""
_NOTHING = ViewPosition({}, "")

_TICK = timedelta(milliseconds=1)


class ViewSession(
    SourceSession, EndsOfMany, Peeks, PreparesSpans, RewindsTargets, TakesOverPositions
):
    """The messages are read by the session of their own source."""

    limits = Limits()

    def __init__(self, source: ViewSourceOptions, flow: str, messages: Messages) -> None:
        self._source, self._flow, self.messages = source, flow, messages
        self._cache = Cache()
        self._planned: dict[str, tuple[Span, dict[str, int]]] = {}
        try:
            self._files = StateFiles(source.location, flow)
        except BaseException:
            messages.close()
            raise
        self._states = QueryStates(source, flow, self._files)
        self._collected = float("-inf")
        self._notices = Notices(flow, source.address().name)

    @property
    @override
    def identity(self) -> str:
        return self.messages.identity

    @override
    def start(self, where: str | None = None) -> Positions:
        return first_position(self.messages.start(where))

    @override
    def understands(self, positions: Positions) -> bool:
        if positions.keys() != {VIEW}:
            return False
        return self.messages.understands(position_of(positions[VIEW]).offsets)

    @override
    def rewound(self, chosen: Positions, before: Positions, *, stay: bool) -> Positions:
        """Rows that the state before has written, and the new one does not, are deleted later."""
        return rewound(chosen, before, stay=stay)

    @override
    def take_over(self, known: Positions) -> Positions:
        return first_position(self.messages.take_over(known))

    @override
    def end(self) -> Positions:
        return ending(self.messages.end())

    @override
    @classmethod
    def ends_together(cls, sessions: Sequence[Self]) -> list[Positions | DataflowError]:
        messages: list[Any] = [one.messages for one in sessions]  # of one class: `connection_group`
        ends = type(messages[0]).ends_together(messages)
        return [one if isinstance(one, DataflowError) else ending(one) for one in ends]

    @override
    def lags(self, partition: str, position: Position | None, end: Position) -> bool:
        after = _NOTHING if position is None else position_of(position)
        lags, ends = self.messages.lags, position_of(end)
        if ends.seen is not None and after.due is not None and after.due <= ends.seen:
            return True  # a window ends
        return any(lags(p, after.offsets.get(p), at) for p, at in ends.offsets.items())

    @override
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        """A part that stands for all of the messages, until they are computed."""
        start, end = position_of(after[VIEW]), None if until is None else position_of(until[VIEW])
        self._states.checked_state(start)  # a changed query is refused before the next record
        most = replace(limit, records=min(limit.records, most_records(self._source.view)))
        span = self.messages.plan(
            self._read_upto(start), most, None if end is None else end.offsets
        )
        if span.empty and not is_due(start, end) and not self._is_closing(start):
            return Span(())
        name = uuid.uuid4().hex
        self._planned = {name: (span, rebuild_ends(self.messages, start, end))}
        return replace(Span.of_parts(name, [""]), full=span.full)

    @override
    def prepare(self, span: Span, spark: Callable[[], SparkSession]) -> Span:
        """Computes the span: what `begin` records is frozen by then."""
        planned = self._planned.pop(str(span.slices[0].upto), None)
        if planned is None:
            return span
        messages, rebuilt_at = planned
        assert span.planned is not None  # noqa: S101 - the loop says from where
        self._files.check()
        start = position_of(span.planned[VIEW])
        previous = self._states.checked_state(start)
        if start.state and self._source.view.changelog:
            self._notices.new_partitions(messages.upto.keys() - start.offsets.keys())
        number, now = start.number + 1, _later(previous)
        folder = folder_of(start.generation, number, uuid.uuid4().hex)
        place = StatePlace(self._source.location, self._flow, folder)
        view = self._source.view
        reader = self._reader(Environment(view.zone, now))
        work = Computation(reader, place, previous, QueryDriver(self._cache, spark, self.limits))
        manifest = work.run(
            messages,
            small=self.messages.reader(messages) == "driver",
            waiting=waiting_partitions(view, self.messages, messages.upto),
            closed=closed_partitions(view, self.messages, messages.upto),
        )
        work.check(self._flow, self._source.max_rejected_percent)
        self._notices.late(work.late, manifest.late)
        if not view.idle:
            self._notices.empty(manifest.watermarks.waiting_for())
        manifest, left = self._states.without_stale(place, manifest, start.earlier, rebuilt_at)
        position = store(self._files, place, start.generation, manifest)
        position = msgspec.structs.replace(
            position,
            earlier=left,
            rebuilt_at=rebuilt_at if left else {},
            past=start.past,
            due=work.due(manifest),
        )
        self._states.follow(start, position, manifest)
        parts = [OutputPart(self._flow, one).text() for one in manifest.parts]
        prepared = Span.of_parts(
            position.text(), parts or [OutputPart(self._flow).text()], full=span.full
        )
        return replace(prepared, planned=span.planned, at=now)

    def _read_upto(self, position: ViewPosition) -> Positions:
        understood = self.messages.understands(position.offsets)
        return position.offsets if understood else self.messages.start()

    def _reader(self, environment: Environment) -> ViewReader:
        source = self._source
        return ViewReader(
            source.source, self.identity, source.view, environment, others=source.others
        )

    def _is_closing(self, start: ViewPosition) -> bool:
        view = self._source.view
        closed = closed_partitions(view, self.messages, start.offsets) if start.state else None
        if not closed:
            return False
        manifest = self._states.at(start)
        marks = manifest.watermarks.marks
        return manifest.first is not None and any(
            marks[one].moment != LAST for one in closed & marks.keys()
        )

    @override
    def fold(self, positions: Positions) -> Positions:
        folded = fold_parts(positions, VIEW)
        return {} if folded is None else {VIEW: folded}

    @override
    def lag(self, after: Positions) -> Lag:
        position = position_of(after[VIEW])
        messages_lag = self.messages.lag(self._read_upto(position))
        with_ends = replace(messages_lag, ends=ending(messages_lag.ends))
        if not position.state:
            return with_ends
        try:
            manifest = self._states.read(position.state, position.digest)
        except DataflowError:
            return with_ends  # the next micro-batch says what is wrong with it
        late = None if self._source.view.windows is None else manifest.late
        reached = manifest.watermarks.reached
        return replace(with_ends, state=manifest.size, late=late, watermark=reached)

    @override
    def peek(self, after: Positions, limit: int) -> Mapping[str, pa.RecordBatch]:
        """The rows that the next messages make by themselves, as if nothing were kept."""
        reader = self._reader(Environment(self._source.view.zone, utc_now()))
        messages = self.messages.peek(self._read_upto(position_of(after[VIEW])), limit)
        rows = looked_at(reader, messages)
        return {} if rows is None else {VIEW: rows}

    @override
    def acknowledge(self, upto: Positions) -> None:
        position = position_of(upto[VIEW])
        self.messages.acknowledge(position.offsets)
        now = time.monotonic()
        if self._states.follows_another(position) and now >= self._collected + LOOK:
            self._collected = now
            collect(self._files, position, self._states.states_needed(position))

    @override
    def close(self) -> None:
        self.messages.close()


def _later(previous: Manifest | None) -> datetime:
    """The time of a micro-batch: behind that of the one before, whatever this machine's clock says.

    What is kept of the later one would count as the older, and expire first.
    """
    now = utc_now()
    return now if previous is None else max(now, previous.at + _TICK)
