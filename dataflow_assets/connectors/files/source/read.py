"""Reading inside a task: the lines of a part."""

from __future__ import annotations

import gzip
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from dataflow_assets.connectors.files.client import FilesStored, Folder
from dataflow_assets.connectors.files.errors import translate_errors
from dataflow_assets.connectors.files.options import FilesSourceOptions
from dataflow_assets.connectors.files.source.planning import FilesRange, compression, ranges_of
from dataflow_assets.contracts import PartSlice, Slice, metadata_column
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.failpoints import reach
from dataflow_assets.sdk.place import constant, with_place

BLOCK = 1 << 20  # bytes of one read
_ROWS = 10_000  # of one batch
BATCH_BYTES = 8 * 1024 * 1024  # of lines, with which a batch is full
LONGEST_LINE = 1 << 30  # bytes; Arrow's batches hold less than twice as many
_METADATA = {"file": pa.string(), "position": pa.int64()}

_TOO_LONG = (
    "the file {name}: the line that begins at byte {at} is longer than {most} bytes, which no "
    "record may be: take the file out of the folder, and write it under another name with a "
    "record on each line"
)

Line = tuple[int, bytes]
"""The byte at which it begins, and the line without its end."""


def read(
    source: FilesSourceOptions, piece: Slice, metadata: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    """The lines of a part; ends only when every file was what it had been when it was planned."""
    assert isinstance(piece, PartSlice)  # noqa: S101 - this source plans nothing else
    folder = Folder(source)
    for one in ranges_of(piece.part):
        with translate_errors(source, f"read {one.name} of"):
            try:
                for rows in _batches(_lines_of(folder, one)):
                    reach("files.read")
                    yield _batch(one.name, rows, metadata)
            except (OSError, ValueError):
                check_unchanged(folder, one)  # it may be gone, or written still
                raise
            check_unchanged(folder, one)


def check_unchanged(folder: Folder, one: FilesRange) -> None:
    """Raises TransientError where a file is not what it was when it was planned."""
    if reason := why_changed(one, folder.stat(one.name)):
        raise TransientError(reason)


def why_changed(one: FilesRange, now: FilesStored | None) -> str:
    """Why a range cannot be read any more as it was planned, and the ways out; empty where it can.

    Args:
        one: as planned.
        now: its file; None where there is none.
    """
    if now == one.file:
        return ""
    became = f"has {now.size} bytes now instead of {one.size}" if now else "is gone"
    return (
        f"the file {one.name} {became if not now or now.size != one.size else 'was replaced'} "
        "since its read was planned: put it back as it was, or start from earliest with "
        "table: truncate, or from latest without the rest of it. Files must not change once "
        "they are in the folder: write them elsewhere and rename them, or set minAgeSeconds"
    )


def _batch(name: str, rows: list[Line], metadata: frozenset[str]) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {"file": [name] * len(rows), "position": [at for at, _ in rows]}
    fields = [pa.field("body", pa.binary())]
    arrays = [pa.array([line for _, line in rows], pa.binary())]
    for key in sorted(metadata & columns.keys()):
        fields.append(metadata_column(key, _METADATA[key]))
        arrays.append(pa.array(columns[key], _METADATA[key]))
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    at = pa.array(columns["position"], pa.int64())
    return with_place(batch, {"file": constant(name, len(rows)), "byte": at})


def _batches(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """The lines that are not blank, as many at once as a task can hold, however long they are."""
    rows: list[Line] = []
    size = 0
    for line in lines:
        if not line[1].strip():
            continue
        rows.append(line)
        size += len(line[1])
        if size >= BATCH_BYTES or len(rows) == _ROWS:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _lines_of(folder: Folder, one: FilesRange) -> Iterator[Line]:
    with folder.open(one.name) as file:
        kind = compression(one.name)
        if kind == "gzip":
            yield from _lines(one.name, _unzip(file), 0, None)
        elif kind:
            with pa.CompressedInputStream(file, kind) as plain:
                yield from _lines(one.name, _blocks(plain), 0, None)
        elif one.begin:
            # What begins before the range is the end of a line of the range before it.
            file.seek(one.begin - 1)
            yield from islice(_lines(one.name, _blocks(file), one.begin - 1, one.end), 1, None)
        else:
            yield from _lines(one.name, _blocks(file), 0, one.end)


def _blocks(file: Any) -> Iterator[bytes]:
    while block := file.read(BLOCK):
        yield block


def _unzip(file: Any) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=pa.BufferedInputStream(file, BLOCK)) as plain:
            yield from _blocks(plain)
    except (EOFError, zlib.error) as error:
        raise gzip.BadGzipFile(str(error)) from None


def _lines(name: str, blocks: Iterable[bytes], at: int, end: int | None) -> Iterator[Line]:
    """The lines that begin before `end`, of a file read from `at` on."""
    parts: list[bytes] = []  # of the line that has not ended yet
    size = 0
    for block in blocks:
        first, *others = block.split(b"\n")
        parts.append(first)
        size += len(first)
        if size > LONGEST_LINE:
            raise PermanentError(_TOO_LONG.format(name=name, at=at, most=LONGEST_LINE))
        if not others:
            continue
        *whole, rest = others
        for line in (b"".join(parts), *whole):
            if end is not None and at >= end:
                return
            yield _without_mark(at, line) if at == 0 else (at, line)
            at += len(line) + 1
        parts, size = [rest], len(rest)
    rest = b"".join(parts)
    if rest and (end is None or at < end):
        yield _without_mark(at, rest) if at == 0 else (at, rest)


def _without_mark(at: int, line: bytes) -> Line:
    """The first line of a file without the byte order mark that some editors write."""
    marks = len(BOM_UTF8) if line.startswith(BOM_UTF8) else 0
    return at + marks, line[marks:]
