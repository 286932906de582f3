"""The one module that talks to the store: a folder of S3 or of the disk, by Arrow's file systems.

Names are paths below the folder. What a sink relies on: `put_new` creates a file that must not
exist yet or says that it does, whoever else tries; `publish` is repeatable.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pyarrow import fs

from dataflow_assets.connectors.files.options import FilesConnection
from dataflow_assets.errors import PermanentError
from dataflow_assets.failpoints import reach
from dataflow_assets.sdk.conditional_put import put_new
from dataflow_assets.sdk.durable_files import make_folder, sync
from dataflow_assets.sdk.local_folders import ROOT, outside, within_root

log = logging.getLogger(__name__)
UNFINISHED = "_dataflow/unfinished"
"""What is put on a disk is there until it is whole; what a crash leaves there may be deleted."""
_SECOND = 10**9  # nanoseconds


@dataclass(frozen=True)
class FilesStored:
    """A file of the folder as it is now; `changed`: nanoseconds since 1970, of S3 whole seconds."""

    name: str
    size: int
    changed: int


class Folder:
    """One folder, connected."""

    def __init__(self, folder: FilesConnection) -> None:
        self._options, self._root = folder, folder.root
        self._files: Any = _s3(folder) if folder.on_s3 else fs.LocalFileSystem()

    def files(self, below: str = "") -> list[FilesStored]:
        """All files below a folder of the folder, by name; none where there is no such folder.

        On a disk, links to folders are not followed: they may lead round in circles.
        """
        base = f"{self._root}/{below}".rstrip("/")
        s3 = self._options.on_s3
        chosen = fs.FileSelector(base, True, recursive=True) if s3 else list(_paths(base))
        stored = (self._as_stored(info) for info in self._files.get_file_info(chosen))
        return sorted((one for one in stored if one), key=lambda one: one.name)

    def check(self) -> None:
        """Raises OSError where the bucket is missing or may not be seen.

        PermanentError where a link leads a folder of the disk out of DATAFLOW_FILES by now.
        """
        if not self._options.on_s3 and not within_root(self._root):
            raise PermanentError(outside(self._root))
        if self._options.on_s3:
            bucket = self._root.partition("/")[0]
            self._files.get_file_info(fs.FileSelector(f"{bucket}/{uuid.uuid4().hex}", True))
            if self._files.get_file_info(bucket).type == fs.FileType.NotFound:
                raise FileNotFoundError(f"Bucket '{bucket}' does not exist")

    def stat(self, name: str) -> FilesStored | None:
        """A file as it is now; None where there is none."""
        return self._as_stored(self._files.get_file_info(self._path(name)))

    def _as_stored(self, info: fs.FileInfo) -> FilesStored | None:
        if info.type != fs.FileType.File:
            return None
        changed = info.mtime_ns or 0
        if self._options.on_s3:  # some stores list milliseconds, and tell of one object seconds
            changed -= changed % _SECOND
        return FilesStored(info.path[len(self._root) + 1 :], info.size, changed)

    def read(self, name: str) -> bytes:
        with self.open(name) as file:
            content: bytes = file.read()
        return content

    def open(self, name: str) -> Any:
        return self._files.open_input_file(self._path(name))

    def create(self, name: str) -> Any:
        """A file to write to; it is there once it is closed."""
        self._parent(name)
        return self._files.open_output_stream(self._path(name), compression=None)

    def sync(self, name: str) -> None:
        """Makes a file that was closed survive a loss of power; on S3 it does already."""
        if not self._options.on_s3:
            sync(Path(self._path(name)))
            self._sync_parent(name)

    def put(self, name: str, content: bytes) -> None:
        """Writes a file whole, over the one of this name. Durable when it returns."""
        if self._options.on_s3:
            with self.create(name) as file:
                file.write(content)
            return
        self._parent(name)
        self._write_unfinished(content).rename(self._path(name))
        self._sync_parent(name)

    def put_new(self, name: str, content: bytes) -> bool:
        """Writes a file that must not exist yet; False where it does. Durable when it returns."""
        if self._options.on_s3:
            return put_new(self._options.store, self._path(name), content)
        self._parent(name)
        unfinished = self._write_unfinished(content)
        try:
            Path(self._path(name)).hardlink_to(unfinished)
        except FileExistsError:
            return False
        finally:
            unfinished.unlink()
        self._sync_parent(name)
        return True

    def _write_unfinished(self, content: bytes) -> Path:
        """A durable file of the disk that has no name yet: a crash leaves it where nobody looks."""
        name = f"{UNFINISHED}/{uuid.uuid4().hex}"
        self._parent(name)
        path = Path(self._path(name))
        path.write_bytes(content)
        sync(path)
        return path

    def publish(self, staged: str, final: str) -> None:
        """Gives a staged file its final name, at most once.

        Where the staged file is gone that was done, and readers may have taken the file since.
        """
        if self._options.on_s3:
            self._copy(staged, final)
            reach("files.copied")
            self.delete(staged)
            return
        self._parent(final)
        with suppress(FileNotFoundError):
            Path(self._path(staged)).rename(self._path(final))
        self._sync_parent(final)

    def _copy(self, staged: str, final: str) -> None:
        """Nothing where that was done: a copy anew would be a changed file to who has read it."""
        if self.stat(staged) is None or self.stat(final) is not None:
            return
        try:
            self._files.copy_file(self._path(staged), self._path(final))
        except OSError:
            if self.stat(staged) is not None:  # else another driver was first
                raise

    def delete(self, name: str) -> None:
        """Takes a file away; nothing where there is none. Durable when it returns."""
        with suppress(FileNotFoundError):
            self._files.delete_file(self._path(name))
            self._sync_parent(name)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _parent(self, name: str) -> None:
        if not self._options.on_s3:
            make_folder(Path(self._path(name)).parent)

    def _sync_parent(self, name: str) -> None:
        if not self._options.on_s3:
            sync(Path(self._path(name)).parent)


def _paths(folder: str) -> Iterator[str]:
    """The files of the disk below a folder; those that nobody can name or may read are left out."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _paths(entry.path)
        elif reason := _left_out(entry):
            _tell(entry.path.encode(errors="backslashreplace").decode(), reason)
        else:
            yield entry.path


