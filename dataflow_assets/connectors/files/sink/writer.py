"""Inside a task: the lines of one slice, in staged files that the driver's commit names."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.files.client import Folder
from dataflow_assets.connectors.files.errors import translate_errors
from dataflow_assets.connectors.files.options import FilesSinkOptions
from dataflow_assets.connectors.files.rejected.error_sink import text
from dataflow_assets.connectors.files.table.commit_log import head, staged_by
from dataflow_assets.contracts import DELETE, OP, Chunk, Rejection, Slice, Ticket
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.failpoints import reach
from dataflow_assets.records.record import NotJson, parse
from dataflow_assets.sdk.rejected_records import error_record, settle
from dataflow_assets.sdk.sink.slice_commit import SliceCommit, SliceStore, rejections
from dataflow_assets.sdk.sink.state import check_owner

SUFFIX = {"none": ".jsonl", "gzip": ".jsonl.gz", "zstd": ".jsonl.zst"}


class FilesStaged(msgspec.Struct):
    """A file that waits for the commit: of lines, or of rejected records."""

    name: str
    rejected: bool = False


class FilesSliceStore(SliceStore):
    """Files of the lines; the receipt names them."""

    def __init__(self, sink: FilesSinkOptions, ticket: Ticket, piece: Slice) -> None:
        self._sink, self._ticket, self._piece = sink, ticket, piece
        self._files = _RollingFiles(sink, staged_by(ticket.target, ticket.epoch))
        self._handed_over = False

    @override
    def add(self, chunk: Chunk) -> Sequence[Rejection]:
        lines, refused = _lines(chunk.rows)
        self._files.write(lines)
        reach("files.write")
        return rejections(chunk.rows, refused, chunk.sent)

    @override
    def commit(self, commit: SliceCommit) -> SliceCommit:
        settle(self._ticket.target, self._piece, commit.rejected, self._beside)
        staged = self._files.close()
        self._handed_over = True
        reach("files.staged")
        return replace(commit, staged=tuple(msgspec.json.encode(one).decode() for one in staged))

    @override
    @contextmanager
    def errors(self) -> Iterator[None]:
        """A newer driver clears away what tasks of this one have staged: that one is named."""
        with translate_errors(self._sink, "write into"):
            try:
                yield
            except FileNotFoundError:
                ticket, newest = self._ticket, head(Folder(self._sink), self._ticket.target)
                state, place = newest.state if newest else None, self._sink.address()
                check_owner(ticket.target.flow, state, ticket.epoch, ticket.run, place)
                raise

    def _beside(self, found: Sequence[Rejection]) -> None:
        records = [error_record(self._ticket.target, self._piece, one) for one in found]
        self._files.add_rejected(text(records))

    @override
    def end(self) -> None:
        if not self._handed_over:
            with translate_errors(self._sink, "clear away what was written into"):
                self._files.abort()


def _lines(rows: pa.RecordBatch) -> tuple[list[bytes], dict[int, str]]:
    """The lines of rows, and by the index of a row why it cannot be a line."""
    bodies: list[bytes | None] = rows.column("value").to_pylist()
    has_operations = OP in rows.schema.names
    operations = rows.column(OP).to_pylist() if has_operations else [0] * len(bodies)
    lines, refused = [], {}
    for row, (body, operation) in enumerate(zip(bodies, operations, strict=True)):
        try:
            lines.append(_line(body, deleted=operation == DELETE))
        except RejectedRecord as error:
            refused[row] = error.reason
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
