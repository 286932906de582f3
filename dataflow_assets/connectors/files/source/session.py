"""The driver's side of the source: which files come next, cut before anything is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.files.client import Folder, Stored, visible
from dataflow_assets.connectors.files.errors import translated
from dataflow_assets.connectors.files.options import FilesSourceOptions
from dataflow_assets.connectors.files.source.planning import Cut, compression, smaller, text_of
from dataflow_assets.connectors.files.source.position import MOST_FILES, Position, marks
from dataflow_assets.connectors.files.source.read import read
from dataflow_assets.contracts import Lag, Limit, PartSlice, Positions, SourceSession, Span, folded
from dataflow_assets.contracts import Position as Text
from dataflow_assets.errors import PermanentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = "folder"  # the one partition
_SAMPLE = 64 * 1024  # bytes from which the length of a line is told


class FilesSourceSession(SourceSession):
    """Lists the folder for every question; `behind` judges by the last answer."""

    def __init__(self, source: FilesSourceOptions) -> None:
        self._source, self._folder = source, Folder(source)
        self._there: frozenset[bytes] = frozenset()
        self._line: tuple[str, int] = ("", 1)
        with translated(source, "open"):
            self._folder.check()

    def _files(self) -> list[Stored]:
        """The files that count, the oldest first."""
        latest = (datetime.now(UTC).timestamp() - self._source.min_age_seconds) * 1e9
        with translated(self._source, "list"):
            there = list(visible(self._folder.files()))
        if len(there) > MOST_FILES:
            raise PermanentError(
                f"{self._source.path} holds {len(there)} files, and {MOST_FILES} can be "
                "remembered: move those that were read elsewhere, or write larger ones"
            )
        self._there = frozenset(marks(one)[0] for one in there)
        counting = (one for one in there if self._counts(one, latest))
        return sorted(counting, key=lambda one: (one.changed, one.name))

    def _counts(self, file: Stored, latest: float) -> bool:
        settled = not self._source.min_age_seconds or file.changed <= latest
        return settled and fnmatchcase(file.name, self._source.glob)

    @property
    @override
    def identity(self) -> str:
        return self._source.path

    @override
    def start(self) -> Positions:
        return _positions(Position())

    @override
    def seek(self, where: str) -> Positions:
        if where == "earliest":
            return self.start()
        if where == "latest":
            return self.ends()
        at = datetime.fromisoformat(where)
        limit = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1e9
        return _positions(Position.behind(one for one in self._files() if one.changed < limit))

    @override
    def ends(self) -> Positions:
        return _positions(Position.behind(self._files()))

    @override
    def behind(self, partition: str, position: Text | None, end: Text) -> bool:
        wanted = Position.parse(end).read.keys() & self._there
        return not wanted <= Position.parse(position).read.keys()

    @override
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        start = Position.parse(after.get(FOLDER))
        files = self._files()
        unread = list(self._unread(files, start, until))
        cut = Cut(self._step(unread, limit), self._source.parallel_reads).take(unread)
        there = {name: seen for name, seen in start.read.items() if name in self._there}
        done = Position.behind(cut.done, cut.begun)
        end = replace(done, read={**there, **done.read})
        return Span.of_parts(end.text(), map(text_of, cut.parts), full=cut.full)

    def _unread(
        self, files: Sequence[Stored], start: Position, until: Positions | None
    ) -> Iterator[tuple[Stored, int]]:
        """The files to read, and from where; the one that is begun comes first."""
        wanted = Position.parse(until[FOLDER]) if until else None
        if start.file and start.file not in {one.name for one in files}:
            raise PermanentError(
                f"the file {start.file} of {self._source.path} is gone, and it was read up to byte "
                f"{start.at} only: put it back as it was, or start from latest without the rest of "
                "it"
            )
        for one in sorted(files, key=lambda one: one.name != start.file):
            if start.changed(one):
                raise PermanentError(
                    f"the file {one.name} of {self._source.path} was changed after it had been "
                    "read: write new lines into new files, and put this one back as it was; or "
                    "start from earliest with table: truncate"
                )
            begun = one.name == start.file
            if not start.has(one) and (begun or wanted is None or wanted.has(one)):
                yield one, start.at if begun else 0

    def _step(self, unread: Sequence[tuple[Stored, int]], limit: Limit) -> int:
        """The bytes of a part: as many as the limit allows, lines being as long as they are."""
        plain = next((one for one, _ in unread if not compression(one.name)), None)
        return max(1, min(limit.bytes, limit.records * self._line_of(plain) if plain else 1 << 62))

    def _line_of(self, file: Stored) -> int:
        """How long its lines are, by its beginning."""
        if self._line[0] != file.name:
            with translated(self._source, "read"), self._folder.open(file.name) as opened:
                sample: bytes = opened.read(_SAMPLE)
            self._line = file.name, max(1, len(sample) // max(1, sample.count(b"\n")))
        return self._line[1]

    @override
    def smaller(self, piece: PartSlice, limit: Limit) -> Sequence[str]:
        return smaller(piece.part, min(limit.bytes, limit.records * self._line[1]))

    @override
    def frame(self, spark: SparkSession, span: Span, columns: frozenset[str]) -> DataFrame:
        raise NotImplementedError("tasks read files by themselves")

    @override
    def fold(self, positions: Positions) -> Positions:
        return {FOLDER: folded(positions, FOLDER) or Position().text()}

    @override
    def lag(self, after: Positions) -> Lag:
        """Records by the length of the first lines; seconds since the oldest file was changed."""
        start, files = Position.parse(after.get(FOLDER)), self._files()
        unread = [one for one in files if not start.has(one)]
        ends = _positions(Position.behind(files))
        if not unread:
            return Lag(0, 0.0, ends)
        size = sum(one.size for one in unread) - start.at
        plain = next((one for one in unread if not compression(one.name)), None)
        seconds = datetime.now(UTC).timestamp() - unread[0].changed / 1e9
        return Lag(max(1, size // (self._line_of(plain) if plain else 1)), max(0.0, seconds), ends)

    @override
    def peek(self, after: Positions, limit: int) -> Mapping[str, pa.RecordBatch]:
        span = self.plan(after, replace(Limit(), records=limit))
        if not span.slices:
            return {}
        first = next(read(self._source, span.slices[0], self._source.metadata_columns), None)
        return {} if first is None else {FOLDER: first.slice(0, limit)}

    @override
    def release(self, upto: Positions) -> None:
        """A folder keeps nothing of its readers."""

    @override
    def close(self) -> None:
        """Nothing is held open but pooled connections."""


def _positions(position: Position) -> Positions:
    return {FOLDER: position.text()}
