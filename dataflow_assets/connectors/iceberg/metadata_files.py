"""The numbered metadata files of tables without a catalog, on S3 or on the disk.

`metadata/v7.metadata.json` holds the table after its seventh commit. A number is taken by whoever
puts its file first, and is never free again: an old file is not deleted, its content is replaced by
the number of the newest file. `metadata/version-hint.text` says the number to readers that know
paths only; it is written behind the commit, so that it may be late, and never names what was not
committed. Where the hint is missing or names nothing, the folder is listed.
"""

from __future__ import annotations

import logging
import re
import uuid
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from pyarrow import fs
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.typedef import Identifier, Properties

from dataflow_assets.connectors.iceberg.bucket import S3, BucketConnection
from dataflow_assets.connectors.iceberg.hint import HINT
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.failpoints import reach
from dataflow_assets.sdk.conditional_put import put_new
from dataflow_assets.sdk.durable_files import make_folder, sync

log = logging.getLogger(__name__)

KEPT = 100  # metadata files that stay readable, as the log in the metadata names them
_METADATA = ".metadata.json"
_NUMBERED = re.compile(rf"v(\d+){re.escape(_METADATA)}")
_JUMPS = 1_000  # from an emptied file to the one that it names


class MetadataFiles:
    """Metadata files of all tables below one bucket and prefix, as one catalog sees them.

    Used on the driver. Threads may share it: what it remembers is only where to begin to look.
    """

    def __init__(self, bucket: BucketConnection, properties: Properties) -> None:
        self._bucket, self._properties = bucket, properties
        self._known: dict[Identifier, tuple[int, TableMetadata]] = {}

    def newest(self, name: Identifier) -> tuple[int, TableMetadata] | None:
        """The newest number of a table, and its metadata; None where there is no table.

        Goes from the newest that is known, hinted at or listed, number by number to the last one.
        Raises PermanentError where the newest file cannot be read, or is another program's.
        """
        cached = self._known.get(name)
        latest = self._follow(name, cached[0] + 1 if cached else self._hinted_number(name), cached)
        if latest is None and (listed := self._highest_number(name)):
            latest = self._follow(name, listed, None)
            if latest is None:
                raise PermanentError(
                    f"{self.path(name, listed)} cannot be read, and is the newest metadata file "
                    "of a table: restore the file, or move its folder away and begin again"
                )
        if latest is not None:
            self._known[name] = latest
        return latest

    def read(self, name: Identifier, number: int) -> bytes | None:
        """The content of a numbered file; None where the number is free."""
        try:
            return self._content(self.path(name, number))
        except FileNotFoundError:
            return None

    def put(self, name: Identifier, number: int, metadata: TableMetadata) -> bool:
        """Takes the number with this metadata, durably; False where another driver has it."""
        text = metadata.model_dump_json(by_alias=True, exclude_none=True).encode()
        path = self.path(name, number)
        if self._bucket.on_s3:
            is_new = put_new(self._bucket.store, path[len(S3) :], text)
        else:
            is_new = _link(path, text)
        if is_new:
            self._known[name] = number, metadata
        return is_new

    def announce(self, name: Identifier, number: int) -> None:
        """Writes the number for readers by path, and into the oldest file for late drivers.

        Called behind each commit. The table does not need either: a failure is a warning.
        """
        try:
            if number > KEPT + 1:
                self._write(self.path(name, number - KEPT - 1), str(number).encode())
            self._hint(name, number)
        except OSError as error:
            log.warning("%s: its %s is late: %s", self._bucket.location(name), HINT, error)

    def path(self, name: Identifier, number: int) -> str:
        return f"{self._folder(name)}/v{number}.metadata.json"

    def io(self, location: str) -> FileIO:
        """PyIceberg's access to the store of a location, with the catalog's properties."""
        return load_file_io(dict(self._properties), location)

    def _follow(
        self, name: Identifier, number: int, found: tuple[int, TableMetadata] | None
    ) -> tuple[int, TableMetadata] | None:
        """From a number on to the last one that is there."""
        for _ in range(_JUMPS):
            text = self.read(name, number)
            if text is None:
                break
            if text.isdigit():  # emptied: the file that it names was the newest then
                number = max(int(text), number + 1)
                continue
            found = number, TableMetadataUtil.parse_raw(text.decode())
            number += 1
        else:
            raise TransientError(f"{self.path(name, number)}: others commit faster than it is read")
        return found

    def _hinted_number(self, name: Identifier) -> int:
        with suppress(FileNotFoundError, ValueError):
            return int(self._content(f"{self._folder(name)}/{HINT}"))
        return 0

    def _highest_number(self, name: Identifier) -> int:
        """The highest number in the folder; 0 where there is no table.

        Raises PermanentError for a table of another program, whose files have other names.
        """
        folder = self._folder(name)
        names = [one.base_name for one in in_folder(self.io(folder), folder)]
        numbers = [int(match[1]) for match in map(_NUMBERED.fullmatch, names) if match]
        foreign = [one for one in names if one.endswith(_METADATA)]
        if foreign and not numbers:
            raise PermanentError(
                f"{folder} has {max(foreign)}, of a table that another program "
                "has made there: move it away, or choose another prefix"
            )
        return max(numbers, default=0)

    def _content(self, path: str) -> bytes:
        with self.io(path).new_input(path).open() as file:
            return file.read()

    def _hint(self, name: Identifier, number: int) -> None:
        """Writes the hint; of drivers that write at once the last one leaves the newest number.

        Each looks behind its own writing whether there is a newer one.
        """
        if self._hinted_number(name) > number:
            return
        while True:
            self._write(f"{self._folder(name)}/{HINT}", str(number).encode())
            reach("iceberg.bucket-hinted")
            if self.read(name, number + 1) is None:
                return
            number += 1

    def _write(self, path: str, content: bytes) -> None:
        if not self._bucket.on_s3:
            _write_unfinished(path, content).rename(_local(path))
            return
        with self.io(path).new_output(path).create(overwrite=True) as file:
            file.write(content)

    def _folder(self, name: Identifier) -> str:
        return f"{self._bucket.location(name)}/metadata"


def in_folder(io: FileIO, url: str) -> list[fs.FileInfo]:
    """Returns what is directly in a folder; nothing where there is none. Called on the driver."""
    if not isinstance(io, PyArrowFileIO):
        raise TypeError("the files of a bucket are reached through Arrow")
    scheme, host, path = io.parse_location(url, io.properties)
    selector = fs.FileSelector(path, allow_not_found=True)
    system = io.fs_by_scheme(scheme, host)
    infos: list[fs.FileInfo]
    try:
        infos = system.get_file_info(selector)
    except FileNotFoundError:
        # Somebody has made the folder after Arrow had not found it, and before it looked again
        # whether there is none.
        infos = system.get_file_info(selector)
    return infos


def _local(path: str) -> Path:
    return Path(urlsplit(path).path)


def _link(path: str, content: bytes) -> bool:
    """A file of the disk that must not exist yet, whole and durable from its first moment.

    The files that it names are durable by then: whoever writes one sees to that.
    """
    unfinished = _write_unfinished(path, content)
    try:
        _local(path).hardlink_to(unfinished)
    except FileExistsError:
        return False
    finally:
        unfinished.unlink()
    sync(_local(path).parent)
    return True


def _write_unfinished(path: str, content: bytes) -> Path:
    """A durable file under a name that no reader looks for."""
    folder = _local(path).parent
    make_folder(folder)
    unfinished = folder / f".{uuid.uuid4().hex}"
    unfinished.write_bytes(content)
    sync(unfinished)
    return unfinished
