"""One span of a view: read, merged table by table, and frozen. Nothing of it counts yet."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from dataflow_assets import failpoints
from dataflow_assets.contracts import OffsetSlice, Span
from dataflow_assets.errors import PermanentError
from dataflow_assets.languages.sql.engine.changes import NONE, by_key, concatenate
from dataflow_assets.languages.sql.engine.window_rows import clock_watermark
from dataflow_assets.languages.sql.engine.windows import FlinkWindows, millis
from dataflow_assets.languages.sql.state.digests import digests
from dataflow_assets.languages.sql.state.driver import QueryDriver
from dataflow_assets.languages.sql.state.files import StateFiles
from dataflow_assets.languages.sql.state.hops import NOTHING, Flowing
from dataflow_assets.languages.sql.state.manifest import MANIFEST, Manifest, Position, new_manifest
from dataflow_assets.languages.sql.state.merges import Merges
from dataflow_assets.languages.sql.state.output import OutputRow, batches, write_rows
from dataflow_assets.languages.sql.state.reading import ViewReader
from dataflow_assets.languages.sql.state.tasks import ReadSlice, StatePlace, part, run
from dataflow_assets.languages.sql.state.watermarks import LAST, Watermarks, advance, by_clock, due
from dataflow_assets.micro_batch.rejected_share import too_many

ALWAYS = 0
"""As a beginning: the setting is as old as the state, as far as anybody knows."""


class Computation:
    """One span of a view."""

    def __init__(
        self, reader: ViewReader, place: StatePlace, previous: Manifest | None, driver: QueryDriver
    ) -> None:
        """`previous`: the state before; None: nothing is kept yet."""
        reached = previous.watermarks.reached if previous else None
        self._reader = dataclasses.replace(reader, reached=reached)
        self._place, self._previous, self._spark = place, previous, driver.spark
        now = millis(reader.environment.now)
        self._expiry = expiry(previous, reader.view.expires, now)
        self._digests = digests(reader.view)
        self._flowing = Flowing(reader.view, reader.environment, self._expiry.forgotten_upto)
        self._merges = Merges(self._flowing, place, previous.tables if previous else {}, driver)
        self._moments: dict[str, int | None] = {}
        self._watermarks = previous.watermarks if previous else Watermarks()
        self.records = self.refused = self.late = 0

    def run(
        self, span: Span, *, small: bool, waiting: Iterable[str] = (), closed: Iterable[str] = ()
    ) -> Manifest:
        """Computes the span, of which nothing was committed yet.

        Args:
            span: of the messages.
            small: the driver reads them itself.
            waiting: partitions that have messages behind the span.
            closed: those of which nothing more is ever read.

        Returns:
            The state behind it, which is not written yet.
        """
        pieces = [one for one in span.slices if isinstance(one, OffsetSlice) and not one.empty]
        self._moments = {one.partition: None for one in span.slices}
        if small:
            self._read(pieces)
        else:
            self._read_in_tasks(pieces)
        self._moments |= dict.fromkeys(closed, LAST)
        self._watermarks = self._advance({*waiting, *(one.partition for one in pieces)})
        for hop in self._flowing.hops:
            self._merges.merge(hop, self._watermarks.reached)
        previous = self._previous
        return new_manifest(
            shape=self._digests.shape,
            query=self._digests.query,
            number=previous.number + 1 if previous else 1,
            at=self._reader.environment.now,
            offsets={one.partition: int(one.upto) for one in span.slices},
            tables=self._merges.tables,
            parts=tuple(self._merges.parts),
            watermarks=self._watermarks,
            late=self.late + (previous.late if previous else 0),
            expires_from=self._expiry.start,
            forgotten_upto=self._expiry.forgotten_upto,
        )

    def _advance(self, active: Iterable[str]) -> Watermarks:
        before, view = self._watermarks, self._reader.view
        if view.windows is None:
            return before
        if view.windows.of_clock:
            over = self._moments and all(one == LAST for one in self._moments.values())
            return by_clock(before, LAST if over else self._clock(view.windows))
        return advance(before, self._moments, active, self._flowing.now, view.idle)

    def _clock(self, windows: FlinkWindows) -> int | None:
        return clock_watermark(windows, self._reader.environment)

    def due(self, manifest: Manifest) -> int | None:
        """When a window ends although no record arrives, in milliseconds; None: none does.

        Args:
            manifest: the state behind the span, with all that is kept.
        """
        view, first = self._reader.view, manifest.first
        if view.windows is None or not view.windows.of_clock:
            return due(manifest.watermarks, first, view.idle)
        moment = self._clock(view.windows)
        return None if first is None or moment is None else first + self._flowing.now - moment

    def check(self, flow: str, most_percent: float) -> None:
        """Raises PermanentError where too many records were refused."""
        if too_many(self.refused, self.records, most_percent):
            raise PermanentError(
                f"flow {flow}: {self.refused} of {self.records} records were rejected, more than "
                f"{most_percent:g} percent. Nothing of this micro-batch is stored. Fix the table "
                "or the producer"
            )

    def _read_in_tasks(self, pieces: Sequence[OffsetSlice]) -> None:
        buckets = self._merges.buckets
        tasks = [ReadSlice(self._reader, piece, self._place, buckets) for piece in pieces]
        for done in run(self._spark(), tasks):
            self._merges.take(done)
            self._moments |= done.moments
            self._count(done.records, done.refused, done.late)

    def _read(self, pieces: Sequence[OffsetSlice]) -> None:
        changes, files = [], self._place.files()
        for piece, read in self._reader.together(pieces):
            changes.append(read.changes)
            self._count(read.records, len(read.refused), read.late)
            self._moments[piece.partition] = read.moment
            self._merges.parts += part(files, self._place, read.refused)
        self._merges.hold(self._flowing.arriving(concatenate(changes)))
        failpoints.reach("view.read")

    def _count(self, records: int, refused: int, late: int) -> None:
        self.records += records
        self.refused += refused
        self.late += late


def store(files: StateFiles, place: StatePlace, generation: str, manifest: Manifest) -> Position:
    """Writes the manifest, which nobody knows of yet; the position that names it."""
    file = files.write(f"{place.folder}/{MANIFEST}", manifest.text(), 0)
    failpoints.reach("view.manifest")
    return Position(manifest.offsets, generation, manifest.number, file.name, file.digest)


def folder_of(generation: str, number: int, name: str) -> str:
    """Returns the folder of a span; those of later spans sort after it."""
    return f"{generation}/{number:012}-{name}"


class Expiry(NamedTuple):
    """The limits of one micro-batch by which state expires, in milliseconds."""

    start: int | None
    """When what is kept began to expire; None: it does not."""
    forgotten_upto: int
    """What was touched then, or before, is forgotten for good; 0: nothing is."""


def expiry(previous: Manifest | None, expires: int, now: int) -> Expiry:
    """Returns what is forgotten in a micro-batch.

    What was there when it began to expire counts as touched then. What is forgotten stays
    forgotten when the setting is longer later, or switched off: its rows are in the files until
    these are written again, and what was computed without them must not be computed with them.

    Args:
        previous: the state before; None: nothing is kept yet.
        expires: the setting in milliseconds; 0: it is switched off.
        now: when the micro-batch was planned.
    """
    before = 0 if previous is None else previous.forgotten_upto or 0
    if not expires:
        return Expiry(None, before)
    start, since = _first_moment(previous, now), now - expires
    return Expiry(start, max(before, since) if start <= since else before)


def _first_moment(previous: Manifest | None, now: int) -> int:
    """A state of an earlier version does not say: that version forgot by the time alone."""
    if previous is None:
        return now
    if previous.expires_from is not None:
        return previous.expires_from
    return ALWAYS if previous.forgotten_upto is None else now


def looked_at(reader: ViewReader, messages: Mapping[str, pa.RecordBatch]) -> pa.RecordBatch | None:
    """The rows of the target that messages make without a state; None where they make none.

    Called by `dataflow preview`. Windows are shown as if no row came later.

    Args:
        reader: of the view.
        messages: by the partition, as `Peeks.peek` gives them.
    """
    arrived: list[pa.Table] = []
    rows: list[OutputRow] = []
    for partition, batch in sorted(messages.items()):
        read = reader.read(OffsetSlice(partition, 0, 0), [batch])
        arrived.append(read.changes)
        rows += read.refused
    flowing = Flowing(reader.view, reader.environment)
    pending = flowing.arriving(concatenate(arrived))
    for hop in flowing.hops:
        moved = flowing.merge(hop, NOTHING, pending.get(hop.table, NONE))
        if flowing.is_windowed(hop):
            kept = {key: value for key, value in by_key(moved.puts).items() if value is not None}
            moved = moved.and_then(flowing.close(hop, kept))
        for name, some in moved.changes.items():
            pending[name] = concatenate([pending.get(name, NONE), some])
        rows += moved.output
    table = pa.Table.from_batches(batches(write_rows(rows))).combine_chunks() if rows else None
    return None if table is None else table.to_batches()[0]
