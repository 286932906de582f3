"""The REST catalog with deadlines, and one of its kind for all sessions of a process.

Each catalog and each object store's client has connections of its own: one for each of two hundred
open flows would use up the descriptors of the process.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import Any, NoReturn
from weakref import WeakValueDictionary

from pyarrow.fs import FileSystem
from pyiceberg import exceptions as ice
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io import PY_IO_IMPL, FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

from dataflow_assets.connectors.iceberg.connection import IcebergConnection
from dataflow_assets.connectors.iceberg.errors import GONE, translated
from dataflow_assets.errors import PermanentError

TIMEOUT = (5.0, 60.0)  # seconds to connect, seconds to answer
CONNECTIONS = 8  # of a catalog at once; who comes later waits
SHARED_SECONDS = 60.0
"""Who connects later gets a catalog of its own: a token that is refused for good heals by that."""
STORES = 16  # clients of object stores that stay: one for each bucket and its credentials
_FILES = ("s3.", "client.", "gcs.", "adls.", "hdfs.")  # what a store's client is made of


class _Deadline(HTTPAdapter):
    """Never waits without end and never sends twice: a commit repeated unseen is a lost answer."""

    def __init__(self) -> None:
        super().__init__(max_retries=0, pool_maxsize=CONNECTIONS, pool_block=True)

    def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:
        options["timeout"] = options.get("timeout") or TIMEOUT
        return super().send(request, *args, **options)


class RemoteFiles(PyArrowFileIO):
    """Files in object stores only: a catalog's answer must not choose files of this machine.

    Every look at a table makes one of these; the client behind it is shared.
    """

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> FileSystem:
        known = [(k, str(v)) for k, v in self.properties.items() if k.startswith(_FILES)]
        key = (os.getpid(), scheme, netloc, *sorted(known))
        with _sharing:
            found = _stores.pop(key, None) or super()._initialize_fs(scheme, netloc)
            _stores[key] = found  # the one used last comes last
            for unused in [*_stores][:-STORES]:
                del _stores[unused]
        return found

    def _initialize_local_fs(self) -> NoReturn:
        raise PermanentError(
            "the catalog names a local path for a file of the table; files must be in an object "
            "store such as s3://"
        )


_sharing = threading.Lock()
_stores: dict[tuple[Any, ...], FileSystem] = {}
REMOTE_FILES = {PY_IO_IMPL: f"{RemoteFiles.__module__}.{RemoteFiles.__qualname__}"}
"""Go over whatever a catalog asks for: it may name any class that can be imported."""


class BoundedCatalog(RestCatalog):
    """PyIceberg's own catalog has no option for time-outs."""

    def __init__(self, name: str, **properties: Any) -> None:
        self.connected_at = time.monotonic()
        super().__init__(name, **properties)

    def _config_headers(self, session: Session) -> None:
        """Called first on every session, before anything is sent: the one place to add adapters."""
        super()._config_headers(session)
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Deadline())

    def _load_file_io(
        self, properties: Properties = EMPTY_DICT, location: str | None = None
    ) -> FileIO:
        """Called for every table, with what the catalog and the table ask for."""
        return super()._load_file_io({**properties, **REMOTE_FILES}, location)

    def table(self, identifier: Identifier) -> Table | None:
        """The table as it stands now; None where it or its namespace is missing."""
        with suppress(*GONE):
            found: Table = self.load_table(identifier)
            return found
        return None

    def made(
        self,
        identifier: Identifier,
        schema: Schema,
        properties: dict[str, str],
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        order: SortOrder = UNSORTED_SORT_ORDER,
    ) -> Table:
        """A new table; the one that stands there where somebody was quicker."""
        try:
            new: Table = self.create_table(
                identifier, schema, partition_spec=spec, sort_order=order, properties=properties
            )
        except ice.TableAlreadyExistsError:
            new = self.load_table(identifier)
        return new


def connect(settings: IcebergConnection, what: str = "reach the catalog") -> BoundedCatalog:
    """A catalog that answers, or has just done so. Raises TransientError or PermanentError."""
    properties = settings.catalog_properties()
    key = (os.getpid(), repr(sorted(properties.items())))
    found = _catalogs.get(key)
    if found is None or time.monotonic() - found.connected_at > SHARED_SECONDS:
        with translated(settings, what):
            found = BoundedCatalog("dataflow", **properties)
        _catalogs[key] = found
    return found


_catalogs: WeakValueDictionary[tuple[int, str], BoundedCatalog] = WeakValueDictionary()
