"""Files and folders of the disk that survive a loss of power."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

_DISK = "file"


def sync(path: Path) -> None:
    """Makes what was written to the file or the folder survive a loss of power.

    Called on the driver and in tasks, once for each file; raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """The folder is there, also after a loss of power; so are those above it."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync_written(url: str, root: str) -> None:
    """Makes a closed file durable with its name, and the folders that lead to it.

    Called in tasks and on the driver for each file of a table, before a commit names it.

    Args:
        url: of the file; nothing happens where it is in an object store, which keeps what it took.
        root: the folder, as a URL, that is known to be durable.
    """
    parts = urlsplit(url)
    if parts.scheme != _DISK:
        return
    path, top = Path(parts.path), Path(urlsplit(root).path)
    sync(path)
    for folder in path.parents:
        sync(folder)
        if folder in (top, *top.parents):
            return
