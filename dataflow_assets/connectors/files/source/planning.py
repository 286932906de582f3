"""Files cut into parts: ranges of their bytes, fixed before anything is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from dataflow_assets.connectors.files.client import FilesStored
from dataflow_assets.connectors.files.source.position import FilesPosition
from dataflow_assets.records.decoding import decode_json

MOST_RANGES = 1_000  # of one span: the sink's checkpoint records them all
MOST_PARTS = 64  # that one part is cut into
COMPRESSED = {".gz": "gzip", ".zst": "zstd"}


class FilesRange(msgspec.Struct, frozen=True):
    """The lines of a file that begin at a byte `begin <= at < end`; the file as it was planned."""

    name: str
    begin: int
    end: int
    size: int
    changed: int

    @property
    def file(self) -> FilesStored:
        return FilesStored(self.name, self.size, self.changed)


def ranges_of(part: str) -> list[FilesRange]:
    return decode_json(part, list[FilesRange])


def text_of(ranges: Sequence[FilesRange]) -> str:
    return msgspec.json.encode(ranges).decode()


def compression(name: str) -> str | None:
    """Returns how a file is compressed, by the end of its name."""
    return next((kind for end, kind in COMPRESSED.items() if name.lower().endswith(end)), None)


@dataclass(frozen=True)
class Unread:
    """The lines of a file that begin at a byte `begin <= at < end` are still to be read."""

    file: FilesStored
    begin: int
    end: int


def unread(
    files: Sequence[FilesStored], start: FilesPosition, stop: FilesPosition | None
) -> list[Unread]:
    """Returns what a reader at `start` reads of these files, not beyond `stop`.

    The file that is begun comes first, and the one in which `stop` is comes last: no position is
    inside two of them. So where `stop` has other files than the one that is begun, that one is
    read to its end.
    """
    new = [one for one in files if one.name != start.file and not start.has(one)]
    parts = [
        Unread(one, 0, one.size if stop is None or stop.has(one) else stop.at)
        for one in sorted(new, key=lambda one: stop is not None and one.name == stop.file)
        if stop is None or stop.has(one) or one.name == stop.file
    ]
    for one in files:
        if one.name == start.file:
            whole = stop is None or stop.has(one) or bool(parts)
            end = one.size if stop is None or whole else stop.at if stop.file == one.name else 0
            parts.insert(0, Unread(one, start.at, end))
    return [one for one in parts if one.begin < one.end]


@dataclass
class FilesCut:
    """Parts of at most `step` bytes, as many as `most`; compressed files are not divided."""

    step: int
    most: int
    ranges: int = MOST_RANGES
    parts: list[list[FilesRange]] = field(default_factory=list)
    done: list[FilesStored] = field(default_factory=list)
    """The files that are read to their end."""
    partial: tuple[FilesStored, int] | None = None
    """The file that is not, and up to where it is read."""
    full: bool = False
    _room: int = 0

    def take(self, pieces: Iterable[Unread]) -> FilesCut:
        for piece in pieces:
            file, at, whole = piece.file, piece.begin, bool(compression(piece.file.name))
            while at < piece.end and self._open(file.size if whole else 1):
                end = piece.end if whole else min(at + self._room, piece.end)
                self.parts[-1].append(FilesRange(file.name, at, end, file.size, file.changed))
                self._room -= end - at
                at = end
            if at == file.size:
                self.done.append(file)
            elif at:
                self.partial = file, at
            if at < piece.end:
                self.full = True
                return self
        return self

    def _open(self, wanted: int) -> bool:
        if sum(map(len, self.parts)) >= self.ranges:
            return False
        if self._room >= wanted:
            return True
        if len(self.parts) == self.most:
            return False
        self.parts.append([])
        self._room = self.step
        return True


def smaller(ranges: Sequence[FilesRange], step: int) -> Sequence[str]:
    """The borders of parts with these lines, each of at most so many bytes; of very many larger.

    Where files are compressed, two parts beside each other have more bytes than one may have.
    """
    pieces = [Unread(one.file, one.begin, one.end) for one in ranges]
    share = -(-sum(one.end - one.begin for one in pieces) // (MOST_PARTS // 2))
    cut = FilesCut(max(step, share), MOST_PARTS, len(pieces) + MOST_PARTS).take(pieces)
    return tuple(map(text_of, [ranges] if cut.full else cut.parts))
