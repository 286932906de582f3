"""The identity of a folder, and a check that folders of flows do not lie in one another.

A reader of the outer one would read both.

`dataflow check` says so of manifests that it sees together; here it is found out on opening, by the
file that each folder of a sink has.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress

from dataflow_assets.connectors.files.client import Folder
from dataflow_assets.connectors.files.options import FilesConnection
from dataflow_assets.errors import PermanentError

IDENTITY = "_dataflow/folder"


def refuse_own(options: FilesConnection) -> None:
    """Raises PermanentError where the folder is that of a sink: error records are no rows."""
    if Folder(options).stat(IDENTITY):
        raise PermanentError(
            f"{options.path} is what a files sink writes to: choose a folder for error records "
            "alone"
        )


def refuse_within(options: FilesConnection) -> None:
    """Raises PermanentError where a folder above is that of a sink."""
    for outer in _above(options):
        with suppress(OSError):  # credentials may be for the folder alone
            if Folder(outer).stat(IDENTITY):
                raise PermanentError(_overlap(options.path, f"in {outer.path}"))


def refuse_around(options: FilesConnection) -> None:
    """Raises PermanentError where a folder below is that of a sink."""
    for one in Folder(options).files():
        if one.name.endswith(f"/{IDENTITY}"):
            inner = one.name.removesuffix(f"/{IDENTITY}")
            raise PermanentError(_overlap(options.path, f"around {options.path}/{inner}"))


def _overlap(path: str, place: str) -> str:
    return (
        f"{path} lies {place}, which a files sink writes to: who reads the outer folder would read "
        "the records of both; choose folders side by side"
    )


def _above(options: FilesConnection) -> Iterator[FilesConnection]:
    path = options.path
    while len((path := path.rpartition("/")[0]).removeprefix("s3://").split("/")) > 1:
        yield options.model_copy(update={"path": path})


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