def _left_out(entry: os.DirEntry[str]) -> str:
    if os.fsencode(entry.path).decode(errors="ignore") != entry.path:
        return "its name is not UTF-8"
    if entry.is_symlink() and entry.is_dir():
        return "links to folders are not followed"
    if entry.is_symlink() and not within_root(entry.path):
        return f"it is a link that leads out of the folder {ROOT}"
    return ""


@lru_cache(maxsize=1_000)
def _tell(path: str, reason: str) -> None:
    """Once in the life of a process, however often the folder is listed."""
    log.warning("%s is left out: %s", path, reason)


def _s3(folder: FilesConnection) -> fs.S3FileSystem:
    scheme, _, host = (folder.endpoint or "").rpartition("://")
    keys: dict[str, Any] = {}
    if folder.access_key and folder.secret_access_key:
        keys["access_key"] = folder.access_key.get_secret_value()
        keys["secret_key"] = folder.secret_access_key.get_secret_value()
    return fs.S3FileSystem(
        **keys,
        region=folder.region,
        scheme=scheme or "https",
        endpoint_override=host or None,
        force_virtual_addressing=not folder.s3_path_style_access,
        connect_timeout=10,
        request_timeout=60,
    )


def is_hidden(name: str) -> bool:
    """Returns whether readers leave a file out: `_...` and `....` in any part of its path."""
    return any(part.startswith(("_", ".")) for part in name.split("/"))


def visible(files: list[FilesStored]) -> Iterator[FilesStored]:
    return (one for one in files if not is_hidden(one.name) and one.size)
