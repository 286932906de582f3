"""What a folder is known by: a file in it, made by the first sink that opens the folder."""

from __future__ import annotations

import uuid

from dataflow_assets.connectors.files.client import Folder
from dataflow_assets.connectors.files.options import FilesConnection
from dataflow_assets.connectors.files.table.nesting import (
    IDENTITY,
    refuse_around,
    refuse_within,
)
from dataflow_assets.errors import PermanentError


def identify(options: FilesConnection) -> str:
    """The folder's id; made where there is none.

    Raises:
        PermanentError: the store ignores the condition of a put, on which all commits rest; or the
            folder lies in that of another sink, or around it.
    """
    folder, path = Folder(options), options.path
    if folder.stat(IDENTITY) is None:
        refuse_within(options)
        refuse_around(options)
    if folder.put_new(IDENTITY, uuid.uuid4().hex.encode()) and folder.put_new(IDENTITY, b""):
        raise PermanentError(
            f"the store of {path} overwrites files that must not be overwritten (it ignores "
            "If-None-Match: *): two drivers could commit at once; use a store with conditional puts"
        )
    return folder.read(IDENTITY).decode()
