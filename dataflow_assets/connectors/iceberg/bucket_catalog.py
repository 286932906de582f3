"""Tables without a catalog: of each, the newest numbered metadata file in its folder is the truth.

`metadata/v7.metadata.json` holds the table after its seventh commit. A commit puts the next number,
which must not exist yet: of two drivers one does, wherever they run, and the other one finds the
number taken. `metadata/version-hint.text` says the number to readers that know paths only; it
is written behind the commit, so that it may be late, and never names what was not committed. Where
the hint is missing or names nothing, the folder is listed: a table is never made over another one.

A number is never free again: an old file is not deleted, its content is replaced by the number
of the newest file. A driver that was away for long cannot commit where others have been.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs
from pyiceberg import exceptions as ice
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from typing_extensions import override

from dataflow_assets.connectors.iceberg.bucket import S3, BucketConnection
from dataflow_assets.connectors.iceberg.folder import files
from dataflow_assets.connectors.iceberg.hint import HINT
from dataflow_assets.connectors.iceberg.table_catalog import TableCatalog
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.failpoints import reach
from dataflow_assets.sdk.conditional_put import put_new
from dataflow_assets.sdk.durable_files import make_folder, sync

log = logging.getLogger(__name__)

KEPT = 100  # metadata files that stay readable, as the log in the metadata names them
_METADATA = ".metadata.json"
_NUMBERED = re.compile(rf"v(\d+){re.escape(_METADATA)}")
_JUMPS = 1_000  # from an emptied file to the one that it names


class BucketCatalog(TableCatalog, NoopCatalog):
    """The tables below one bucket and prefix. Threads may share it."""

    def __init__(self, name: str, bucket: BucketConnection, **properties: str) -> None:
        super().__init__(name, **properties)
        self.connected_at = time.monotonic()
        self._bucket = bucket
        self._known: dict[Identifier, tuple[int, TableMetadata]] = {}

    @override
    def load_table(self, identifier: str | Identifier) -> Table:
        name = self.identifier_to_tuple(identifier)
        number, metadata = self._newest(name)
        return self._table(name, number, metadata)

    @override
    def table_exists(self, identifier: str | Identifier) -> bool:
        return self.table(self.identifier_to_tuple(identifier)) is not None

    @override
    def create_table(
        self,
        identifier: str | Identifier,
        schema: Any,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """A table with field ids of PyIceberg's; raises TableAlreadyExistsError."""
        name = self.identifier_to_tuple(identifier)
        if not isinstance(schema, Schema):
            raise TypeError("the schema must be one of Iceberg")
        place = location or self._bucket.location(name)
        metadata = new_table_metadata(schema, partition_spec, sort_order, place, properties)
        return self.first(name, metadata)

    @override
    def first(self, identifier: Identifier, metadata: TableMetadata) -> Table:
        if self._latest(identifier) or not self._put(identifier, 1, metadata):
            raise ice.TableAlreadyExistsError(f"{'.'.join(identifier)} exists")
        self._tell(identifier, 1)
        return self._table(identifier, 1, metadata)

    @override
    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Puts the next number. Raises CommitFailedException where the table has moved."""
        name = table.name()
        number, base = self._newest(name)
        for requirement in requirements:
            requirement.validate(base)
        before = self._path(name, number)
        metadata = update_table_metadata(base, updates, metadata_location=before)
        if not self._put(name, number + 1, metadata):
            raise ice.CommitFailedException(f"{before} is not the newest any more")
        reach("iceberg.bucket-committed")
        self._tell(name, number + 1)
        return CommitTableResponse.model_validate(
            {"metadata": metadata, "metadata-location": self._path(name, number + 1)}
        )

    @override
    def begun(self, table: Table) -> Table:
        """Raises PermanentError for a store in which two drivers could take the same number."""
        number, metadata = self._newest(table.name())
        text = self._read(table.name(), number)
        path = self._path(table.name(), number)
        if self._bucket.on_s3 and text and put_new(self._bucket.store, path[len(S3) :], text):
            raise PermanentError(
                f"the store of {self._bucket.bucket} ignores `If-None-Match`, by which of two "
                "drivers one commits: use a store that honours it, as AWS does"
            )
        return self._table(table.name(), number, metadata)

    @override
    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """The folders that have a folder `metadata`."""
        levels = self.identifier_to_tuple(namespace)
        place = self._bucket.location(levels)
        io = self._io(place)
        known = [one for one in files(io, place) if one.type == fs.FileType.Directory]
        names = sorted(one.base_name for one in known)
        return [(*levels, name) for name in names if files(io, f"{place}/{name}/metadata")]

    @override
    def create_namespace(
        self, namespace: str | Identifier, properties: Properties = EMPTY_DICT
    ) -> None:
        """Nothing: a namespace is a part of a path."""

    @override
    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        """None: nothing is kept beside tables."""
        return {}

    def _table(self, name: Identifier, number: int, metadata: TableMetadata) -> Table:
        path = self._path(name, number)
        return Table(name, metadata, path, self._io(metadata.location), self)

    def _newest(self, name: Identifier) -> tuple[int, TableMetadata]:
        found = self._latest(name)
        if found is None:
            raise ice.NoSuchTableError(f"{self._bucket.location(name)} holds no table")
        return found

    def _latest(self, name: Identifier) -> tuple[int, TableMetadata] | None:
        """From the newest that is known, hinted at or listed, number by number to the last one."""
        known = self._known.get(name)
        found = self._followed(name, known[0] + 1 if known else self._hinted(name), known)
        if found is None and (listed := self._listed(name)):
            found = self._followed(name, listed, None)
            if found is None:
                raise PermanentError(
                    f"{self._path(name, listed)} cannot be read, and is the newest metadata file "
                    "of a table: restore the file, or move its folder away and begin again"
                )
        if found is not None:
            self._known[name] = found
        return found

    def _followed(
        self, name: Identifier, number: int, found: tuple[int, TableMetadata] | None
    ) -> tuple[int, TableMetadata] | None:
        """From a number on to the last one that is there."""
        for _ in range(_JUMPS):
            text = self._read(name, number)
            if text is None:
                break
            if text.isdigit():  # emptied: the file that it names was the newest then
                number = max(int(text), number + 1)
                continue
            found = number, TableMetadataUtil.parse_raw(text.decode())
            number += 1
        else:
            raise TransientError(
                f"{self._path(name, number)}: others commit faster than it is read"
            )
        return found

    def _hinted(self, name: Identifier) -> int:
        """Where to begin; 0, which no file has, where nothing is said."""
        with suppress(FileNotFoundError, ValueError):
            return int(self._content(f"{self._folder(name)}/{HINT}"))
        return 0

    def _listed(self, name: Identifier) -> int:
        """The highest number in the folder; 0 where there is no table.

        Raises PermanentError for a table of another program, whose files have other names.
        """
        folder = self._folder(name)
        names = [one.base_name for one in files(self._io(folder), folder)]
        numbers = [int(found[1]) for found in map(_NUMBERED.fullmatch, names) if found]
        foreign = [one for one in names if one.endswith(_METADATA)]
        if foreign and not numbers:
            raise PermanentError(
                f"{folder} has {max(foreign)}, of a table that another program "
                "has made there: move it away, or choose another prefix"
            )
        return max(numbers, default=0)

    def _read(self, name: Identifier, number: int) -> bytes | None:
        try:
            return self._content(self._path(name, number))
        except FileNotFoundError:
            return None

    def _content(self, path: str) -> bytes:
        with self._io(path).new_input(path).open() as file:
            return file.read()

    def _put(self, name: Identifier, number: int, metadata: TableMetadata) -> bool:
        text = metadata.model_dump_json(by_alias=True, exclude_none=True).encode()
        path = self._path(name, number)
        if self._bucket.on_s3:
            made = put_new(self._bucket.store, path[len(S3) :], text)
        else:
            made = _link(path, text)
        if made:
            self._known[name] = number, metadata
        return made

    def _tell(self, name: Identifier, number: int) -> None:
        """The number to readers, and who comes late to the oldest. The table does not need it."""
        try:
            if number > KEPT + 1:
                self._write(self._path(name, number - KEPT - 1), str(number).encode())
            self._hint(name, number)
        except OSError as error:
            log.warning("%s: its %s is late: %s", self._bucket.location(name), HINT, error)

    def _hint(self, name: Identifier, number: int) -> None:
        """Of drivers that write the hint at the same time the last one leaves the newest number.

        Each looks behind its own writing whether there is a newer one.
        """
        if self._hinted(name) > number:
            return
        while True:
            self._write(f"{self._folder(name)}/{HINT}", str(number).encode())
            reach("iceberg.bucket-hinted")
            if self._read(name, number + 1) is None:
                return
            number += 1

    def _write(self, path: str, content: bytes) -> None:
        if not self._bucket.on_s3:
            _unfinished(path, content).rename(_local(path))
            return
        with self._io(path).new_output(path).create(overwrite=True) as file:
            file.write(content)

    def _path(self, name: Identifier, number: int) -> str:
        return f"{self._folder(name)}/v{number}.metadata.json"

    def _folder(self, name: Identifier) -> str:
        return f"{self._bucket.location(name)}/metadata"

    def _io(self, location: str) -> FileIO:
        return load_file_io(dict(self.properties), location)


def _local(path: str) -> Path:
    return Path(urlsplit(path).path)


def _link(path: str, content: bytes) -> bool:
    """A file of the disk that must not exist yet, whole and durable from its first moment.

    The files that it names are durable by then: whoever writes one sees to that.
    """
    unfinished = _unfinished(path, content)
    try:
        _local(path).hardlink_to(unfinished)
    except FileExistsError:
        return False
    finally:
        unfinished.unlink()
    sync(_local(path).parent)
    return True


def _unfinished(path: str, content: bytes) -> Path:
    """A durable file under a name that no reader looks for."""
    folder = _local(path).parent
    make_folder(folder)
    found = folder / f".{uuid.uuid4().hex}"
    found.write_bytes(content)
    sync(found)
    return found
