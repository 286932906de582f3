"""What is in a folder of a bucket or of the disk."""

from __future__ import annotations

from pyarrow import fs
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO


def files(io: FileIO, url: str) -> list[fs.FileInfo]:
    """What is directly in a folder; nothing where there is none. Called on the driver."""
    if not isinstance(io, PyArrowFileIO):
        raise TypeError("the files of a bucket are reached through Arrow")
    scheme, host, path = io.parse_location(url, io.properties)
    selector = fs.FileSelector(path, allow_not_found=True)
    found: list[fs.FileInfo] = io.fs_by_scheme(scheme, host).get_file_info(selector)
    return found
