"""The parts of a span: files of frozen rows, by name."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa

from dataflow_assets.connectors.files.options import FilesConnection
from dataflow_assets.contracts import PartSlice
from dataflow_assets.views.files import StateFiles
from dataflow_assets.views.manifest import File
from dataflow_assets.views.output import batches


class Part(msgspec.Struct, frozen=True):
    """What the sink's checkpoint says of a part."""

    flow: str
    file: File | None = None
    """None: nothing has changed, and the position moves all the same."""

    def text(self) -> str:
        """As it is stored."""
        return msgspec.json.encode(self).decode()


def read(location: FilesConnection, piece: PartSlice) -> Iterator[pa.RecordBatch]:
    """The rows of a part. Raises PermanentError where its file is lost or damaged."""
    part = msgspec.json.decode(piece.part, type=Part)
    if part.file is not None:
        yield from batches(StateFiles(location, part.flow).read(part.file.name, part.file.digest))
