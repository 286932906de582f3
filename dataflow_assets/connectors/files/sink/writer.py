"""Inside a task: the lines of one slice, in staged files that the driver's commit names."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.files.client import Folder
from dataflow_assets.connectors.files.errors import translate_errors
from dataflow_assets.connectors.files.options import FilesSinkOptions
from dataflow_assets.connectors.files.rejected.error_sink import text
from dataflow_assets.connectors.files.table.commit_log import head, staged_by
from dataflow_assets.contracts import (
    DELETE,
    OFFSET,
    OP,
    Chunk,
    N,
    PartSlice,
    Position,
    Receipt,
    Rejection,
    Sent,
    Slice,
    Ticket,
    Totals,
    Writer,
)
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.failpoints import reach
from dataflow_assets.records.record import NotJson, parse
from dataflow_assets.sdk.rejected_records import error_record, settle
from dataflow_assets.sdk.sink.decide import without_covered
from dataflow_assets.sdk.sink.state import check_owner

SUFFIX = {"none": ".jsonl", "gzip": ".jsonl.gz", "zstd": ".jsonl.zst"}


class FilesStaged(msgspec.Struct):
    """A file that waits for the commit: of lines, or of rejected records."""

    name: str
    rejected: bool = False


class FilesWriter(Writer):
    """Its receipt names the files."""

    def __init__(self, sink: FilesSinkOptions, ticket: Ticket, piece: Slice) -> None:
        self._sink, self._ticket, self._piece = sink, ticket, piece
        self._position = ticket.positions.get(piece.partition)
        self._files = _RollingFiles(sink, staged_by(ticket.target, ticket.epoch))
        self._rejected: list[Rejection] = []
        self._seen: Position | None = None
        self._rows = self._bytes = 0
        self._handed_over = False

    @override
    def write(self, chunk: Chunk) -> None:
        self._seen = chunk.seen
        if (left := without_covered(chunk, self._piece, self._position)) is not None:
            self._write(left)
            reach("files.write")

    def _write(self, chunk: Chunk) -> None:
        lines, refused = _lines(chunk)
        with self._writing():
            self._files.write(lines)
        self._rows += len(lines)
        self._rejected += [*chunk.rejected, *refused]
        self._bytes += chunk.size

    @override
    def close(self, complete: bool) -> Receipt:
        piece, target = self._piece, self._ticket.target
        if isinstance(piece, PartSlice) and not complete:
            self.abort()
            return Receipt(target.branch, piece.partition, None, Totals())
        with self._writing():
            settle(target, piece, self._rejected, self._beside)
            staged = self._files.close()
        self._handed_over = True
        reach("files.staged")
        position = piece.upto if isinstance(piece, PartSlice) else self._seen
        totals = Totals(self._rows, len(self._rejected), self._bytes)
        names = tuple(msgspec.json.encode(one).decode() for one in staged)
        return Receipt(target.branch, piece.partition, position, totals, names)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A newer driver clears away what tasks of this one have staged: that one is named."""
        with translate_errors(self._sink, "write into"):
            try:
                yield
            except FileNotFoundError:
                ticket, newest = self._ticket, head(Folder(self._sink), self._ticket.target)
                state, place = newest.state if newest else None, self._sink.address()
                check_owner(ticket.target.flow, state, ticket.epoch, ticket.run, place)
                raise

    def _beside(self, rejections: Sequence[Rejection]) -> None:
        records = [error_record(self._ticket.target, self._piece, one) for one in rejections]
        self._files.add_rejected(text(records))

    @override
    def abort(self) -> None:
        if not self._handed_over:
            with translate_errors(self._sink, "clear away what was written into"):
                self._files.abort()


def _lines(chunk: Chunk) -> tuple[list[bytes], list[Rejection]]:
    """The lines of a chunk, and what cannot be a line."""
    rows = chunk.rows
    bodies: list[bytes | None] = rows.column("value").to_pylist()
    names = rows.schema.names
    operations = rows.column(OP).to_pylist() if OP in names else [0] * len(bodies)
    lines, refused = [], []
    for row, (body, operation) in enumerate(zip(bodies, operations, strict=True)):
        try:
            lines.append(_line(body, deleted=operation == DELETE))
        except RejectedRecord as error:
            offset = rows.column(OFFSET)[row].as_py()
            n = rows.column(N)[row].as_py() if N in names else 0
            sent = chunk.sent.get(offset, Sent(body))
            refused.append(Rejection(offset, "sink", error.reason, None, n).of(sent))
    return lines, refused


def _line(body: bytes | None, *, deleted: bool) -> bytes:
    """Raises RejectedRecord for what has no line."""
    if body is None or deleted:
        raise RejectedRecord("sink", "files are appended to only: a delete has no line")
    if isinstance(parse(body), NotJson):
        raise RejectedRecord("sink", "the body is not JSON")
    return msgspec.json.format(body, indent=-1) if b"\n" in body or b"\r" in body else body


class _RollingFiles:
    """Files of lines, the next one begun when one is long enough."""

    def __init__(self, sink: FilesSinkOptions, stem: str) -> None:
        self._sink, self._stem = sink, stem
        self._staged: list[FilesStaged] = []
        self._file: Any = None
        self._bytes = 0

    def write(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            if self._file is None:
                self._begin()
            self._file.write(line + b"\n")
            self._bytes += len(line) + 1
            if self._bytes >= self._sink.target_file_size_bytes:
                self._end()

    def _begin(self) -> None:
        kind = self._sink.compression
        name = f"{self._stem}{uuid.uuid4().hex}{SUFFIX[kind]}"
        self._staged.append(FilesStaged(name))
        self._file = Folder(self._sink).create(name)
        if kind != "none":
            self._file = pa.CompressedOutputStream(self._file, kind)

    def _end(self) -> None:
        file, self._file, self._bytes = self._file, None, 0
        file.close()
        Folder(self._sink).sync(self._staged[-1].name)

    def add_rejected(self, content: bytes) -> None:
        name = f"{self._stem}{uuid.uuid4().hex}.jsonl"
        self._staged.append(FilesStaged(name, rejected=True))
        Folder(self._sink).put(name, content)

    def close(self) -> list[FilesStaged]:
        if self._file is not None:
            self._end()
        return self._staged

    def abort(self) -> None:
        self.close()
        for one in self._staged:
            Folder(self._sink).delete(one.name)
        self._staged = []
