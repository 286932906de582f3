"""Files cut into parts: ranges of their bytes, fixed before anything is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from dataflow_assets.connectors.files.client import Stored

MOST_RANGES = 1_000  # of one span: the sink's checkpoint records them all
COMPRESSED = {".gz": "gzip", ".zst": "zstd"}


class Range(msgspec.Struct, frozen=True):
    """The lines of a file that begin at a byte `begin <= at < end`; the file as it was planned."""

    name: str
    begin: int
    end: int
    size: int
    changed: int

    @property
    def file(self) -> Stored:
        """The file that it is a range of."""
        return Stored(self.name, self.size, self.changed)


def ranges_of(part: str) -> list[Range]:
    """What `text_of` wrote."""
    return msgspec.json.decode(part, type=list[Range])


def text_of(ranges: Sequence[Range]) -> str:
    """A part as it is recorded."""
    return msgspec.json.encode(ranges).decode()


def compression(name: str) -> str | None:
    """How a file is compressed, by the end of its name."""
    return next((kind for end, kind in COMPRESSED.items() if name.endswith(end)), None)


@dataclass
class Cut:
    """Parts of at most `step` bytes, as many as `most`; compressed files are not divided."""

    step: int
    most: int
    parts: list[list[Range]] = field(default_factory=list)
    done: list[Stored] = field(default_factory=list)
    """The files that are read to their end."""
    begun: tuple[Stored, int] | None = None
    """The file that is not, and up to where it is read."""
    full: bool = False
    _room: int = 0

    def take(self, files: Iterable[tuple[Stored, int]]) -> Cut:
        """Cuts files, each from a byte on, as long as there is room."""
        for file, begin in files:
            at = begin
            while at < file.size and self._open(file.size if compression(file.name) else 1):
                size = file.size - at
                end = file.size if compression(file.name) else at + min(self._room, size)
                self.parts[-1].append(Range(file.name, at, end, file.size, file.changed))
                self._room -= end - at
                at = end
            if at < file.size:
                self.begun = (file, at) if at else None
                self.full = True
                return self
            self.done.append(file)
        return self

    def _open(self, wanted: int) -> bool:
        """Whether there is a part with room for so many bytes, or an empty one."""
        if self._room >= wanted:
            return sum(map(len, self.parts)) < MOST_RANGES
        if len(self.parts) == self.most:
            return False
        self.parts.append([])
        self._room = self.step
        return True


def smaller(part: str, step: int) -> Sequence[str]:
    """The borders of parts with the same lines, each of at most so many bytes."""
    ranges = ranges_of(part)
    pieces = [
        msgspec.structs.replace(one, begin=begin, end=min(begin + step, one.end))
        for one in ranges
        for begin in ([one.begin] if compression(one.name) else range(one.begin, one.end, step))
    ]
    if len(pieces) == len(ranges):
        return (part,)
    return [text_of([one]) for one in pieces]
