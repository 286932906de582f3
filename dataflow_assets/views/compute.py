"""One span of a view: read, merged table by table, and frozen. Nothing of it counts yet.

Small changes are merged on the driver, beside the files that a table has; what is large is done by
one job for each table, which writes every bucket that has changed anew.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec.structs import replace

from dataflow_assets import failpoints
from dataflow_assets.contracts import OffsetSlice, Span
from dataflow_assets.errors import PermanentError
from dataflow_assets.micro_batch.fused import too_many
from dataflow_assets.views import tables
from dataflow_assets.views.closing import Load, begun, closed, ends
from dataflow_assets.views.files import StateFiles
from dataflow_assets.views.hops import Change, Flowing, Hop, Moved
from dataflow_assets.views.manifest import MANIFEST, File, Manifest, Position, Table, new_manifest
from dataflow_assets.views.reading import Reader
from dataflow_assets.views.staged import Staged, all_changes, stage
from dataflow_assets.views.tasks import Done, MergeBucket, Place, ReadSlice, load, part, run
from dataflow_assets.views.watermarks import LAST, Watermarks, advanced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW = 20_000
"""Changes of a table that are merged on the driver."""
BUCKETS = 16
"""The fewest of a table."""
FULL = 250_000
"""Keys of a bucket, above which a table gets twice as many."""
MOST_RECENT = 100_000
"""Keys beside the buckets, above which they are merged into them."""
MOST_FILES = 24
"""The same of files."""
CACHED = 256 * 1024 * 1024
"""Bytes of tables that the driver keeps in memory."""


@dataclass
class Cache:
    """Rows of files that were read or written last; files never change."""

    most: int = CACHED
    _rows: dict[str, pa.Table] = field(default_factory=dict)

    def get(self, file: File, read: Callable[[], pa.Table]) -> pa.Table:
        """The rows of a file."""
        found = self._rows.pop(file.name, None)
        found = read() if found is None else found
        self.put(file.name, found)
        return found

    def put(self, name: str, rows: pa.Table) -> None:
        """Keeps rows; the ones that were not used for longest make room."""
        self._rows[name] = rows
        size = sum(one.nbytes for one in self._rows.values())
        while size > self.most and len(self._rows) > 1:
            oldest = next(iter(self._rows))
            size -= self._rows.pop(oldest).nbytes


@dataclass(frozen=True)
class Limits:
    """When something is done in another way; tests have smaller ones."""

    few: int = FEW
    buckets: int = BUCKETS
    full: int = FULL
    most_recent: int = MOST_RECENT
    most_files: int = MOST_FILES


@dataclass(frozen=True)
class Driver:
    """What the driver has for a computation."""

    cache: Cache
    spark: Callable[[], SparkSession]
    """Gives a live session; called only where there is much to do."""
    limits: Limits = Limits()


@dataclass
class _Pending:
    """The changes of a table that were not merged yet."""

    held: list[Change] = field(default_factory=list)
    staged: list[Staged] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many."""
        return len(self.held) + sum(sum(one.rows) for one in self.staged)


