"""The driver's side of the source: which files come next, cut before anything is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.files.client import FilesStored, Folder, visible
from dataflow_assets.connectors.files.errors import translate_errors
from dataflow_assets.connectors.files.options import FilesSourceOptions
from dataflow_assets.connectors.files.source.planning import (
    FilesCut,
    Unread,
    compression,
    ranges_of,
    smaller,
    text_of,
    unread,
)
from dataflow_assets.connectors.files.source.position import MOST_FILES, FilesPosition, mark
from dataflow_assets.connectors.files.source.read import read, why_changed
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
from dataflow_assets.contracts.capabilities import ReplansParts
from dataflow_assets.contracts.looking import Peeks
from dataflow_assets.errors import Outdated, PermanentError, TransientError

FOLDER = "folder"  # the one partition
SETTLED = 60  # seconds after which a file of the disk is whole, whatever its last byte is
_SAMPLE = 64 * 1024  # bytes from which the length of a line is told


class FilesSourceSession(SourceSession, Peeks, ReplansParts):
    """Lists the folder for every question; `lags` only for what one position lacks."""

    def __init__(self, source: FilesSourceOptions) -> None:
        self._source, self._folder = source, Folder(source)
        self._listed: Mapping[bytes, FilesStored] | None = None
        self._whole: set[FilesStored] = set()
        self._line: tuple[str, int] = ("", 1)
        with translate_errors(source, "open"):
            self._folder.check()
        if not source.on_s3 and not Path(source.root).is_dir():
            raise PermanentError(f"the folder {source.path} does not exist: create it, or fix path")

    def _files(self) -> list[FilesStored]:
        """The files that count, the oldest first."""
        latest = (datetime.now(UTC).timestamp() - self._source.min_age_seconds) * 1e9
        with translate_errors(self._source, "list"):
            there = list(visible(self._folder.files()))
        if len(there) > MOST_FILES:
            raise PermanentError(
                f"{self._source.path} holds {len(there)} files, and {MOST_FILES} can be "
                "remembered: move those that were read elsewhere, or write larger ones"
            )
        self._listed = {mark(one.name): one for one in there}
        counting = [one for one in there if self._counts(one, latest)]
        with translate_errors(self._source, "read"):
            self._whole = {one for one in counting if one in self._whole or self._is_whole(one)}
        return sorted(self._whole, key=lambda one: (one.changed, one.name))

    @property
    def _there(self) -> Mapping[bytes, FilesStored]:
        """All files of the last listing, by the marks of their names."""
        if self._listed is None:
            self._files()
        return self._listed or {}

    def _counts(self, file: FilesStored, latest: float) -> bool:
        settled = not self._source.min_age_seconds or file.changed <= latest
        return settled and fnmatchcase(file.name, self._source.glob)

    def _is_whole(self, file: FilesStored) -> bool:
        """False for a file that may be written still: its last line has no end, and it is young."""
        age = datetime.now(UTC).timestamp() - file.changed / 1e9
        if self._source.on_s3 or compression(file.name) or age > SETTLED:
            return True
        with suppress(FileNotFoundError), self._folder.open(file.name) as opened:
            opened.seek(file.size - 1)
            return bool(opened.read(1) == b"\n")
        return False

    @property
    @override
    def identity(self) -> str:
        return self._source.path

    @override
    def start(self, where: str | None = None) -> Positions:
        if where in (None, "earliest"):
            return _positions(FilesPosition())
        if where == "latest":
            return self.end()
        at = datetime.fromisoformat(where)
        limit = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1e9
        return _positions(FilesPosition.after(one for one in self._files() if one.changed < limit))

    @override
    def end(self) -> Positions:
        return _positions(FilesPosition.after(self._files()))

    @override
    def lags(self, partition: str, position: Position | None, end: Position) -> bool:
        unread_names = FilesPosition.parse(position).unread_names(FilesPosition.parse(end))
        if not unread_names:
            return False
        if not unread_names & self._there.keys():
            self._files()  # somebody else may have found them since
        there = (self._there[name] for name in unread_names & self._there.keys())
        return any(fnmatchcase(one.name, self._source.glob) for one in there)

    @override
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        start, files = FilesPosition.parse(after.get(FOLDER)), self._files()
        self._check(start, files)
        new = unread(files, start, FilesPosition.parse(until[FOLDER]) if until else None)
        cut = FilesCut(self._step(new, limit), self._source.parallel_reads).take(new)
        added = FilesPosition.after(cut.done, cut.partial).text()
        return Span.of_parts(added, map(text_of, cut.parts), full=cut.full)

    def _check(self, start: FilesPosition, files: Sequence[FilesStored]) -> None:
        """Raises PermanentError where what was read of the folder is not what it was."""
        if start.file and start.file not in {one.name for one in files}:
            raise PermanentError(
                f"the file {start.file} of {self._source.path} is gone, and it was read up to byte "
                f"{start.at} only: put it back as it was, or start from latest without the rest of "
                "it"
            )
        for one in files:
            if start.has_changed(one):
                raise PermanentError(
                    f"the file {one.name} of {self._source.path} was changed after it had been "
                    "read: write new lines into new files, and put this one back as it was; or "
                    "start from earliest with table: truncate"
                )

    def _step(self, new: Sequence[Unread], limit: Limit) -> int:
        """The bytes of a part: as many as the limit allows, lines being as long as they are."""
        plain = next((one.file for one in new if not compression(one.file.name)), None)
        return max(1, min(limit.bytes, limit.records * self._line_of(plain) if plain else 1 << 62))

    def _line_of(self, file: FilesStored) -> int:
        if self._line[0] != file.name:
            with translate_errors(self._source, "read"):
                sample = self._beginning_of(file)
            self._line = file.name, max(1, len(sample) // max(1, sample.count(b"\n")))
        return self._line[1]

    def _beginning_of(self, file: FilesStored) -> bytes:
        try:
            with self._folder.open(file.name) as opened:
                sample: bytes = opened.read(_SAMPLE)
        except FileNotFoundError:
            raise TransientError(f"the file {file.name} is gone since it was listed") from None
        return sample

    @override
    def smaller(self, piece: PartSlice, limit: Limit) -> Sequence[str]:
        ranges = ranges_of(piece.part)
        for one in ranges:
            if reason := why_changed(one, self._there.get(mark(one.name))):
                raise Outdated(reason)
        step = self._step([Unread(one.file, one.begin, one.end) for one in ranges], limit)
        return smaller(ranges, step)

    @override
    def fold(self, positions: Positions) -> Positions:
        position = FilesPosition.parse(positions.get(FOLDER))
        position = position.then(FilesPosition.parse(fold_parts(positions, FOLDER)))
        # Files that were taken away are forgotten; not all at once, as when a disk is away.
        there = self._there
        kept = {name: seen for name, seen in position.read.items() if name in there}
        return _positions(replace(position, read=kept if there else position.read))

    @override
    def lag(self, after: Positions) -> Lag:
        """Records by the length of the first lines; seconds since the oldest file was changed."""
        start, files = FilesPosition.parse(after.get(FOLDER)), self._files()
        unread = [one for one in files if not start.has(one)]
        ends = _positions(FilesPosition.after(files))
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


def _positions(position: FilesPosition) -> Positions:
    return {FOLDER: position.text()}
