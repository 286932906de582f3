"""What a folder is known by: a file in it, made by the first sink that opens the folder."""

from __future__ import annotations

import uuid

from dataflow_assets.connectors.files.client import Folder
from dataflow_assets.errors import PermanentError

NAME = "_dataflow/folder"


def identify(folder: Folder, path: str) -> str:
    """The folder's id; made where there is none.

    Raises:
        PermanentError: the store ignores the condition of a put, on which all commits rest.
    """
    if folder.put_new(NAME, uuid.uuid4().hex.encode()) and folder.put_new(NAME, b""):
        raise PermanentError(
            f"the store of {path} overwrites files that must not be overwritten (it ignores "
            "If-None-Match: *): two drivers could commit at once; use a store with conditional puts"
        )
    return folder.read(NAME).decode()
