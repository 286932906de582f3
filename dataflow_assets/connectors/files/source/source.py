"""The `files` source as a manifest declares it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.files.options import FilesSourceOptions
from dataflow_assets.contracts import Slice, SourceSession, SourceTraits
from dataflow_assets.contracts.reading import ReadsInOrder


class FilesSource(FilesSourceOptions, ReadsInOrder):
    """Each line of the files below a folder is a record, read once; empty lines are left out.

    Files are read in the order of their last change, and new ones are found whatever they are
    called. A file must not change once it is there. Names that begin with `_` or `.` are left out,
    in folders too, so of a folder that the `files` sink writes committed files are read only.
    Files ending in `.gz` and `.zst` are read by one task each; others are cut between lines. Where
    a branch upserts, everything is read in its order by one task: the last line of a key counts.
    """

    type: ClassVar[str] = "files"
    delivers: ClassVar[Literal["messages", "columns", "entries"]] = "entries"
    guarantee: ClassVar[str] = (
        "Each line of each file exactly once: the position names every file that was read, and the "
        "borders of a part are recorded before it is read. A file that changes, or that is gone "
        "before it was read to its end, is an error. At most 20,000 files may lie in the folder "
        "at a time; those that are taken away are forgotten."
    )
    metadata_columns: ClassVar[frozenset[str]] = frozenset({"file", "position"})
    metadata_keys: ClassVar[Mapping[str, str]] = {
        "file": "the file's path below the folder",
        "position": "the byte at which the line begins, of a compressed file once uncompressed",
    }

    @property
    @override
    def traits(self) -> SourceTraits:
        return SourceTraits(poll_seconds=float(self.poll_interval))

    @override
    def open(self, flow: str) -> SourceSession:
        from dataflow_assets.connectors.files.source.session import FilesSourceSession

        return FilesSourceSession(self)

    @override
    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        from dataflow_assets.connectors.files.source.read import read

        return read(self, piece, metadata)
