"""Tables without a catalog: of each, the newest numbered metadata file in its folder is the truth.

`metadata/v7.metadata.json` holds the table after its seventh commit. A commit puts the next number,
which must not exist yet: of two drivers one does, wherever they run, and the other one finds the
number taken. `metadata/version-hint.text` says the number to readers that know paths only; it
is written behind the commit, so that it may be late by one, and never names what was not committed.

A number is never free again: an old file is not deleted, its content is replaced by the number
of the newest file. A driver that was away for long cannot commit where others have been.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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
from dataflow_assets.connectors.iceberg.table_catalog import TableCatalog
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.failpoints import reach
from dataflow_assets.sdk.conditional_put import put_new

log = logging.getLogger(__name__)

HINT = "version-hint.text"
KEPT = 100  # metadata files that stay readable, as the log in the metadata names them
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

    def first(self, identifier: Identifier, metadata: TableMetadata) -> Table:
        """A table with the very metadata, field ids included; raises TableAlreadyExistsError."""
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
        """From the newest that is known, or hinted at, number by number to the last one."""
        found = self._known.get(name)
        number = found[0] + 1 if found else self._hinted(name)
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
        if found is not None:
            self._known[name] = found
        return found

    def _hinted(self, name: Identifier) -> int:
        """Where to begin; the first number where nothing is said."""
        with suppress(FileNotFoundError, ValueError):
            return int(self._content(f"{self._folder(name)}/{HINT}"))
        return 1

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
        text = str(number).encode()
        try:
            self._write(f"{self._folder(name)}/{HINT}", text)
            if number > KEPT + 1:
                self._write(self._path(name, number - KEPT - 1), text)
        except OSError as error:
            log.warning("%s: its %s is late: %s", self._bucket.location(name), HINT, error)

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
    """A file of the disk that must not exist yet, whole from its first moment.

    All that was written before survives a loss of power when it does: data files, too.
    """
    unfinished = _unfinished(path, content)
    os.sync()
    try:
        _local(path).hardlink_to(unfinished)
    except FileExistsError:
        return False
    finally:
        unfinished.unlink()
    _sync(_local(path).parent)
    return True


def _unfinished(path: str, content: bytes) -> Path:
    """A file under a name that no reader looks for."""
    folder = _local(path).parent
    folder.mkdir(parents=True, exist_ok=True)
    found = folder / f".{uuid.uuid4().hex}"
    found.write_bytes(content)
    return found


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