class Computation:
    """One span of a view."""

    def __init__(
        self,
        reader: Reader,
        place: Place,
        previous: Manifest | None,
        driver: Driver,
    ) -> None:
        """`previous`: the state before; None: nothing is kept yet."""
        reached = previous.watermarks.reached if previous else None
        self._reader = dataclasses.replace(reader, reached=reached)
        self._place, self._previous = place, previous
        self._flowing, self._files = Flowing(reader.view, reader.environment), place.files()
        self._cache, self._spark, self._limits = driver.cache, driver.spark, driver.limits
        limits = self._limits
        known = previous.tables if previous else {}
        empty = Table((None,) * limits.buckets)
        self._tables = {hop.table: known.get(hop.table, empty) for hop in self._flowing.hops}
        self._buckets = {name: self._grown(one) for name, one in self._tables.items()}
        self._pending = {name: _Pending() for name in self._tables}
        self._parts: list[File] = []
        self._moments: dict[str, int | None] = {}
        self._watermarks = previous.watermarks if previous else Watermarks()
        self.records = self.refused = self.late = 0

    def _grown(self, table: Table) -> int:
        rows, buckets = table.rows, len(table.buckets)
        while rows > buckets * self._limits.full:
            buckets *= 2
        return buckets

    def run(
        self,
        span: Span,
        *,
        small: bool,
        waiting: Iterable[str] = (),
        closed: Iterable[str] = (),
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
        self._read(pieces, small=small)
        if self._reader.view.windows is not None:
            self._moments |= dict.fromkeys(closed, LAST)
            active = {*waiting, *(one.partition for one in pieces)}
            self._watermarks = advanced(
                self._watermarks,
                self._moments,
                active,
                self._flowing.now,
                self._reader.view.idle,
            )
        for hop in self._flowing.hops:
            self._merge(hop)
        previous = self._previous
        return new_manifest(
            shape=self._reader.view.shape,
            query=self._reader.view.query,
            number=previous.number + 1 if previous else 1,
            at=self._reader.environment.now,
            offsets={one.partition: int(one.upto) for one in span.slices},
            tables=self._tables,
            parts=tuple(self._parts),
            watermarks=self._watermarks,
            late=self.late + (previous.late if previous else 0),
        )

    def check(self, flow: str, most_percent: float) -> None:
        """Raises PermanentError where too many records were refused."""
        if too_many(self.refused, self.records, most_percent):
            raise PermanentError(
                f"flow {flow}: {self.refused} of {self.records} records were rejected, more than "
                f"{most_percent:g} percent. Nothing of this micro-batch is stored. Fix the table "
                "or the producer"
            )

    def _read(self, pieces: Sequence[OffsetSlice], *, small: bool) -> None:
        if not small:
            tasks = [ReadSlice(self._reader, piece, self._place, self._buckets) for piece in pieces]
            for done in run(self._spark(), tasks):
                self._take(done)
            return
        changes: list[Change] = []
        for piece, read in self._reader.together(pieces):
            changes += read.changes
            self._count(read.records, len(read.refused), read.late)
            self._moments[piece.partition] = read.moment
            self._parts += part(self._files, self._place, read.refused)
        self._hold(self._flowing.arriving(changes))
        failpoints.reach("view.read")

    def _take(self, done: Done) -> None:
        for name, staged in done.staged.items():
            self._pending[name].staged.append(staged)
        self._parts += done.parts
        self._moments |= done.moments
        self._count(done.records, done.refused, done.late)

    def _count(self, records: int, refused: int, late: int) -> None:
        self.records += records
        self.refused += refused
        self.late += late

    def _hold(self, changes: Mapping[str, Iterable[Change]]) -> None:
        for name, some in changes.items():
            self._pending[name].held += some

    def _merge(self, hop: Hop) -> None:
        pending, table = self._pending[hop.table], self._tables[hop.table]
        touched = pending.count + (table.rows if self._ends(hop) else 0)
        if touched > self._limits.few:
            self._merge_in_tasks(hop, pending)
            return
        changes = [*pending.held, *all_changes(self._files, pending.staged)]
        if changes or touched:
            self._merge_here(hop, changes)
        table = self._tables[hop.table]
        recent = sum(one.rows for one in table.recent)
        if recent > self._limits.most_recent or len(table.recent) > self._limits.most_files:
            self._merge_in_tasks(hop, _Pending())

    def _final(self, hop: Hop) -> int | None:
        """Up to when windows are final; None: the table has none, or no time has come yet."""
        reached = self._watermarks.reached
        return None if reached is None or not self._flowing.windowed(hop) else reached + 1

    def _ends(self, hop: Hop) -> bool:
        """Whether a window ends whose groups are kept."""
        return ends(self._tables[hop.table], self._final(hop))

    def _merge_here(self, hop: Hop, changes: Sequence[Change]) -> None:
        table, load, final = self._tables[hop.table], self._loading(hop), self._final(hop)
        keys = list({change.key for change in changes})
        moved = self._flowing.merge(hop, tables.found(table, keys, load), changes)
        if final is not None:
            kept = tables.ended(table, final, load) if ends(table, final) else {}
            moved = closed(self._flowing, hop, moved, kept, final)
        failpoints.reach("view.merged")
        if moved.puts:
            rows = tables.table_of(moved.puts, self._flowing.now)
            content = tables.encoded(rows)
            file = self._files.write(self._place.name(hop.table), content, rows.num_rows)
            self._cache.put(file.name, rows)
            table = replace(table, recent=(*table.recent, file))
        if self._flowing.windowed(hop):
            table = begun(table, moved.puts, final, load)
        self._tables[hop.table] = table
        self._moved(moved)

    def _moved(self, moved: Moved) -> None:
        self._hold(moved.changes)
        self._parts += part(self._files, self._place, moved.output)

    def _loading(self, hop: Hop) -> Load:
        since = self._flowing.since(hop)

        def read(file: File) -> pa.Table:
            return tables.alive(self._cache.get(file, lambda: load(self._files, file)), since)

        return read

    def _merge_in_tasks(self, hop: Hop, pending: _Pending) -> None:
        """Every bucket that has changed, or of which something is kept beside it, is written."""
        table, count = self._tables[hop.table], self._buckets[hop.table]
        if pending.held:
            name = self._place.name(f"{hop.table}-changes")
            pending.staged.append(stage(self._files, name, pending.held, count))
        staged = tuple(pending.staged)
        everything = bool(table.recent) or count != len(table.buckets) or self._ends(hop)
        touched = {bucket for one in staged for bucket in one.buckets}
        chosen = range(count) if everything else sorted(touched)
        tasks = [
            MergeBucket(
                self._flowing,
                hop,
                table,
                bucket,
                staged,
                self._place,
                self._buckets,
                self._final(hop),
            )
            for bucket in chosen
        ]
        kept: list[File | None] = [None] * count
        if count == len(table.buckets):
            kept = list(table.buckets)
        firsts = [] if everything or table.first is None else [table.first]
        for done in sorted(run(self._spark(), tasks), key=lambda one: one.bucket):
            kept[done.bucket] = done.kept
            firsts += [] if done.first is None else [done.first]
            self._take(done)
        self._tables[hop.table] = Table(tuple(kept), first=min(firsts, default=None))


def stored(files: StateFiles, place: Place, generation: str, manifest: Manifest) -> Position:
    """Writes the manifest, which nobody knows of yet; the position that names it."""
    file = files.write(f"{place.folder}/{MANIFEST}", manifest.text(), 0)
    failpoints.reach("view.manifest")
    return Position(manifest.offsets, generation, manifest.number, file.name, file.digest)


def folder_of(generation: str, number: int, name: str) -> str:
    """Of a span: those of later ones sort behind it."""
    return f"{generation}/{number:012}-{name}"
