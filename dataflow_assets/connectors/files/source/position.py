"""The position of a reader of a folder: which files it has read, as they were then.

A file is remembered by 16 bytes, half of them its name and half its size and time of change: so a
file that comes late is found whatever it is called, and one that changed is told from a new one.
The parts of a span carry what the span adds: the files before it are stored once.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from dataflow_assets.connectors.files.client import FilesStored
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.decoding import decode_json

MOST_FILES = 20_000  # their marks are stored with each commit
_HALF = 8  # bytes


class _Text(msgspec.Struct, omit_defaults=True):
    read: str = ""
    file: str = ""
    at: int = 0
    version: str = ""


@dataclass(frozen=True)
class FilesPosition:
    """`read`: the files that are done, as by `marks`.

    `file` is read up to the byte `at`; `version` is what it looked like then, as by `marks`.
    """

    read: Mapping[bytes, bytes] = field(default_factory=dict)
    file: str = ""
    at: int = 0
    version: str = ""

    @classmethod
    def parse(cls, text: object) -> FilesPosition:
        """Returns what `text` wrote; None for nothing. Raises PermanentError for anything else."""
        try:
            fields = decode_json(str(text or "{}"), _Text)
            data = base64.b64decode(fields.read, validate=True)
        except (msgspec.MsgspecError, ValueError):
            raise PermanentError(f"{text} is not a position in a folder of files") from None
        halves = [data[at : at + _HALF] for at in range(0, len(data), _HALF)]
        done = dict(zip(halves[::2], halves[1::2], strict=True))
        return cls(done, fields.file, fields.at, fields.version)

    @classmethod
    def after(
        cls, files: Iterable[FilesStored], partial: tuple[FilesStored, int] | None = None
    ) -> FilesPosition:
        """All of these files are read, and of one that is begun the lines before a byte."""
        done = dict(map(marks, files))
        if partial is None:
            return cls(done)
        file, at = partial
        return cls(done, file.name, at, marks(file)[1].hex())

    def text(self) -> str:
        data = b"".join(name + version for name, version in sorted(self.read.items()))
        fields = _Text(base64.b64encode(data).decode(), self.file, self.at, self.version)
        return msgspec.json.encode(fields).decode()

    def then(self, added: FilesPosition) -> FilesPosition:
        return replace(added, read={**self.read, **added.read})

    def unread_names(self, other: FilesPosition) -> set[bytes]:
        """The files, by the marks of their names, of which the other one has read more."""
        names = {*other.read} - {*self.read}
        partial = mark(other.file)
        if (
            other.file
            and partial not in self.read
            and (self.file != other.file or self.at < other.at)
        ):
            names.add(partial)
        return names

    def has(self, file: FilesStored) -> bool:
        """Returns whether the file is done, whatever it looks like now."""
        return mark(file.name) in self.read

    def has_changed(self, file: FilesStored) -> bool:
        """Returns whether the file is done or begun, and looked different then."""
        name, version = marks(file)
        seen = bytes.fromhex(self.version) if file.name == self.file else self.read.get(name)
        return seen not in (None, version)


def marks(file: FilesStored) -> tuple[bytes, bytes]:
    """Returns what a file is remembered by: its name, and what it looks like."""
    return mark(file.name), mark(f"{file.size} {file.changed}")


def mark(text: str) -> bytes:
    """A name, or a version, in 8 bytes."""
    return hashlib.blake2b(text.encode(), digest_size=_HALF).digest()
