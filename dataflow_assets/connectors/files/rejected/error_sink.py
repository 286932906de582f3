"""Error records as lines of files: those of an error sink, and those beside the data files.

At least once, known by their ids: the same records in the same order are one file, and an id that
is there twice counts once. What was replayed is noted in files of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec
from typing_extensions import override

from dataflow_assets.connectors.files.client import Folder, is_hidden
from dataflow_assets.connectors.files.errors import translate_errors
from dataflow_assets.connectors.files.options import FilesConnection
from dataflow_assets.connectors.files.table.identity import refuse_own, refuse_within
from dataflow_assets.contracts import Entry, EntryName, ErrorRecord, ErrorStore
from dataflow_assets.errors import PermanentError
from dataflow_assets.failpoints import reach
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.sdk.rejected_records import entry, waiting

BESIDE = "_rejected"
_REPLAYED = "_dataflow/replayed"
_BLANKS = bytes.maketrans(b"\r\n", b"  ")


class FilesErrors(ErrorStore):
    """The error records below `within`; of an empty one, those that readers of the folder see."""

    def __init__(self, options: FilesConnection, within: str) -> None:
        self._options, self._within = options, within

    @override
    def prepare(self) -> None:
        with translate_errors(self._options, "reach the error sink"):
            Folder(self._options).check()
            refuse_own(self._options)
            refuse_within(self._options)

    @override
    def store(self, records: Sequence[ErrorRecord]) -> None:
        reach("files.errors")
        names = "\n".join(f"{one.id}@{one.reading}" for one in records)
        name = f"errors-{hashlib.sha256(names.encode()).hexdigest()[:32]}.jsonl"
        with translate_errors(self._options, "store rejected records in the error sink"):
            Folder(self._options).put(f"{self._within}{name}", text(records))
        reach("files.errors-stored")

    @override
    def pending(self, flow: str, since: datetime | None, most: int) -> list[Entry]:
        with translate_errors(self._options, "read the rejected records of"):
            folder = Folder(self._options)
            names = (name for one in folder.files(_REPLAYED) for name in _names(folder, one.name))
            done = dict(sorted(names, key=lambda name: name[1]))
            lines = (_entry(at, line, flow) for at, line in self._lines(folder))
            return waiting(filter(None, lines), since, most, done)

    def _lines(self, folder: Folder) -> Iterator[tuple[str, bytes]]:
        """The lines that are not empty, and where each of them is."""
        for file in folder.files(self._within.rstrip("/")):
            if self._within or not is_hidden(file.name):
                for number, line in enumerate(folder.read(file.name).splitlines(), 1):
                    if line:
                        yield f"{self._options.path}/{file.name}, line {number}", line

    @override
    def mark_replayed(self, entries: Sequence[Entry]) -> None:
        content = msgspec.json.encode([one.name for one in entries])
        name = f"{_REPLAYED}/{hashlib.sha256(content).hexdigest()[:32]}.json"
        with translate_errors(self._options, "note replayed records in"):
            Folder(self._options).put(name, content)


def text(records: Sequence[ErrorRecord]) -> bytes:
    """One line for each record: in JSON a line break is a blank, or it is escaped."""
    return b"".join(one.body.translate(_BLANKS) + b"\n" for one in records)


def _names(folder: Folder, name: str) -> list[EntryName]:
    return msgspec.json.decode(folder.read(name), type=list[tuple[str, int]])


class _FilesOrigin(msgspec.Struct):
    flow: str


class _RejectedLine(msgspec.Struct):
    error: _FilesOrigin


def _entry(place: str, line: bytes, flow: str) -> tuple[datetime, Entry] | None:
    """A line read back; None for another flow's.

    Raises:
        PermanentError: the line is no error record; it might have been one.
    """
    try:
        if decode_json(line, _RejectedLine).error.flow != flow:
            return None
        return entry(line)
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
        raise PermanentError(
            f"{place}, cannot be read as an error record ({error}): fix the line, or move the "
            "file out of the folder"
        ) from None
